/* First numbers the entry points in the order of the report: some figures are stored by number. */
#include "tools/report/report_keys.h"
#include "tools/report/report_load.h"

#include "core/device/tenant.h"
#include "core/io/text.h"
#include "core/report/tables.h"

#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 1024

/* ---- entry points ---- */

static void number_api(struct report_loader *loader, const char *name)
{
    const size_t count = json_object_size(loader->api_numbers);
    if (json_object_get(loader->api_numbers, name) != NULL)
        return;
    if (count >= UINT16_MAX)
        report_fail(loader, "too many entry points");
    else if (json_object_set_new(loader->api_numbers, name, json_integer((json_int_t)count)) != 0)
        report_fail(loader, "out of memory");
}

static uint16_t api_number(const struct report_loader *loader, const char *name)
{
    return (uint16_t)json_integer_value(json_object_get(loader->api_numbers, name));
}

static void number_keys(struct report_loader *loader, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) number_api(loader, name);
}

static void number_apis(struct report_loader *loader, const json_t *root, const json_t *devices)
{
    const json_t *device;
    const json_t *leak;
    size_t i;
    size_t j;
    json_array_foreach(devices, i, device)
    {
        number_keys(loader, report_get(loader, device, "by_api", JSON_OBJECT));
        number_keys(loader, report_get(loader, device, "driver_calls", JSON_OBJECT));
        json_array_foreach(json_object_get(device, "leaks"), j, leak)
            number_api(loader, report_get_string(loader, leak, "api"));
        json_array_foreach(json_object_get(device, "leak_groups"), j, leak)
            number_api(loader, report_get_string(loader, leak, "api"));
        json_array_foreach(json_object_get(device, "spilled"), j, leak)
            number_api(loader, report_get_string(loader, leak, "api"));
    }
    number_keys(loader, json_object_get(root, "driver_calls"));
}

/* ---- devices ---- */

static void load_apis(struct report_loader *loader, const json_t *json,
                      struct gc_device_snapshot *device)
{
    json_t *by_api = report_get(loader, json, "by_api", JSON_OBJECT);
    json_t *calls = report_get(loader, json, "driver_calls", JSON_OBJECT);
    const char *name;
    json_t *value;
    json_object_foreach(by_api, name, value)
    {
        struct gc_api_figures *api = &device->apis[api_number(loader, name)];
        if (report_get(loader, by_api, name, JSON_OBJECT) == NULL)
            return;
        report_get_figures(loader, value, &gc_report_api_figures, api, NULL);
    }
    json_object_foreach(calls, name, value) device->apis[api_number(loader, name)].driver_calls =
        report_get_uint(loader, calls, name);
}

static bool parse_address(const char *text, uint64_t *address)
{
    return strncmp(text, "0x", 2) == 0 && text[2] != '\0' && strlen(text) <= 18 &&
           *gc_text_read_hex(text + 2, address) == '\0';
}

static uint32_t load_stack(struct report_loader *loader, const json_t *json)
{
    uint32_t site;
    const char *why;
    if (!report_stacks_add(&loader->loaded->stacks, json, &site, &why))
        report_fail(loader, "%s", why);
    return site;
}

/* Records of `bytes` for the rows of a list, at most `most`; NULL: out of memory, and the load has
 * failed. */
static void *new_records(struct report_loader *loader, const json_t *list, size_t most,
                         size_t bytes, uint32_t *count)
{
    const size_t rows = json_array_size(list) < most ? json_array_size(list) : most;
    void *records = calloc(rows + 1, bytes);
    if (records == NULL)
        report_fail(loader, "out of memory");
    *count = records == NULL ? 0 : (uint32_t)rows;
    return records;
}

