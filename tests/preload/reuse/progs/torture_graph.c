/* Graphs: effects as nodes, built by hand or captured, changed between launches, launched in
 * streams of other contexts too, destroyed while they run. The effects of a graph are applied to
 * the model at each launch, in the order in which they were added. */
#include "torture.h"

static struct graph *empty_graph(struct worker *worker)
{
    for (unsigned i = 0; i < GRAPHS; i++) {
        struct graph *graph = &worker->graphs[i];
        if (graph->exec == NULL) {
            wait_for(worker, graph->launched); /* its host memory is used again */
            graph->count = 0;
            graph->is_spent = false;
            return graph;
        }
    }
    drop_graph(worker, &worker->graphs[pick(worker, GRAPHS)]);
    return NULL;
}

static struct graph *some_graph(struct worker *worker)
{
    const unsigned first = (unsigned)pick(worker, GRAPHS);

    for (unsigned i = 0; i < GRAPHS; i++) {
        struct graph *graph = &worker->graphs[(first + i) % GRAPHS];
        if (graph->exec != NULL && !graph->is_spent)
            return graph;
    }
    return NULL;
}

/* An effect that a graph can have; its host memory is the graph's own. */
static bool choose_for_graph(struct worker *worker, struct graph *graph)
{
    struct effect *effect = &graph->effects[graph->count];
    unsigned char *stage = graph->stages[graph->count];

    if (!choose_effect(worker, graph->context, effect))
        return false;
    if (effect->kind == VALUE)
        effect->kind = FILL, effect->element = 4;
    if (effect->kind == FILL && !effect->is_whole && effect->bytes >= 4 && effect->element == 4 &&
        effect->to->device == worker->world->contexts[graph->context].device &&
        with(worker, WITH_temporaries) && chance(worker, 40))
        effect->kind = TEMPORARY;
    effect->host = stage;
    if (effect->kind == COPY_IN)
        for (size_t i = 0; i < effect->bytes; i++)
            stage[i] = (unsigned char)(effect->value >> i % 4 * 8);
    return true;
}

/* ---- launched ---- */

static void launch(struct worker *worker, struct graph *graph)
{
    const struct context *contexts = worker->world->contexts;
    const unsigned other = some_context(worker);
    const unsigned context = with(worker, WITH_foreign) && (worker->world->foreign & TO_LAUNCH) &&
                                     contexts[other].device == contexts[graph->context].device
                                 ? other
                                 : graph->context;
    const unsigned lane = some_lane(worker, context);
    const struct calls *calls = some_calls(worker);

    for (unsigned i = 0; i < graph->count; i++)
        order_effect(worker, lane, &graph->effects[i]);
    enter(worker, context);
    CHECK(calls->launch(graph->exec, stream_of(worker, lane, calls)));
    graph->launched = add_work(worker, lane);
    for (unsigned i = 0; i < graph->count; i++) {
        note_effect(worker, &graph->effects[i], graph->launched);
        apply(&graph->effects[i]);
    }
    atomic_fetch_add_explicit(&worker->world->launches, 1, memory_order_relaxed);
}

/* Sometimes for the last time: the graph is destroyed while it runs. */
struct block *launch_graph(struct worker *worker)
{
    struct graph *graph = some_graph(worker);

    if (graph == NULL || graph->count == 0)
        return NULL;
    launch(worker, graph);
    if (chance(worker, 10))
        drop_graph(worker, graph);
    return graph->effects[pick(worker, graph->count)].to;
}

/* ---- nodes ---- */

static CUDA_MEMCPY3D copy_of(const struct effect *effect)
{
    CUDA_MEMCPY3D copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = address_at(effect->to, effect->to_at),
                          .dstPitch = effect->bytes,
                          .srcPitch = effect->bytes,
                          .WidthInBytes = effect->bytes,
                          .Height = 1,
                          .Depth = 1};

    if (effect->kind == COPY_IN) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = effect->host;
    } else {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = address_at(effect->from, effect->from_at);
    }
    return copy;
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const struct effect *effect)
{
    const struct block *to = effect->to;

    return (CUDA_MEMSET_NODE_PARAMS){.dst = address_at(to, effect->to_at),
                                     .pitch = to->pitch,
                                     .value = effect->element == 4   ? effect->value
                                              : effect->element == 2 ? effect->value & 0xffff
                                                                     : effect->value & 0xff,
                                     .elementSize = effect->element,
                                     .width = (effect->is_whole ? to->width : effect->bytes) /
                                              effect->element,
                                     .height = effect->is_whole ? to->height : 1};
}

static bool touch_the_same(const struct effect *one, const struct effect *other)
{
    return one->to == other->to || one->from == other->to || one->to == other->from;
}

/* Behind those that it must be behind, or behind the last. */
static size_t nodes_before(struct worker *worker, const struct graph *graph, CUgraphNode *before)
{
    const bool is_chain = chance(worker, 40);
    size_t count = 0;

    for (unsigned i = 0; i < graph->count; i++)
        if (touch_the_same(&graph->effects[i], &graph->effects[graph->count]) ||
            (is_chain && i + 1 == graph->count))
            before[count++] = graph->nodes[i];
    return count;
}

