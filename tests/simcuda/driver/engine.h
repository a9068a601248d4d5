/* The engine's inside: contexts, streams, events, captures, graphs and modules.
 *
 * One lock, engine_lock(), guards everything here. Streams are queues of operations; each queue has
 * a worker thread, started with its first operation and gone with its stream. A point (stream,
 * position) names the end of one operation; positions only grow, also when a destroyed stream's
 * memory is used again, so a point stays meaningful permanently and needs no reference count.
 * Handles are pointers into memory that never goes back to the heap; a magic number at the front
 * distinguishes live ones from stale ones. */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "tests/simcuda/sim.h"

#define SIM_MAX_DEVICES 64

enum sim_magic {
    SIM_MAGIC_DEAD = 0,
    SIM_MAGIC_CONTEXT = 0x43545831,
    SIM_MAGIC_STREAM = 0x53545231,
    SIM_MAGIC_EVENT = 0x45564e31,
    SIM_MAGIC_GRAPH = 0x47524631,
    SIM_MAGIC_NODE = 0x4e4f4431,
    SIM_MAGIC_EXEC = 0x45584331,
    SIM_MAGIC_MODULE = 0x4d4f4431,
    SIM_MAGIC_FUNCTION = 0x46554e31,
    SIM_MAGIC_GREEN = 0x47524e31,
    SIM_MAGIC_USER_OBJECT = 0x55534f31,
    SIM_MAGIC_CONDITION = 0x434e4431,
};

/* ---- memory that keeps its type (engine_pool.c) ---- */

/* Objects of one size whose first member is `uint32_t magic`. Freed ones are used again in the
 * order they were freed, and only when a few hundred wait, so that stale handles are noticed for a
 * while. */
struct engine_pool {
    size_t object_bytes;
    struct engine_pool_link *head, *tail;
    size_t idle_count;
};
void *engine_pool_take(
    struct engine_pool *pool); /* zeroed unless used before; NULL without memory */
void engine_pool_give(struct engine_pool *pool, void *object);

/* ---- process (engine_init.c) ---- */

void engine_lock(void);
void engine_unlock(void);
pthread_mutex_t *engine_mutex(void);
/* The process is exiting: workers stop, calls return CUDA_ERROR_DEINITIALIZED. */
bool engine_is_down(void);
int engine_device_count(void);
/* In a stream's worker, from where the program may not call the driver (CUDA_ERROR_NOT_PERMITTED).
 */
bool engine_in_callback(void);
/* The calling thread runs functions of the program from now on, which may not call the driver. */
void engine_enter_callbacks(void);
uint64_t engine_now_ns(void); /* CLOCK_MONOTONIC */
/* A growing array: grows the array for one more element; false without memory. */
bool engine_grow(void **array, size_t *capacity, size_t count, size_t element_bytes);

/* ---- points and streams (engine_queue.c, engine_stream.c) ---- */

struct sim_point {
    struct sim_stream *stream;
    uint64_t position;
};

struct sim_points {
    struct sim_point *items;
    size_t count, capacity;
};

struct sim_stream {
    uint32_t magic;
    struct sim_context *context;
    struct sim_stream *next; /* in its context */
    unsigned flags;          /* CU_STREAM_NON_BLOCKING */
    int priority;
    uint64_t id;
    bool is_legacy, is_per_thread;
    CUstreamAttrValue attributes[16];
    /* work */
    uint64_t submitted, completed; /* positions */
    struct sim_item *head, *tail;
    bool has_worker, is_closing;
    pthread_cond_t wake;
    struct sim_points
        known; /* what this stream has waited for: later work is ordered behind these */
    /* capture */
    struct sim_capture *capture;
    struct sim_graph_node **capture_nodes; /* what the next captured operation depends on */
    size_t capture_count, capture_capacity;
    CUgraphEdgeData *capture_edges; /* all 0, as long as the array before */
};

/* Memory taken at first use (engine_lazy.c, whose lock guards it). */
struct engine_lazy {
    uint64_t bytes;                      /* taken in all, but for modules */
    uint64_t local_bytes;                /* stacks of threads */
    uint64_t slice_bytes, granule_bytes; /* in use, and taken for it */
    unsigned parts;                      /* bit per enum lazy_part */
};

struct sim_engine_context {
    struct sim_stream *legacy;
    struct sim_stream *streams;    /* all, the legacy one too */
    struct sim_points barrier;     /* cuCtxWaitEvent: all later work waits for these */
    struct sim_points synchronous; /* copies and fills that are not Async, left under way */
    int usage_count;               /* cuCtxAttach */
    unsigned api_version;
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    struct sim_module *modules;
    struct sim_event *events;
    struct sim_context *greens; /* of a primary context: its green ones, until it stops itself */
    struct sim_context *next_green;
    struct engine_lazy lazy;
};

