/* The parts of the torture test: random programs that are right by CUDA's own rules, and what each
 * step of them must leave in memory.
 *
 * torture.c         arguments, threads, rounds, the watchdog, the closing line
 * torture_world.c   contexts, streams, pools: made, opened to each other, ended and made anew
 * torture_order.c   what the program may know to be done before what: a clock for each stream
 * torture_memory.c  blocks: taken, freed, handed to another thread, exported
 * torture_work.c    effects on blocks: chosen, applied to the model, queued, read back
 * torture_graph.c   effects in graphs: built, captured, changed, launched
 * torture_steps.c   which step comes next
 * torture_call.c    the calls that take a stream; compiled twice, see there
 *
 * A block is watched at some places (rows). The model has their bytes as they will be when all that
 * was queued is done. Work that touches what earlier work touched is queued behind it: because of
 * the streams' order, or by an event, or after a wait of the host. A free is queued behind nothing
 * where CUDA's own cuMemFree waits. So a block that is reused too early reads wrong.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define CONTEXTS 4 /* places for contexts */
#define STREAMS 8  /* places for streams in each */
#define LANES (CONTEXTS * STREAMS)
#define THREADS 4
#define SLOTS 14      /* blocks of a thread */
#define CHECKS 24     /* reads under way, of a thread */
#define STAGES 24     /* pieces of host memory that copies read */
#define GRAPHS 4      /* of a thread */
#define NODES 8       /* effects of a graph */
#define WATCHED 2048u /* bytes of a block that are watched */
#define ROW_BYTES 64u /* of a block that is watched in several places */
#define EVENTS 64     /* of a context and thread */
#define READS 6       /* reads of a block since it was written that are remembered */

/* The parts that a program may contain. One word each, for the command line and for the list. */
#define TORTURE_ASPECTS(ASPECT)                                                                    \
    ASPECT(contexts, "several contexts of a device")                                               \
    ASPECT(devices, "two devices, where there are two")                                            \
    ASPECT(peers, "peer access, enabled and disabled")                                             \
    ASPECT(green, "green contexts")                                                                \
    ASPECT(graphics, "contexts made for OpenGL and VDPAU")                                         \
    ASPECT(ends, "contexts end, with memory in them, and others are made")                         \
    ASPECT(foreign, "work of one context on the memory of another, in some ways of the seed's")    \
    ASPECT(streams, "streams of the threads' own beside the default one")                          \
    ASPECT(legacy, "the legacy stream")                                                            \
    ASPECT(thread, "per-thread streams, and the entry points that mean them")                      \
    ASPECT(shared, "streams that all threads use")                                                 \
    ASPECT(passing, "streams that are destroyed while they work")                                  \
    ASPECT(pitch, "pitched memory")                                                                \
    ASPECT(runtime, "cudaMalloc and cudaFree")                                                     \
    ASPECT(ordered, "stream-ordered memory")                                                       \
    ASPECT(pools, "pools of the program's own")                                                    \
    ASPECT(access, "pools opened to another device, early or late")                                \
    ASPECT(trim, "pools trimmed")                                                                  \
    ASPECT(mixed, "cuMemFreeAsync of plain memory, cuMemFree of stream-ordered memory")            \
    ASPECT(big, "blocks of several MiB")                                                           \
    ASPECT(handing, "blocks handed from thread to thread")                                         \
    ASPECT(synchronous, "copies and fills without Async in their names, waits")                    \
    ASPECT(values, "values written by streams")                                                    \
    ASPECT(batches, "batches of copies and of values")                                             \
    ASPECT(host, "host functions")                                                                 \
    ASPECT(held, "streams that the host holds up and releases later")                              \
    ASPECT(graphs, "graphs built of nodes")                                                        \
    ASPECT(changes, "nodes of a graph changed between launches")                                   \
    ASPECT(captures, "captured graphs")                                                            \
    ASPECT(temporaries, "memory that a graph takes and frees")                                     \
    ASPECT(exported, "memory written by a device outside, through a dma-buf")                      \
    ASPECT(handles, "handles for other processes")

