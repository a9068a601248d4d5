/* The report's part about the tenants of a device. */
#include "core/report/report_tenant.h"

#include "core/device/tenant.h"
#include "core/io/text.h"
#include "core/report/report.h"

#include <string.h>

#define NAME_COLUMNS 20

static void write_gauge(struct gc_json *json, const char *key, const struct gc_gauge *gauge)
{
    gc_json_key(json, key);
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_put_uint(json, "current", gauge->current);
    gc_json_put_uint(json, "peak", gauge->peak);
    gc_json_end_object(json);
}

static void write_tenant(struct gc_json *json, const struct gc_tenant_figures *tenant)
{
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_put_string(json, "name", tenant->name);
    gc_json_key(json, "removed");
    gc_json_bool(json, tenant->is_removed);
    gc_json_key(json, "paused");
    gc_json_bool(json, tenant->is_paused);
    gc_json_put_uint(json, "capacity_bytes", tenant->capacity_bytes);
    if (tenant->limit_bytes == UINT64_MAX)
        gc_json_put_null(json, "limit_bytes");
    else
        gc_json_put_uint(json, "limit_bytes", tenant->limit_bytes);
    write_gauge(json, "requested_bytes", &tenant->requested);
    write_gauge(json, "allocated_bytes", &tenant->allocated);
    write_gauge(json, "reserved_bytes", &tenant->reserved);
#define GC_TENANT_COUNT(field) gc_json_put_uint(json, #field, tenant->field);
    GC_REPORT_TENANT_COUNTS(GC_TENANT_COUNT)
#undef GC_TENANT_COUNT
    gc_json_end_object(json);
}

void gc_report_tenants_json(struct gc_json *json, const struct gc_device_snapshot *device)
{
    gc_json_key(json, "tenants");
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < device->tenant_count; i++)
        write_tenant(json, &device->tenants[i]);
    gc_json_end_array(json);
}

static void write_head(struct gc_out *out)
{
    gc_out_text(out, "   tenant");
    gc_out_right(out, 37, "limit");
    gc_out_right(out, 48, "reserved");
    gc_out_right(out, 58, "peak");
    gc_out_right(out, 69, "at exit");
    gc_out_text(out, "  refused\n");
}

/* `refused`: requests that found no room. */
void gc_report_tenants_text(struct gc_out *out, const struct gc_device_snapshot *device)
{
    char name[NAME_COLUMNS + 1];
    for (uint32_t i = 0; i < device->tenant_count; i++) {
        const struct gc_tenant_figures *tenant = &device->tenants[i];
        if (i == 0)
            write_head(out);
        gc_out_text(out, "     ");
        gc_out_text(out, gc_text_show(tenant->name, strlen(tenant->name), name, sizeof(name)));
        if (tenant->limit_bytes == UINT64_MAX)
            gc_out_right(out, 37, "none");
        else
            gc_out_right_size(out, 37, tenant->limit_bytes);
        gc_out_right_size(out, 48, tenant->reserved.current);
        gc_out_right_size(out, 58, tenant->reserved.peak);
        gc_out_right_size(out, 69, tenant->requested.current);
        gc_out_text(out, "  ");
        gc_out_uint(out, tenant->oom_count);
        gc_out_text(out, tenant->is_paused ? "\n       (paused)\n" : "\n");
    }
}