/* Memory that the graph takes, fills, copies to the block and frees. */
static CUgraphNode add_temporary(struct graph *graph, const struct effect *effect, unsigned device,
                                 CUcontext context, const CUgraphNode *before, size_t count)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device}},
        .bytesize = 4096};
    CUDA_MEMSET_NODE_PARAMS fill = {
        .value = effect->value, .elementSize = 4, .width = WATCHED / 4, .height = 1};
    CUDA_MEMCPY3D copy = copy_of(&(struct effect){
        .kind = COPY_IN, .to = effect->to, .to_at = effect->to_at, .bytes = effect->bytes});
    CUgraphNode taken, filled, copied, freed;

    CHECK(cuGraphAddMemAllocNode(&taken, graph->graph, before, count, &memory));
    fill.dst = memory.dptr;
    CHECK(cuGraphAddMemsetNode(&filled, graph->graph, &taken, 1, &fill, context));
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcHost = NULL;
    copy.srcDevice = memory.dptr;
    CHECK(cuGraphAddMemcpyNode(&copied, graph->graph, &filled, 1, &copy, context));
    CHECK(cuGraphAddMemFreeNode(&freed, graph->graph, &copied, 1, memory.dptr));
    return copied;
}

static void add_node(struct worker *worker, struct graph *graph)
{
    const struct effect *effect = &graph->effects[graph->count];
    const struct context *context = &worker->world->contexts[graph->context];
    CUgraphNode before[NODES], *node = &graph->nodes[graph->count];
    const size_t count = nodes_before(worker, graph, before);

    if (effect->kind == TEMPORARY) {
        *node = add_temporary(graph, effect, context->device, context->handle, before, count);
    } else if (effect->kind == FILL) {
        const CUDA_MEMSET_NODE_PARAMS fill = fill_of(effect);
        CHECK(cuGraphAddMemsetNode(node, graph->graph, before, count, &fill, context->handle));
    } else {
        const CUDA_MEMCPY3D copy = copy_of(effect);
        CHECK(cuGraphAddMemcpyNode(node, graph->graph, before, count, &copy, context->handle));
    }
}

void build_graph(struct worker *worker)
{
    struct graph *graph = empty_graph(worker);
    const unsigned count = 1 + (unsigned)pick(worker, NODES);

    if (graph == NULL)
        return;
    graph->context = some_context(worker);
    graph->is_captured = false;
    enter(worker, graph->context);
    CHECK(cuGraphCreate(&graph->graph, 0));
    worker->graph_way = TO_NODE;
    for (unsigned i = 0; i < count; i++)
        if (choose_for_graph(worker, graph)) {
            add_node(worker, graph);
            graph->count++;
        }
    worker->graph_way = 0;
    CHECK(cuGraphInstantiate(&graph->exec, graph->graph, 0));
    launch(worker, graph);
}

/* A node of the same kind and size, with memory of the same contexts. */
void change_graph(struct worker *worker)
{
    struct graph *graph = some_graph(worker);
    struct effect changed;

    if (graph == NULL || graph->is_captured || graph->count == 0)
        return;
    const unsigned index = (unsigned)pick(worker, graph->count);
    struct effect *effect = &graph->effects[index];
    const struct context *context = &worker->world->contexts[graph->context];
    if (effect->kind == TEMPORARY || effect->kind == COPY_IN || effect->is_whole)
        return;
    for (unsigned i = 0; i < 20; i++) {
        worker->graph_way = TO_NODE;
        const bool is_chosen = choose_effect(worker, graph->context, &changed);
        worker->graph_way = 0;
        if (!is_chosen || changed.kind != effect->kind || changed.is_whole ||
            changed.to->context != effect->to->context ||
            (changed.from != NULL && changed.from->context != effect->from->context))
            continue;
        if (changed.bytes < effect->bytes || changed.element != effect->element)
            continue;
        changed.bytes = effect->bytes;
        for (unsigned j = 0; j < graph->count; j++) /* the order of nodes stays as it is */
            if (j != index && touch_the_same(&graph->effects[j], &changed))
                return;
        *effect = changed;
        enter(worker, graph->context);
        if (effect->kind == FILL) {
            const CUDA_MEMSET_NODE_PARAMS fill = fill_of(effect);
            CHECK(cuGraphExecMemsetNodeSetParams(graph->exec, graph->nodes[index], &fill,
                                                 context->handle));
        } else {
            const CUDA_MEMCPY3D copy = copy_of(effect);
            CHECK(cuGraphExecMemcpyNodeSetParams(graph->exec, graph->nodes[index], &copy,
                                                 context->handle));
        }
        return;
    }
}

/* ---- captured ---- */

