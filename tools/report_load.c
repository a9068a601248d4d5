/* Every key of the schema is asked for by name and type; the first that is missing or of another
 * type ends the reading (struct loader.failed), and is named. Entry points get numbers in the order
 * they are met. */
#include "tools/report_load.h"

#include "core/report_tenant.h"
#include "core/tenant.h"
#include "core/text.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 1024

struct loader {
    struct report_loaded *loaded;
    json_t *api_numbers; /* name → number */
    bool failed;
    char *why;
    size_t why_bytes;
};

static void fail(struct loader *loader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void fail(struct loader *loader, const char *format, ...)
{
    va_list arguments;
    if (loader->failed)
        return;
    loader->failed = true;
    va_start(arguments, format);
    (void)vsnprintf(loader->why, loader->why_bytes, format, arguments);
    va_end(arguments);
}

/* ---- one key ---- */

static json_t *get(struct loader *loader, const json_t *object, const char *key, json_type type)
{
    json_t *value = json_object_get(object, key);
    if (value == NULL)
        fail(loader, "\"%s\" is missing", key);
    else if (json_typeof(value) != type)
        fail(loader, "\"%s\" is not of its type", key);
    else
        return value;
    return NULL;
}

static uint64_t get_uint(struct loader *loader, const json_t *object, const char *key)
{
    const json_t *value = get(loader, object, key, JSON_INTEGER);
    if (value == NULL)
        return 0;
    if (json_integer_value(value) < 0)
        fail(loader, "\"%s\" is negative", key);
    return (uint64_t)json_integer_value(value);
}

static int get_int(struct loader *loader, const json_t *object, const char *key)
{
    const uint64_t value = get_uint(loader, object, key);
    if (value > INT32_MAX)
        fail(loader, "\"%s\" is out of range", key);
    return (int)(value & INT32_MAX);
}

static const char *get_string(struct loader *loader, const json_t *object, const char *key)
{
    const json_t *value = get(loader, object, key, JSON_STRING);
    return value != NULL ? json_string_value(value) : "";
}

static void copy_string(struct loader *loader, const json_t *object, const char *key, char *to,
                        size_t size)
{
    const char *text = get_string(loader, object, key);
    gc_text_show(text, strlen(text), to, size);
}

static struct gc_gauge get_gauge(struct loader *loader, const json_t *object, const char *key)
{
    const json_t *gauge = get(loader, object, key, JSON_OBJECT);
    if (gauge == NULL)
        return (struct gc_gauge){0, 0};
    return (struct gc_gauge){get_uint(loader, gauge, "current"), get_uint(loader, gauge, "peak")};
}

/* Beyond the schema: [below so many ns, count]. */
static void load_histogram(struct loader *loader, const json_t *json, struct gc_latency *latency)
{
    const json_t *rows = json_object_get(json, "histogram");
    const json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const json_int_t below = json_integer_value(json_array_get(row, 0));
        const json_int_t count = json_integer_value(json_array_get(row, 1));
        if (below < 2 || count < 0)
            fail(loader, "\"histogram\" is none");
        else
            latency->powers[62 - __builtin_clzll((uint64_t)below)] = (uint64_t)count;
    }
}

static struct gc_latency get_latency(struct loader *loader, const json_t *object, const char *key)
{
    const json_t *latency = get(loader, object, key, JSON_OBJECT);
    if (latency == NULL)
        return (struct gc_latency){.count = 0};
    struct gc_latency found = {
        .p50 = get_uint(loader, latency, "p50"),
        .p99 = get_uint(loader, latency, "p99"),
        .max = get_uint(loader, latency, "max"),
        .count = json_object_get(latency, "count") != NULL ? get_uint(loader, latency, "count") : 1,
    };
    load_histogram(loader, latency, &found);
    return found;
}

/* ---- entry points ---- */

static void number_api(struct loader *loader, const char *name)
{
    const size_t count = json_object_size(loader->api_numbers);
    if (json_object_get(loader->api_numbers, name) != NULL)
        return;
    if (count >= UINT16_MAX)
        fail(loader, "more entry points than there can be");
    else if (json_object_set_new(loader->api_numbers, name, json_integer((json_int_t)count)) != 0)
        fail(loader, "out of memory");
}

static uint16_t api_number(const struct loader *loader, const char *name)
{
    return (uint16_t)json_integer_value(json_object_get(loader->api_numbers, name));
}

