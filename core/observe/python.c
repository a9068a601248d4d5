/* Frames of Python code, read by the interpreter's own functions, which are looked up in the
 * process: nothing is linked. CPython 3.10 and later have them all. One returns the current thread
 * state: if that state is the calling thread's, the thread holds the interpreter's lock (GIL).
 *
 * Extension modules release the GIL before they call CUDA. A thread that took the GIL inside an
 * allocation could deadlock: the GIL's holder may wait for a lock that the thread holds. Therefore
 * a reader thread of the library takes the GIL and reads the frames of the requesting thread, which
 * waits for a bounded time. After that time the thread continues without Python frames; after
 * several timeouts in a row no thread requests frames any more. Python's collector is disabled
 * during the read, so that no code of the program runs here. */
#define _GNU_SOURCE
#include "core/observe/unwind.h"

#include "core/io/detached.h"
#include "core/io/elf.h"

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#define WAIT_NS 20000000
#define NANOSECONDS 1000000000
#define LATE_MAX 8 /* in a row */

enum request_state { REQUEST_WAITS, REQUEST_TAKEN, REQUEST_DONE };

/* On the stack of the requesting thread. */
struct request {
    enum request_state state;
    void *thread; /* its thread state in the interpreter */
    uint64_t *frames;
    uint32_t max;
    uint32_t count;
    gc_stack_intern *intern;
    void *argument;
};

/* Pointers of the interpreter are opaque here. */
struct gc_python {
    struct gc_stack_object object;
    void *(*this_state)(void);
    void *(*current_state)(void);
    int (*is_initialised)(void);
    int (*is_finalising)(void); /* NULL: this version has no such function */
    void *(*interpreter_of)(void *state);
    void *(*main_interpreter)(void);
    void *(*frame_of)(void *state); /* these three return a new reference */
    void *(*back)(void *frame);
    void *(*code)(void *frame);
    int (*line)(void *frame);
    void *(*attribute)(void *object, const char *name);
    const char *(*text)(void *text, ssize_t *length);
    void (*release)(void *object);
    void (*fetch)(void **type, void **value, void **trace);
    void (*restore)(void *type, void *value, void *trace);
    int (*stop_collector)(void); /* returns whether it was enabled */
    int (*start_collector)(void);
    int (*take_lock)(void);
    void (*leave_lock)(int before);

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    struct request *request;
    bool has_reader;
    bool has_given_up;
    unsigned late;
};

/* Finds a function in the interpreter that has frame_of: a process may hold two interpreters. Any
 * thread may call this, in any state: see core/io/elf.h. */
static bool find(struct gc_python *python, const char *name, void *function)
{
    *(void **)function = gc_elf_find_in_object(*(void **)&python->frame_of, name);
    return *(void **)function != NULL;
}

static bool find_all(struct gc_python *python)
{
    *(void **)&python->frame_of = gc_elf_find_function("", "PyThreadState_GetFrame");
    if (python->frame_of == NULL ||
        !gc_objects_find_loaded((uintptr_t)python->frame_of, &python->object, NULL))
        return false;
    if (!find(python, "Py_IsFinalizing", &python->is_finalising))
        (void)find(python, "_Py_IsFinalizing", &python->is_finalising);
    return find(python, "PyGILState_GetThisThreadState", &python->this_state) &&
           (find(python, "PyThreadState_GetUnchecked", &python->current_state) ||
            find(python, "_PyThreadState_UncheckedGet", &python->current_state)) &&
           find(python, "Py_IsInitialized", &python->is_initialised) &&
           find(python, "PyThreadState_GetInterpreter", &python->interpreter_of) &&
           find(python, "PyInterpreterState_Main", &python->main_interpreter) &&
           find(python, "PyFrame_GetBack", &python->back) &&
           find(python, "PyFrame_GetCode", &python->code) &&
           find(python, "PyFrame_GetLineNumber", &python->line) &&
           find(python, "PyObject_GetAttrString", &python->attribute) &&
           find(python, "PyUnicode_AsUTF8AndSize", &python->text) &&
           find(python, "Py_DecRef", &python->release) &&
           find(python, "PyErr_Fetch", &python->fetch) &&
           find(python, "PyErr_Restore", &python->restore) &&
           find(python, "PyGC_Disable", &python->stop_collector) &&
           find(python, "PyGC_Enable", &python->start_collector) &&
           find(python, "PyGILState_Ensure", &python->take_lock) &&
           find(python, "PyGILState_Release", &python->leave_lock);
}

struct gc_python *gc_python_find(struct gc_unwind_scope *scope, struct gc_host_mem *host,
                                 unsigned long long loads)
{
    struct gc_python found = {.has_reader = false};
    /* Acquire: pairs with the exchange below. */
    struct gc_python *python = atomic_load_explicit(&scope->python, memory_order_acquire);
    if (python != NULL || atomic_load_explicit(&scope->searched_at, memory_order_relaxed) == loads)
        return python;
    if (!find_all(&found)) {
        /* The next loaded object may be the interpreter. */
        atomic_store_explicit(&scope->searched_at, loads, memory_order_relaxed);
        return NULL;
    }
    struct gc_python *kept = gc_host_mem_map(host, sizeof(*kept));
    if (kept == NULL)
        return NULL;
    *kept = found;
    pthread_mutex_init(&kept->lock, NULL);
    pthread_cond_init(&kept->changed, NULL);
    if (atomic_compare_exchange_strong_explicit(&scope->python, &python, kept, memory_order_acq_rel,
                                                memory_order_acquire))
        return kept;
    gc_host_mem_unmap(host, kept, sizeof(*kept));
    return python;
}

/* Whether the address is in the interpreter. False if another object is there after an unload; a
 * running interpreter stays loaded. */
