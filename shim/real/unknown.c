/* Entry points of the driver that neither shim/api.def nor shim/neutral.def knows. Calls of those
 * pass no wrapper, so core must assume that work is submitted unseen (gc_submit_set_conservative);
 * this is set once, with a log line that names the entry point.
 *
 * Names are looked up before the library starts, so the first one is kept until core exists. */
#define _GNU_SOURCE
#include "shim/real/unknown.h"
#include "shim/real/resolve.h"

#include "core/io/elf.h"

#include <stdio.h>
#include <string.h>

static const char neutral_names[] = {
#define NEUTRAL(reason, ...) "," #__VA_ARGS__ ","
#include "shim/neutral.def"
};

static struct {
    atomic_flag is_taken; /* by the first name */
    atomic_bool is_seen;
    atomic_bool is_applied;
    char name[64];
    int version;
    char text[256]; /* written before is_said */
    atomic_bool is_said;
} unknown = {.is_taken = ATOMIC_FLAG_INIT};

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
            strcmp(is_base && row->base != NULL ? row->base : row->symbol, name) == 0)
            return true;
    return false;
}

void gc_unknown_apply(void)
{
    if (!atomic_load_explicit(&unknown.is_seen, memory_order_seq_cst) || gc_shim.core == NULL ||
        atomic_exchange_explicit(&unknown.is_applied, true, memory_order_relaxed))
        return;
    gc_shim_enter(GC_API_COUNT);
    (void)gc_submit_set_conservative(gc_shim.core);
    gc_shim_leave();
    char version[32] = "";
    if (unknown.version != 0)
        snprintf(version, sizeof(version), " of CUDA %d", unknown.version);
    snprintf(unknown.text, sizeof(unknown.text),
             "the program looked up %s%s, which this version does not know: work may be submitted "
             "unseen, so freed memory is reused more cautiously",
             unknown.name, version);
    gc_log_write(&gc_shim.log, GC_LOG_INFO, "%s", unknown.text);
    /* Release: pairs with the acquire in gc_unknown_text. */
    atomic_store_explicit(&unknown.is_said, true, memory_order_release);
}

const char *gc_unknown_text(void)
{
    return atomic_load_explicit(&unknown.is_said, memory_order_acquire) ? unknown.text : NULL;
}

void gc_unknown_check(const char *name, int version)
{
    if (atomic_flag_test_and_set_explicit(&unknown.is_taken, memory_order_relaxed))
        return;
    strncpy(unknown.name, name, sizeof(unknown.name) - 1);
    unknown.version = version;
    /* Sequentially consistent: either this thread finds the library started, or the thread that
     * starts it finds is_seen. */
    atomic_store_explicit(&unknown.is_seen, true, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (gc_shim_is_started())
        gc_unknown_apply();
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
            gc_unknown_check(what, 0);
        }
}

void gc_unknown_log_export_table(const void *caller)
{
    gc_elf_visit_path(caller, check_tables_of, NULL);
}
