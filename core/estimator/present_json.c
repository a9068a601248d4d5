#include "core/estimator/present.h"

static void put_dtype(struct gc_json *json, const char *key, enum gc_dtype dtype)
{
    if (dtype == GC_DTYPE_NONE)
        gc_json_write_null(json, key);
    else
        gc_json_write_string(json, key, gc_dtype_name(dtype));
}

static void put_sizes(struct gc_json *json, const struct gc_estimate_sizes *sizes)
{
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        gc_json_write_uint(json, gc_estimate_part_key((enum gc_estimate_part)part),
                           sizes->parts[part]);
    gc_json_write_uint(json, "peak_bytes", sizes->peak_bytes);
}

static void put_fit(struct gc_json *json, const struct gc_answer *answer)
{
    const struct gc_fit *fit = answer->fit;
    gc_json_write_maybe(json, "budget_bytes",
                        fit != NULL && fit->budget_bytes != GC_ESTIMATE_NO_BUDGET,
                        fit != NULL ? fit->budget_bytes : 0);
    gc_json_key(json, "fits");
    if (fit != NULL)
        gc_json_bool(json, fit->fits);
    else
        gc_json_null(json);
    gc_json_write_maybe(json, "deficit_bytes", fit != NULL, fit != NULL ? fit->deficit_bytes : 0);
    gc_json_key(json, "deficit");
    if (fit == NULL || fit->fits) {
        gc_json_null(json);
        return;
    }
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_uint(json, "device", fit->device);
    gc_json_write_uint(json, "bytes", fit->device_deficit_bytes);
    gc_json_write_string(json, "largest", gc_estimate_part_key(fit->largest));
    gc_json_end_object(json);
}

/* null: does not apply. 0, or null for a type: not even the smallest fits. */
static void put_suggestion(struct gc_json *json, const char *key, const char *unit,
                           const struct gc_suggestion *suggestion)
{
    const bool fits =
        suggestion->state == GC_SUGGESTION_SOME || suggestion->state == GC_SUGGESTION_ALL;
    if (unit == NULL)
        put_dtype(json, key, fits ? (enum gc_dtype)suggestion->value : GC_DTYPE_NONE);
    else
        gc_json_write_maybe(json, key, suggestion->state != GC_SUGGESTION_NONE, suggestion->value);
}

static void put_suggestions(struct gc_json *json, const struct gc_suggestions *suggestions)
{
    static const struct gc_suggestions none;
    const struct gc_suggestions *from = suggestions != NULL ? suggestions : &none;
#define GC_SUGGESTION(field, key, label, unit) put_suggestion(json, key, unit, &from->field);
#include "core/estimator/suggestions.def"
#undef GC_SUGGESTION
}

static void put_unknown(struct gc_json *json, const struct gc_estimate *estimate)
{
    gc_json_write_fixed(json, "coverage", estimate->coverage_thousandths, 3);
    gc_json_open_array(json, "lower_bounds", GC_JSON_LINE);
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++) {
        if ((estimate->unknown_parts >> part & 1) != 0)
            gc_json_string(json, gc_estimate_part_key((enum gc_estimate_part)part));
    }
    gc_json_end_array(json);
}

static void put_devices(struct gc_json *json, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        const uint64_t budget =
            answer->budget != NULL ? answer->budget->device_bytes[i] : GC_ESTIMATE_NO_BUDGET;
        gc_json_begin_object(json, GC_JSON_LINE);
        put_sizes(json, &estimate->devices[i]);
        gc_json_write_maybe(json, "budget_bytes", budget != GC_ESTIMATE_NO_BUDGET, budget);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void put_warnings(struct gc_json *json, const struct gc_notes *notes)
{
    gc_json_open_array(json, "warnings", GC_JSON_LINES);
    for (uint32_t i = 0; i < notes->count; i++)
        gc_json_string(json, notes->texts[i]);
    gc_json_end_array(json);
}

void gc_present_members(struct gc_json *json, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    gc_json_write_string(json, "model", answer->model);
    gc_json_write_uint(json, "parameters", estimate->parameters);
    gc_json_write_uint(json, "tensors", estimate->tensor_count);
    gc_json_write_uint(json, "batch", estimate->batch);
    gc_json_write_maybe(json, "seq_len", estimate->seq_len > 0, estimate->seq_len);
    put_dtype(json, "dtype", estimate->dtype);
    put_dtype(json, "kv_dtype", estimate->kv_dtype);
    put_sizes(json, &estimate->total);
    put_fit(json, answer);
    put_unknown(json, estimate);
    put_suggestions(json, answer->suggestions);
    gc_json_write_maybe(json, "experts_per_layer", estimate->experts > 0, estimate->experts);
    put_devices(json, answer);
    put_warnings(json, &estimate->notes);
}

void gc_present_json(struct gc_json *json, const struct gc_answer *answer)
{
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_present_members(json, answer);
    gc_json_end_object(json);
}
