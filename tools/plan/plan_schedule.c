#include "tools/plan/plan_schedule.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/io/text.h"

#include <stdio.h>

bool plan_schedule_is_wanted(const struct plan_request *request)
{
    return request->reorder || request->recompute_ppm > 0;
}

static bool watch(void *argument)
{
    const uint64_t *end_ns = argument;
    return gc_clock_ns() < *end_ns;
}

int plan_schedule_find(const struct plan_request *request, struct plan_subject *subject,
                       const struct gc_graph *graph, const struct gc_lifetimes_rules *rules,
                       struct plan_schedule *schedule)
{
    const uint64_t begin_ns = gc_clock_ns();
    uint64_t end_ns = begin_ns + request->deadline_ns / 2;
    const struct gc_schedule_options options = {.reorder = request->reorder,
                                                .recompute = request->recompute_ppm > 0,
                                                .budget_ppm = request->recompute_ppm,
                                                .set_max = request->node_max,
                                                .watch = watch,
                                                .watch_argument = &end_ns};
    schedule->given = graph;
    const enum gc_status status =
        gc_schedule_make(&subject->region, graph, rules, &options, &schedule->made);
    subject->spent_ns = gc_clock_ns() - begin_ns;
    if (status != GC_OK)
        return tool_fail(request->command, "%s: %s", request->path, gc_status_text(status));
    return TOOL_DONE;
}

int plan_schedule_check(const struct plan_request *request, struct plan_subject *subject,
                        const struct plan_schedule *schedule, const struct gc_lifetimes *lifetimes)
{
    struct gc_schedule_fault fault;
    const enum gc_status status =
        gc_schedule_check(&subject->region, schedule->given, &schedule->made, lifetimes, &fault);
    if (status == GC_OK)
        return TOOL_DONE;
    if (status != GC_INVALID_ARGUMENT)
        return tool_fail(request->command, "%s: %s", request->path, gc_status_text(status));
    return tool_fail(request->command,
                     "%s: a defect: the new order of the nodes is not valid (node %u: %s)",
                     request->path, (unsigned)fault.node, fault.what);
}

/* ---- output ---- */

static uint64_t saved_bytes(const struct gc_schedule *made)
{
    return gc_sub_or_zero_u64(made->before_bytes, made->after_bytes);
}

/* Thousandths of a whole. */
static uint64_t share_of(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (uint64_t)((double)part / (double)whole * 1000 + 0.5);
}

static void write_share(struct gc_writer *out, uint64_t thousandths, const char *unit)
{
    gc_writer_fixed(out, thousandths, 1);
    gc_writer_text(out, unit);
}

void plan_schedule_write_text(struct gc_writer *out, const struct plan_schedule *schedule)
{
    const struct gc_schedule *made = &schedule->made;
    plan_write_size(out, "live, as in file", made->before_bytes, "");
    plan_write_size(out, "live, new order", made->ordered_bytes,
                    made->is_optimal ? "   optimal" : "");
    if (made->work.bytes > 0) {
        plan_write_size(out, "live, repeating", made->after_bytes, "");
        gc_writer_text(out, "repeated");
        gc_writer_pad(out, 24);
        gc_writer_uint(out, made->repeat_count);
        gc_writer_text(out, " nodes: ");
        write_share(out, share_of(made->extra.operations, made->work.operations),
                    "% more operations, ");
        write_share(out, share_of(made->extra.bytes, made->work.bytes), "% more bytes moved\n");
    }
    gc_writer_text(out, "saved");
    gc_writer_pad(out, 24);
    write_share(out, share_of(saved_bytes(made), made->before_bytes), "% of the live peak\n");
}

/* Nodes need no name: the first output's is unique. */
static void write_node(struct gc_json *json, const struct gc_graph *graph, uint32_t index,
                       bool is_again)
{
    const struct gc_graph_node *node = &graph->nodes[index];
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "node", node->name);
    gc_json_write_string(json, "op", node->op);
    gc_json_write_uint(json, "scope", node->scope);
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == GC_GRAPH_NONE)
            continue;
        gc_json_write_string(json, "output", graph->values[node->outputs[i]].name);
        break;
    }
    gc_json_write_bool(json, "again", is_again);
    gc_json_end_object(json);
}

/* A copy is named as the node that it repeats. */
static void write_order(struct gc_json *json, const struct plan_schedule *schedule)
{
    const struct gc_graph *graph = &schedule->made.graph;
    gc_json_open_array(json, "order", GC_JSON_LINES);
    for (uint32_t i = 0; i < graph->scope_count; i++) {
        for (uint32_t j = 0; j < graph->scopes[i].node_count && !graph->scopes[i].is_dead; j++) {
            const uint32_t node = graph->scopes[i].nodes[j];
            const bool is_again = node >= schedule->given->node_count;
            write_node(json, schedule->given, is_again ? schedule->made.copy_of[node] : node,
                       is_again);
        }
    }
    gc_json_end_array(json);
}

void plan_schedule_write_json(struct gc_json *json, const struct plan_schedule *schedule)
{
    const struct gc_schedule *made = &schedule->made;
    gc_json_open_object(json, "schedule", GC_JSON_LINES);
    gc_json_write_uint(json, "live_before_bytes", made->before_bytes);
    gc_json_write_uint(json, "live_reordered_bytes", made->ordered_bytes);
    gc_json_write_uint(json, "live_bytes", made->after_bytes);
    gc_json_write_uint(json, "saved_bytes", saved_bytes(made));
    gc_json_write_bool(json, "order_optimal", made->is_optimal);
    gc_json_write_uint(json, "sets", made->sets);
    gc_json_write_uint(json, "repeated_nodes", made->repeat_count);
    gc_json_write_uint(json, "operations", made->work.operations);
    gc_json_write_uint(json, "moved_bytes", made->work.bytes);
    gc_json_write_uint(json, "extra_operations", made->extra.operations);
    gc_json_write_uint(json, "extra_moved_bytes", made->extra.bytes);
    write_order(json, schedule);
    gc_json_end_object(json);
}