/* Absent in reports of earlier versions. */
static void load_sites(struct report_loader *loader, const json_t *json,
                       struct gc_report_sites *sites)
{
    const json_t *list = json_object_get(json, "call_sites");
    const json_t *site;
    size_t i;
    uint32_t count;
    struct gc_stack_site *loaded =
        new_records(loader, list, GC_REPORT_SITE_MAX, sizeof(*loaded), &count);
    *sites = (struct gc_report_sites){loaded, count};
    json_array_foreach(list, i, site)
    {
        if (i >= count || loader->failed)
            break;
        loaded[i].site = load_stack(loader, site);
        report_get_figures(loader, site, &gc_report_site_figures, &loaded[i], NULL);
    }
}

static void load_leaks(struct report_loader *loader, const json_t *json,
                       struct gc_report_leaks *leaks)
{
    const json_t *list = report_get(loader, json, "leaks", JSON_ARRAY);
    const json_t *leak;
    size_t i;
    uint32_t count;
    struct gc_leak *loaded = new_records(loader, list, GC_REPORT_LEAK_MAX, sizeof(*loaded), &count);
    leaks->leaks = loaded;
    leaks->count = count;
    json_array_foreach(list, i, leak)
    {
        if (i >= count || loader->failed)
            break;
        if (!parse_address(report_get_string(loader, leak, "address"), &loaded[i].address))
            report_fail(loader, "a leak has an invalid address");
        loaded[i].bytes = report_get_uint(loader, leak, "bytes");
        loaded[i].api = api_number(loader, report_get_string(loader, leak, "api"));
        loaded[i].site = load_stack(loader, leak);
    }
}

