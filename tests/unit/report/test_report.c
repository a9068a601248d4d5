/* The report: every key of the schema in its order, escaping, the text, and where it is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/config/options.h"
#include "core/report/report.h"
#include "core/report/tables.h"
#include "tests/unit/report_sample.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static json_t *written_json(const struct gc_report *report)
{
    json_error_t error;
    const int fd = scratch_fd();
    assert_int_equal(gc_report_write_json(report, fd), GC_OK);
    char *text = scratch_read(fd, NULL);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("line %d: %s in:\n%s", error.line, error.text, text);
    free(text);
    close(fd);
    return root;
}

/* The wanted keys are there in this order; others may stand behind or between. */
static void assert_keys(json_t *object, const char *const *keys)
{
    const char *key;
    json_t *value;
    assert_true(json_is_object(object));
    json_object_foreach(object, key, value)
    {
        if (*keys != NULL && strcmp(*keys, key) == 0)
            keys++;
    }
    if (*keys != NULL)
        fail_msg("\"%s\" is missing or out of order", *keys);
}

static const char *const root_keys[] = {
    "schema",     "version",    "pid",  "program",  "command",        "host",
    "start_unix", "duration_s", "mode", "backend",  "driver_version", "devices",
    "latency_ns", "estimate",   "gate", "warnings", "stacks_lost",    "turns",
    "verdict",    "problem",    NULL};
static const char *const device_keys[] = {"ordinal",
                                          "uuid",
                                          "name",
                                          "total_bytes",
                                          "limit_bytes",
                                          "group",
                                          "group_limit_bytes",
                                          "requested_bytes",
                                          "allocated_bytes",
                                          "reserved_bytes",
                                          "pending_bytes",
                                          "host_metadata_bytes",
                                          "alloc_count",
                                          "free_count",
                                          "hit_count",
                                          "miss_count",
                                          "oom_count",
                                          "retry_count",
                                          "trim_count",
                                          "fence_count",
                                          "invalid_free_count",
                                          "driver_calls",
                                          "by_api",
                                          "fragmentation",
                                          "leaks",
                                          "leak_count",
                                          "leak_bytes",
                                          "call_sites",
                                          "tenants",
                                          NULL};
static const char *const tenant_keys[] = {
    "name",          "removed",         "paused",          "capacity_bytes",
    "limit_bytes",   "requested_bytes", "allocated_bytes", "reserved_bytes",
    "pending_bytes", "idle_bytes",      "alloc_count",     "free_count",
    "hit_count",     "miss_count",      "oom_count",       NULL};
static const char *const gauge_keys[] = {"current", "peak", NULL};
static const char *const api_keys[] = {"count", "bytes", "current_bytes", "peak_bytes", NULL};
static const char *const fragmentation_keys[] = {"free_bytes",       "largest_free_bytes", "ratio",
                                                 "stitchable_bytes", "stuck_bytes",        NULL};
static const char *const site_keys[] = {"count",      "bytes", "current_count", "current_bytes",
                                        "peak_bytes", "stack", "frame",         NULL};
static const char *const leak_keys[] = {"address", "bytes", "api", "stack", NULL};
static const char *const group_keys[] = {"count", "bytes", "largest_bytes", "address",
                                         "api",   "frame", "stack",         NULL};
static const char *const latency_keys[] = {"p50", "p99", "max", NULL};

