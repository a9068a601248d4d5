/* Reading a report back: the same bytes come out again; what is no report is refused with the
 * reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/arch/notes.h"
#include "core/report/tables.h"
#include "tests/unit/report_sample.h"
#include "tests/unit/scratch.h"
#include "tools/report/report_load.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *write_with(enum gc_status (*write_report)(const struct gc_report *, int),
                        const struct gc_report *report, size_t *bytes)
{
    const int fd = scratch_fd();
    assert_int_equal(write_report(report, fd), GC_OK);
    char *text = scratch_read(fd, bytes);
    close(fd);
    return text;
}

static void a_report_comes_back_as_it_was(void **state)
{
    struct report_loaded loaded;
    char why[256];
    size_t bytes;
    (void)state;
    char *first = write_with(gc_report_write_json, report_sample("tr\"ain"), &bytes);
    assert_int_equal(report_load(first, bytes, &loaded, why, sizeof(why)), GC_OK);
    char *second = write_with(gc_report_write_json, &loaded.report, &bytes);
    json_t *a = json_loads(first, 0, NULL);
    json_t *b = json_loads(second, 0, NULL);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    free(first);
    free(second);
    report_unload(&loaded);
}

static void the_text_is_the_librarys(void **state)
{
    struct report_loaded loaded;
    char why[256];
    size_t bytes;
    (void)state;
    char *direct = write_with(gc_report_write_text, report_sample(NULL), &bytes);
    char *json = write_with(gc_report_write_json, report_sample(NULL), &bytes);
    assert_int_equal(report_load(json, bytes, &loaded, why, sizeof(why)), GC_OK);
    char *loaded_text = write_with(gc_report_write_text, &loaded.report, &bytes);
    /* Equal figures are listed in the order of their names' first appearance, so lines may swap. */
    assert_int_equal(strlen(direct), strlen(loaded_text));
    assert_non_null(strstr(loaded_text, "never freed: 1234 allocations, 5.0 GiB"));
    assert_non_null(strstr(loaded_text, "driver 12.4"));
    free(direct);
    free(json);
    free(loaded_text);
    report_unload(&loaded);
}

/* Without the groups, those of the leaks that are listed; without the frame, the one of the
 * objects.
 */
static void an_earlier_report_has_its_leaks_grouped(void **state)
{
    struct report_loaded loaded;
    char why[256];
    size_t bytes;
    (void)state;
    char *text = write_with(gc_report_write_json, report_sample(NULL), &bytes);
    json_t *root = json_loads(text, 0, NULL);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    json_object_del(device, "leak_groups");
    free(text);
    text = json_dumps(root, 0);
    assert_int_equal(report_load(text, strlen(text), &loaded, why, sizeof(why)), GC_OK);
    const struct gc_report_leaks *leaks = &loaded.leaks[0];
    /* Each leak has a stack of its own number: equal ones are joined, as --symbols does. */
    const uint32_t count = gc_report_join_leaks(
        &loaded.report, (struct gc_leak_group *)leaks->groups, leaks->group_count);
    uint64_t allocations = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        allocations += leaks->groups[i].count;
        sum += leaks->groups[i].bytes;
    }
    assert_int_equal(count, 6); /* two stacks, and four sizes without one */
    assert_int_equal(allocations, REPORT_SAMPLE_LEAK_COUNT);
    assert_int_equal(sum, (UINT64_C(100) * 12 - 66) << 20);
    assert_int_equal(leaks->groups[0].count, 4);
    json_decref(root);
    free(text);
    report_unload(&loaded);
}

static const struct gc_report *sample_with_estimate(void)
{
    static struct gc_report report;
    static struct gc_report_estimate estimate;
    static struct gc_notes notes;
    report = *report_sample(NULL);
    estimate = (struct gc_report_estimate){.model = "/models/one",
                                           .batch = 2,
                                           .seq_len = 4096,
                                           .context_bytes = 1000,
                                           .coverage_thousandths = 833,
                                           .budget_bytes = UINT64_C(1) << 30,
                                           .fits = true,
                                           .device_count = 2,
                                           .notes = &notes};
    notes.count = 0;
    gc_notes_add(&notes, "what the first remark says", NULL);
    gc_notes_add(&notes, "what the second says", NULL);
    estimate.devices[0] = (struct gc_report_estimate_device){20000, UINT64_MAX};
    estimate.devices[1] = (struct gc_report_estimate_device){8000, 1 << 20};
    unsigned inference = 0;
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++) {
        if (gc_estimate_part_is_of((enum gc_estimate_part)part, false))
            estimate.sizes.parts[part] = 1000 * ++inference;
        estimate.sizes.peak_bytes += estimate.sizes.parts[part];
    }
    report.facts.estimate = &estimate;
    return &report;
}