static void number_keys(struct loader *loader, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) number_api(loader, name);
}

static void number_apis(struct loader *loader, const json_t *root, const json_t *devices)
{
    const json_t *device;
    const json_t *leak;
    size_t i;
    size_t j;
    json_array_foreach(devices, i, device)
    {
        number_keys(loader, get(loader, device, "by_api", JSON_OBJECT));
        number_keys(loader, get(loader, device, "driver_calls", JSON_OBJECT));
        json_array_foreach(json_object_get(device, "leaks"), j, leak)
            number_api(loader, get_string(loader, leak, "api"));
    }
    number_keys(loader, json_object_get(root, "driver_calls"));
}

/* ---- devices ---- */

static void load_apis(struct loader *loader, const json_t *json, struct gc_device_snapshot *device)
{
    json_t *by_api = get(loader, json, "by_api", JSON_OBJECT);
    json_t *calls = get(loader, json, "driver_calls", JSON_OBJECT);
    const char *name;
    json_t *value;
    json_object_foreach(by_api, name, value)
    {
        struct gc_api_figures *api = &device->apis[api_number(loader, name)];
        if (get(loader, by_api, name, JSON_OBJECT) == NULL)
            return;
        api->count = get_uint(loader, value, "count");
        api->bytes = get_uint(loader, value, "bytes");
        api->current_bytes = get_uint(loader, value, "current_bytes");
        api->peak_bytes = get_uint(loader, value, "peak_bytes");
    }
    json_object_foreach(calls, name, value) device->apis[api_number(loader, name)].driver_calls =
        get_uint(loader, calls, name);
}