static void every_key_of_the_schema_is_there(void **state)
{
    static const char *const both[] = {"alloc", "free", NULL};
    (void)state;
    json_t *root = written_json(report_sample(NULL));
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_keys(root, root_keys);
    assert_keys(device, device_keys);
    json_t *other = json_array_get(json_object_get(root, "devices"), 1);
    assert_keys(json_array_get(json_object_get(other, "tenants"), 0), tenant_keys);
    assert_keys(json_object_get(device, "requested_bytes"), gauge_keys);
    assert_keys(json_object_get(device, "pending_bytes"), gauge_keys);
    assert_keys(json_object_get(json_object_get(device, "by_api"), "cudaMalloc"), api_keys);
    assert_keys(json_object_get(device, "fragmentation"), fragmentation_keys);
    assert_keys(json_array_get(json_object_get(device, "leaks"), 0), leak_keys);
    assert_keys(json_array_get(json_object_get(device, "leak_groups"), 0), group_keys);
    assert_keys(json_array_get(json_object_get(device, "call_sites"), 0), site_keys);
    assert_keys(json_object_get(root, "latency_ns"), both);
    assert_keys(json_object_get(json_object_get(root, "latency_ns"), "free"), latency_keys);
    json_decref(root);
}

static json_int_t integer(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void values_are_those_given(void **state)
{
    (void)state;
    json_t *root = written_json(report_sample(NULL));
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    json_t *other = json_array_get(json_object_get(root, "devices"), 1);
    assert_string_equal(json_string_value(json_object_get(root, "schema")), "gpucache-report/1");
    assert_int_equal(integer(root, "pid"), 4242);
    assert_int_equal(integer(root, "start_unix"), 1700000000);
    assert_true(json_real_value(json_object_get(root, "duration_s")) == 1.23456789);
    assert_true(json_is_null(json_object_get(root, "estimate")));
    assert_true(json_is_null(json_object_get(root, "gate")));
    assert_int_equal(json_array_size(json_object_get(root, "warnings")), 1);
    assert_int_equal(integer(device, "limit_bytes"), INT64_C(4) << 30);
    assert_true(json_is_null(json_object_get(other, "limit_bytes")));
    assert_true(json_is_null(json_object_get(device, "group")));
    assert_true(json_is_null(json_object_get(device, "group_limit_bytes")));
    assert_string_equal(json_string_value(json_object_get(other, "group")), "team");
    assert_int_equal(integer(other, "group_limit_bytes"), INT64_C(12) << 30);
    json_t *tenant = json_array_get(json_object_get(other, "tenants"), 0);
    assert_int_equal(json_array_size(json_object_get(device, "tenants")), 0);
    assert_int_equal(json_array_size(json_object_get(other, "tenants")), 2);
    assert_string_equal(json_string_value(json_object_get(tenant, "name")), "llama");
    assert_int_equal(integer(tenant, "limit_bytes"), INT64_C(24) << 30);
    assert_int_equal(integer(json_object_get(tenant, "reserved_bytes"), "peak"), INT64_C(6) << 30);
    assert_int_equal(integer(tenant, "oom_count"), 13);
    tenant = json_array_get(json_object_get(other, "tenants"), 1);
    assert_true(json_is_null(json_object_get(tenant, "limit_bytes")));
    assert_true(json_is_true(json_object_get(tenant, "removed")));
    assert_true(json_is_false(json_object_get(tenant, "paused")));
    assert_int_equal(integer(json_object_get(device, "reserved_bytes"), "current"), 102);
    assert_int_equal(integer(json_object_get(device, "reserved_bytes"), "peak"), 102000);
    assert_int_equal(integer(device, "alloc_count"), 104);
    assert_int_equal(integer(device, "invalid_free_count"), 112);
    assert_true(json_real_value(
                    json_object_get(json_object_get(device, "fragmentation"), "ratio")) == 0.75);
    assert_int_equal(integer(json_object_get(device, "driver_calls"), "cuMemAlloc_v2"), 1);
    assert_null(json_object_get(json_object_get(device, "driver_calls"), "cudaMalloc"));
    assert_null(json_object_get(json_object_get(device, "by_api"), "cuMemFree_v2"));
    assert_int_equal(
        integer(json_object_get(json_object_get(device, "by_api"), "cudaMalloc"), "peak_bytes"),
        1000);
    assert_int_equal(integer(json_object_get(root, "driver_calls"), "cuInit"), 1);
    assert_int_equal(json_array_size(json_object_get(device, "leaks")), REPORT_SAMPLE_LEAK_COUNT);
    assert_int_equal(integer(device, "leak_count"), 1234);
    const json_t *stack =
        json_object_get(json_array_get(json_object_get(device, "leaks"), 1), "stack");
    assert_int_equal(json_array_size(stack), 2);
    assert_string_equal(json_string_value(json_array_get(stack, 0)),
                        "inner+0x12 (/opt/</script>\n/app+0x345)");
    assert_int_equal(json_array_size(json_object_get(other, "leaks")), 0);
    json_t *group = json_array_get(json_object_get(device, "leak_groups"), 0);
    assert_int_equal(integer(group, "count"), 512);
    assert_string_equal(json_string_value(json_object_get(group, "frame")),
                        "step (/home/train.py:12)");
    group = json_array_get(json_object_get(device, "leak_groups"), 2);
    assert_true(json_is_null(json_object_get(group, "frame")));
    assert_string_equal(json_string_value(json_object_get(root, "problem")), "refused");
    assert_string_equal(
        json_string_value(json_object_get(root, "verdict")),
        "out of memory: 108 requests refused on device 0 (and 1 other), limit 4.0 GiB");
    json_t *leak = json_array_get(json_object_get(device, "leaks"), 1);
    assert_string_equal(json_string_value(json_object_get(leak, "address")), "0x7f0000000001");
    assert_int_equal(integer(leak, "bytes"), INT64_C(99) << 20);
    assert_string_equal(json_string_value(json_object_get(leak, "api")), "cudaMalloc");
    json_decref(root);
}

/* Text and metrics read a number of 64 bits; only a gauge has a peak, and a meaning is for numbers.
 */
static void faces_are_of_numbers(void **state)
{
    static const struct gc_figures *const tables[] = {
        &gc_report_device_figures, &gc_report_api_figures,  &gc_report_tenant_figures,
        &gc_report_site_figures,   &gc_report_plan_figures, &gc_report_reason_figures,
        &gc_report_turn_figures,   &gc_report_leak_figures};
    (void)state;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        for (size_t j = 0; j < tables[i]->count; j++) {
            const struct gc_figure *figure = &tables[i]->figures[j];
            const bool has_face = figure->face.metric != NULL || figure->face.column > 0;
            const bool has_peak = figure->peak.metric != NULL || figure->peak.column > 0;
            if ((has_face || figure->text != NULL) && figure->type > GC_FIGURE_GAUGE)
                fail_msg("%s is no number", figure->key);
            if (has_peak && figure->type != GC_FIGURE_GAUGE)
                fail_msg("%s has no peak", figure->key);
        }
    }
}

