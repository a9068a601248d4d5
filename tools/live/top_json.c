/* `gpucache top --json`: schema gpucache-top/1, described in docs/top.md. */
#include "core/base/clock.h"
#include "core/io/emitter.h"
#include "tools/live/top_text.h"

#include <stdlib.h>
#include <string.h>

/* A device's limit is its memory. */
static void write_figures(struct gc_json *json, const struct gc_ledger_figures *record,
                          enum top_kind kind)
{
    const int permille = top_hit_permille(record);
    struct gc_figure array[] = {
#define TOP_COLUMN(...)
#define TOP_FIGURE(field, key, type, ...)                                                          \
    [TOP_COLUMN_##field] = GC_FIGURE(key, type, struct gc_ledger_figures, field),
#include "tools/live/top_columns.def"
#undef TOP_COLUMN
#undef TOP_FIGURE
    };
    const struct gc_figures figures = GC_FIGURES(array);
    if (kind == TOP_DEVICE)
        array[TOP_COLUMN_limit].key = "total_bytes";
    if (kind <= TOP_GROUP)
        array[TOP_COLUMN_peak].key = NULL;
    gc_emitter_members(json, &figures, record, NULL);
    if (permille < 0)
        gc_json_write_null(json, "hit_ratio");
    else
        gc_json_write_fixed(json, "hit_ratio", (uint64_t)permille, 3);
}

/* The accounts in order, linked by subject. */
struct walk {
    const struct top_view *view;
    size_t *rows;
    size_t count;
    size_t *first_row;    /* by subject */
    size_t *next_row;     /* by row: the next of the same subject */
    size_t *first_tenant; /* by subject: a process's first tenant */
    size_t *next_tenant;  /* by subject */
    size_t *memory;       /* the arrays above */
};

static void close_walk(struct walk *walk)
{
    free(walk->rows);
    free(walk->memory);
}

/* False if memory runs out. */
static bool open_walk(struct walk *walk, const struct top_view *view, const struct top_order *order)
{
    const size_t subjects = view->subject_count;
    *walk = (struct walk){.view = view};
    walk->rows = top_view_sort(view, order, &walk->count);
    const size_t words = 3 * subjects + walk->count + 1;
    walk->memory = malloc(words * sizeof(size_t));
    if (walk->rows == NULL || walk->memory == NULL) {
        close_walk(walk);
        return false;
    }
    memset(walk->memory, 0xff, words * sizeof(size_t));
    walk->first_row = walk->memory;
    walk->first_tenant = walk->first_row + subjects;
    walk->next_tenant = walk->first_tenant + subjects;
    walk->next_row = walk->next_tenant + subjects;
    for (size_t i = walk->count; i-- > 0;) {
        const size_t index = view->accounts[walk->rows[i]].subject;
        walk->next_row[i] = walk->first_row[index];
        walk->first_row[index] = i;
    }
    for (size_t i = walk->count; i-- > 0;) {
        const size_t index = view->accounts[walk->rows[i]].subject;
        const struct top_subject *subject = &view->subjects[index];
        if (subject->kind != TOP_TENANT || walk->first_row[index] != i ||
            subject->parent >= subjects)
            continue;
        walk->next_tenant[index] = walk->first_tenant[subject->parent];
        walk->first_tenant[subject->parent] = index;
    }
    return true;
}

/* "devices": the accounts of one subject. */
static void write_accounts(struct gc_json *json, const struct walk *walk, size_t subject)
{
    const enum top_kind kind = walk->view->subjects[subject].kind;
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (size_t i = walk->first_row[subject]; i != TOP_NONE; i = walk->next_row[i]) {
        const struct top_account *account = &walk->view->accounts[walk->rows[i]];
        const bool has_device = account->device < walk->view->device_count;
        if (!has_device && kind != TOP_TENANT)
            continue;
        gc_json_begin_object(json, GC_JSON_LINE);
        if (has_device) {
            const struct top_device *device = &walk->view->devices[account->device];
            gc_json_write_uint(json, "device", device->number);
            gc_json_write_string(json, "uuid", device->uuid);
        } else {
            gc_json_write_null(json, "device");
            gc_json_write_null(json, "uuid");
        }
        write_figures(json, &account->figures, kind);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void write_state(struct gc_json *json, enum top_state state)
{
    static const char *const words[] = {[TOP_RUNNING] = "running",
                                        [TOP_PAUSED] = "paused",
                                        [TOP_AWAY] = "away",
                                        [TOP_STOPPED] = "stopped"};
    gc_json_write_string(json, "state", words[state]);
}

static uint64_t ms(uint64_t ns)
{
    return ns / GC_NS_PER_MS;
}

/* "turn": of a process that takes turns, else null. */
static void write_turn(struct gc_json *json, const struct top_subject *process)
{
    static const char *const words[GC_TURN_STATE_COUNT] = {
        [GC_TURN_NONE] = "none", [GC_TURN_IN] = "in",           [GC_TURN_LEAVING] = "leaving",
        [GC_TURN_AWAY] = "away", [GC_TURN_WAITING] = "waiting",
    };
    const struct gc_ledger_turn *turn = &process->turn;
    if (!process->takes_turns) {
        gc_json_write_null(json, "turn");
        return;
    }
    gc_json_open_object(json, "turn", GC_JSON_LINE);
    gc_json_write_string(json, "state", words[turn->state]);
    gc_json_write_uint(json, "priority", turn->priority);
    gc_json_write_bool(json, "is_pinned", turn->is_pinned);
    gc_json_write_uint(json, "idle_ms", ms(turn->idle_ns));
    gc_json_write_uint(json, "waiting_ms", ms(turn->waiting_ns));
    gc_json_write_uint(json, "waited_ms", ms(turn->waited_ns));
    gc_json_write_uint(json, "quantum_ms", ms(turn->quantum_ns));
    gc_json_write_uint(json, "exchange_count", turn->exchange_count);
    gc_json_write_uint(json, "out_bytes", turn->out_bytes);
    gc_json_write_uint(json, "in_bytes", turn->in_bytes);
    gc_json_write_uint(json, "host_bytes", turn->host_bytes);
    gc_json_end_object(json);
}

/* "": null. */
static void write_text(struct gc_json *json, const char *key, const char *text)
{
    if (text[0] == '\0')
        gc_json_write_null(json, key);
    else
        gc_json_write_string(json, key, text);
}

static void write_place(struct gc_json *json, const struct top_subject *process)
{
    write_text(json, "user", process->user);
    gc_json_write_maybe(json, "host_pid", process->host.pid != 0, (uint64_t)process->host.pid);
    write_text(json, "command", process->host.command);
    write_text(json, "container", process->labels.container);
    write_text(json, "pod", process->labels.pod);
    write_text(json, "namespace", process->labels.namespace);
    write_text(json, "job", process->labels.job);
}

static void write_tenants(struct gc_json *json, const struct walk *walk, size_t process)
{
    gc_json_open_array(json, "tenants", GC_JSON_LINES);
    for (size_t i = walk->first_tenant[process]; i != TOP_NONE; i = walk->next_tenant[i]) {
        const struct top_subject *tenant = &walk->view->subjects[i];
        gc_json_begin_object(json, GC_JSON_LINES);
        gc_json_write_string(json, "name", tenant->name);
        write_state(json, tenant->state);
        write_accounts(json, walk, i);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void write_process(struct gc_json *json, const struct walk *walk, size_t index)
{
    const struct top_subject *process = &walk->view->subjects[index];
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_int(json, "pid", process->pid);
    gc_json_write_string(json, "name", process->name);
    gc_json_write_string(json, "program", process->program);
    write_text(json, "group", process->group);
    write_place(json, process);
    write_state(json, process->state);
    gc_json_write_maybe(json, "age_ms", process->age_ms != UINT32_MAX, process->age_ms);
    write_turn(json, process);
    write_accounts(json, walk, index);
    write_tenants(json, walk, index);
    gc_json_end_object(json);
}

static void write_group(struct gc_json *json, const struct walk *walk, size_t index)
{
    const struct top_subject *group = &walk->view->subjects[index];
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_string(json, "name", group->name);
    write_text(json, "user", group->user);
    gc_json_write_uint(json, "process_count", group->process_count);
    write_accounts(json, walk, index);
    gc_json_end_object(json);
}

static void write_subjects(struct gc_json *json, const struct walk *walk, const char *key,
                           enum top_kind kind)
{
    gc_json_open_array(json, key, GC_JSON_LINES);
    for (size_t i = 0; i < walk->count; i++) {
        const size_t index = walk->view->accounts[walk->rows[i]].subject;
        if (walk->view->subjects[index].kind != kind || walk->first_row[index] != i)
            continue;
        if (kind == TOP_PROCESS)
            write_process(json, walk, index);
        else
            write_group(json, walk, index);
    }
    gc_json_end_array(json);
}

static void write_devices(struct gc_json *json, const struct walk *walk)
{
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (size_t i = 0; i < walk->count; i++) {
        const struct top_account *account = &walk->view->accounts[walk->rows[i]];
        const struct top_subject *subject = &walk->view->subjects[account->subject];
        if (subject->kind != TOP_DEVICE)
            continue;
        const struct top_device *device = &walk->view->devices[account->device];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_uint(json, "device", device->number);
        gc_json_write_string(json, "uuid", device->uuid);
        gc_json_write_string(json, "name", device->name);
        gc_json_write_uint(json, "process_count", subject->process_count);
        write_figures(json, &account->figures, TOP_DEVICE);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

enum gc_status top_json_print(struct gc_writer *out, const struct top_view *view,
                              const struct top_order *order, const char *source, uint64_t time_unix)
{
    struct gc_json json;
    struct walk walk;
    if (!open_walk(&walk, view, order))
        return GC_NO_HOST_MEMORY;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "schema", "gpucache-top/1");
    gc_json_write_string(&json, "version", GC_VERSION);
    gc_json_write_uint(&json, "time_unix", time_unix);
    gc_json_write_string(&json, "ledger", source);
    write_devices(&json, &walk);
    write_subjects(&json, &walk, "groups", TOP_GROUP);
    write_subjects(&json, &walk, "processes", TOP_PROCESS);
    gc_json_end_object(&json);
    close_walk(&walk);
    return GC_OK;
}