/* Reports of earlier versions have no groups: those of the listed leaks. */
static void group_leaks(struct report_loader *loader, struct gc_report_leaks *leaks)
{
    struct gc_leak_table table = {.slot_count = 4};
    while (table.slot_count / 2 <= leaks->count)
        table.slot_count *= 2;
    table.slots = calloc(table.slot_count, sizeof(*table.slots));
    leaks->groups = table.slots;
    if (table.slots == NULL) {
        report_fail(loader, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < leaks->count; i++)
        gc_leak_table_add(&table, &leaks->leaks[i]);
    leaks->group_count = gc_leak_table_sort(&table);
}

static void load_leak_groups(struct report_loader *loader, const json_t *json,
                             struct gc_report_leaks *leaks)
{
    const json_t *list = json_object_get(json, "leak_groups");
    const json_t *group;
    size_t i;
    uint32_t count;
    if (list == NULL) {
        group_leaks(loader, leaks);
        return;
    }
    struct gc_leak_group *loaded =
        new_records(loader, list, GC_REPORT_LEAK_MAX, sizeof(*loaded), &count);
    leaks->groups = loaded;
    leaks->group_count = count;
    json_array_foreach(list, i, group)
    {
        if (i >= count || loader->failed)
            break;
        report_get_figures(loader, group, &gc_report_leak_figures, &loaded[i], NULL);
        if (!parse_address(report_get_string(loader, group, "address"), &loaded[i].address))
            report_fail(loader, "a group of leaks has an invalid address");
        loaded[i].api = api_number(loader, report_get_string(loader, group, "api"));
        loaded[i].site = load_stack(loader, group);
    }
}

static enum gc_spill_reason find_reason(struct report_loader *loader, const char *text)
{
    for (int i = 0; i < GC_SPILL_REASON_COUNT; i++)
        if (strcmp(text, gc_spills_reason_text((enum gc_spill_reason)i)) == 0)
            return (enum gc_spill_reason)i;
    report_fail(loader, "a block in host memory has an unknown reason");
    return GC_SPILL_LIMIT;
}

static uint64_t load_span(const json_t *json, const char *key, double unit_ns)
{
    const double value = json_number_value(json_object_get(json, key));
    return value > 0 && value < 1e9 ? (uint64_t)(value * unit_ns + 0.5) : 0;
}

/* Absent in reports of earlier versions. */
static void load_spills(struct report_loader *loader, const json_t *json,
                        struct gc_report_spills *spills)
{
    const json_t *list = json_object_get(json, "spilled");
    const json_t *block;
    size_t i;
    uint32_t count;
    struct gc_spilled *loaded = new_records(loader, list, GC_SPILLS_MAX, sizeof(*loaded), &count);
    *spills = (struct gc_report_spills){loaded, count};
    json_array_foreach(list, i, block)
    {
        if (i >= count || loader->failed)
            break;
        if (!parse_address(report_get_string(loader, block, "address"), &loaded[i].address))
            report_fail(loader, "a block in host memory has an invalid address");
        loaded[i].bytes = report_get_uint(loader, block, "bytes");
        loaded[i].api = api_number(loader, report_get_string(loader, block, "api"));
        loaded[i].reason = (uint8_t)find_reason(loader, report_get_string(loader, block, "reason"));
        loaded[i].at_ns = load_span(block, "at_s", 1e9);
        loaded[i].ended_ns = load_span(block, "end_s", 1e9);
        loaded[i].is_moved = json_is_true(json_object_get(block, "moved"));
        loaded[i].cost_ns = load_span(block, "cost_ms", 1e6);
    }
}

static void load_tenant(struct report_loader *loader, const json_t *json,
                        struct gc_tenant_figures *tenant)
{
    static const char *const required[] = {"name",
                                           "capacity_bytes",
                                           "limit_bytes",
                                           "requested_bytes",
                                           "allocated_bytes",
                                           "reserved_bytes",
                                           NULL};
    report_get_figures(loader, json, &gc_report_tenant_figures, tenant, required);
}

/* Absent before there were tenants. */
static void load_tenants(struct report_loader *loader, const json_t *json,
                         struct gc_device_snapshot *device)
{
    const json_t *list = json_object_get(json, "tenants");
    const json_t *tenant;
    size_t i;
    if (list == NULL || (list = report_get(loader, json, "tenants", JSON_ARRAY)) == NULL)
        return;
    if (json_array_size(list) > GC_TENANT_MAX) {
        report_fail(loader, "too many tenants");
        return;
    }
    device->tenants = calloc(json_array_size(list) + 1, sizeof(*device->tenants));
    if (device->tenants == NULL) {
        report_fail(loader, "out of memory");
        return;
    }
    device->tenant_count = (uint32_t)json_array_size(list);
    json_array_foreach(list, i, tenant) load_tenant(loader, tenant, &device->tenants[i]);
}

/* null without a plan; absent before there were plans. The reasons grew with the versions. */
static void load_plan(struct report_loader *loader, const json_t *json,
                      struct gc_follow_figures *plan)
{
    static const char *const required[] = {"entries", "peak_bytes", "used_bytes", "rounds",
                                           "jumps",   "count",      "bytes",      NULL};
    static const char *const pair[] = {"count", "bytes", NULL};
    const json_t *object = json_object_get(json, "plan");
    if (object == NULL || json_is_null(object) ||
        (object = report_get(loader, json, "plan", JSON_OBJECT)) == NULL)
        return;
    const json_t *reasons = report_get(loader, object, "reasons", JSON_OBJECT);
    report_get_figures(loader, object, &gc_report_plan_figures, plan, required);
    if (reasons != NULL)
        report_get_figures(loader, reasons, &gc_report_reason_figures, plan, pair);
}

/* Absent in reports of earlier versions. */
static void load_backend(struct report_loader *loader, const json_t *json,
                         struct gc_device_snapshot *device)
{
    const json_t *direct = json_object_get(json, "direct_bytes");
    if (json_object_get(json, "backend") != NULL)
        device->is_mapped = strcmp(report_get_string(loader, json, "backend"), "vmm") == 0;
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++) {
        char key[GC_REPORT_KEY_BYTES];
        gc_report_direct_key((enum gc_direct_kind)kind, key);
        if (json_object_get(direct, key) != NULL)
            device->direct_bytes[kind] = report_get_uint(loader, direct, key);
    }
}