/* 28,000 estimated, 1,000 of it context. */
static void an_estimate_stands_beside_what_was_measured(void **state)
{
    struct report_loaded loaded;
    char why[256];
    size_t bytes;
    (void)state;
    char *first = write_with(gc_report_write_json, sample_with_estimate(), &bytes);
    assert_int_equal(report_load(first, bytes, &loaded, why, sizeof(why)), GC_OK);
    char *second = write_with(gc_report_write_json, &loaded.report, &bytes);
    char *text = write_with(gc_report_write_text, &loaded.report, &bytes);
    json_t *root = json_loads(first, 0, NULL);
    json_t *again = json_loads(second, 0, NULL);
    assert_true(json_equal(root, again));
    json_decref(again);
    json_t *estimate = json_object_get(root, "estimate");
    const uint64_t measured =
        (uint64_t)json_integer_value(json_object_get(estimate, "measured_peak_bytes"));
    assert_int_equal(measured, gc_snapshot_measured_bytes(loaded.report.snapshot));
    const uint64_t contexts = gc_snapshot_context_bytes(loaded.report.snapshot);
    assert_int_equal(json_integer_value(json_object_get(estimate, "measured_context_bytes")),
                     contexts);
    assert_true(contexts > 0 && measured - contexts > 27000);
    assert_int_equal(json_integer_value(json_object_get(estimate, "error_thousandths")),
                     -(int64_t)((measured - contexts - 27000) * 1000 / (measured - contexts)));
    assert_string_equal(json_string_value(json_object_get(root, "gate")), "fits");
    assert_non_null(strstr(text, "-- estimate of /models/one\n"));
    assert_non_null(strstr(text, "within the budget of 1.0 GiB"));
    assert_non_null(strstr(text, "too little by"));
    assert_non_null(strstr(text, "   device 1   7.8 KiB of 1.0 MiB, held at most "));
    assert_non_null(strstr(text, "   notes      what the first remark says\n"));
    assert_non_null(strstr(text, " and 1 more: gpucache estimate lists all\n"));
    json_decref(root);
    free(first);
    free(second);
    free(text);
    report_unload(&loaded);
}

