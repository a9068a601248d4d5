/* Every key of the schema is read by name and type; the first that is missing or has another type
 * ends the reading (struct report_loader.failed) and is named. Keys that the library wrote only
 * from a later version on may be missing, and are named in a warning. */
#include "tools/report/report_load.h"

#include "core/arch/notes.h"
#include "core/report/tables.h"
#include "tools/report/report_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Absent in reports of earlier versions. */
static void load_estimate_devices(struct report_loader *loader, const json_t *json)
{
    struct gc_report_estimate *estimate = &loader->loaded->estimate;
    const json_t *list = json_object_get(json, "devices");
    const json_t *device;
    size_t i;
    if (list == NULL)
        return;
    if (!json_is_array(list) || json_array_size(list) > GC_ESTIMATE_DEVICE_MAX) {
        report_fail(loader, "the estimate's \"devices\" is not a list of at most 64");
        return;
    }
    estimate->device_count = (uint32_t)json_array_size(list);
    json_array_foreach(list, i, device)
    {
        estimate->devices[i].peak_bytes = report_get_uint(loader, device, "peak_bytes");
        estimate->devices[i].budget_bytes = json_is_null(json_object_get(device, "budget_bytes"))
                                                ? UINT64_MAX
                                                : report_get_uint(loader, device, "budget_bytes");
    }
}

static void load_estimate_warnings(struct report_loader *loader, const json_t *json)
{
    const json_t *text;
    size_t i;
    json_array_foreach(json_object_get(json, "warnings"), i, text)
    {
        if (json_is_string(text))
            gc_notes_add(&loader->loaded->estimate_notes, json_string_value(text), NULL);
        else
            report_fail(loader, "a warning of the estimate is not a string");
    }
    loader->loaded->estimate.notes = &loader->loaded->estimate_notes;
}

/* null in most reports. */
static void report_load_estimate(struct report_loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    struct gc_report_estimate *estimate = &loaded->estimate;
    const json_t *json = json_object_get(root, "estimate");
    const json_t *coverage = json_object_get(json, "coverage");
    if (json == NULL || json_is_null(json))
        return;
    if (!json_is_object(json) || !json_is_number(coverage) ||
        !json_is_boolean(json_object_get(json, "fits"))) {
        report_fail(loader, "\"estimate\" is malformed");
        return;
    }
    estimate->model = report_get_string(loader, json, "model");
    estimate->batch = report_get_uint(loader, json, "batch");
    estimate->seq_len = report_get_uint(loader, json, "seq_len");
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        estimate->sizes.parts[part] =
            report_find_uint(loader, json, gc_estimate_part_key((enum gc_estimate_part)part));
    estimate->sizes.peak_bytes = report_get_uint(loader, json, "peak_bytes");
    estimate->context_bytes = report_find_uint(loader, json, "context_bytes");
    estimate->budget_bytes = json_is_null(json_object_get(json, "budget_bytes"))
                                 ? UINT64_MAX
                                 : report_get_uint(loader, json, "budget_bytes");
    estimate->fits = json_is_true(json_object_get(json, "fits"));
    load_estimate_devices(loader, json);
    load_estimate_warnings(loader, json);
    const double share = json_number_value(coverage);
    if (!(share >= 0 && share <= 1))
        report_fail(loader, "\"coverage\" is not a fraction");
    else
        estimate->coverage_thousandths = (uint32_t)(share * 1000 + 0.5);
    loaded->report.facts.estimate = estimate;
}

static void load_facts(struct report_loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    struct gc_report_facts *facts = &loaded->report.facts;
    const json_t *latency = report_get(loader, root, "latency_ns", JSON_OBJECT);
    const json_t *duration = json_object_get(root, "duration_s");
    facts->version = report_get_string(loader, root, "version");
    loaded->process.pid = (int64_t)report_get_uint(loader, root, "pid");
    report_copy_string(loader, root, "program", loaded->process.program,
                       sizeof(loaded->process.program));
    report_copy_string(loader, root, "command", loaded->process.command,
                       sizeof(loaded->process.command));
    report_copy_string(loader, root, "host", loaded->process.host, sizeof(loaded->process.host));
    facts->start_unix = report_get_uint(loader, root, "start_unix");
    if (!json_is_number(duration) ||
        !(json_number_value(duration) >= 0 && json_number_value(duration) < 1e10))
        report_fail(loader, "\"duration_s\" is missing or not a duration");
    else
        facts->duration_ns = (uint64_t)(json_number_value(duration) * 1e9 + 0.5);
    facts->mode = report_get_string(loader, root, "mode");
    facts->backend = report_get_string(loader, root, "backend");
    facts->driver_version = report_get_int(loader, root, "driver_version");
    facts->reuse = json_string_value(json_object_get(root, "reuse"));
    if (latency == NULL)
        return;
    loaded->snapshot.alloc_latency = report_get_latency(loader, latency, "alloc");
    loaded->snapshot.free_latency = report_get_latency(loader, latency, "free");
}