static void load_device(struct report_loader *loader, const json_t *json,
                        struct gc_device_snapshot *device, struct gc_report_leaks *leaks)
{
    /* clang-format off */
    static const char *const required[] = {
        "ordinal", "uuid", "name", "total_bytes", "limit_bytes", "requested_bytes",
        "allocated_bytes", "reserved_bytes", "pending_bytes", "host_metadata_bytes", "alloc_count",
        "free_count", "hit_count", "miss_count", "oom_count", "retry_count", "trim_count",
        "fence_count", "invalid_free_count", "fragmentation", "free_bytes", "largest_free_bytes",
        "leak_count", "leak_bytes", NULL};
    /* clang-format on */
    report_get_figures(loader, json, &gc_report_device_figures, device, required);
    load_apis(loader, json, device);
    load_leaks(loader, json, leaks);
    if (!loader->failed)
        load_leak_groups(loader, json, leaks);
    load_backend(loader, json, device);
    load_tenants(loader, json, device);
    load_plan(loader, json, &device->plan);
}

static bool allocate(struct report_loader *loader, size_t device_count, size_t api_count,
                     size_t warning_count)
{
    struct report_loaded *loaded = loader->loaded;
    struct gc_snapshot *snapshot = &loaded->snapshot;
    snapshot->devices = calloc(device_count + 1, sizeof(*snapshot->devices));
    snapshot->process_driver_calls = calloc(api_count + 1, sizeof(*snapshot->process_driver_calls));
    loaded->leaks = calloc(device_count + 1, sizeof(*loaded->leaks));
    loaded->sites = calloc(device_count + 1, sizeof(*loaded->sites));
    loaded->spills = calloc(device_count + 1, sizeof(*loaded->spills));
    loaded->api_names = calloc(api_count + 1, sizeof(*loaded->api_names));
    loaded->warnings = calloc(warning_count + 1, sizeof(*loaded->warnings));
    bool done = snapshot->devices != NULL && snapshot->process_driver_calls != NULL &&
                loaded->leaks != NULL && loaded->sites != NULL && loaded->spills != NULL &&
                loaded->api_names != NULL && loaded->warnings != NULL;
    for (size_t i = 0; done && i < device_count; i++) {
        snapshot->device_count = (uint32_t)(i + 1);
        snapshot->devices[i].apis = calloc(api_count + 1, sizeof(struct gc_api_figures));
        done = snapshot->devices[i].apis != NULL;
    }
    snapshot->api_count = (uint16_t)api_count;
    if (!done)
        report_fail(loader, "out of memory");
    return done;
}

void report_load_devices(struct report_loader *loader, const json_t *root)
{
    struct report_loaded *loaded = loader->loaded;
    const json_t *devices = report_get(loader, root, "devices", JSON_ARRAY);
    const json_t *warnings = report_get(loader, root, "warnings", JSON_ARRAY);
    json_t *calls = json_object_get(root, "driver_calls");
    const char *name;
    json_t *value;
    size_t i;
    if (json_array_size(devices) > DEVICES_MAX)
        report_fail(loader, "too many devices");
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
        report_get_uint(loader, calls, name);
    json_array_foreach(devices, i, value)
    {
        load_device(loader, value, &loaded->snapshot.devices[i], &loaded->leaks[i]);
        load_sites(loader, value, &loaded->sites[i]);
        load_spills(loader, value, &loaded->spills[i]);
    }
    loaded->report.stacks =
        (struct gc_report_stacks){.source = &loaded->stacks,
                                  .frame = report_stacks_frame,
                                  .own = report_stacks_own,
                                  .sites = loaded->sites,
                                  .lost = report_find_uint(loader, root, "stacks_lost")};
    json_array_foreach(warnings, i, value)
    {
        if (!json_is_string(value))
            report_fail(loader, "a warning is not a string");
        else
            loaded->warnings[i] = json_string_value(value);
    }
    loaded->report.facts.warning_count = (uint32_t)json_array_size(warnings);
}
