/* User objects: the program's own data, kept as long as a graph, or the program, has a reference.
 *
 * A graph's references follow it: a clone and an instantiated graph have as many of their own, and
 * an instantiated graph keeps them until its last launch has ended. The destructor of an object
 * without references runs on one thread that all objects share, which may not call the driver. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/early.h"
#include "tests/simcuda/driver/engine_graph.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct sim_user_object {
    uint32_t magic;
    uint64_t references; /* all of them, the graphs' too */
    CUhostFn destroy;
    void *data;
    struct sim_user_object *next_unreferenced;
};

static struct engine_pool object_pool = {.object_bytes = sizeof(struct sim_user_object)};
static struct sim_user_object *first_unreferenced, **last_unreferenced = &first_unreferenced;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static bool has_thread;

/* ---- the thread that runs destructors ---- */

static void *run_destructors(void *unused)
{
    (void)unused;
    engine_enter_callbacks();
    engine_lock();
    while (!engine_is_down()) {
        struct sim_user_object *object = first_unreferenced;
        if (!object) {
            pthread_cond_wait(&wake, engine_mutex());
            continue;
        }
        first_unreferenced = object->next_unreferenced;
        if (!first_unreferenced)
            last_unreferenced = &first_unreferenced;
        CUhostFn destroy = object->destroy;
        void *data = object->data;
        engine_pool_give(&object_pool, object);
        engine_unlock();
        destroy(data);
        engine_lock();
    }
    engine_unlock();
    return NULL;
}

/* Signals of the program are for its own threads. */
static bool start_thread_locked(void)
{
    pthread_t thread;
    sigset_t all, before;

    if (has_thread)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    has_thread = pthread_create(&thread, NULL, run_destructors, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (has_thread)
        pthread_detach(thread);
    return has_thread;
}

static void release_locked(struct sim_user_object *object, uint64_t count)
{
    object->references -= count;
    if (object->references > 0)
        return;
    object->magic = SIM_MAGIC_DEAD;
    object->next_unreferenced = NULL;
    *last_unreferenced = object;
    last_unreferenced = &object->next_unreferenced;
    pthread_cond_signal(&wake);
}

/* ---- the references of a graph ---- */

static struct user_reference *find(const struct user_references *references,
                                   const struct sim_user_object *object)
{
    for (size_t i = 0; i < references->count; i++)
        if (references->items[i].object == object)
            return &references->items[i];
    return NULL;
}

/* Adds references that are counted already. */
static bool add_locked(struct user_references *references, struct sim_user_object *object,
                       uint64_t count)
{
    struct user_reference *own = find(references, object);

    if (!own) {
        if (!engine_grow((void **)&references->items, &references->capacity, references->count,
                         sizeof *own))
            return false;
        own = &references->items[references->count++];
        *own = (struct user_reference){.object = object};
    }
    own->count += count;
    return true;
}

bool user_references_copy_locked(struct user_references *to, const struct user_references *from)
{
    for (size_t i = 0; i < from->count; i++) {
        if (!add_locked(to, from->items[i].object, from->items[i].count))
            return false;
        from->items[i].object->references += from->items[i].count;
    }
    return true;
}

void user_references_drop_locked(struct user_references *references)
{
    for (size_t i = 0; i < references->count; i++)
        release_locked(references->items[i].object, references->items[i].count);
    free(references->items);
    *references = (struct user_references){0};
}

/* ---- entry points ---- */

/* User objects need no device: they work before cuInit, and after it failed. */
static CUresult check_state(void)
{
    return sim_start() == SIM_START_DONE ? sim_check_init() : CUDA_SUCCESS;
}

static CUresult check(CUuserObject handle, unsigned count)
{
    const struct sim_user_object *object = (const struct sim_user_object *)handle;
    CUresult result = check_state();

    if (result)
        return result;
    if (!object || count == 0 || count > INT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    bool is_live = object->magic == SIM_MAGIC_USER_OBJECT;
    engine_unlock();
    return is_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuUserObjectCreate,
        (CUuserObject * handle, void *data, CUhostFn destroy, unsigned int count,
         unsigned int flags),
        (handle, data, destroy, count, flags), "%p %u %u", data, count, flags)
{
    CUresult result = check_state();
    if (result)
        return result;
    if (!handle || !destroy || count == 0 || count > INT_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    struct sim_user_object *object = start_thread_locked() ? engine_pool_take(&object_pool) : NULL;
    if (object)
        *object = (struct sim_user_object){
            .magic = SIM_MAGIC_USER_OBJECT, .references = count, .destroy = destroy, .data = data};
    engine_unlock();
    *handle = (CUuserObject)object;
    return object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuUserObjectRetain, (CUuserObject handle, unsigned int count), (handle, count), "%p %u",
        (void *)handle, count)
{
    CUresult result = check(handle, count);
    if (result)
        return result;
    engine_lock();
    ((struct sim_user_object *)handle)->references += count;
    engine_unlock();
    return CUDA_SUCCESS;
}

/* To release more than there are is undefined; here it is refused. */
SIM_API(cuUserObjectRelease, (CUuserObject handle, unsigned int count), (handle, count), "%p %u",
        (void *)handle, count)
{
    struct sim_user_object *object = (struct sim_user_object *)handle;
    CUresult result = check(handle, count);
    if (result)
        return result;
    engine_lock();
    bool has_them = object->references >= count;
    if (has_them)
        release_locked(object, count);
    engine_unlock();
    return has_them ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphRetainUserObject,
        (CUgraph handle, CUuserObject object_handle, unsigned int count, unsigned int flags),
        (handle, object_handle, count, flags), "%p %p %u %u", (void *)handle, (void *)object_handle,
        count, flags)
{
    struct sim_user_object *object = (struct sim_user_object *)object_handle;
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    if (result == CUDA_SUCCESS)
        result = check(object_handle, count);
    if (result == CUDA_SUCCESS && (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    engine_lock();
    if (!add_locked(&graph->references, object, count))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        object->references += count;
    engine_unlock();
    return result;
}

SIM_API(cuGraphReleaseUserObject, (CUgraph handle, CUuserObject object_handle, unsigned int count),
        (handle, object_handle, count), "%p %p %u", (void *)handle, (void *)object_handle, count)
{
    struct sim_user_object *object = (struct sim_user_object *)object_handle;
    struct sim_graph *graph;
    CUresult result = graph_check(handle, &graph);
    if (result == CUDA_SUCCESS)
        result = check(object_handle, count);
    if (result)
        return result;
    engine_lock();
    struct user_reference *own = find(&graph->references, object);
    if (own && own->count >= count) {
        own->count -= count;
        if (own->count == 0)
            *own = graph->references.items[--graph->references.count];
        release_locked(object, count);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    engine_unlock();
    return result;
}
