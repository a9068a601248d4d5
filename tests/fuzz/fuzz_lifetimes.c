/* The memory plan of an ONNX graph of anyone's making: every use within a lifetime, no two values
 * in one buffer but by the rules, and a placement that holds. */
#include "core/model/graph_plan.h"
#include "core/planner/lifetimes.h"
#include "core/schedule/schedule.h"
#include "tests/fuzz/model_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void look_at_tensors_of(const struct gc_graph *graph, const struct gc_lifetimes *lifetimes)
{
    for (uint32_t i = 0; i < lifetimes->tensor_count; i++) {
        const struct gc_life_tensor *tensor = &lifetimes->tensors[i];
        must(tensor->value < graph->value_count && tensor->buffer < lifetimes->count);
        const struct gc_placement_buffer *buffer = &lifetimes->buffers[tensor->buffer];
        must(tensor->lower < tensor->upper && tensor->bytes <= buffer->bytes);
        must(buffer->lower <= tensor->lower && tensor->upper <= buffer->upper);
    }
    must(lifetimes->known_count + lifetimes->unknown_count == lifetimes->tensor_count);
}

static void look_at_buffers(const struct gc_lifetimes *lifetimes,
                            const struct gc_lifetimes_rules *rules)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < lifetimes->count; i++) {
        const struct gc_placement_buffer *buffer = &lifetimes->buffers[i];
        must(buffer->lower < buffer->upper && buffer->bytes % rules->alignment == 0);
        must(buffer->upper <= (lifetimes->step_count > 0 ? lifetimes->step_count : 1));
        must((buffer->fixed == GC_PLACEMENT_FREE) == (i >= lifetimes->base_count));
        if (i < lifetimes->base_count) {
            must(buffer->fixed == end);
            end += buffer->bytes;
        }
    }
    must(end == lifetimes->base_bytes);
}

static void plan_graph(const struct gc_graph *graph, const struct gc_lifetimes_rules *rules)
{
    static struct gc_region region;
    struct gc_lifetimes lifetimes;
    struct gc_placement placement;
    gc_region_init(&region, 256U << 20);
    const enum gc_status status = gc_lifetimes_find(&region, graph, rules, &lifetimes);
    must(status == GC_OK || status == GC_OVERFLOW);
    if (status == GC_OK) {
        look_at_tensors_of(graph, &lifetimes);
        look_at_buffers(&lifetimes, rules);
        const struct gc_placement_problem problem = {lifetimes.buffers + lifetimes.base_count,
                                                     lifetimes.count - lifetimes.base_count,
                                                     GC_PLACEMENT_UNLIMITED};
        const struct gc_placement_options options = {.node_max = 100};
        must(gc_solve_placement(&region, &problem, &options, &placement) == GC_OK);
        must(placement.lower_bound_bytes <= placement.peak_bytes);
    }
    gc_region_fini(&region);
}

/* Another schedule computes the same, and needs no more. */
static void schedule_graph(const struct gc_graph *graph, const struct gc_lifetimes_rules *rules)
{
    static struct gc_region region;
    const struct gc_schedule_options options = {
        .reorder = true, .recompute = true, .budget_ppm = 300000, .set_max = 300};
    struct gc_schedule schedule;
    struct gc_lifetimes lifetimes;
    struct gc_schedule_fault fault;
    gc_region_init(&region, 256U << 20);
    const enum gc_status status = gc_schedule_make(&region, graph, rules, &options, &schedule);
    must(status == GC_OK || status == GC_OVERFLOW);
    if (status == GC_OK) {
        must(schedule.after_bytes <= schedule.ordered_bytes);
        must(schedule.ordered_bytes <= schedule.before_bytes);
        must(gc_lifetimes_find(&region, &schedule.graph, rules, &lifetimes) == GC_OK);
        must(gc_schedule_check(&region, graph, &schedule, &lifetimes, &fault) == GC_OK);
    }
    gc_region_fini(&region);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct gc_model_limits limits = {
        .memory_bytes = 32U << 20, .header_bytes = 64U << 20, .tensors = 10000, .files = 16};
    struct gc_lifetimes_rules rules;
    struct gc_model_error error;
    struct gc_graph *graph;
    struct gc_graph_need need;
    char path[128];
    put_file("model.onnx", data, bytes);
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    if (gc_graph_open(path, &limits, &graph, &error) != GC_OK)
        return 0;
    if (gc_graph_infer(graph, "batch=2,N=3", &error) == GC_OK) {
        gc_lifetimes_rules_init(&rules);
        plan_graph(graph, &rules);
        schedule_graph(graph, &rules);
        rules.alignment = 1;
        rules.no_in_place = true;
        rules.keep[GC_LIFE_WEIGHT] = GC_LIFE_USE;
        rules.keep[GC_LIFE_INPUT] = GC_LIFE_USE;
        rules.keep[GC_LIFE_OUTPUT] = GC_LIFE_USE;
        plan_graph(graph, &rules);
        schedule_graph(graph, &rules);
        const enum gc_status status = gc_graph_need_find(graph, &need);
        must(status == GC_OK || status == GC_OVERFLOW);
    }
    gc_graph_close(graph);
    (void)open_model;
    return 0;
}
