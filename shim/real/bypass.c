/* Libraries that are loaded with RTLD_DEEPBIND find CUDA's functions, and dlsym itself, in their
 * own dependencies before any preloaded library: their calls are not cached, counted or limited.
 * Nothing here changes that, since programs use the flag to keep libraries apart; but it is said,
 * and frees are conservative (unknown.c).
 *
 * The flag holds for every object that the load brings in, dependencies too, and for none that was
 * loaded before. Such an object's calls pass by if it imports a wrapped function which an object of
 * the load's closure defines, or if it imports dlsym and its constant data name the driver. CUDA's
 * own libraries for the driver are not judged: programs open them so too (Julia), and reach this
 * library by the look-ups that follow.
 *
 * That is read once the load is over: at the thread's next look-up, load or allocation, or before
 * the report. A load that failed has brought nothing in. Only the first TEXT_BYTES of an object's
 * constant data are read, since libraries have device code of several hundred MiB there: a library
 * that names the driver behind those is not noticed. */
#define _GNU_SOURCE
#include "shim/real/bypass.h"
#include "shim/deep.h"
#include "shim/real/rows.h"
#include "shim/real/unknown.h"

#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include <dlfcn.h>
#include <string.h>

#define PENDING_MAX 32 /* loads under way, nested ones and other threads' too */
#define NAME_BYTES 256 /* NAME_MAX and its end */
#define TEXT_BYTES ((size_t)4 << 20)

enum state { FREE, WRITING, PENDING, CHECKING };

static struct pending {
    _Atomic(uint32_t) state;
    const struct gc_thread *owner;
    struct gc_elf_loads before;
    char name[NAME_BYTES];
} pending[PENDING_MAX];

static __thread unsigned own_count __attribute__((tls_model("initial-exec")));

/* ---- judging a load that is over ---- */

struct import_search {
    const struct gc_elf_closure *closure;
    bool looks_up; /* imports dlsym */
};

static bool passes_by(void *argument, const char *name)
{
    struct import_search *search = argument;

    if (strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0)
        search->looks_up = true;
    return gc_row_find(name) != NULL && gc_elf_closure_find(search->closure, name) != NULL;
}

static bool is_drivers(const char *name)
{
    return strncmp(name, "libcuda.so", strlen("libcuda.so")) == 0 ||
           strncmp(name, "libnvidia-", strlen("libnvidia-")) == 0;
}

/* Whether the object's calls pass by. */
static bool is_unseen(const struct gc_elf_closure *closure, const struct gc_elf_object *object)
{
    struct import_search search = {.closure = closure};

    return gc_elf_object_visit_imports(object, passes_by, &search) ||
           (search.looks_up && gc_elf_object_mentions(object, "libcuda", TEXT_BYTES));
}

#define UNSEEN_MAX 8 /* objects of one load that are named */

struct judgement {
    const struct pending *load;
    unsigned count;
    char names[UNSEEN_MAX][NAME_BYTES];
};

/* Runs under the dynamic linker's lock: only collects. */
static void judge_closure(void *argument, const struct gc_elf_closure *closure)
{
    struct judgement *judgement = argument;
    const struct pending *load = judgement->load;
    struct gc_elf_loads now;
    struct gc_elf_object object;

    gc_elf_count_loads(&now);
    const unsigned first_new = now.unloaded == load->before.unloaded ? load->before.count : 0;
    for (unsigned i = 0; judgement->count < UNSEEN_MAX && gc_elf_closure_open(closure, i, &object);
         i++) {
        const char *path;
        unsigned place;

        if (!gc_elf_object_place(&object, &place, &path) || place < first_new ||
            gc_row_is_own(object.dynamic) || is_drivers(gc_elf_file_name(path)))
            continue;
        if (is_unseen(closure, &object))
            strncpy(judgement->names[judgement->count++], gc_elf_file_name(path), NAME_BYTES - 1);
    }
}

static void judge(void *argument)
{
    const struct pending *load = argument;
    struct judgement judgement = {.load = load};

    (void)gc_elf_visit_closure(load->name, judge_closure, &judgement);
    for (unsigned i = 0; i < judgement.count; i++)
        gc_unseen_add(GC_UNSEEN_BYPASS, judgement.names[i], 0);
}

/* `owner`: whose loads; NULL: all. */
static void check(const struct gc_thread *owner)
{
    for (size_t i = 0; i < PENDING_MAX; i++) {
        uint32_t expected = PENDING;

        /* Acquire: pairs with the release in gc_bypass_load. */
        if (atomic_load_explicit(&pending[i].state, memory_order_acquire) != PENDING ||
            (owner != NULL && pending[i].owner != owner) ||
            !atomic_compare_exchange_strong_explicit(&pending[i].state, &expected, CHECKING,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        gc_deep_run(judge, &pending[i]);
        atomic_store_explicit(&pending[i].state, FREE, memory_order_release);
    }
}

void gc_bypass_check(void)
{
    if (own_count == 0)
        return;
    own_count = 0;
    check(&gc_thread);
}

void gc_bypass_check_all(void)
{
    own_count = 0;
    check(NULL);
}

/* ---- announcing a load ---- */

static struct pending *claim(void)
{
    for (size_t i = 0; i < PENDING_MAX; i++) {
        uint32_t expected = FREE;

        if (atomic_compare_exchange_strong_explicit(&pending[i].state, &expected, WRITING,
                                                    memory_order_acquire, memory_order_relaxed))
            return &pending[i];
    }
    return NULL;
}

void gc_bypass_load(const char *path, int flags)
{
    const char *name = gc_elf_file_name(path);
    struct pending *load;

    gc_bypass_check();
    if (name[0] == '\0' || (flags & RTLD_DEEPBIND) == 0 || (flags & RTLD_NOLOAD) != 0 ||
        strlen(name) >= NAME_BYTES)
        return;
    load = claim();
    if (load == NULL) {
        check(NULL); /* of threads that have made no call since */
        load = claim();
    }
    if (load == NULL)
        return;
    load->owner = &gc_thread;
    gc_elf_count_loads(&load->before);
    strcpy(load->name, name);
    own_count++;
    atomic_store_explicit(&load->state, PENDING, memory_order_release);
}
