/* Nodes that run again instead of their results being kept (rematerialisation).
 *
 * A value that is alive at the peak but not used there is made again before its next reader, by a
 * copy of its producer, and of the producers of the inputs that are gone by then or would have to
 * be kept for it. Each choice is the one that takes most of the bytes above a target for the least
 * of the budget (greedy, as in Kumar et al., "Efficient Rematerialization for Deep Networks",
 * NeurIPS 2019); the lowest target that the budget reaches is found by bisection. Every choice is
 * judged by the lifetimes of the whole changed graph, so an input whose life grows, or that can no
 * longer be overwritten, counts. No bound is proven. */
#include "core/base/bits.h"
#include "core/schedule/draft.h"

#include <string.h>

#define NONE UINT32_MAX
#define TRIED_MAX 6        /* choices that are judged, the most promising first */
#define TARGET_ROUNDS 12   /* of the bisection */
#define TARGET_DIVISOR 256 /* it ends at this fraction of the peak */
#define CHOICES_ROOM 32U

struct recomputing {
    struct gc_region *region;
    const struct gc_lifetimes_rules *rules;
    const struct gc_schedule_options *options;
    struct gc_schedule_work budget;
    uint64_t target; /* bytes of the moving buffers */
    bool is_stopped;
};

/* ---- choices ---- */

struct use {
    uint32_t before; /* the last step up to the peak that touches the buffer; NONE */
    uint32_t after;  /* the first behind it; NONE */
    uint32_t position;
};

struct finding {
    const struct gc_draft *draft;
    const struct gc_draft_view *view;
    struct use *uses;
    uint32_t peak_step;
    uint32_t step;
    uint32_t position;
};

static bool add_use(void *argument, uint32_t node)
{
    struct finding *finding = argument;
    const struct gc_graph_node *at = &finding->draft->nodes[node];
    for (uint32_t i = 0; i < at->input_count + at->output_count; i++) {
        const uint32_t value =
            i < at->input_count ? at->inputs[i] : at->outputs[i - at->input_count];
        const uint32_t buffer = gc_draft_buffer_of(finding->view, value);
        if (buffer == NONE)
            continue;
        struct use *use = &finding->uses[buffer];
        if (finding->step <= finding->peak_step) {
            use->before = finding->step;
        } else if (use->after == NONE) {
            use->after = finding->step;
            use->position = finding->position;
        }
    }
    return true;
}

/* The steps at which each buffer is touched around the peak. A node with inner graphs has the step
 * at which it begins. */
static bool find_uses(const struct gc_draft *draft, struct gc_draft_view *view, uint32_t peak_step,
                      struct finding *finding)
{
    *finding = (struct finding){.draft = draft, .view = view, .peak_step = peak_step};
    finding->uses =
        gc_region_alloc(&view->region, (uint64_t)view->lifetimes.count * sizeof(*finding->uses));
    if (finding->uses == NULL)
        return false;
    memset(finding->uses, 0xff, (uint64_t)view->lifetimes.count * sizeof(*finding->uses));
    for (uint32_t i = 0; i < draft->graph.scopes[0].node_count; i++) {
        finding->position = i;
        finding->step = view->step_of[draft->list[i]];
        if (finding->step != NONE &&
            !gc_draft_visit(&draft->graph, draft->list[i], add_use, finding))
            return false;
    }
    return true;
}

/* The bytes above the target that the buffer's absence between its uses takes, for the share of the
 * budget that its producer needs. */