bool gc_python_has(const struct gc_python *python, uintptr_t address)
{
    const void *frame_of = *(void *const *)&python->frame_of;
    return address >= python->object.start && address < python->object.end &&
           gc_elf_find_in_object(frame_of, "PyThreadState_GetFrame") == frame_of;
}

/* The text of an attribute, valid as long as its code object; "?" if there is none. */
static const char *text_of(const struct gc_python *python, void *code, const char *name)
{
    void *attribute = python->attribute(code, name);
    const char *text = attribute != NULL ? python->text(attribute, NULL) : NULL;
    if (attribute != NULL)
        python->release(attribute); /* the code object still owns it */
    return text != NULL ? text : "?";
}

static uint64_t frame_of(const struct gc_python *python, void *frame, gc_stack_intern *intern,
                         void *argument)
{
    void *code = python->code(frame);
    const int line = python->line(frame);
    const char *function = text_of(python, code, "co_name");
    const uint64_t text = intern(argument, function, text_of(python, code, "co_filename"));
    python->release(code);
    return GC_FRAME_PYTHON | text << GC_FRAME_LINE_BITS |
           ((uint64_t)(line > 0 ? line : 0) & ((UINT64_C(1) << GC_FRAME_LINE_BITS) - 1));
}

/* The caller holds the interpreter's lock. */
static uint32_t read_frames(const struct gc_python *python, void *thread, uint64_t *frames,
                            uint32_t max, gc_stack_intern *intern, void *argument)
{
    void *type;
    void *value;
    void *trace;
    uint32_t count = 0;
    /* The program's own exception is saved and restored. */
    python->fetch(&type, &value, &trace);
    const int collects = python->stop_collector();
    void *frame = python->frame_of(thread);
    while (frame != NULL && count < max) {
        frames[count++] = frame_of(python, frame, intern, argument);
        void *back = python->back(frame);
        python->release(frame);
        frame = back;
    }
    if (frame != NULL)
        python->release(frame);
    if (collects)
        (void)python->start_collector();
    python->restore(type, value, trace);
    return count;
}

/* ---- the reader thread ---- */

static void serve(struct gc_python *python)
{
    struct request *request = python->request;
    if (request == NULL || request->state != REQUEST_WAITS)
        return; /* the request timed out */
    request->state = REQUEST_TAKEN;
    pthread_mutex_unlock(&python->lock);
    request->count = read_frames(python, request->thread, request->frames, request->max,
                                 request->intern, request->argument);
    pthread_mutex_lock(&python->lock);
    request->state = REQUEST_DONE;
    python->request = NULL;
    pthread_cond_broadcast(&python->changed);
}

static void *reader_thread(void *argument)
{
    struct gc_python *python = argument;
    for (;;) {
        pthread_mutex_lock(&python->lock);
        while (python->request == NULL)
            pthread_cond_wait(&python->changed, &python->lock);
        pthread_mutex_unlock(&python->lock);
        const int before = python->take_lock();
        pthread_mutex_lock(&python->lock);
        serve(python);
        pthread_mutex_unlock(&python->lock);
        python->leave_lock(before);
    }
    return NULL;
}

static bool start_reader(struct gc_python *python)
{
    gc_detached_create *create;
    *(void **)&create = gc_elf_find_function("", "pthread_create");
    return gc_detached_start(create, reader_thread, python);
}

static struct timespec deadline(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until); /* the clock of condition variables */
    until.tv_nsec += WAIT_NS;
    if (until.tv_nsec >= NANOSECONDS) {
        until.tv_nsec -= NANOSECONDS;
        until.tv_sec++;
    }
    return until;
}

/* The caller holds the lock. */
static void wait_for_reader(struct gc_python *python, struct request *request)
{
    const struct timespec until = deadline();
    int error = 0;
    while (python->request != NULL && error != ETIMEDOUT) /* another thread's request */
        error = pthread_cond_timedwait(&python->changed, &python->lock, &until);
    if (python->request != NULL)
        return;
    python->request = request;
    pthread_cond_broadcast(&python->changed);
    while (request->state == REQUEST_WAITS && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&python->changed, &python->lock, &until);
    if (request->state == REQUEST_WAITS)
        python->request = NULL;
    while (request->state == REQUEST_TAKEN)
        pthread_cond_wait(&python->changed, &python->lock);
}

static void call_reader(struct gc_python *python, struct request *request)
{
    pthread_mutex_lock(&python->lock);
    if (!python->has_reader && !python->has_given_up)
        python->has_reader = start_reader(python);
    if (python->has_reader && !python->has_given_up) {
        wait_for_reader(python, request);
        python->late = request->state == REQUEST_DONE ? 0 : python->late + 1;
    }
    if (!python->has_reader || python->late == LATE_MAX)
        python->has_given_up = true;
    pthread_mutex_unlock(&python->lock);
}

uint32_t gc_python_frames(struct gc_python *python, uint64_t *frames, uint32_t max,
                          gc_stack_intern *intern, void *argument)
{
    if (python->is_initialised() == 0 ||
        (python->is_finalising != NULL && python->is_finalising() != 0))
        return 0;
    void *own = python->this_state();
    if (own == NULL)
        return 0;
    if (python->current_state() == own)
        return read_frames(python, own, frames, max, intern, argument);
    /* The reader has the main interpreter's lock. Objects of a subinterpreter may have a lock of
     * their own. */
    if (python->interpreter_of(own) != python->main_interpreter())
        return 0;
    struct request request = {.state = REQUEST_WAITS,
                              .thread = own,
                              .frames = frames,
                              .max = max,
                              .intern = intern,
                              .argument = argument};
    call_reader(python, &request);
    return request.count;
}