enum aspect {
#define ASPECT(name, help) WITH_##name,
    TORTURE_ASPECTS(ASPECT)
#undef ASPECT
        ASPECTS
};

/* ---- order ---- */

enum { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, OWN, SECOND_OWN, OWN_BLOCKING, PASSING };

struct clock {
    uint32_t at[LANES];
};

/* The `at`-th piece of this thread's work on a stream. at 0: none. */
struct access {
    unsigned lane;
    uint32_t at;
};

/* A stream as one thread sees it: its own work there, and what that comes behind. */
struct lane {
    bool is_open;
    bool is_blocking;  /* ordered with the legacy stream of its context */
    CUstream stream;   /* LEGACY, PER_THREAD: NULL */
    uint32_t count;    /* never starts anew: a number always means one piece of work */
    struct clock tail; /* what is done when the last piece of work is */
    struct clock next; /* what further work comes behind: tail, and events waited for */
    CUevent last;      /* PASSING: behind all work of the stream that is gone */
};

/* ---- memory ---- */

enum how { BY_DRIVER, BY_RUNTIME, BY_PITCH, BY_STREAM, BY_POOL, HOW_COUNT };

struct block {
    CUdeviceptr address; /* 0: none */
    size_t bytes;
    enum how how;
    unsigned context, device;
    size_t width, pitch, height; /* the rows that are watched */
    bool is_written;
    bool is_exported;
    unsigned char model[WATCHED]; /* the rows' bytes, one behind another */
    struct access write, reads[READS];
    unsigned read_count;
    CUevent handed; /* on its way to another thread: behind all its work */
    unsigned passed_context;
};

/* ---- work ---- */

/* How work may come to another context's memory. A layer that hears of one of them may miss it in
 * another: so a program has some alone. */
enum {
    TO_FILL = 1,
    TO_COPY_IN = 2,
    TO_COPY = 4,
    TO_COPY_PEER = 8,
    TO_COPY_BATCH = 16,
    TO_VALUE = 32,
    TO_VALUE_BATCH = 64,
    TO_READ = 128,
    TO_NODE = 256,
    TO_CAPTURED = 512,
    TO_LAUNCH = 1024,
    TO_ALL = 2047,
    ANY_COPY = TO_COPY | TO_COPY_PEER | TO_COPY_BATCH,
    ANY_VALUE = TO_VALUE | TO_VALUE_BATCH
};

enum effect_kind { FILL, COPY_IN, COPY, READ, VALUE, TEMPORARY };

struct effect {
    enum effect_kind kind;
    struct block *to, *from;
    size_t to_at, from_at; /* in the model */
    size_t bytes;          /* in one row, but for is_whole */
    bool is_whole;         /* all rows of `to`; of FILL and READ (there of `from`) */
    unsigned element;      /* FILL: bytes of it; VALUE: 4 or 8 */
    uint32_t value;
    unsigned char *host;                /* COPY_IN, READ */
    CUcontext to_context, from_context; /* COPY */
};

struct stage {
    unsigned char *data;
    struct access use;
};

struct check {
    unsigned char *data;
    unsigned char expected[WATCHED];
    size_t bytes;
    struct access done;
    uint64_t step;
    CUdeviceptr address; /* and other facts about the block */
    size_t block_bytes;
    enum how how;
    unsigned context;
};

struct graph {
    CUgraph graph;
    CUgraphExec exec; /* NULL: none */
    bool is_spent;    /* a block of it was freed: it may only be destroyed */
    bool is_captured;
    unsigned context, count;
    struct effect effects[NODES];
    CUgraphNode nodes[NODES];
    unsigned char *stages[NODES];
    struct access launched;
};