static void odd_names_are_escaped(void **state)
{
    (void)state;
    json_t *root = written_json(report_sample("a\"b\\c\n\xff\xc3\xa4"));
    assert_string_equal(json_string_value(json_object_get(root, "program")),
                        "a\"b\\c\n\xef\xbf\xbd\xc3\xa4");
    json_decref(root);
}

/* ---- text ---- */

static char *written_text(const struct gc_report *report)
{
    const int fd = scratch_fd();
    assert_int_equal(gc_report_write_text(report, fd), GC_OK);
    char *text = scratch_read(fd, NULL);
    close(fd);
    return text;
}

static void text_fits_80_columns(void **state)
{
    char long_name[250];
    (void)state;
    memset(long_name, 'n', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    char *text = written_text(report_sample(long_name));
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (length > 80)
            fail_msg("%zu columns: %.*s", length, (int)length, line);
        line += length + 1;
    }
    free(text);
}

/* Sentences go over several lines, indented. */
static void unfold(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        if (strncmp(from, "\n     ", 6) == 0) {
            *to++ = ' ';
            from += 6;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static void text_has_the_main_figures(void **state)
{
    static const char site_leak[] =
        "     step (train.py:12)                         512    4.0 GiB  100.0 MiB\n"
        "       cudaMalloc, the largest at 0x7f0000000000\n"
        "       step (/home/train.py:12)\n";
    static const char graph_leak[] =
        "     cuGraphAddMemAllocNode_with_a_very_...      20   20.0 MiB    1.0 MiB\n"
        "       the largest at 0x7f0000000002\n";
    static const char refused[] =
        "108 requests ran out of memory on device 0, the largest of 1.0 GiB: raise GPUCACHE_LIMIT "
        "from 4.0 GiB to at least 4.5 GiB, or request less";
    static const char *const wanted[] = {
        "   program    train, pid 4242, gpucache 1.2.3\n",
        "driver 12.4",
        "limit 4.0 GiB",
        "no limit of its own\n   group      team, limit 12.0 GiB\n",
        "out of memory on device 1: the limit of its group is 12.0 GiB;",
        "never freed: 1234 allocations, 5.0 GiB",
        site_leak,
        "\n       cudaMalloc at 0x7f0000000001\n",
        graph_leak,
        "... and 701 more allocations, 905.0 MiB\n",
        refused,
        "GPUCACHE_GROUP=team: not in this version",
        "112 frees of addresses without a live allocation",
        "7 allocations have no call stack",
        "... and 3 more\n",
    };
    (void)state;
    char *text = written_text(report_sample(NULL));
    unfold(strstr(text, "-- what to do"));
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strstr(text, wanted[i]) == NULL)
            fail_msg("\"%s\" is missing in:\n%s", wanted[i], text);
    }
    const char *verdict = "== gpucache: out of memory: 108 requests refused on device 0 (and 1 "
                          "other),\n    limit 4.0 GiB\n";
    assert_memory_equal(text, verdict, strlen(verdict));
    assert_null(strstr(text, "0x7f000000000a"));
    assert_null(strstr(text, "\033")); /* no terminal, no colour */
    free(text);
}