static void assert_refused(const char *text, const char *wanted)
{
    struct report_loaded loaded;
    char why[256];
    assert_int_equal(report_load(text, strlen(text), &loaded, why, sizeof(why)), GC_FORMAT);
    if (strstr(why, wanted) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", wanted, why);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    assert_refused("", "was it cut off?");
    assert_refused("{\"schema\": \"gpucache-report/1\",\n\"pid\"", "in the middle of line 2");
    assert_refused("root:x:0", "not JSON: line 1");
    assert_refused("[]", "not a gpucache report");
    assert_refused("{}", "not a gpucache report");
    assert_refused("{\"schema\": 1}", "not a gpucache report");
    assert_refused("{\"schema\": \"gpucache-report/2\"}", "its schema is gpucache-report/2");
    assert_refused("{\"schema\": \"gpucache-report/1\"}", "\"latency_ns\" is missing");
}

static void assert_needed(json_t *root, const char *name)
{
    struct report_loaded loaded;
    char why[256];
    char *text = json_dumps(root, 0);
    if (report_load(text, strlen(text), &loaded, why, sizeof(why)) != GC_FORMAT)
        fail_msg("taken without a good \"%s\"", name);
    free(text);
}

/* An earlier library did not write it: the report is taken, and a warning of it names the key. */
static void assert_noted(json_t *root, const char *name)
{
    struct report_loaded loaded;
    char why[256];
    char *text = json_dumps(root, 0);
    assert_int_equal(report_load(text, strlen(text), &loaded, why, sizeof(why)), GC_OK);
    const struct gc_report_facts *facts = &loaded.report.facts;
    assert_int_equal(facts->warning_count, json_array_size(json_object_get(root, "warnings")) + 1);
    const char *note = facts->warnings[facts->warning_count - 1];
    const char *key = strrchr(note, ' ') + 1;
    assert_non_null(strstr(note, "not in this report, which gpucache 1.2.3 wrote"));
    assert_string_equal(key, name);
    report_unload(&loaded);
    free(text);
}

static bool is_listed(const char *const *names, const char *name)
{
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Takes each key of the object away, and gives each another type. */
static void damage(json_t *root, json_t *object, const char *const *optional,
                   const char *const *later)
{
    json_t *keys = json_array();
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(object, key, value) json_array_append_new(keys, json_string(key));
    assert_true(json_array_size(keys) > 0);
    json_array_foreach(keys, i, value)
    {
        const char *name = json_string_value(value);
        if (is_listed(optional, name))
            continue;
        json_t *before = json_incref(json_object_get(object, name));
        json_object_del(object, name);
        if (is_listed(later, name))
            assert_noted(root, name);
        else
            assert_needed(root, name);
        json_object_set_new(object, name, json_true());
        assert_needed(root, name);
        json_object_set_new(object, name, json_integer(-1));
        assert_needed(root, name);
        json_object_set_new(object, name, before);
    }
    json_decref(keys);
}

static void every_key_is_needed_in_its_type(void **state)
{
    static const char *const optional_root[] = {"advice",   "settings", "reuse", "driver_calls",
                                                "estimate", "gate",     "turns", "verdict",
                                                "problem",  NULL};
    static const char *const optional_device[] = {
        "backend", "direct_bytes", "tenants", "plan", "call_sites", "spilled", "leak_groups", NULL};
    static const char *const optional_leak[] = {"stack", NULL};
    static const char *const optional_group[] = {"stack", "frame", NULL};
    static const char *const optional_fragmentation[] = {"ratio", NULL};
    static const char *const optional_latency[] = {"count", "histogram", NULL};
    static const char *const optional_estimate[] = {"fits",
                                                    "measured_peak_bytes",
                                                    "error_thousandths",
                                                    "measured_context_bytes",
                                                    "devices",
                                                    "warnings",
                                                    NULL};
    static const char *const optional_share[] = {"ordinal", "measured_peak_bytes", "budget_bytes",
                                                 NULL};
    static const char *const optional_tenant[] = {"removed", "paused", NULL};
    static const char *const optional_plan[] = {"fallback", NULL};
    static const char *const none[] = {NULL};
    static const char *const later_device[] = {"backend_reason",
                                               "idle_bytes",
                                               "group",
                                               "group_limit_bytes",
                                               "ordered_bytes",
                                               "context_bytes",
                                               "driver_bytes",
                                               "misuse_count",
                                               "swapped_bytes",
                                               "spilled_bytes",
                                               "spill_count",
                                               "kept_bytes",
                                               "uncopied_bytes",
                                               "refused_bytes",
                                               "sufficient_bytes",
                                               NULL};
    static const char *const later_fragmentation[] = {"stitchable_bytes", "stuck_bytes", NULL};
    static const char *const later_estimate[] = {
#define GC_ESTIMATE_PART(name, ...) #name "_bytes",
#include "core/report/estimate_parts.def"
#undef GC_ESTIMATE_PART
        "context_bytes", NULL};
    static const char *const later_tenant[] = {"pending_bytes", "idle_bytes", "swapped_bytes",
                                               "alloc_count",   "free_count", "hit_count",
                                               "miss_count",    "oom_count",  NULL};
    static const char *const later_plan[] = {"followed", NULL};
    static const char *const later_reasons[] = {
#define GC_FOLLOW_REASON(name, key, text) #key,
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
        NULL};
    json_error_t error;
    size_t bytes;
    (void)state;
    char *text = write_with(gc_report_write_json, sample_with_estimate(), &bytes);
    json_t *root = json_loads(text, 0, &error);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    static const char *const later_root[] = {"stacks_lost", NULL};
    damage(root, root, optional_root, later_root);
    damage(root, json_array_get(json_object_get(root, "devices"), 1), optional_device,
           later_device);
    damage(root, json_object_get(device, "reserved_bytes"), none, none);
    damage(root, json_object_get(json_object_get(device, "by_api"), "cudaMalloc"), none, none);
    damage(root, json_object_get(device, "fragmentation"), optional_fragmentation,
           later_fragmentation);
    damage(root, json_array_get(json_object_get(device, "leaks"), 3), optional_leak, none);
    damage(root, json_array_get(json_object_get(device, "leak_groups"), 1), optional_group, none);
    damage(root, json_object_get(json_object_get(root, "latency_ns"), "alloc"), optional_latency,
           none);
    damage(root, json_object_get(root, "turns"), none, none);
    json_t *estimate = json_object_get(root, "estimate");
    damage(root, estimate, optional_estimate, later_estimate);
    damage(root, json_array_get(json_object_get(estimate, "devices"), 1), optional_share, none);
    damage(root,
           json_array_get(
               json_object_get(json_array_get(json_object_get(root, "devices"), 1), "tenants"), 0),
           optional_tenant, later_tenant);
    json_t *plan = json_object_get(json_array_get(json_object_get(root, "devices"), 1), "plan");
    damage(root, plan, optional_plan, later_plan);
    damage(root, json_object_get(plan, "reasons"), none, later_reasons);
    damage(root, json_object_get(json_object_get(plan, "reasons"), "occupied"), none, none);
    json_decref(root);
    free(text);
}

static void cut_files_are_refused(void **state)
{
    struct report_loaded loaded;
    char why[256];
    size_t bytes;
    (void)state;
    char *text = write_with(gc_report_write_json, report_sample(NULL), &bytes);
    for (size_t cut = 0; cut + 2 < bytes; cut += 7)
        assert_int_equal(report_load(text, cut, &loaded, why, sizeof(why)), GC_FORMAT);
    free(text);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_comes_back_as_it_was),
        cmocka_unit_test(the_text_is_the_librarys),
        cmocka_unit_test(an_earlier_report_has_its_leaks_grouped),
        cmocka_unit_test(an_estimate_stands_beside_what_was_measured),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(every_key_is_needed_in_its_type),
        cmocka_unit_test(cut_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
