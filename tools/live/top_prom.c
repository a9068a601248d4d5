/* Metrics of devices, groups, processes and tenants. A process's series end with it; the counters
 * of a group are the ledger's totals, which keep those of processes that ended. */
#define _GNU_SOURCE
#include "tools/live/top_prom.h"

#include "core/base/bits.h"
#include "core/io/emitter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the records ---- */

/* A row's labels. */
struct row_head {
    const struct node_ledger *from;
    char name[GC_LEDGER_NAME_BYTES]; /* of the group; "": none */
    char uuid[GC_LEDGER_UUID_BYTES]; /* "": all devices */
};

/* A group on a device, or the processes of a ledger that have none. */
struct group_row {
    struct row_head head;
    uint64_t process_count; /* of the group, on all devices */
    uint64_t limit_bytes;
    uint64_t held_bytes;
    uint64_t peak_bytes; /* UINT64_MAX: there is no account */
    struct gc_ledger_totals totals;
};

/* A group's turns, on all devices. */
struct turn_row {
    struct row_head head;
    struct gc_ledger_turn_totals totals;
};

struct node_row {
    uint64_t ledger_count;
    uint64_t skipped_count;
    uint64_t truncated_count;
    uint64_t process_count;
};

struct reading {
    const struct top_view *view;
    const struct node *node;
    struct group_row *groups;
    size_t group_count;
    struct turn_row *turns;
    size_t turn_count;
    bool *is_left_out; /* by account */
    struct node_row row;
};

#define METRIC(key, type, record, member, rank, name, help)                                        \
    GC_FIGURE(key, type, record, member, GC_METRIC(rank, name, help))