static void the_device_held_most_of_comes_first(void **state)
{
    (void)state;
    const struct gc_report *report = report_sample(NULL);
    struct gc_device_snapshot *devices = report->snapshot->devices;
    char *text = written_text(report);
    assert_true(strstr(text, "-- device 0") <
                strstr(text, "-- device 1")); /* equal ones by number */
    free(text);
    devices[1].reserved.peak++;
    text = written_text(report);
    assert_true(strstr(text, "-- device 1") < strstr(text, "-- device 0"));
    assert_non_null(strstr(text, "-- device 0"));
    free(text);
}

static void largest_entry_points_come_first(void **state)
{
    (void)state;
    char *text = written_text(report_sample(NULL));
    const char *largest = strstr(text, "     cuInit ");
    const char *next = strstr(text, "     cuGraphAddMemAllocNode_with_a");
    const char *later = strstr(text, "     entry11 ");
    assert_non_null(largest);
    assert_non_null(next);
    assert_true(largest < next && next < later);
    free(text);
}

/* ---- where it goes, from a core that worked ---- */

#define DEVICE_BYTES (UINT64_C(1) << 30)

static char folder[64];
static struct gc_log log_to;
static struct gc_core *core;
static struct gc_options *options;
static const char *const api_names[] = {"cuMemAlloc_v2", "cuMemFree_v2"};
static uint64_t next_address;

static int mem_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    (void)self, (void)context;
    *address = next_address;
    next_address += (bytes + 0x1fffff) & ~UINT64_C(0x1fffff);
    return 0;
}

static int mem_free(void *self, uint64_t context, uint64_t address)
{
    (void)self, (void)context, (void)address;
    return 0;
}

static int mem_info(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)self, (void)context;
    *free_bytes = *total_bytes = DEVICE_BYTES;
    return 0;
}

static int synchronize(void *self, uint64_t context)
{
    (void)self, (void)context;
    return 0;
}