/* null where no turns were taken; absent in reports of earlier versions. */
static void load_turns(struct report_loader *loader, const json_t *root)
{
    struct gc_snapshot *snapshot = &loader->loaded->snapshot;
    const json_t *turns = json_object_get(root, "turns");
    if (turns == NULL || json_is_null(turns) ||
        (turns = report_get(loader, root, "turns", JSON_OBJECT)) == NULL)
        return;
    snapshot->takes_turns = true;
    report_get_figures(loader, turns, &gc_report_turn_figures, &snapshot->turn, NULL);
}

/* Beyond the schema. */
static void load_settings(struct report_loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    json_t *settings = json_object_get(root, "settings");
    const char *name;
    json_t *value;
    uint32_t count = 0;
    if (settings == NULL)
        return;
    if (!json_is_object(settings)) {
        report_fail(loader, "\"settings\" has the wrong type");
        return;
    }
    loaded->settings = calloc(json_object_size(settings) + 1, sizeof(*loaded->settings));
    if (loaded->settings == NULL) {
        report_fail(loader, "out of memory");
        return;
    }
    json_object_foreach(settings, name, value)
    {
        if (!json_is_string(value))
            report_fail(loader, "a setting is not a string");
        loaded->settings[count++] = (struct gc_report_setting){name, json_string_value(value)};
    }
    loaded->report.facts.settings = loaded->settings;
    loaded->report.facts.setting_count = count;
}

/* The list has space for one warning more than the report has. */
static void warn_of_absent(struct report_loaded *loaded)
{
    struct gc_report_facts *facts = &loaded->report.facts;
    snprintf(loaded->absent_note, sizeof(loaded->absent_note),
             "not in this report, which gpucache %.32s wrote, and shown as 0, none or empty: %s",
             facts->version, loaded->absent);
    loaded->warnings[facts->warning_count++] = loaded->absent_note;
}

static void load_root(struct report_loader *loader, const json_t *root)
{
    const json_t *schema = json_object_get(root, "schema");
    if (!json_is_string(schema)) {
        report_fail(loader, "not a gpucache report");
        return;
    }
    if (strcmp(json_string_value(schema), GC_REPORT_SCHEMA) != 0) {
        report_fail(loader, "its schema is %.64s, not " GC_REPORT_SCHEMA,
                    json_string_value(schema));
        return;
    }
    load_facts(loader, root);
    load_settings(loader, root);
    report_load_estimate(loader, root);
    report_load_devices(loader, root);
    load_turns(loader, root);
    if (!loader->failed && loader->loaded->absent[0] != '\0')
        warn_of_absent(loader->loaded);
}

static void describe_error(const json_error_t *error, char *why, size_t why_bytes)
{
    if (json_error_code(error) == json_error_premature_end_of_input)
        snprintf(why, why_bytes, "it ends in the middle of line %d: was it cut off?", error->line);
    else
        snprintf(why, why_bytes, "not JSON: line %d: %.100s", error->line, error->text);
}

enum gc_status report_load(const char *text, size_t bytes, struct report_loaded *loaded, char *why,
                           size_t why_bytes)
{
    json_error_t error;
    memset(loaded, 0, sizeof(*loaded));
    json_t *root = json_loadb(text, bytes, 0, &error);
    struct report_loader loader = {.loaded = loaded, .why = why, .why_bytes = why_bytes};
    if (root == NULL) {
        describe_error(&error, why, why_bytes);
        return GC_FORMAT;
    }
    loaded->json = root;
    loader.api_numbers = json_object();
    loaded->api_numbers = loader.api_numbers;
    if (loader.api_numbers == NULL)
        report_fail(&loader, "out of memory");
    else
        load_root(&loader, root);
    if (loader.failed) {
        report_unload(loaded);
        return GC_FORMAT;
    }
    loaded->report.facts.process = &loaded->process;
    loaded->report.facts.warnings = loaded->warnings;
    loaded->report.snapshot = &loaded->snapshot;
    loaded->report.api_names = loaded->api_names;
    loaded->report.leaks = loaded->leaks;
    loaded->report.spills = loaded->spills;
    return GC_OK;
}

void report_unload(struct report_loaded *loaded)
{
    for (uint32_t i = 0; i < loaded->snapshot.device_count; i++) {
        free(loaded->snapshot.devices[i].apis);
        free(loaded->snapshot.devices[i].tenants);
        free((void *)loaded->leaks[i].leaks);
        free((void *)loaded->leaks[i].groups);
        free((void *)loaded->sites[i].sites);
        free((void *)loaded->spills[i].blocks);
    }
    free(loaded->snapshot.devices);
    free(loaded->snapshot.process_driver_calls);
    free(loaded->leaks);
    free(loaded->sites);
    free(loaded->spills);
    report_stacks_fini(&loaded->stacks);
    free(loaded->api_names);
    free(loaded->warnings);
    free(loaded->settings);
    json_decref(loaded->api_numbers);
    json_decref(loaded->json);
    memset(loaded, 0, sizeof(*loaded));
}