static uint64_t score_of(const struct recomputing *recomputing, const struct gc_draft *draft,
                         const struct gc_draft_view *view, const struct use *use, uint32_t buffer)
{
    const uint32_t owner = view->lifetimes.owners[buffer];
    const uint64_t bytes = view->lifetimes.buffers[buffer].bytes;
    uint64_t gain = 0;
    const uint32_t producer = draft->values[owner].producer;
    if (producer == GC_GRAPH_NONE || draft->nodes[producer].scope != 0)
        return 0;
    for (uint32_t step = use->before + 1; step < use->after; step++)
        gain += gc_min_u64(bytes, gc_sub_or_zero_u64(view->live[step], recomputing->target));
    const struct gc_schedule_work work = gc_schedule_node_work(&draft->graph, producer);
    const double share = (double)work.operations / ((double)recomputing->budget.operations + 1) +
                         (double)work.bytes / ((double)recomputing->budget.bytes + 1);
    const double score = (double)gain / (share + 1e-4);
    return gain == 0 ? 0 : score < 1e18 ? (uint64_t)score + 1 : UINT64_C(1000000000000000000);
}

/* The most promising choices at the first step of the peak, best first. */
static uint32_t find_choices(const struct recomputing *recomputing, const struct gc_draft *draft,
                             struct gc_draft_view *view, struct gc_draft_choice *choices)
{
    uint32_t peak_step = 0;
    uint32_t count = 0;
    struct finding finding;
    while (view->live[peak_step] < view->peak)
        peak_step++;
    if (!find_uses(draft, view, peak_step, &finding))
        return 0;
    for (uint32_t i = view->lifetimes.base_count; i < view->lifetimes.count; i++) {
        const struct use *use = &finding.uses[i];
        if (use->before == NONE || use->after == NONE || use->before >= peak_step ||
            view->lifetimes.roles[i] != GC_LIFE_ACTIVATION ||
            view->lifetimes.owners[i] == GC_GRAPH_NONE)
            continue;
        const struct gc_draft_choice choice = {.buffer = i,
                                               .position = use->position,
                                               .step = use->after,
                                               .score = score_of(recomputing, draft, view, use, i)};
        uint32_t at = count < TRIED_MAX ? count++ : TRIED_MAX;
        for (; at > 0 && choices[at - 1].score < choice.score; at--) {
            if (at < TRIED_MAX)
                choices[at] = choices[at - 1];
        }
        if (at < TRIED_MAX)
            choices[at] = choice;
    }
    while (count > 0 && choices[count - 1].score == 0)
        count--;
    return count;
}

/* ---- one target ---- */

static bool is_within(const struct recomputing *recomputing, const struct gc_draft *draft)
{
    return draft->extra.operations <= recomputing->budget.operations &&
           draft->extra.bytes <= recomputing->budget.bytes;
}

static double share_of(const struct recomputing *recomputing, const struct gc_draft *from,
                       const struct gc_draft *to)
{
    return (double)(to->extra.operations - from->extra.operations) /
               ((double)recomputing->budget.operations + 1) +
           (double)(to->extra.bytes - from->extra.bytes) / ((double)recomputing->budget.bytes + 1);
}

/* Judges a choice: the excess that it takes for its share of the budget; 0: not possible. */
static enum gc_status judge(const struct recomputing *recomputing, const struct gc_draft *draft,
                            const struct gc_draft_view *view, const struct gc_draft_choice *choice,
                            double *worth)
{
    struct gc_region scratch;
    struct gc_draft changed;
    struct gc_draft_view after;
    enum gc_status status = GC_OK;
    *worth = 0;
    gc_region_init(&scratch, GC_DRAFT_BYTES_MAX);
    if (!gc_draft_copy(&scratch, draft, 1, &changed)) {
        gc_region_fini(&scratch);
        return GC_NO_HOST_MEMORY;
    }
    if (gc_draft_apply(&scratch, &changed, view, choice) && is_within(recomputing, &changed)) {
        status = gc_draft_view_open(&changed, recomputing->rules, recomputing->target, &after);
        if (status == GC_OK && after.excess < view->excess)
            *worth = (double)(view->excess - after.excess) /
                     (share_of(recomputing, draft, &changed) + 1e-4);
        gc_draft_view_close(&after);
    }
    gc_region_fini(&scratch);
    return status;
}