/* cuStreamCreateWithPriority in a context that was checked. */
CUresult stream_create(struct sim_context *context, CUstream *handle, unsigned flags, int priority);
/* All with the engine's lock held. */
struct sim_stream *stream_create_locked(struct sim_context *context, unsigned flags, int priority);
bool points_passed_locked(const struct sim_points *points);
bool points_add(struct sim_points *points, struct sim_stream *stream, uint64_t position);
bool points_merge(struct sim_points *points, const struct sim_points *more);
void points_free(struct sim_points *points);
/* Waits for points; false if the process went down meanwhile. The lock is released while waiting.
 */
bool points_wait_locked(const struct sim_points *points);
/* Everything the stream's work at this moment waits for and consists of; for the legacy stream the
 * blocking streams as well. */
bool stream_points_locked(struct sim_stream *stream, struct sim_points *points);
/* The work that an event recorded now proves to be done: this work, and all it waited for. */
bool stream_known_locked(struct sim_stream *stream, struct sim_points *points);
bool context_points_locked(struct sim_context *context, struct sim_points *points);
/* Work submitted now would wait for nothing. A stream without work of its own may have to wait too:
 * a blocking one for the legacy one. */
bool stream_is_clear_locked(struct sim_stream *stream);
/* Takes the stream out of its context; what is queued still runs. Takes the lock itself, as does
 * the next. */
void stream_close(struct sim_stream *stream);
/* Ends the streams of a context: waits for their work and closes them. */
void context_stop_streams(struct sim_context *context);

/* Parts of an item of a stream besides sim_op's fields. */
struct stream_work {
    struct sim_op op;
    bool even_if_poisoned;
    const struct sim_points *after; /* more points to wait for */
    uint64_t *position;             /* where the work's own position goes, may be NULL */
};
/* Sleeps SIMCUDA_WORK_US. */
void stream_take_time(void);
void stream_spend_us(uint64_t us);
CUresult stream_queue_locked(struct sim_stream *stream, const struct stream_work *work);

/* ---- graphs (engine_graph.c) ---- */

struct sim_graph;
struct sim_graph_node;
struct graph_work {
    struct sim_op op;
    void *(*copy)(const void *argument); /* NULL: all runs share the argument */
    CUgraphNodeType type;
    struct sim_context *context; /* it runs in; NULL, or gone: the launching stream's */
    const struct node_parameters *parameters; /* of a captured node; read when it is added */
};
CUresult graph_check(CUgraph handle, struct sim_graph **graph);
struct sim_graph *graph_create_locked(void);
void graph_destroy_locked(struct sim_graph *graph);
/* Adds a node; takes op.argument in every case. */
CUresult graph_add_locked(struct sim_graph *graph, struct sim_graph_node *const *dependencies,
                          size_t count, struct graph_work work, struct sim_graph_node **node);
/* Whether `from` is, or comes before, one of the frontier. */
bool graph_node_reaches_locked(struct sim_graph_node *from, struct sim_graph_node *const *frontier,
                               size_t count);
/* Operations whose graph is gone, to be released without the lock: engine_unlock() does it. */
struct sim_graph_node *graph_take_dead_locked(void);
void graph_free_nodes(struct sim_graph_node *dead);

/* ---- events (engine_event.c) ---- */

struct sim_event {
    uint32_t magic;
    struct sim_context *context;
    unsigned flags;
    bool was_recorded;
    uint64_t record_id;                /* distinguishes this record from later ones */
    uint64_t done_ns;                  /* when it completed; 0: not yet seen */
    struct event_place *place;         /* of an event between processes; NULL: of this one alone */
    struct sim_points points;          /* what it captures */
    struct sim_points known;           /* what the recording stream had waited for */
    struct sim_event *next, *previous; /* in its context */
    uint64_t capture_id;               /* 0: the last record was outside a capture */
    struct sim_graph_node **capture_nodes;
    size_t capture_count, capture_capacity;
};
CUresult event_check(CUevent handle, struct sim_event **event);
/* In a context that was checked; with the place of another process's event, or NULL. */
CUresult event_create(struct sim_context *context, unsigned flags, struct event_place *place,
                      CUevent *handle);