static void capture_temporary(struct worker *worker, unsigned lane, const struct effect *effect)
{
    const struct calls *calls = some_calls(worker);
    const CUstream stream = worker->lanes[lane].stream;
    struct block memory = {.bytes = 4096, .width = WATCHED, .pitch = WATCHED, .height = 1};
    const struct effect fill = {
        .kind = FILL, .to = &memory, .bytes = WATCHED, .element = 4, .value = effect->value};
    const struct effect copy = {.kind = COPY,
                                .to = effect->to,
                                .to_at = effect->to_at,
                                .from = &memory,
                                .bytes = effect->bytes};

    CHECK(calls->take(&memory.address, memory.bytes, NULL, stream));
    CHECK(calls->work(&fill, 0, stream));
    CHECK(calls->work(&copy, 0, stream));
    CHECK(calls->give(memory.address, stream));
}

/* The event of a capture is nobody else's. */
static void follow(struct worker *worker, unsigned lane, unsigned before, CUevent event)
{
    enter(worker, context_of(before));
    CHECK(cuEventRecord(event, worker->lanes[before].stream));
    enter(worker, context_of(lane));
    CHECK(cuStreamWaitEvent(worker->lanes[lane].stream, event, 0));
}

/* The effect on the capture's first stream, or on a second that is forked and joined. */
static void capture_effect(struct worker *worker, unsigned lane, unsigned second,
                           const struct effect *effect, CUevent *events)
{
    const bool is_forked =
        second != lane && chance(worker, 40) &&
        may_touch(worker, effect->to, context_of(second), TO_FILL) &&
        (effect->from == NULL || may_touch(worker, effect->from, context_of(second), ANY_COPY));
    const unsigned on = is_forked ? second : lane;

    if (is_forked)
        follow(worker, second, lane, events[0]);
    enter(worker, context_of(on));
    if (effect->kind == TEMPORARY)
        capture_temporary(worker, on, effect);
    else
        CHECK(
            some_calls(worker)->work(effect, (unsigned)pick(worker, 4), worker->lanes[on].stream));
    if (is_forked)
        follow(worker, lane, second, events[1]);
}

static CUstreamCaptureMode some_mode(struct worker *worker)
{
    static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_GLOBAL /* it would forbid other threads what they do */
    };
    return modes[pick(worker, worker->world->thread_count > 1 ? 2 : 3)];
}

static void capture_into(struct worker *worker, struct graph *graph, unsigned second)
{
    const unsigned lane = graph->context * STREAMS + OWN;
    const unsigned count = 1 + (unsigned)pick(worker, NODES);
    const CUstreamCaptureMode mode = some_mode(worker);
    CUevent events[2];

    enter(worker, context_of(second));
    CHECK(cuEventCreate(&events[1], CU_EVENT_DISABLE_TIMING));
    enter(worker, graph->context);
    CHECK(cuEventCreate(&events[0], CU_EVENT_DISABLE_TIMING));
    CHECK(some_calls(worker)->begin(worker->lanes[lane].stream, mode));
    worker->graph_way = TO_CAPTURED;
    for (unsigned i = 0; i < count; i++)
        if (choose_for_graph(worker, graph)) {
            capture_effect(worker, lane, second, &graph->effects[graph->count], events);
            graph->count++;
        }
    worker->graph_way = 0;
    enter(worker, graph->context);
    CHECK(some_calls(worker)->end(worker->lanes[lane].stream, &graph->graph));
    CHECK(cuGraphInstantiate(&graph->exec, graph->graph, 0));
    CHECK(cuEventDestroy(events[0]));
    CHECK(cuEventDestroy(events[1]));
}

void capture_graph(struct worker *worker)
{
    struct graph *graph = empty_graph(worker);

    if (graph == NULL)
        return;
    graph->context = some_context(worker);
    graph->is_captured = true;
    const unsigned other = with(worker, WITH_foreign) && (worker->world->foreign & TO_CAPTURED)
                               ? some_context(worker)
                               : graph->context;
    const unsigned second = other * STREAMS + SECOND_OWN;
    const unsigned one = waited_with(worker->world, graph->context);
    const unsigned two = waited_with(worker->world, other);
    const unsigned low = one < two ? one : two;
    const unsigned high = one < two ? two : one;
    pthread_rwlock_t *captures = worker->world->captures;
    pthread_rwlock_rdlock(&captures[low]);
    if (high != low)
        pthread_rwlock_rdlock(&captures[high]);
    capture_into(worker, graph, second);
    if (high != low)
        pthread_rwlock_unlock(&captures[high]);
    pthread_rwlock_unlock(&captures[low]);
    launch(worker, graph);
}

/* ---- dropped ---- */

void drop_graph(struct worker *worker, struct graph *graph)
{
    if (graph->exec == NULL)
        return;
    enter(worker, graph->context);
    CHECK(cuGraphExecDestroy(graph->exec));
    CHECK(cuGraphDestroy(graph->graph));
    graph->exec = NULL;
}

void spend_graphs(struct worker *worker, const struct block *block)
{
    for (unsigned i = 0; i < GRAPHS; i++)
        for (unsigned j = 0; j < worker->graphs[i].count; j++)
            if (worker->graphs[i].effects[j].to == block ||
                worker->graphs[i].effects[j].from == block)
                worker->graphs[i].is_spent = true;
}