static bool is_late(struct recomputing *recomputing)
{
    const struct gc_schedule_options *options = recomputing->options;
    if (options->watch != NULL && !options->watch(options->watch_argument))
        recomputing->is_stopped = true;
    return recomputing->is_stopped;
}

/* The best choice of all; false: none takes anything. */
static enum gc_status choose(struct recomputing *recomputing, const struct gc_draft *draft,
                             struct gc_draft_view *view, struct gc_draft_choice *best,
                             bool *is_found)
{
    struct gc_draft_choice choices[TRIED_MAX];
    const uint32_t count = find_choices(recomputing, draft, view, choices);
    double most = 0;
    *is_found = false;
    for (uint32_t i = 0; i < 2 * count && !is_late(recomputing); i++) {
        struct gc_draft_choice choice = choices[i / 2];
        double worth;
        choice.is_deep = i % 2 == 1;
        const enum gc_status status = judge(recomputing, draft, view, &choice, &worth);
        if (status != GC_OK)
            return status;
        if (worth <= most)
            continue;
        most = worth;
        *best = choice;
        *is_found = true;
    }
    return GC_OK;
}

/* The choices of one target, in turn. */
struct chosen {
    struct gc_draft_choice *choices;
    uint32_t count;
    uint32_t room;
};

static bool keep_choice(struct gc_region *region, struct chosen *chosen,
                        const struct gc_draft_choice *choice)
{
    if (chosen->count == chosen->room) {
        const uint32_t room = chosen->room * 2 + CHOICES_ROOM;
        chosen->choices = gc_region_grow(region, chosen->choices, chosen->room * sizeof(*choice),
                                         room * sizeof(*choice));
        if (chosen->choices == NULL)
            return false;
        chosen->room = room;
    }
    chosen->choices[chosen->count++] = *choice;
    return true;
}

/* Makes the best choice, if the peak is above the target and there is one. */
static enum gc_status take_choice(struct recomputing *recomputing, struct gc_region *scratch,
                                  struct gc_draft *draft, struct chosen *chosen, uint64_t *peak,
                                  bool *is_found)
{
    struct gc_draft_view view;
    struct gc_draft_choice choice;
    enum gc_status status =
        gc_draft_view_open(draft, recomputing->rules, recomputing->target, &view);
    *peak = view.peak;
    *is_found = false;
    if (status == GC_OK && view.peak > recomputing->target)
        status = choose(recomputing, draft, &view, &choice, is_found);
    if (status == GC_OK && *is_found &&
        (!gc_draft_apply(scratch, draft, &view, &choice) || !keep_choice(scratch, chosen, &choice)))
        status = GC_NO_HOST_MEMORY;
    gc_draft_view_close(&view);
    return status;
}

/* Makes choices until the peak is at the target, or none takes anything. */
static enum gc_status reach(struct recomputing *recomputing, struct gc_region *scratch,
                            const struct gc_draft *first, struct chosen *chosen, uint64_t *peak)
{
    struct gc_draft draft = *first;
    uint32_t room = 0;
    bool is_found = true;
    enum gc_status status = GC_OK;
    while (status == GC_OK && is_found) {
        if (chosen->count == room) {
            struct gc_draft roomier;
            room = room * 2 + CHOICES_ROOM;
            if (!gc_draft_copy(scratch, &draft, room - chosen->count, &roomier))
                return GC_NO_HOST_MEMORY;
            draft = roomier;
        }
        status = take_choice(recomputing, scratch, &draft, chosen, peak, &is_found);
    }
    return status;
}

/* ---- the whole ---- */

/* Of the nodes that have a step. */
static enum gc_status add_work(const struct recomputing *recomputing, struct gc_schedule *schedule,
                               const struct gc_draft *draft, uint64_t *peak)
{
    struct gc_draft_view view;
    const enum gc_status status =
        gc_draft_view_open(draft, recomputing->rules, recomputing->target, &view);
    *peak = view.peak;
    for (uint32_t i = 0; status == GC_OK && i < draft->graph.node_count; i++) {
        if (view.step_of[i] == NONE)
            continue;
        const struct gc_schedule_work work = gc_schedule_node_work(&draft->graph, i);
        schedule->work.operations += work.operations;
        schedule->work.bytes += work.bytes;
    }
    gc_draft_view_close(&view);
    return status;
}