#define FIGURE(type, member, rank, name, help)                                                     \
    METRIC(#member, type, struct gc_ledger_figures, member, rank, name, help)

static const struct gc_figure process_figures[] = {
    FIGURE(BYTES, requested, 0, "process_live_bytes", "Requested by the process and not freed."),
    FIGURE(BYTES, allocated, 1, "process_allocated_bytes", "Live bytes after rounding."),
    FIGURE(BYTES, reserved, 2, "process_reserved_bytes", "Held of the device's memory."),
    FIGURE(BYTES, idle, 3, "process_idle_bytes", "The cached part that can be released."),
    FIGURE(BYTES, pending, 4, "process_pending_bytes", "Freed, and work may still use it."),
    FIGURE(BYTES, swapped, 5, "process_swapped_bytes", "In host memory until the next turn."),
    FIGURE(BYTES, spilled, 6, "process_spilled_bytes", "In host memory that the device reaches."),
    FIGURE(BYTES, driver, 7, "process_driver_bytes", "Taken by the driver for itself."),
    FIGURE(LIMIT, limit, 8, "process_limit_bytes", "The process's own limit; none: no sample."),
    FIGURE(BYTES, peak, 9, "process_peak_reserved_bytes", "The most it ever held."),
    FIGURE(COUNT, alloc_count, 10, "process_allocations_count", "Allocations."),
    FIGURE(COUNT, hit_count, 11, "process_hits_count", "Allocations served from the cache."),
    FIGURE(COUNT, miss_count, 12, "process_misses_count", "Allocations that needed the driver."),
    FIGURE(COUNT, oom_count, 13, "process_refusals_count", "Requests that ended out of memory."),
};

static const struct gc_figure tenant_figures[] = {
    FIGURE(BYTES, requested, 0, "tenant_live_bytes", "Requested by the tenant and not freed."),
    FIGURE(BYTES, reserved, 1, "tenant_reserved_bytes", "Held of the device's memory."),
    FIGURE(BYTES, idle, 2, "tenant_idle_bytes", "The cached part that can be released."),
    FIGURE(BYTES, swapped, 3, "tenant_swapped_bytes", "In host memory until the next turn."),
    FIGURE(LIMIT, limit, 4, "tenant_limit_bytes", "The tenant's limit; none: no sample."),
    FIGURE(COUNT, alloc_count, 5, "tenant_allocations_count", "Allocations."),
    FIGURE(COUNT, oom_count, 6, "tenant_refusals_count", "Requests that ended out of memory."),
};

static const struct gc_figure device_figures[] = {
    FIGURE(BYTES, reserved, 0, "device_reserved_bytes", "Held by processes under the library."),
    FIGURE(BYTES, requested, 1, "device_live_bytes", "Requested by them and not freed."),
    FIGURE(BYTES, idle, 2, "device_idle_bytes", "The cached part that can be released."),
    FIGURE(LIMIT, limit, 3, "device_total_bytes", "The device's memory."),
};

#define GROUP(type, member, rank, name, help)                                                      \
    METRIC(#member, type, struct group_row, member, rank, name, help)

static const struct gc_figure group_figures[] = {
    GROUP(BYTES, process_count, 0, "group_processes", "Processes of the group that run."),
    GROUP(LIMIT, limit_bytes, 1, "group_limit_bytes", "The group's limit; none: no sample."),
    GROUP(BYTES, held_bytes, 2, "group_reserved_bytes", "Held by its processes together."),
    GROUP(LIMIT, peak_bytes, 3, "group_peak_reserved_bytes", "The most that they ever held."),
    GROUP(COUNT, totals.alloc_count, 4, "group_allocations_count",
          "Allocations, of processes that ended, too."),
    GROUP(COUNT, totals.hit_count, 5, "group_hits_count",
          "Allocations served from the cache, of processes that ended, too."),
    GROUP(COUNT, totals.miss_count, 6, "group_misses_count",
          "Allocations that needed the driver, of processes that ended, too."),
    GROUP(COUNT, totals.oom_count, 7, "group_refusals_count",
          "Requests that ended out of memory, of processes that ended, too."),
    GROUP(COUNT, totals.trim_count, 8, "group_trims_count",
          "Releases of idle memory, of processes that ended, too."),
};

#define TURN(type, member, rank, name, help)                                                       \
    METRIC(#member, type, struct turn_row, totals.member, rank, name, help)

static const struct gc_figure turn_figures[] = {
    TURN(COUNT, exchange_count, 0, "group_exchanges_count",
         "Turns for which memory came back, of processes that ended, too."),
    TURN(BYTES, out_bytes, 1, "group_swapped_out_bytes_count",
         "Bytes that left the device, of processes that ended, too."),
    TURN(BYTES, in_bytes, 2, "group_swapped_in_bytes_count",
         "Bytes that came back, of processes that ended, too."),
    TURN(NS, waited_ns, 3, "group_waited_seconds_count",
         "Time that processes waited for their memory, of processes that ended, too."),
};

static const struct gc_figure node_figures[] = {
    METRIC("ledgers", BYTES, struct node_row, ledger_count, 0, "ledgers",
           "Ledgers of users, jobs and pods."),
    METRIC("skipped", BYTES, struct node_row, skipped_count, 1, "ledgers_skipped",
           "Ledgers that could not be read: of another version, or damaged."),
    METRIC("truncated", BYTES, struct node_row, truncated_count, 2, "ledgers_truncated",
           "Ledgers with more processes than are read of one."),
    METRIC("processes", BYTES, struct node_row, process_count, 3, "processes",
           "Processes under the library."),
};

/* ---- labels ---- */

static void label_device(struct gc_samples *samples, const struct top_view *view, size_t device)
{
    memset(samples->labels, 0, sizeof(samples->labels));
    if (device >= view->device_count)
        return;
    gc_emitter_label_number(samples, "device", view->devices[device].number);
    gc_emitter_label(samples, "uuid", view->devices[device].uuid);
}

static void label_places(struct gc_samples *samples, const struct node_labels *labels)
{
    gc_emitter_label(samples, "container", labels->container);
    gc_emitter_label(samples, "pod", labels->pod);
    gc_emitter_label(samples, "namespace", labels->namespace);
    gc_emitter_label(samples, "job", labels->job);
}

/* The process of a row: its own, or the tenant's. */
static const struct top_subject *process_of(const struct top_view *view,
                                            const struct top_subject *subject)
{
    return subject->kind == TOP_TENANT ? &view->subjects[subject->parent] : subject;
}

static uint64_t pid_of(const struct top_subject *process)
{
    return (uint64_t)(process->host.pid != 0 ? process->host.pid : process->pid);
}

/* ---- iteration ---- */

static const void *next_account(struct gc_samples *samples, enum top_kind kind)
{
    const struct reading *reading = samples->source;
    const struct top_view *view = reading->view;
    for (; samples->outer < view->account_count; samples->outer++) {
        const struct top_account *account = &view->accounts[samples->outer];
        const struct top_subject *subject = &view->subjects[account->subject];
        if (subject->kind != kind || account->device >= view->device_count ||
            reading->is_left_out[samples->outer])
            continue;
        label_device(samples, view, account->device);
        samples->outer++;
        if (kind == TOP_DEVICE)
            return &account->figures;
        const struct top_subject *process = process_of(view, subject);
        gc_emitter_label(samples, "user", process->user);
        gc_emitter_label(samples, "group", process->group);
        gc_emitter_label(samples, "tenant", subject->name);
        gc_emitter_label_number(samples, "pid", pid_of(process));
        label_places(samples, &process->labels);
        return &account->figures;
    }
    return NULL;
}

static const void *next_process(struct gc_samples *samples)
{
    return next_account(samples, TOP_PROCESS);
}

static const void *next_tenant(struct gc_samples *samples)
{
    return next_account(samples, TOP_TENANT);
}

static const void *next_device(struct gc_samples *samples)
{
    return next_account(samples, TOP_DEVICE);
}

static const void *next_group(struct gc_samples *samples)
{
    const struct reading *reading = samples->source;
    if (samples->outer >= reading->group_count)
        return NULL;
    const struct group_row *row = &reading->groups[samples->outer++];
    size_t device = 0;
    while (device < reading->view->device_count &&
           strcmp(reading->view->devices[device].uuid, row->head.uuid) != 0)
        device++;
    label_device(samples, reading->view, device);
    gc_emitter_label(samples, "user", row->head.from->user);
    gc_emitter_label(samples, "group", row->head.name);
    label_places(samples, &row->head.from->labels);
    return row;
}

static const void *next_turn(struct gc_samples *samples)
{
    const struct reading *reading = samples->source;
    memset(samples->labels, 0, sizeof(samples->labels));
    if (samples->outer >= reading->turn_count)
        return NULL;
    const struct turn_row *row = &reading->turns[samples->outer++];
    gc_emitter_label(samples, "user", row->head.from->user);
    gc_emitter_label(samples, "group", row->head.name);
    label_places(samples, &row->head.from->labels);
    return row;
}

static const void *next_node(struct gc_samples *samples)
{
    const struct reading *reading = samples->source;
    memset(samples->labels, 0, sizeof(samples->labels));
    return samples->outer++ == 0 ? &reading->row : NULL;
}

/* ---- one series for each set of labels ---- */

/* A label set's hash, and its row. Prometheus refuses a scrape with two samples of one series, and
 * a hostile ledger can have any labels. */
struct label_set {
    uint64_t hash; /* FNV-1a, 64 bits */
    size_t row;
};

static void add_text(struct label_set *set, const char *text)
{
    for (;; text++) {
        set->hash = gc_hash_fnv1a(set->hash, (uint8_t)*text);
        if (*text == '\0')
            return;
    }
}

static void add_number(struct label_set *set, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    add_text(set, text);
}

static void add_places(struct label_set *set, const struct node_labels *labels)
{
    add_text(set, labels->container);
    add_text(set, labels->pod);
    add_text(set, labels->namespace);
    add_text(set, labels->job);
}

static int compare_sets(const void *left, const void *right)
{
    const struct label_set *a = left, *b = right;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static struct label_set set_of_account(const struct top_view *view, size_t index)
{
    const struct top_account *account = &view->accounts[index];
    const struct top_subject *subject = &view->subjects[account->subject];
    const struct top_subject *process = process_of(view, subject);
    struct label_set set = {.hash = GC_HASH_FNV1A, .row = index};
    add_number(&set, (uint64_t)subject->kind);
    add_number(&set, account->device);
    add_text(&set, process->user);
    add_text(&set, process->group);
    add_text(&set, subject->name);
    add_number(&set, pid_of(process));
    add_places(&set, &process->labels);
    return set;
}

/* Also processes that /proc does not know: only a hostile ledger has those. */
static bool is_unknown(const struct top_view *view, const struct top_account *account)
{
    const struct top_subject *subject = process_of(view, &view->subjects[account->subject]);
    return view->is_of_all_users && subject->kind == TOP_PROCESS && subject->host.pid == 0;
}

static bool leave_out(struct reading *reading)
{
    const struct top_view *view = reading->view;
    struct label_set *sets = malloc((view->account_count + 1) * sizeof(*sets));
    reading->is_left_out = calloc(view->account_count + 1, sizeof(bool));
    if (sets == NULL || reading->is_left_out == NULL) {
        free(sets);
        return false;
    }
    for (size_t i = 0; i < view->account_count; i++)
        sets[i] = set_of_account(view, i);
    qsort(sets, view->account_count, sizeof(*sets), compare_sets);
    for (size_t i = 0; i < view->account_count; i++) {
        const bool is_double = i > 0 && sets[i].hash == sets[i - 1].hash;
        reading->is_left_out[sets[i].row] =
            is_double || is_unknown(view, &view->accounts[sets[i].row]);
    }
    free(sets);
    return true;
}

static void add_saturating(uint64_t *sum, uint64_t value)
{
    if (*sum == UINT64_MAX || value == UINT64_MAX || __builtin_add_overflow(*sum, value, sum))
        *sum = UINT64_MAX;
}

static void merge_group(void *to_row, const void *from_row)
{
    struct group_row *to = to_row;
    const struct group_row *from = from_row;
    add_saturating(&to->process_count, from->process_count);
    add_saturating(&to->limit_bytes, from->limit_bytes);
    add_saturating(&to->held_bytes, from->held_bytes);
    add_saturating(&to->peak_bytes, from->peak_bytes);
#define GC_LEDGER_FIGURE(field)
#define GC_LEDGER_COUNTER(field) add_saturating(&to->totals.field, from->totals.field);
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
}

static void merge_turn(void *to_row, const void *from_row)
{
    struct turn_row *to = to_row;
    const struct turn_row *from = from_row;
    add_saturating(&to->totals.exchange_count, from->totals.exchange_count);
    add_saturating(&to->totals.out_bytes, from->totals.out_bytes);
    add_saturating(&to->totals.in_bytes, from->totals.in_bytes);
    add_saturating(&to->totals.waited_ns, from->totals.waited_ns);
}

static struct label_set set_of_row(const struct row_head *head, size_t index)
{
    struct label_set set = {.hash = GC_HASH_FNV1A, .row = index};
    add_text(&set, head->uuid);
    add_text(&set, head->from->user);
    add_text(&set, head->name);
    add_places(&set, &head->from->labels);
    return set;
}

/* Rows of one set of labels, as the same group in two ledgers of a user has, become one, the sum.
 * Each row begins with its head. */
static bool merge_rows(void *rows, size_t *count, size_t bytes,
                       void (*merge)(void *to, const void *from))
{
    struct label_set *sets = malloc((*count + 1) * sizeof(*sets));
    size_t first = 0, kept = 0;
    if (sets == NULL)
        return false;
    for (size_t i = 0; i < *count; i++)
        sets[i] = set_of_row((const struct row_head *)((char *)rows + i * bytes), i);
    qsort(sets, *count, sizeof(*sets), compare_sets);
    for (size_t i = 1; i < *count; i++) {
        char *row = (char *)rows + sets[i].row * bytes;
        if (sets[i].hash == sets[first].hash) {
            merge((char *)rows + sets[first].row * bytes, row);
            ((struct row_head *)row)->from = NULL;
        } else {
            first = i;
        }
    }
    for (size_t i = 0; i < *count; i++) {
        char *row = (char *)rows + i * bytes;
        if (((const struct row_head *)row)->from != NULL)
            memmove((char *)rows + kept++ * bytes, row, bytes);
    }
    *count = kept;
    free(sets);
    return true;
}

/* ---- totals ---- */

static bool is_any(const struct gc_ledger_totals *totals)
{
    static const struct gc_ledger_totals none;
    return memcmp(totals, &none, sizeof(none)) != 0;
}

static bool has_device(const struct top_view *view, const char *uuid)
{
    for (size_t i = 0; i < view->device_count; i++)
        if (strcmp(view->devices[i].uuid, uuid) == 0)
            return true;
    return false;
}

static bool grow(void **rows, size_t count, size_t bytes)
{
    void *grown = (count & (count - 1)) == 0 /* a power of two, or none */
                      ? reallocarray(*rows, count == 0 ? 1 : 2 * count, bytes)
                      : *rows;
    if (grown == NULL)
        return false;
    *rows = grown;
    return true;
}

/* The running processes of a group, as the view has them. */
static uint64_t members_of(const struct reading *reading, size_t ledger, const char *name)
{
    for (size_t i = 0; i < reading->view->subject_count; i++) {
        const struct top_subject *subject = &reading->view->subjects[i];
        if (subject->kind == TOP_GROUP && subject->ledger == ledger &&
            strcmp(subject->name, name) == 0)
            return subject->process_count;
    }
    return 0;
}

/* Reads one group; GC_LEDGER_GROUPS: the processes without one. */
static bool read_group(struct reading *reading, size_t number, uint32_t index)
{
    const struct node_ledger *from = &reading->node->ledgers[number];
    const struct gc_ledger *ledger = &from->ledger;
    struct gc_ledger_totals totals[GC_LEDGER_DEVICES];
    struct gc_ledger_turn_totals turns;
    struct gc_ledger_group group = {.member_count = 0};
    const bool is_group = index < GC_LEDGER_GROUPS;
    if (is_group && !gc_ledger_read_group_row(ledger, index, &group))
        return true;
    gc_ledger_read_totals(ledger, index, totals, &turns);
    const uint64_t members = is_group ? members_of(reading, number, group.name) : UINT64_MAX;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct gc_ledger_device device;
        if (!gc_ledger_read_device(ledger, i, &device) || !has_device(reading->view, device.uuid) ||
            (!is_any(&totals[i]) && (!is_group || group.peaks[i] == 0)))
            continue;
        void *rows = reading->groups;
        if (!grow(&rows, reading->group_count, sizeof(*reading->groups)))
            return false;
        reading->groups = rows;
        struct group_row *row = &reading->groups[reading->group_count++];
        *row = (struct group_row){.head.from = from,
                                  .process_count = members,
                                  .limit_bytes = is_group ? group.limits[i] : UINT64_MAX,
                                  .held_bytes = is_group ? group.held[i] : UINT64_MAX,
                                  .peak_bytes = is_group ? group.peaks[i] : UINT64_MAX,
                                  .totals = totals[i]};
        memcpy(row->head.name, group.name, sizeof(row->head.name));
        memcpy(row->head.uuid, device.uuid, sizeof(row->head.uuid));
    }
    if (turns.exchange_count == 0 && turns.waited_ns == 0)
        return true;
    void *rows = reading->turns;
    if (!grow(&rows, reading->turn_count, sizeof(*reading->turns)))
        return false;
    reading->turns = rows;
    struct turn_row *row = &reading->turns[reading->turn_count++];
    *row = (struct turn_row){.head.from = from, .totals = turns};
    memcpy(row->head.name, group.name, sizeof(row->head.name));
    return true;
}

static bool read_totals(struct reading *reading)
{
    for (size_t i = 0; i < reading->node->count; i++)
        for (uint32_t group = 0; group <= GC_LEDGER_GROUPS; group++)
            if (!read_group(reading, i, group))
                return false;
    return true;
}

/* ---- writing ---- */

static void write_table(struct gc_writer *out, const struct reading *reading,
                        const struct gc_figure *figures, size_t count,
                        const void *(*next)(struct gc_samples *samples), bool is_openmetrics)
{
    const struct gc_figures table = {figures, count};
    const struct gc_samples samples = {
        .source = reading, .next = next, .is_openmetrics = is_openmetrics};
    gc_emitter_metrics(out, &table, &samples);
}

enum gc_status top_prom_write(struct gc_writer *out, const struct top_view *view,
                              const struct node *node, bool is_openmetrics)
{
    struct reading reading = {
        .view = view,
        .node = node,
        .row = {node->count, node->skipped, view->truncated_count, view->process_count}};
    const bool is_read =
        read_totals(&reading) &&
        merge_rows(reading.groups, &reading.group_count, sizeof(*reading.groups), merge_group) &&
        merge_rows(reading.turns, &reading.turn_count, sizeof(*reading.turns), merge_turn) &&
        leave_out(&reading);
#define TABLE(name)                                                                                \
    write_table(out, &reading, name##_figures, sizeof(name##_figures) / sizeof(name##_figures[0]), \
                next_##name, is_openmetrics)
    if (is_read) {
        TABLE(node);
        TABLE(device);
        TABLE(group);
        TABLE(turn);
        TABLE(process);
        TABLE(tenant);
        if (is_openmetrics)
            gc_writer_text(out, "# EOF\n");
    }
#undef TABLE
    free(reading.groups);
    free(reading.turns);
    free(reading.is_left_out);
    return is_read ? GC_OK : GC_NO_HOST_MEMORY;
}

/* The collector of node_exporter reads all files that end in .prom: the other name does not. */
enum gc_status top_prom_save(const char *path, const struct top_view *view, const struct node *node)
{
    struct gc_writer out;
    char temporary[4352];
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.%ld", path, (long)getpid()) >=
        sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return GC_IO;
    }
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return GC_IO;
    gc_writer_init(&out, fd);
    enum gc_status status = top_prom_write(&out, view, node, false);
    if (status == GC_OK)
        status = gc_writer_flush(&out);
    if (close(fd) != 0 && status == GC_OK)
        status = GC_IO;
    if (status == GC_OK && rename(temporary, path) != 0)
        status = GC_IO;
    if (status != GC_OK) {
        const int saved_errno = errno;
        unlink(temporary);
        errno = saved_errno;
    }
    return status;
}