/* The calls with a stream, in the two flavours that an entry point may have. */
struct calls {
    CUresult (*record)(CUevent event, CUstream stream);
    CUresult (*wait)(CUstream stream, CUevent event);
    CUresult (*synchronize)(CUstream stream);
    CUresult (*take)(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
    CUresult (*give)(CUdeviceptr address, CUstream stream);
    CUresult (*begin)(CUstream stream, CUstreamCaptureMode mode);
    CUresult (*end)(CUstream stream, CUgraph *graph);
    CUresult (*launch)(CUgraphExec exec, CUstream stream);
    CUresult (*call_host)(CUstream stream, CUhostFn function, void *argument);
    CUresult (*hold)(CUstream stream, CUdeviceptr flag, uint32_t value);
    CUresult (*work)(const struct effect *effect, unsigned way, CUstream stream);
    CUresult (*work_at_once)(const struct effect *effect, unsigned way);
};
extern const struct calls legacy_calls, thread_calls;

/* ---- the thread that does it ---- */

struct context {
    CUcontext handle; /* NULL: none */
    CUgreenCtx green;
    unsigned device;
    bool is_primary;
    CUstream shared[2]; /* BLOCKING, NON_BLOCKING */
};

struct world {
    bool with[ASPECTS];
    uint64_t seed, step_count;
    unsigned thread_count, device_count;
    int driver_version;
    unsigned foreign;  /* ways */
    unsigned patience; /* seconds that a step may take */
    struct context contexts[CONTEXTS];
    CUmemoryPool pools[2];    /* the default one of device 0, the program's own there */
    bool is_open_to_other[2]; /* the second device may use it */
    bool has_peers;           /* all contexts may reach the other device's memory */
    pthread_barrier_t barrier;
    pthread_rwlock_t captures[CONTEXTS]; /* read: a stream of it captures */
    struct worker *workers;
    struct block *handed[2][THREADS]; /* of even and odd rounds: one thread may be ahead */
    atomic_uint_fast64_t work, checks, refused, wrong, launches;
};

struct worker {
    struct world *world;
    unsigned index;
    uint64_t state; /* of the random numbers */
    uint64_t step;
    _Atomic(const char *) doing;
    atomic_uint_fast64_t since_ns; /* 0: waits for the others, or is done */
    unsigned context;              /* that is current */
    struct lane lanes[LANES];
    struct clock host; /* what is known to be done */
    CUevent events[CONTEXTS][EVENTS];
    unsigned next_event[CONTEXTS];
    struct block *slots[SLOTS];
    struct check checks[CHECKS];
    unsigned first_check, check_count;
    struct stage stages[STAGES];
    unsigned next_stage;
    struct graph graphs[GRAPHS];
    uint32_t *flag; /* what a held stream waits for */
    CUdeviceptr flag_address;
    uint32_t flag_value;
    struct hold {
        const uint32_t *flag;
        uint32_t value;
    } holds[64]; /* for host functions */
    bool is_holding;
    unsigned graph_way; /* TO_NODE, TO_CAPTURED: effects are chosen for a graph */
    uint64_t hold_end;  /* step */
    uint32_t serial;
};

/* ---- shared helpers ---- */

static inline uint64_t pick_from(uint64_t *state, uint64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state >> 11) % below;
}

static inline uint64_t pick(struct worker *worker, uint64_t below)
{
    return pick_from(&worker->state, below);
}

static inline bool chance(struct worker *worker, unsigned percent)
{
    return pick(worker, 100) < percent;
}

static inline uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return (value ^ value >> 31) | 1;
}

static inline bool with(const struct worker *worker, enum aspect aspect)
{
    return worker->world->with[aspect];
}

static inline unsigned context_of(unsigned lane)
{
    return lane / STREAMS;
}

static inline void enter(struct worker *worker, unsigned context)
{
    if (worker->context != context)
        CHECK(cuCtxSetCurrent(worker->world->contexts[context].handle));
    worker->context = context;
}