static uint64_t part_of(uint64_t whole, uint64_t ppm)
{
    return (uint64_t)((unsigned __int128)whole * ppm / 1000000);
}

/* Lowers the target as far as the budget goes; *best: the choices for the lowest peak. */
static enum gc_status bisect(struct recomputing *recomputing, const struct gc_draft *first,
                             uint64_t peak, struct chosen *best)
{
    uint64_t high = peak;
    uint64_t low = 0;
    enum gc_status status = GC_OK;
    for (unsigned n = 0; n < TARGET_ROUNDS && status == GC_OK && !recomputing->is_stopped &&
                         high - low > peak / TARGET_DIVISOR;
         n++) {
        struct gc_region scratch;
        struct chosen chosen = {.count = 0};
        uint64_t reached;
        recomputing->target = low + (high - low) / 2;
        gc_region_init(&scratch, GC_DRAFT_BYTES_MAX);
        status = reach(recomputing, &scratch, first, &chosen, &reached);
        if (status == GC_OK && reached > recomputing->target)
            low = recomputing->target;
        if (status == GC_OK && reached < high) {
            high = reached;
            best->count = chosen.count;
            best->choices =
                gc_region_alloc(recomputing->region, chosen.count * sizeof(*best->choices));
            status = best->choices != NULL ? GC_OK : GC_NO_HOST_MEMORY;
            if (status == GC_OK && chosen.count > 0)
                memcpy(best->choices, chosen.choices, chosen.count * sizeof(*best->choices));
        }
        gc_region_fini(&scratch);
    }
    return status;
}

/* Makes the choices once more, in the region of the result. */
static enum gc_status repeat(const struct recomputing *recomputing, const struct chosen *chosen,
                             struct gc_draft *draft)
{
    const struct gc_draft first = *draft;
    if (!gc_draft_copy(recomputing->region, &first, chosen->count, draft))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < chosen->count; i++) {
        struct gc_draft_view view;
        enum gc_status status =
            gc_draft_view_open(draft, recomputing->rules, recomputing->target, &view);
        if (status == GC_OK &&
            !gc_draft_apply(recomputing->region, draft, &view, &chosen->choices[i]))
            status = GC_NO_HOST_MEMORY;
        gc_draft_view_close(&view);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

enum gc_status gc_schedule_recompute(struct gc_region *region,
                                     const struct gc_lifetimes_rules *rules,
                                     const struct gc_schedule_options *options,
                                     struct gc_schedule *schedule)
{
    struct recomputing recomputing = {.region = region, .rules = rules, .options = options};
    const uint32_t node_count = schedule->graph.node_count;
    struct gc_draft draft;
    struct chosen best = {.count = 0};
    uint64_t peak = 0;
    enum gc_status status = gc_draft_begin(region, &schedule->graph, &draft);
    if (status == GC_OK)
        status = add_work(&recomputing, schedule, &draft, &peak);
    recomputing.budget.operations = part_of(schedule->work.operations, options->budget_ppm);
    recomputing.budget.bytes = part_of(schedule->work.bytes, options->budget_ppm);
    if (status == GC_OK)
        status = bisect(&recomputing, &draft, peak, &best);
    if (status == GC_OK)
        status = repeat(&recomputing, &best, &draft);
    if (status != GC_OK)
        return status;
    schedule->graph = draft.graph;
    schedule->copy_of = draft.copy_of;
    schedule->repeat_count = draft.graph.node_count - node_count;
    schedule->extra = draft.extra;
    return gc_schedule_peak(&schedule->graph, rules, &schedule->after_bytes);
}