static bool parse_address(const char *text, uint64_t *address)
{
    uint64_t value = 0;
    if (strncmp(text, "0x", 2) != 0 || text[2] == '\0' || strlen(text) > 18)
        return false;
    for (text += 2; *text != '\0'; text++) {
        const char *digit = strchr("0123456789abcdef", *text);
        if (digit == NULL)
            return false;
        value = value << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    *address = value;
    return true;
}

static uint32_t load_stack(struct loader *loader, const json_t *json)
{
    uint32_t site;
    const char *why;
    if (!report_stacks_add(&loader->loaded->stacks, json_object_get(json, "stack"), &site, &why))
        fail(loader, "%s", why);
    return site;
}

/* Absent in reports of earlier versions. */
static void load_sites(struct loader *loader, const json_t *json, struct gc_report_sites *sites)
{
    const json_t *list = json_object_get(json, "call_sites");
    const json_t *site;
    size_t i;
    const size_t count =
        json_array_size(list) < GC_REPORT_SITE_MAX ? json_array_size(list) : GC_REPORT_SITE_MAX;
    struct gc_stack_site *loaded = calloc(count + 1, sizeof(*loaded));
    if (loaded == NULL) {
        fail(loader, "out of memory");
        return;
    }
    *sites = (struct gc_report_sites){loaded, (uint32_t)count};
    json_array_foreach(list, i, site)
    {
        if (i >= count || loader->failed)
            break;
        loaded[i] = (struct gc_stack_site){
            .site = load_stack(loader, site),
            .count = get_uint(loader, site, "count"),
            .bytes = get_uint(loader, site, "bytes"),
            .live_count = get_uint(loader, site, "current_count"),
            .live_bytes = get_uint(loader, site, "current_bytes"),
            .peak_bytes = get_uint(loader, site, "peak_bytes"),
        };
    }
}

static void load_leaks(struct loader *loader, const json_t *json, struct gc_report_leaks *leaks)
{
    const json_t *list = get(loader, json, "leaks", JSON_ARRAY);
    const json_t *leak;
    size_t i;
    const size_t count =
        json_array_size(list) < GC_REPORT_LEAK_MAX ? json_array_size(list) : GC_REPORT_LEAK_MAX;
    struct gc_leak *loaded = calloc(count + 1, sizeof(*loaded));
    if (loaded == NULL) {
        fail(loader, "out of memory");
        return;
    }
    leaks->leaks = loaded;
    leaks->count = (uint32_t)count;
    json_array_foreach(list, i, leak)
    {
        if (i >= count || loader->failed)
            break;
        if (!parse_address(get_string(loader, leak, "address"), &loaded[i].address))
            fail(loader, "the address of a leak is none");
        loaded[i].bytes = get_uint(loader, leak, "bytes");
        loaded[i].api = api_number(loader, get_string(loader, leak, "api"));
        loaded[i].site = load_stack(loader, leak);
    }
}

static void load_fragmentation(struct loader *loader, const json_t *json,
                               struct gc_device_snapshot *device)
{
    const json_t *fragmentation = get(loader, json, "fragmentation", JSON_OBJECT);
    if (fragmentation == NULL)
        return;
    device->free_bytes = get_uint(loader, fragmentation, "free_bytes");
    device->largest_free_bytes = get_uint(loader, fragmentation, "largest_free_bytes");
    /* Beyond the schema, as below. */
    if (json_object_get(fragmentation, "stitchable_bytes") != NULL)
        device->stitchable_bytes = get_uint(loader, fragmentation, "stitchable_bytes");
}

/* Beyond the schema: absent means false. */
static bool get_flag(struct loader *loader, const json_t *object, const char *key)
{
    const json_t *flag = json_object_get(object, key);
    if (flag != NULL && !json_is_boolean(flag))
        fail(loader, "\"%s\" is neither true nor false", key);
    return json_is_true(flag);
}

static void load_tenant(struct loader *loader, const json_t *json, struct gc_tenant_figures *tenant)
{
    copy_string(loader, json, "name", tenant->name, sizeof(tenant->name));
    tenant->is_removed = get_flag(loader, json, "removed");
    tenant->is_paused = get_flag(loader, json, "paused");
    tenant->capacity_bytes = get_uint(loader, json, "capacity_bytes");
    tenant->limit_bytes = UINT64_MAX;
    if (!json_is_null(json_object_get(json, "limit_bytes")))
        tenant->limit_bytes = get_uint(loader, json, "limit_bytes");
    tenant->requested = get_gauge(loader, json, "requested_bytes");
    tenant->allocated = get_gauge(loader, json, "allocated_bytes");
    tenant->reserved = get_gauge(loader, json, "reserved_bytes");
#define GC_TENANT_COUNT(field) tenant->field = get_uint(loader, json, #field);
    GC_REPORT_TENANT_COUNTS(GC_TENANT_COUNT)
#undef GC_TENANT_COUNT
}

/* Beyond the schema, as below. */
static void load_tenants(struct loader *loader, const json_t *json,
                         struct gc_device_snapshot *device)
{
    const json_t *list = json_object_get(json, "tenants");
    const json_t *tenant;
    size_t i;
    if (list == NULL || (list = get(loader, json, "tenants", JSON_ARRAY)) == NULL)
        return;
    if (json_array_size(list) > GC_TENANT_MAX) {
        fail(loader, "more tenants than there can be");
        return;
    }
    device->tenants = calloc(json_array_size(list) + 1, sizeof(*device->tenants));
    if (device->tenants == NULL) {
        fail(loader, "out of memory");
        return;
    }
    device->tenant_count = (uint32_t)json_array_size(list);
    json_array_foreach(list, i, tenant) load_tenant(loader, tenant, &device->tenants[i]);
}

static void load_pair(struct loader *loader, const json_t *json, const char *key, uint64_t *count,
                      uint64_t *bytes)
{
    const json_t *pair = get(loader, json, key, JSON_OBJECT);
    *count = get_uint(loader, pair, "count");
    *bytes = get_uint(loader, pair, "bytes");
}

/* Beyond the schema too; null where no plan is followed. */
static void load_plan(struct loader *loader, const json_t *json, struct gc_follow_figures *plan)
{
    const json_t *object = json_object_get(json, "plan");
    if (object == NULL || json_is_null(object) ||
        (object = get(loader, json, "plan", JSON_OBJECT)) == NULL)
        return;
    const json_t *reasons = get(loader, object, "reasons", JSON_OBJECT);
    plan->entry_count = get_uint(loader, object, "entries");
    plan->peak_bytes = get_uint(loader, object, "peak_bytes");
    plan->used_bytes = get_uint(loader, object, "used_bytes");
    plan->rounds = get_uint(loader, object, "rounds");
    plan->jumps = get_uint(loader, object, "jumps");
    load_pair(loader, object, "followed", &plan->followed_count, &plan->followed_bytes);
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    load_pair(loader, reasons, #key, &plan->key##_count, &plan->key##_bytes);
#include "core/follow.def"
#undef GC_FOLLOW_REASON
}

/* Keys beyond the schema: another version may not have written them. */
static void load_extra(struct loader *loader, const json_t *json, struct gc_device_snapshot *device)
{
    const json_t *direct = json_object_get(json, "direct_bytes");
    if (json_object_get(json, "backend") != NULL)
        device->is_mapped = strcmp(get_string(loader, json, "backend"), "vmm") == 0;
    if (json_object_get(json, "backend_reason") != NULL)
        copy_string(loader, json, "backend_reason", device->info.backend_reason,
                    sizeof(device->info.backend_reason));
    if (json_is_string(json_object_get(json, "group")))
        copy_string(loader, json, "group", device->group, sizeof(device->group));
    if (json_is_integer(json_object_get(json, "group_limit_bytes")))
        device->group_limit_bytes = get_uint(loader, json, "group_limit_bytes");
    if (json_object_get(json, "idle_bytes") != NULL)
        device->idle_bytes = get_uint(loader, json, "idle_bytes");
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++) {
        char key[GC_REPORT_KEY_BYTES];
        gc_report_direct_key((enum gc_direct_kind)kind, key);
        if (json_object_get(direct, key) != NULL)
            device->direct_bytes[kind] = get_uint(loader, direct, key);
    }
}

static void load_device(struct loader *loader, const json_t *json,
                        struct gc_device_snapshot *device, struct gc_report_leaks *leaks)
{
    device->info.ordinal = get_int(loader, json, "ordinal");
    copy_string(loader, json, "uuid", device->info.uuid, sizeof(device->info.uuid));
    copy_string(loader, json, "name", device->info.name, sizeof(device->info.name));
    device->info.total_bytes = get_uint(loader, json, "total_bytes");
    device->limit_bytes = UINT64_MAX;
    device->group_limit_bytes = UINT64_MAX;
    if (!json_is_null(json_object_get(json, "limit_bytes")))
        device->limit_bytes = get_uint(loader, json, "limit_bytes");
#define GC_GAUGE(field, text) device->field = get_gauge(loader, json, #field "_bytes");
#define GC_COUNTER(field, text) device->field = get_uint(loader, json, #field);
#include "core/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    device->host_metadata_bytes = get_uint(loader, json, "host_metadata_bytes");
    device->leak_count = get_uint(loader, json, "leak_count");
    device->leak_bytes = get_uint(loader, json, "leak_bytes");
    load_apis(loader, json, device);
    load_fragmentation(loader, json, device);
    load_leaks(loader, json, leaks);
    load_extra(loader, json, device);
    load_tenants(loader, json, device);
    load_plan(loader, json, &device->plan);
}

static bool allocate(struct loader *loader, size_t device_count, size_t api_count,
                     size_t warning_count)
{
    struct report_loaded *loaded = loader->loaded;
    struct gc_snapshot *snapshot = &loaded->snapshot;
    snapshot->devices = calloc(device_count + 1, sizeof(*snapshot->devices));
    snapshot->process_driver_calls = calloc(api_count + 1, sizeof(*snapshot->process_driver_calls));
    loaded->leaks = calloc(device_count + 1, sizeof(*loaded->leaks));
    loaded->sites = calloc(device_count + 1, sizeof(*loaded->sites));
    loaded->api_names = calloc(api_count + 1, sizeof(*loaded->api_names));
    loaded->warnings = calloc(warning_count + 1, sizeof(*loaded->warnings));
    bool done = snapshot->devices != NULL && snapshot->process_driver_calls != NULL &&
                loaded->leaks != NULL && loaded->sites != NULL && loaded->api_names != NULL &&
                loaded->warnings != NULL;
    for (size_t i = 0; done && i < device_count; i++) {
        snapshot->device_count = (uint32_t)(i + 1);
        snapshot->devices[i].apis = calloc(api_count + 1, sizeof(struct gc_api_figures));
        done = snapshot->devices[i].apis != NULL;
    }
    snapshot->api_count = (uint16_t)api_count;
    if (!done)
        fail(loader, "out of memory");
    return done;
}

static void load_devices(struct loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    const json_t *devices = get(loader, root, "devices", JSON_ARRAY);
    const json_t *warnings = get(loader, root, "warnings", JSON_ARRAY);
    json_t *calls = json_object_get(root, "driver_calls");
    const char *name;
    json_t *value;
    size_t i;
    if (json_array_size(devices) > DEVICES_MAX)
        fail(loader, "more devices than there can be");
    if (loader->failed)
        return;
    number_apis(loader, root, devices);
    if (loader->failed ||
        !allocate(loader, json_array_size(devices), json_object_size(loader->api_numbers),
                  json_array_size(warnings)))
        return;
    json_object_foreach(loader->api_numbers, name, value)
        loaded->api_names[json_integer_value(value)] = name;
    json_object_foreach(calls, name, value)
        loaded->snapshot.process_driver_calls[api_number(loader, name)] =
        get_uint(loader, calls, name);
    json_array_foreach(devices, i, value)
    {
        load_device(loader, value, &loaded->snapshot.devices[i], &loaded->leaks[i]);
        load_sites(loader, value, &loaded->sites[i]);
    }
    loaded->report.stacks = (struct gc_report_stacks){
        .source = &loaded->stacks, .frame = report_stacks_frame, .sites = loaded->sites};
    json_array_foreach(warnings, i, value)
    {
        if (!json_is_string(value))
            fail(loader, "a warning is no text");
        else
            loaded->warnings[i] = json_string_value(value);
    }
    loaded->report.facts.warning_count = (uint32_t)json_array_size(warnings);
}

/* Absent in reports of earlier versions. */
static void load_estimate_devices(struct loader *loader, const json_t *json)
{
    struct gc_report_estimate *estimate = &loader->loaded->estimate;
    const json_t *list = json_object_get(json, "devices");
    const json_t *device;
    size_t i;
    if (list == NULL)
        return;
    if (!json_is_array(list) || json_array_size(list) > GC_ESTIMATE_DEVICE_MAX) {
        fail(loader, "the estimate's \"devices\" are no list of at most 64");
        return;
    }
    estimate->device_count = (uint32_t)json_array_size(list);
    json_array_foreach(list, i, device)
    {
        estimate->devices[i].peak_bytes = get_uint(loader, device, "peak_bytes");
        estimate->devices[i].budget_bytes = json_is_null(json_object_get(device, "budget_bytes"))
                                                ? UINT64_MAX
                                                : get_uint(loader, device, "budget_bytes");
    }
}

static void load_estimate_warnings(struct loader *loader, const json_t *json)
{
    const json_t *text;
    size_t i;
    json_array_foreach(json_object_get(json, "warnings"), i, text)
    {
        if (json_is_string(text))
            gc_notes_add(&loader->loaded->estimate_notes, json_string_value(text), NULL);
        else
            fail(loader, "a warning of the estimate is no text");
    }
    loader->loaded->estimate.notes = &loader->loaded->estimate_notes;
}

/* null in most reports. */
static void load_estimate(struct loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    struct gc_report_estimate *estimate = &loaded->estimate;
    const json_t *json = json_object_get(root, "estimate");
    const json_t *coverage = json_object_get(json, "coverage");
    if (json == NULL || json_is_null(json))
        return;
    if (!json_is_object(json) || !json_is_number(coverage) ||
        !json_is_boolean(json_object_get(json, "fits"))) {
        fail(loader, "\"estimate\" is no estimate");
        return;
    }
    estimate->model = get_string(loader, json, "model");
    estimate->batch = get_uint(loader, json, "batch");
    estimate->seq_len = get_uint(loader, json, "seq_len");
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        estimate->sizes.parts[part] =
            get_uint(loader, json, gc_estimate_part_key((enum gc_estimate_part)part));
    estimate->sizes.peak_bytes = get_uint(loader, json, "peak_bytes");
    estimate->context_bytes = get_uint(loader, json, "context_bytes");
    estimate->budget_bytes = json_is_null(json_object_get(json, "budget_bytes"))
                                 ? UINT64_MAX
                                 : get_uint(loader, json, "budget_bytes");
    estimate->fits = json_is_true(json_object_get(json, "fits"));
    load_estimate_devices(loader, json);
    load_estimate_warnings(loader, json);
    const double share = json_number_value(coverage);
    if (!(share >= 0 && share <= 1))
        fail(loader, "\"coverage\" is no share");
    else
        estimate->coverage_thousandths = (uint32_t)(share * 1000 + 0.5);
    loaded->report.facts.estimate = estimate;
}

static void load_facts(struct loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    struct gc_report_facts *facts = &loaded->report.facts;
    const json_t *latency = get(loader, root, "latency_ns", JSON_OBJECT);
    const json_t *duration = json_object_get(root, "duration_s");
    facts->version = get_string(loader, root, "version");
    loaded->process.pid = (int64_t)get_uint(loader, root, "pid");
    copy_string(loader, root, "program", loaded->process.program, sizeof(loaded->process.program));
    copy_string(loader, root, "command", loaded->process.command, sizeof(loaded->process.command));
    copy_string(loader, root, "host", loaded->process.host, sizeof(loaded->process.host));
    facts->start_unix = (int64_t)get_uint(loader, root, "start_unix");
    if (!json_is_number(duration) ||
        !(json_number_value(duration) >= 0 && json_number_value(duration) < 1e10))
        fail(loader, "\"duration_s\" is missing or no duration");
    else
        facts->duration_ns = (uint64_t)(json_number_value(duration) * 1e9 + 0.5);
    facts->mode = get_string(loader, root, "mode");
    facts->backend = get_string(loader, root, "backend");
    facts->driver_version = get_int(loader, root, "driver_version");
    facts->reuse = json_string_value(json_object_get(root, "reuse"));
    if (latency == NULL)
        return;
    loaded->snapshot.alloc_latency = get_latency(loader, latency, "alloc");
    loaded->snapshot.free_latency = get_latency(loader, latency, "free");
}

/* Beyond the schema. */
static void load_settings(struct loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    json_t *settings = json_object_get(root, "settings");
    const char *name;
    json_t *value;
    uint32_t count = 0;
    if (settings == NULL)
        return;
    if (!json_is_object(settings)) {
        fail(loader, "\"settings\" is not of its type");
        return;
    }
    loaded->settings = calloc(json_object_size(settings) + 1, sizeof(*loaded->settings));
    if (loaded->settings == NULL) {
        fail(loader, "out of memory");
        return;
    }
    json_object_foreach(settings, name, value)
    {
        if (!json_is_string(value))
            fail(loader, "a setting is no text");
        loaded->settings[count++] = (struct gc_report_setting){name, json_string_value(value)};
    }
    loaded->report.facts.settings = loaded->settings;
    loaded->report.facts.setting_count = count;
}

static void load_root(struct loader *loader, const json_t *root)
{
    const json_t *schema = json_object_get(root, "schema");
    if (!json_is_string(schema)) {
        fail(loader, "no gpucache report");
        return;
    }
    if (strcmp(json_string_value(schema), GC_REPORT_SCHEMA) != 0) {
        fail(loader, "its schema is %.64s, not " GC_REPORT_SCHEMA, json_string_value(schema));
        return;
    }
    load_facts(loader, root);
    load_settings(loader, root);
    load_estimate(loader, root);
    load_devices(loader, root);
}

enum gc_status report_load(const char *text, size_t bytes, struct report_loaded *loaded, char *why,
                           size_t why_bytes)
{
    json_error_t error;
    memset(loaded, 0, sizeof(*loaded));
    json_t *root = json_loadb(text, bytes, 0, &error);
    struct loader loader = {.loaded = loaded, .why = why, .why_bytes = why_bytes};
    if (root == NULL) {
        snprintf(why, why_bytes, "no JSON: line %d: %.100s", error.line, error.text);
        return GC_FORMAT;
    }
    loaded->json = root;
    loader.api_numbers = json_object();
    loaded->api_numbers = loader.api_numbers;
    if (loader.api_numbers == NULL)
        fail(&loader, "out of memory");
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
    return GC_OK;
}

void report_unload(struct report_loaded *loaded)
{
    for (uint32_t i = 0; i < loaded->snapshot.device_count; i++) {
        free(loaded->snapshot.devices[i].apis);
        free(loaded->snapshot.devices[i].tenants);
        free((void *)loaded->leaks[i].leaks);
        free((void *)loaded->sites[i].sites);
    }
    free(loaded->snapshot.devices);
    free(loaded->snapshot.process_driver_calls);
    free(loaded->leaks);
    free(loaded->sites);
    report_stacks_fini(&loaded->stacks);
    free(loaded->api_names);
    free(loaded->warnings);
    free(loaded->settings);
    json_decref(loaded->api_numbers);
    json_decref(loaded->json);
    memset(loaded, 0, sizeof(*loaded));
}
