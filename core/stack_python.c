/* Frames of Python code, by the interpreter's own functions, which are looked for in the process:
 * nothing is linked. They are those of CPython 3.9 and later, and one that says which thread's
 * state is in force: that it is the calling thread's means that it holds the interpreter's lock,
 * without which nothing may be asked. */
#define _GNU_SOURCE
#include "core/stack_frames.h"

#include <dlfcn.h>
#include <sys/types.h>

/* Pointers of the interpreter are opaque here. */
struct gc_python {
    struct gc_stack_object object;
    void *(*this_state)(void);
    void *(*current_state)(void);
    int (*is_initialised)(void);
    void *(*frame)(void); /* borrowed */
    void *(*back)(void *frame);
    void *(*code)(void *frame);
    int (*line)(void *frame);
    void *(*attribute)(void *object, const char *name);
    const char *(*text)(void *text, ssize_t *length);
    void (*release)(void *object);
    void (*fetch)(void **type, void **value, void **trace);
    void (*restore)(void *type, void *value, void *trace);
};

static bool find(const char *name, void *function)
{
    *(void **)function = dlsym(RTLD_DEFAULT, name);
    return *(void **)function != NULL;
}

static bool find_all(struct gc_python *python)
{
    return find("PyEval_GetFrame", &python->frame) &&
           gc_stack_find_object((uintptr_t)python->frame, &python->object, NULL) &&
           find("PyGILState_GetThisThreadState", &python->this_state) &&
           (find("PyThreadState_GetUnchecked", &python->current_state) ||
            find("_PyThreadState_UncheckedGet", &python->current_state)) &&
           find("Py_IsInitialized", &python->is_initialised) &&
           find("PyFrame_GetBack", &python->back) && find("PyFrame_GetCode", &python->code) &&
           find("PyFrame_GetLineNumber", &python->line) &&
           find("PyObject_GetAttrString", &python->attribute) &&
           find("PyUnicode_AsUTF8AndSize", &python->text) && find("Py_DecRef", &python->release) &&
           find("PyErr_Fetch", &python->fetch) && find("PyErr_Restore", &python->restore);
}

const struct gc_python *gc_python_find(struct gc_stack_scope *scope, struct gc_host *host,
                                       unsigned long long loads)
{
    struct gc_python found;
    /* Acquire: pairs with the exchange below. */
    struct gc_python *python = atomic_load_explicit(&scope->python, memory_order_acquire);
    if (python != NULL || atomic_load_explicit(&scope->searched_at, memory_order_relaxed) == loads)
        return python;
    if (!find_all(&found)) {
        /* Whatever is loaded next may be it. */
        atomic_store_explicit(&scope->searched_at, loads, memory_order_relaxed);
        return NULL;
    }
    struct gc_python *kept = gc_host_map(host, sizeof(*kept));
    if (kept == NULL)
        return NULL;
    *kept = found;
    if (atomic_compare_exchange_strong_explicit(&scope->python, &python, kept, memory_order_acq_rel,
                                                memory_order_acquire))
        return kept;
    gc_host_unmap(host, kept, sizeof(*kept));
    return python;
}

void gc_python_forget(struct gc_python *python, struct gc_host *host)
{
    if (python != NULL)
        gc_host_unmap(host, python, sizeof(*python));
}

bool gc_python_has(const struct gc_python *python, uintptr_t address)
{
    return address >= python->object.start && address < python->object.end;
}

static bool holds_the_lock(const struct gc_python *python)
{
    if (python->is_initialised() == 0)
        return false;
    const void *own = python->this_state();
    return own != NULL && python->current_state() == own;
}

/* The text of an attribute, alive as long as the code it is of; "?" if it has none. */
static const char *text_of(const struct gc_python *python, void *code, const char *name)
{
    void *attribute = python->attribute(code, name);
    const char *text = attribute != NULL ? python->text(attribute, NULL) : NULL;
    if (attribute != NULL)
        python->release(attribute); /* the code has it still */
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

uint32_t gc_python_frames(const struct gc_python *python, uint64_t *frames, uint32_t max,
                          gc_stack_intern *intern, void *argument)
{
    void *type;
    void *value;
    void *trace;
    uint32_t count = 0;
    bool owned = false;
    if (!holds_the_lock(python))
        return 0;
    void *frame = python->frame();
    if (frame == NULL)
        return 0;
    /* The program's own exception stays what it is, whatever happens here. */
    python->fetch(&type, &value, &trace);
    while (frame != NULL && count < max) {
        frames[count++] = frame_of(python, frame, intern, argument);
        void *back = python->back(frame);
        if (owned)
            python->release(frame);
        frame = back;
        owned = true;
    }
    if (frame != NULL && owned)
        python->release(frame);
    python->restore(type, value, trace);
    return count;
}