static uint64_t clock_ns(void *self)
{
    (void)self;
    return 1;
}

static const struct gc_driver driver = {.out_of_memory = 2,
                                        .context_is_gone = 709,
                                        .mem_alloc = mem_alloc,
                                        .mem_free = mem_free,
                                        .mem_info = mem_info,
                                        .synchronize = synchronize,
                                        .clock_ns = clock_ns};

static void allocate(struct gc_context *context, uint64_t bytes)
{
    const struct gc_request request = {.bytes = bytes};
    uint64_t address;
    int code;
    assert_int_equal(gc_alloc(core, context, &request, &address, &code), GC_OK);
}

static int setup(void **state)
{
    const struct gc_device_info info = {
        .total_bytes = DEVICE_BYTES, .name = "Test", .uuid = "GPU-x"};
    struct gc_device *device;
    struct gc_context *context;
    (void)state;
    next_address = UINT64_C(0x100000000);
    scratch_folder(folder, sizeof(folder));
    log_to = (struct gc_log){.level = GC_LOG_WARN, .fd = scratch_fd()};
    assert_int_equal(gc_options_load(NULL, NULL, &options), GC_OK);
    const struct gc_core_config config = {.options = options,
                                          .driver = &driver,
                                          .log = &log_to,
                                          .api_names = api_names,
                                          .api_count = 2};
    assert_int_equal(gc_core_create(&config, &core), GC_OK);
    assert_int_equal(gc_setup_add_device(core, &info, &device), GC_OK);
    assert_int_equal(gc_setup_add_context(core, 7, device, &context), GC_OK);
    allocate(context, 1000);
    allocate(context, 5000000);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gc_core_destroy(core);
    gc_options_free(options);
    close(log_to.fd);
    scratch_remove(folder);
    return 0;
}

static enum gc_status emit(const char *destination)
{
    const struct gc_report *sample = report_sample(NULL);
    return gc_report_emit(core, &sample->facts, api_names, destination, &log_to);
}

static char *log_text(void)
{
    return scratch_read(log_to.fd, NULL);
}

static void json_files_are_whole_and_list_the_leaks(void **state)
{
    char pattern[128];
    char path[128];
    json_error_t error;
    (void)state;
    scratch_path(pattern, sizeof(pattern), folder, "r-%p-%n-%h.json");
    scratch_path(path, sizeof(path), folder, "r-4242-train-node-1.json");
    assert_int_equal(emit(pattern), GC_OK);
    json_t *root = json_load_file(path, 0, &error);
    assert_non_null(root);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_int_equal(integer(device, "leak_count"), 2);
    assert_int_equal(integer(device, "leak_bytes"), 5001000);
    json_t *leaks = json_object_get(device, "leaks");
    assert_int_equal(json_array_size(leaks), 2);
    assert_int_equal(integer(json_array_get(leaks, 0), "bytes"), 5000000);
    assert_int_equal(integer(json_array_get(leaks, 1), "bytes"), 1000);
    json_decref(root);
    char *text = log_text();
    assert_string_equal(text, "");
    free(text);
}

static void a_file_is_replaced_and_nothing_stays_beside_it(void **state)
{
    char path[128];
    char beside[160];
    size_t bytes;
    (void)state;
    scratch_path(path, sizeof(path), folder, "report.txt");
    snprintf(beside, sizeof(beside), "%s.4242.tmp", path);
    scratch_write(path, "old", 3);
    scratch_write(beside, "left over", 9);
    assert_int_equal(emit(path), GC_OK);
    char *text = scratch_file(path, &bytes);
    assert_memory_equal(text, "== gpucache", 11);
    free(text);
    assert_false(scratch_exists(beside));
}

static void assert_not_written(const char *path, const char *why)
{
    char wanted[512];
    scratch_reset(log_to.fd);
    errno = 77;
    assert_int_equal(emit(path), GC_IO);
    assert_int_equal(errno, 77);
    char *text = log_text();
    snprintf(wanted, sizeof(wanted), "gpucache: report %s: %s; not written\n", path, why);
    assert_string_equal(text, wanted);
    free(text);
}