static inline const struct calls *some_calls(struct worker *worker)
{
    return with(worker, WITH_thread) && chance(worker, 30) ? &thread_calls : &legacy_calls;
}

/* A word that names its writer and the step. */
static inline uint32_t tag(struct worker *worker)
{
    return (worker->index + 1) << 28 | (uint32_t)(worker->step & 0xffff) << 12 |
           (worker->serial++ & 0xfff);
}

/* torture_order.c */
CUstream stream_of(struct worker *worker, unsigned lane, const struct calls *calls);
bool may_use_lane(const struct worker *worker, unsigned lane);
unsigned some_lane(struct worker *worker, unsigned context);
/* Work may be queued on the lane behind what was done to the blocks: `add` records that it is. */
void order_access(struct worker *worker, unsigned lane, struct access access);
struct access add_work(struct worker *worker, unsigned lane);
void order_read(struct worker *worker, unsigned lane, const struct block *block);
void order_write(struct worker *worker, unsigned lane, const struct block *block);
void note_read(struct worker *worker, struct block *block, struct access access);
void note_write(struct block *block, struct access access);
bool is_done(const struct worker *worker, struct access access);
void wait_for(struct worker *worker, struct access access);
void wait_for_block(struct worker *worker, const struct block *block);
/* The context whose wait is for this one, too: of a green context the primary one. */
unsigned waited_with(const struct world *world, unsigned context);
void wait_for_context(struct worker *worker, unsigned context);
CUevent record_on(struct worker *worker, unsigned lane);
void wait_on(struct worker *worker, unsigned lane, CUevent event);
void open_passing(struct worker *worker, unsigned context);
void close_passing(struct worker *worker, unsigned context);
void hold_some_stream(struct worker *worker);
void release_hold(struct worker *worker);

/* torture_memory.c */
bool take_block(struct worker *worker, struct block *block);
/* A block of the same size, made in the same way and context as the one that was there. */
bool take_again(struct worker *worker, struct block *block);
void give_block(struct worker *worker, struct block *block);
/* In one of the ways at least; of these work in another context's stream may take those of
 * world.foreign. */
bool may_touch(const struct worker *worker, const struct block *block, unsigned context,
               unsigned ways);
void hand_over(struct worker *worker, struct block **to);
void receive(struct worker *worker, struct block *block);
void export_block(struct worker *worker, struct block *block);
void ask_for_handle(struct worker *worker, struct block *block);

/* torture_work.c */
bool choose_effect(struct worker *worker, unsigned context, struct effect *effect);
void fill_whole(struct worker *worker, struct block *block, struct effect *effect);
void apply(const struct effect *effect);
void order_effect(struct worker *worker, unsigned lane, const struct effect *effect);
void note_effect(struct worker *worker, const struct effect *effect, struct access access);
void queue(struct worker *worker, unsigned lane, struct effect *effect);
void check_block(struct worker *worker, unsigned lane, struct block *block);
void end_check(struct worker *worker);
void end_checks(struct worker *worker);
CUdeviceptr address_at(const struct block *block, size_t at);

/* torture_graph.c */
void build_graph(struct worker *worker);
void capture_graph(struct worker *worker);
/* Returns a block that it writes; NULL: nothing was launched. */
struct block *launch_graph(struct worker *worker);
void change_graph(struct worker *worker);
void drop_graph(struct worker *worker, struct graph *graph);
void spend_graphs(struct worker *worker, const struct block *block);

/* torture_world.c */
void open_world(struct world *world);
void open_worker(struct worker *worker);
void open_lanes(struct worker *worker, unsigned context);
/* Between two rounds: each thread leaves what will change, one changes it, each takes it up. */
void leave(struct worker *worker, uint64_t round);
void change(struct worker *worker, uint64_t round);
void take_up(struct worker *worker, uint64_t round);
void close_worker(struct worker *worker);
void close_world(struct world *world);
unsigned some_context(struct worker *worker);

/* torture_steps.c */
void do_step(struct worker *worker);

#endif
