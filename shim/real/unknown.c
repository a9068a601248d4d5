/* Calls that pass no wrapper. Core must assume then that work is submitted unseen
 * (gc_submit_set_conservative): every free needs a fence, for good. That is never set without a
 * reason from unseen.def, which is logged once and listed in the report.
 *
 * Entry points of the driver are such calls where neither shim/api.def nor shim/neutral.def knows
 * them. Names are looked up before the library starts, so reasons are kept until core exists. */
#define _GNU_SOURCE
#include "shim/real/unknown.h"
#include "shim/real/resolve.h"

#include "core/device/wait.h"
#include "core/io/elf.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 128
#define TEXT_BYTES 512

/* `format`: with the name and its version. */
static const struct {
    enum gc_log_level level;
    const char *format;
} texts[] = {
#define REASON(name, level, format) [GC_UNSEEN_##name] = {GC_LOG_##level, format},
#include "shim/real/unseen.def"
};

/* The word of a row that says what its calls do. */
enum gc_unknown_kind {
    GC_KIND_ALLOC,
    GC_KIND_FREE,
    GC_KIND_QUERY,
    GC_KIND_SUBMIT,
    GC_KIND_SYNC,
    GC_KIND_CAPTURE,
    GC_KIND_CONTEXT,
    GC_KIND_IPC,
    GC_KIND_PEER,
    GC_KIND_INIT,
    GC_KIND_NODE,
    GC_KIND_PASS,
    GC_KIND_USE
};

static const char neutral_names[] = {
#define NEUTRAL(reason, ...) "," #__VA_ARGS__ ","
#include "shim/neutral.def"
};

/* Written once by the thread that claimed it, and then never again. */
struct entry {
    _Atomic(uint32_t) state;
    enum gc_unseen reason;
    int version;
    char name[NAME_BYTES];
    char text[TEXT_BYTES];
    atomic_flag is_logged;
};

enum { FREE, WRITING, WRITTEN };

static struct {
    struct entry entries[GC_UNSEEN_MAX];
    atomic_bool is_seen; /* a reason was recorded */
} unseen;

static bool is_end(char c)
{
    return c == ',' || c == ' ' || c == '\0';
}

/* `is_base`: symbols with an ABI's or a flavour's suffix count as well. */
static bool is_neutral(const char *name, bool is_base)
{
    const size_t length = strlen(name);

    for (const char *at = strstr(neutral_names, name); at != NULL; at = strstr(at + 1, name)) {
        const char *end = at + length;
        if (!is_end(at[-1]))
            continue;
        if (is_end(*end) ||
            (is_base && (strncmp(end, "_v", 2) == 0 || strncmp(end, "_pt", 3) == 0)))
            return true;
    }
    return false;
}

static bool is_row(const char *name, bool is_base)
{
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++)
        if (row->type != GC_ROW_TYPE_RUNTIME &&
            strcmp(is_base && row->base != 0 ? gc_row_base(row) : gc_row_symbol(row), name) == 0)
            return true;
    return false;
}

static void describe(struct entry *entry)
{
    char version[32] = "";

    if (entry->version != 0)
        snprintf(version, sizeof(version), " of CUDA %d", entry->version);
    snprintf(entry->text, sizeof(entry->text), texts[entry->reason].format, entry->name, version);
}

static void log_entry(struct entry *entry)
{
    if (!atomic_flag_test_and_set_explicit(&entry->is_logged, memory_order_relaxed))
        gc_log_write(&gc_shim.log, texts[entry->reason].level, "%s", entry->text);
}

void gc_unseen_apply(void)
{
    if (!atomic_load_explicit(&unseen.is_seen, memory_order_seq_cst) || gc_shim.core == NULL)
        return;
    gc_shim_enter(GC_API_COUNT);
    (void)gc_submit_set_conservative(gc_shim.core);
    /* Work that no gate sees must find all memory resident: the caller gets the entry point after
     * that. Memory leaves no more: sequentially consistent with gc_away_begin, which closes the
     * gate and then looks at the flag. */
    if (!gc_serve_is_helper())
        gc_wait_resume(gc_shim.core);
    gc_shim_leave();
    for (size_t i = 0; i < GC_UNSEEN_MAX; i++)
        /* Acquire: pairs with the release in gc_unseen_add. */
        if (atomic_load_explicit(&unseen.entries[i].state, memory_order_acquire) == WRITTEN)
            log_entry(&unseen.entries[i]);
}