static void failures_give_one_line(void **state)
{
    char path[128];
    char target[128];
    (void)state;
    scratch_path(path, sizeof(path), folder, "link");
    scratch_path(target, sizeof(target), folder, "target");
    assert_int_equal(symlink(target, path), 0);
    assert_not_written(path, "is a symbolic link, not followed");
    assert_false(scratch_exists(target));
    assert_not_written(folder, "Is a directory");
    scratch_path(path, sizeof(path), folder, "missing/report.json");
    assert_not_written(path, "No such file or directory");
    assert_not_written("/dev/full", "No space left on device");
}

static void the_ending_chooses_the_format(void **state)
{
    static const char *const rows[][2] = {{"r.html", "<!doctype html>\n<html lang=\"en\">"},
                                          {"r.prom", "# HELP gpucache_info "},
                                          {"r.json", "{\n  \"schema\": \"gpucache-report/1\""},
                                          {"r.txt", "== gpucache"}};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scratch_path(path, sizeof(path), folder, rows[i][0]);
        assert_int_equal(emit(path), GC_OK);
        char *text = scratch_file(path, NULL);
        assert_memory_equal(text, rows[i][1], strlen(rows[i][1]));
        free(text);
    }
    char *text = log_text();
    assert_string_equal(text, "");
    free(text);
}

/* Foreign text stays inside its JSON string: it can close neither the script nor the page. */
static void no_name_breaks_out_of_the_page(void **state)
{
    static const char *const names[] = {"</script><script>alert(1)</script>", "<!--", "a\"b\\c"};
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_error_t error;
        const int fd = scratch_fd();
        assert_int_equal(gc_report_write_html(report_sample(names[i]), fd), GC_OK);
        char *text = scratch_read(fd, NULL);
        char *data = strstr(text, begin);
        assert_non_null(data);
        data += strlen(begin);
        *strchr(data, '<') = '\0'; /* the script's own end */
        json_t *page = json_loads(data, JSON_REJECT_DUPLICATES, &error);
        if (page == NULL)
            fail_msg("line %d: %s", error.line, error.text);
        json_t *side = json_array_get(json_object_get(page, "sides"), 0);
        assert_string_equal(json_string_value(json_object_get(page, "schema")), "gpucache-page/1");
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(side, "report"), "program")),
            names[i]);
        assert_true(json_is_null(json_object_get(side, "trace")));
        json_decref(page);
        free(text);
        close(fd);
    }
}

static void none_writes_nothing(void **state)
{
    (void)state;
    assert_int_equal(emit("none"), GC_OK);
    assert_false(scratch_exists("none"));
}

static void devices_are_written_in_place(void **state)
{
    struct stat before;
    struct stat after;
    (void)state;
    assert_int_equal(lstat("/dev/null", &before), 0);
    assert_int_equal(emit("/dev/null"), GC_OK);
    assert_int_equal(lstat("/dev/null", &after), 0);
    assert_true(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_the_schema_is_there),
        cmocka_unit_test(values_are_those_given),
        cmocka_unit_test(faces_are_of_numbers),
        cmocka_unit_test(odd_names_are_escaped),
        cmocka_unit_test(text_fits_80_columns),
        cmocka_unit_test(text_has_the_main_figures),
        cmocka_unit_test(the_device_held_most_of_comes_first),
        cmocka_unit_test(no_name_breaks_out_of_the_page),
        cmocka_unit_test(largest_entry_points_come_first),
        TEST(json_files_are_whole_and_list_the_leaks),
        TEST(a_file_is_replaced_and_nothing_stays_beside_it),
        TEST(failures_give_one_line),
        TEST(the_ending_chooses_the_format),
        TEST(none_writes_nothing),
        TEST(devices_are_written_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