void event_drop_context_locked(struct sim_context *context);
CUresult event_record_locked(struct sim_event *event, struct sim_stream *stream);
/* Events as graph nodes. */
struct graph_work event_record_node(struct sim_event *event);
struct graph_work event_wait_node(struct sim_event *event);
/* cuStreamWaitEvent, whatever the two are. Takes the lock itself, as do the next. */
CUresult event_wait(struct sim_stream *stream, struct sim_event *event, unsigned flags);
/* cuCtxRecordEvent and cuCtxWaitEvent on a context that was checked. */
CUresult event_record_context(struct sim_context *context, CUevent handle);
CUresult event_wait_context(struct sim_context *context, CUevent handle);

/* ---- events between processes (engine_event_shared.c) ---- */

/* A place that is complete; NULL: none is left. The engine's lock is held. */
struct event_place *event_place_take_locked(void);
void event_place_give_locked(struct event_place *place);
/* A record begins: its number. That record, and all before it, is complete. */
uint64_t event_place_begin(struct event_place *place);
void event_place_complete(struct event_place *place, uint64_t number);
bool event_place_has_passed(const struct event_place *place, uint64_t number);
/* The latest record of any process. */
uint64_t event_place_last(const struct event_place *place);
/* Returns when the record has completed, or the process goes down. No lock held. */
void event_place_wait(const struct event_place *place, uint64_t number);
/* The same for the latest record, as an operation of a stream. */
CUresult event_place_wait_op(const struct event_place *place, struct sim_op *op);

/* ---- capture (engine_capture.c) ---- */

struct sim_capture {
    uint64_t id;
    struct sim_graph *graph;
    bool owns_graph; /* false: cuStreamBeginCaptureToGraph */
    CUstreamCaptureMode mode;
    uint64_t owner; /* the thread that began it, by its serial */
    bool is_invalid;
    struct sim_stream *origin;
    struct sim_stream **streams; /* all that take part, the origin too */
    size_t stream_count, stream_capacity;
    struct sim_capture *next;
};
/* Success if the stream may be used for work: else the error, captures invalidated by the rules. */
CUresult capture_check_use_locked(struct sim_stream *stream);
/* Synchronising or querying `stream`, or with NULL its whole context: forbidden while captured. */
CUresult capture_check_sync_locked(struct sim_context *context, struct sim_stream *stream);
CUresult capture_check_unsafe_locked(void);
void capture_invalidate_context_locked(struct sim_context *context);
/* Adds the work to the stream's capture; takes work.op.argument in every case. */
CUresult capture_add_locked(struct sim_stream *stream, struct graph_work work);
CUresult capture_record_event_locked(struct sim_stream *stream, struct sim_event *event);
/* A use of a captured event that its capture does not survive; gives STREAM_CAPTURE_UNSUPPORTED. */
CUresult capture_refuse_event_locked(const struct sim_event *event);
/* For a capturing stream, or an event last recorded in a capture. */
CUresult capture_wait_event_locked(struct sim_stream *stream, struct sim_event *event);
/* The stream goes away: its capture cannot be finished, unless the stream's work was joined. */
void capture_leave_locked(struct sim_stream *stream);

/* ---- contexts (engine_context.c) ---- */

bool context_is_live(const struct sim_context *context);
/* The thread's current context, unchecked; NULL if none. */
struct sim_context *context_of_thread(void);
/* A context that has not started; NULL without memory. `green_of`: the primary one of a green. */
struct sim_context *context_new(struct sim_device *device, unsigned flags, bool primary,
                                struct sim_context *green_of);
/* Takes capacity and makes streams: a new context, or a primary one that starts again. */
CUresult context_start(struct sim_context *context);
/* A green context retains its device's primary one; the last release ends it. */
CUresult primary_retain_green(CUdevice device, struct sim_context **context);
void primary_release_green(CUdevice device);

/* ---- green contexts (engine_green.c) ---- */

/* The context and, if it is a primary one, its green ones: for (part = whole; part; part =
 * green_next_locked(whole, part)). */
struct sim_context *green_next_locked(const struct sim_context *whole,
                                      const struct sim_context *part);
/* Ends the green ones of a primary context whose own streams have stopped. */
void green_stop_all(struct sim_context *primary);
/* Success if the driver is initialised and as new as `version`: CUDA_ERROR_NOT_SUPPORTED if not. An
 * older driver does not export such an entry at all; a caller that has the symbol here gets that
 * error. */
CUresult check_version(int version);

/* ---- modules (engine_module.c) and launches (engine_launch.c) ---- */

/* A launch that no device could do: INVALID_HANDLE, INVALID_VALUE. */
CUresult launch_check(CUfunction function, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes);

void module_drop_context(struct sim_context *context);

#endif