const char *gc_unseen_text(uint32_t index)
{
    const struct entry *entry = &unseen.entries[index];

    return atomic_load_explicit(&entry->state, memory_order_acquire) == WRITTEN ? entry->text
                                                                                : NULL;
}

static bool is_same(const struct entry *entry, enum gc_unseen reason, const char *name, int version)
{
    return atomic_load_explicit(&entry->state, memory_order_acquire) == WRITTEN &&
           entry->reason == reason && entry->version == version &&
           strncmp(entry->name, name, sizeof(entry->name) - 1) == 0;
}

/* The entry for a new reason; NULL: it is there. The last entry stands for all that do not fit. */
static struct entry *claim(enum gc_unseen reason, const char *name, int version)
{
    for (size_t i = 0; i < GC_UNSEEN_MAX; i++) {
        struct entry *entry = &unseen.entries[i];
        uint32_t expected = FREE;

        if (is_same(entry, reason, name, version))
            return NULL;
        if (atomic_compare_exchange_strong_explicit(&entry->state, &expected, WRITING,
                                                    memory_order_relaxed, memory_order_relaxed))
            return entry;
    }
    return NULL;
}

void gc_unseen_add(enum gc_unseen reason, const char *name, int version)
{
    struct entry *entry = claim(reason, name, version);

    if (entry == NULL)
        return;
    if (entry == &unseen.entries[GC_UNSEEN_MAX - 1])
        reason = GC_UNSEEN_MORE;
    entry->reason = reason;
    entry->version = version;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    describe(entry);
    atomic_store_explicit(&entry->state, WRITTEN, memory_order_release);
    /* Sequentially consistent: either this thread finds the library started, or the thread that
     * starts it finds is_seen. */
    atomic_store_explicit(&unseen.is_seen, true, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (gc_shim_is_started())
        gc_unseen_apply();
}

/* Whether a call of that name may take device memory, in any ABI of it. */
static bool is_allocating(const char *name)
{
    static const enum gc_unknown_kind kinds[] = {
#define API(symbol, base, version, variant, kind, parameters, arguments) GC_KIND_##kind,
#define USE(...) GC_KIND_USE,
#define RUNTIME(...) GC_KIND_USE,
#define NVML(...) GC_KIND_USE,
#define NVML_USE(...) GC_KIND_USE,
#include "shim/api.def"
    };

    for (size_t i = 0; i < GC_ROW_COUNT; i++)
        if (kinds[i] == GC_KIND_ALLOC && strcmp(gc_row_base(&gc_rows[i]), name) == 0)
            return true;
    return false;
}

void gc_unknown_check(const char *name, int version)
{
    gc_unseen_add(is_allocating(name) ? GC_UNSEEN_ALLOC : GC_UNSEEN_WORK, name, version);
}

void gc_unknown_log(const char *name, int version)
{
    if (!is_row(name, true) && !is_neutral(name, true))
        gc_unknown_check(name, version);
}

void gc_unknown_log_symbol(const char *name)
{
    if (!is_neutral(name, false) && !is_row(name, false) && gc_resolve_driver_exports(name))
        gc_unknown_check(name, 0);
}

/* Only for the driver's libraries, by name: any other may hold a runtime of its own. */
static void check_tables_of(void *unused, const char *path)
{
    static const char *const prefixes[] = {"libnvcuvid.", "libnvidia-", "libnvoptix."};
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path != NULL ? path : "";

    (void)unused;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            char what[64];
            snprintf(what, sizeof(what), "the driver's tables (%s)", name);
            gc_unseen_add(GC_UNSEEN_WORK, what, 0);
        }
}

void gc_unknown_log_export_table(const void *caller)
{
    gc_elf_visit_path(caller, check_tables_of, NULL);
}
