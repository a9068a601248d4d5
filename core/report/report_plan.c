#include "core/report/report_plan.h"

#include "core/io/text.h"

static uint64_t fallback_count(const struct gc_follow_figures *plan)
{
    uint64_t count = 0;
#define GC_FOLLOW_REASON(name, key, text) count += plan->key##_count;
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    return count;
}

static uint64_t fallback_bytes(const struct gc_follow_figures *plan)
{
    uint64_t bytes = 0;
#define GC_FOLLOW_REASON(name, key, text) bytes += plan->key##_bytes;
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    return bytes;
}

static void write_pair(struct gc_json *json, const char *key, uint64_t count, uint64_t bytes)
{
    gc_json_key(json, key);
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_put_uint(json, "count", count);
    gc_json_put_uint(json, "bytes", bytes);
    gc_json_end_object(json);
}

void gc_report_plan_json(struct gc_json *json, const struct gc_follow_figures *plan)
{
    if (plan->entry_count == 0) {
        gc_json_put_null(json, "plan");
        return;
    }
    gc_json_key(json, "plan");
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_put_uint(json, "entries", plan->entry_count);
    gc_json_put_uint(json, "peak_bytes", plan->peak_bytes);
    gc_json_put_uint(json, "used_bytes", plan->used_bytes);
    gc_json_put_uint(json, "rounds", plan->rounds);
    gc_json_put_uint(json, "jumps", plan->jumps);
    write_pair(json, "followed", plan->followed_count, plan->followed_bytes);
    write_pair(json, "fallback", fallback_count(plan), fallback_bytes(plan));
    gc_json_key(json, "reasons");
    gc_json_begin_object(json, GC_JSON_LINES);
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    write_pair(json, #key, plan->key##_count, plan->key##_bytes);
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    gc_json_end_object(json);
    gc_json_end_object(json);
}

static void put_amount(struct gc_out *out, uint64_t count, uint64_t bytes, const char *text)
{
    char size[GC_TEXT_SIZE_BYTES];
    gc_out_uint(out, count);
    gc_out_text(out, " (");
    gc_out_text(out, gc_text_size(bytes, size));
    gc_out_text(out, ") ");
    gc_out_text(out, text);
}

void gc_report_plan_text(struct gc_out *out, const struct gc_follow_figures *plan)
{
    char size[GC_TEXT_SIZE_BYTES];
    if (plan->entry_count == 0)
        return;
    gc_out_text(out, "   plan       ");
    gc_out_text(out, gc_text_size(plan->peak_bytes, size));
    gc_out_text(out, ", ");
    gc_out_uint(out, plan->entry_count);
    gc_out_text(out, " allocations, gone through ");
    gc_out_uint(out, plan->rounds);
    gc_out_text(out, plan->rounds == 1 ? " time\n     " : " times\n     ");
    put_amount(out, plan->followed_count, plan->followed_bytes, "followed it");
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    if (plan->key##_count > 0) {                                                                   \
        gc_out_text(out, "\n     ");                                                               \
        put_amount(out, plan->key##_count, plan->key##_bytes, "did not: " text);                   \
    }
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    gc_out_char(out, '\n');
}
