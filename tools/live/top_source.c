/* One reading of the ledgers for `gpucache top`. It first requests fresh figures from all
 * processes. A process that does not answer in time (one without a helper thread, a stopped one)
 * is shown with the figures that it published last, and their age. */
#define _GNU_SOURCE
#include "tools/live/top_source.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* For all processes together. */
#define REFRESH_MS 100
/* Of one ledger among those of all users, whose owner may be hostile: rows of the view, and devices
 * where NVML is not there to ask. */
#define LEDGER_ROWS_MAX 4096
#define LEDGER_DEVICES_MAX 16

void top_source_fini(struct top_source *source)
{
    node_close(&source->node);
    host_table_fini(&source->hosts);
}

const char *top_source_path(const struct top_source *source)
{
    return source->node.count > 0 ? source->path : "";
}

/* ---- requests for figures ---- */

/* A request to a process, which answers by itself. */
struct asked {
    const struct gc_ledger *ledger;
    struct gc_ledger_ticket ticket;
};

struct asking {
    struct asked *asked;
    size_t count;
    size_t room;
};

static void note(struct asking *asking, const struct gc_ledger *ledger,
                 const struct gc_ledger_ticket *ticket)
{
    if (asking->count == asking->room) {
        const size_t room = asking->room == 0 ? 64 : 2 * asking->room;
        struct asked *asked = reallocarray(asking->asked, room, sizeof(*asked));
        if (asked == NULL)
            return; /* not waited for */
        asking->asked = asked;
        asking->room = room;
    }
    asking->asked[asking->count++] = (struct asked){ledger, *ticket};
}

static void ask_all(struct asking *asking, const struct gc_ledger *ledger)
{
    const struct gc_ledger_request request = {.kind = GC_REQUEST_REFRESH, .device = GC_LEDGER_NONE};
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t number = 0; number < high; number++) {
        const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
        const uint32_t pid = gc_ledger_load_half(&slot->pid);
        const bool has_helper = (gc_ledger_load_half(&slot->flags) & GC_LEDGER_HAS_HELPER) != 0;
        struct gc_ledger_ticket ticket;
        if (pid != 0 && !live_is_stopped(ledger, number, (int)pid) &&
            gc_ledger_send_request(ledger, number, gc_ledger_load_half(&slot->generation), &request,
                                   &ticket) &&
            has_helper)
            note(asking, ledger, &ticket);
    }
}

static void refresh(const struct top_source *source)
{
    struct asking asking = {.count = 0};
    for (size_t i = 0; i < source->node.count; i++)
        ask_all(&asking, &source->node.ledgers[i].ledger);
    const uint64_t until = gc_clock_ns() + source->refresh_ms * GC_NS_PER_MS;
    for (size_t i = 0; i < asking.count; i++) {
        const uint64_t now = gc_clock_ns();
        (void)gc_ledger_wait_response(asking.asked[i].ledger, &asking.asked[i].ticket,
                                      now < until ? (uint32_t)((until - now) / GC_NS_PER_MS) : 0,
                                      NULL);
    }
    free(asking.asked);
}

/* ---- from the ledger to the view ---- */

/* One ledger, on its way into the view. `index`: a device row's in the view; TOP_NONE: none. */
struct reading {
    struct top_view *view;
    const struct node_ledger *from;
    size_t number;
    struct host_table *hosts;
    struct node_devices *devices;
    size_t index[GC_LEDGER_DEVICES];
};

/* The keys of rows of different ledgers differ. */
static uint64_t key_of(const struct reading *reading, uint64_t key)
{
    return key ^ reading->from->ledger.file_number << 20;
}

/* Ledgers number devices by themselves; the UUID tells which are one. */
static size_t find_device(const struct top_view *view, const char *uuid)
{
    for (size_t i = 0; view->is_of_all_users && i < view->device_count; i++)
        if (strcmp(view->devices[i].uuid, uuid) == 0)
            return i;
    return TOP_NONE;
}

/* False: the row is of no device of the machine. */
static bool check_device(const struct reading *reading, struct gc_ledger_device *row, size_t count)
{
    if (!reading->view->is_of_all_users)
        return true;
    const enum node_device_answer answer = node_devices_check(reading->devices, row);
    return answer == NODE_DEVICE_KNOWN ||
           (answer == NODE_DEVICE_NO_NVML && count < LEDGER_DEVICES_MAX);
}

static void add_devices(struct reading *reading)
{
    struct top_view *view = reading->view;
    size_t count = 0;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct gc_ledger_device row;
        reading->index[i] = TOP_NONE;
        if (!gc_ledger_read_device(&reading->from->ledger, i, &row))
            continue;
        reading->index[i] = find_device(view, row.uuid);
        if (reading->index[i] != TOP_NONE || !check_device(reading, &row, count++))
            continue;
        struct top_device device = {.number =
                                        view->is_of_all_users ? (unsigned)view->device_count : i,
                                    .total_bytes = row.total_bytes};
        snprintf(device.uuid, sizeof(device.uuid), "%s", row.uuid);
        snprintf(device.name, sizeof(device.name), "%s", row.name);
        reading->index[i] = top_view_add_device(view, &device);
    }
}

/* Whether a process of this ledger, which are the view's subjects from `first` on, is of the group.
 */
static bool has_member(const struct top_view *view, size_t first, size_t count, const char *name)
{
    for (size_t i = first; i < count; i++)
        if (view->subjects[i].kind == TOP_PROCESS && strcmp(view->subjects[i].group, name) == 0)
            return true;
    return false;
}

/* A group without processes is not shown. */
static void add_groups(struct reading *reading, size_t first)
{
    struct top_view *view = reading->view;
    const size_t count = view->subject_count;
    struct gc_ledger_group row;
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS; i++) {
        if (!gc_ledger_read_group_row(&reading->from->ledger, i, &row) ||
            !has_member(view, first, count, row.name))
            continue;
        struct top_subject subject = {.kind = TOP_GROUP,
                                      .ledger = reading->number,
                                      .key = key_of(reading, UINT64_C(1) << 62 | i)};
        snprintf(subject.name, sizeof(subject.name), "%s", row.name);
        snprintf(subject.user, sizeof(subject.user), "%s", reading->from->user);
        const size_t group = top_view_add(view, &subject);
        for (uint32_t device = 0; device < GC_LEDGER_DEVICES; device++) {
            const struct gc_ledger_figures figures = {.limit = row.limits[device]};
            if (reading->index[device] != TOP_NONE &&
                (row.limits[device] != UINT64_MAX || row.held[device] > 0))
                top_view_add_account(view, group, reading->index[device], &figures);
        }
    }
}

/* The tenant of that name among those of the process from `first` on, or a new one. */
static size_t find_tenant(struct top_view *view, size_t first, const struct top_subject *subject)
{
    for (size_t i = first; i < view->subject_count; i++)
        if (strcmp(view->subjects[i].name, subject->name) == 0)
            return i;
    return top_view_add(view, subject);
}

static void add_tenants(const struct reading *reading, uint32_t slot, size_t parent)
{
    struct top_view *view = reading->view;
    const struct top_subject process = view->subjects[parent];
    const size_t first = view->subject_count;
    for (uint32_t i = 0; i < GC_LEDGER_TENANTS; i++) {
        struct gc_ledger_tenant row;
        if (!gc_ledger_read_tenant(&reading->from->ledger, slot, i, &row))
            continue;
        struct top_subject subject = {.kind = TOP_TENANT,
                                      .state = row.is_paused ? TOP_PAUSED
                                               : row.is_away ? TOP_AWAY
                                                             : TOP_RUNNING,
                                      .ledger = reading->number,
                                      .key = process.key ^ (uint64_t)(i + 1) << 48,
                                      .parent = parent};
        snprintf(subject.name, sizeof(subject.name), "%s", row.name);
        snprintf(subject.user, sizeof(subject.user), "%s", process.user);
        snprintf(subject.group, sizeof(subject.group), "%s", process.group);
        const size_t device =
            row.device < GC_LEDGER_DEVICES ? reading->index[row.device] : TOP_NONE;
        top_view_add_account(view, find_tenant(view, first, &subject), device, &row.figures);
    }
}

static uint32_t age_ms(uint64_t figures_ns)
{
    const uint64_t now = gc_clock_ns();
    if (figures_ns == 0)
        return UINT32_MAX;
    const uint64_t age = now > figures_ns ? (now - figures_ns) / GC_NS_PER_MS : 0;
    return age < UINT32_MAX ? (uint32_t)age : UINT32_MAX - 1;
}

/* Labels come first; the control group has what they do not. */
static void add_host(const struct reading *reading, const struct gc_ledger_process *process,
                     struct top_subject *subject)
{
    subject->labels = reading->from->labels;
    snprintf(subject->user, sizeof(subject->user), "%s", reading->from->user);
    host_process_find(reading->hosts, &reading->from->ledger, process, reading->from->uid,
                      &subject->host);
    if (subject->labels.container[0] == '\0')
        snprintf(subject->labels.container, sizeof(subject->labels.container), "%s",
                 subject->host.container);
    if (subject->labels.job[0] == '\0')
        snprintf(subject->labels.job, sizeof(subject->labels.job), "%s", subject->host.job);
}

static size_t add_subject(const struct reading *reading, const struct gc_ledger_process *process)
{
    const struct gc_ledger *ledger = &reading->from->ledger;
    struct top_subject subject = {
        .kind = TOP_PROCESS,
        .pid = process->pid,
        .ledger = reading->number,
        .key = key_of(reading, (uint64_t)process->slot << 32 | process->generation),
        .slot = process->slot,
        .generation = process->generation,
        .age_ms = age_ms(process->figures_ns)};
    if (live_is_stopped(ledger, process->slot, process->pid))
        subject.state = TOP_STOPPED;
    else if (process->is_paused)
        subject.state = TOP_PAUSED;
    subject.takes_turns = gc_ledger_read_turn(ledger, process->slot, gc_clock_ns(), &subject.turn);
    snprintf(subject.name, sizeof(subject.name), "%s", process->tenant);
    snprintf(subject.program, sizeof(subject.program), "%s", process->program);
    snprintf(subject.group, sizeof(subject.group), "%s", process->group);
    add_host(reading, process, &subject);
    return top_view_add(reading->view, &subject);
}

static void add_process(const struct reading *reading, const struct gc_ledger_process *process)
{
    bool has_account = false;
    const size_t index = add_subject(reading, process);
    if (index == TOP_NONE)
        return;
    for (uint32_t device = 0; device < GC_LEDGER_DEVICES; device++) {
        struct gc_ledger_figures figures;
        if (reading->index[device] == TOP_NONE ||
            !gc_ledger_read_figures(&reading->from->ledger, process->slot, device, &figures))
            continue;
        top_view_add_account(reading->view, index, reading->index[device], &figures);
        has_account = true;
    }
    if (!has_account) {
        const struct gc_ledger_figures none = {.limit = TOP_NO_LIMIT};
        top_view_add_account(reading->view, index, TOP_NONE, &none);
    }
    add_tenants(reading, process->slot, index);
}

/* False: it has more rows than are shown. */
static bool read_ledger(struct reading *reading)
{
    const struct gc_ledger *ledger = &reading->from->ledger;
    const uint32_t high = gc_ledger_slot_high(ledger);
    const size_t first = reading->view->subject_count;
    const size_t before = reading->view->account_count;
    add_devices(reading);
    for (uint32_t slot = 0; slot < high; slot++) {
        struct gc_ledger_process process;
        if (!gc_ledger_read_process(ledger, slot, &process))
            continue;
        if (reading->view->is_of_all_users &&
            reading->view->account_count - before >= LEDGER_ROWS_MAX)
            return false;
        add_process(reading, &process);
    }
    add_groups(reading, first);
    return true;
}

/* True if the ledger's path still leads to it: the folder may have been removed, and another
 * ledger created. */
static bool is_current(const struct gc_ledger *ledger)
{
    struct stat here, there;
    return fstat(ledger->fd, &here) == 0 && stat(ledger->path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* The user's ledger stays open while it is the same; all ledgers are looked for each time. */
static enum gc_status open_node(struct top_source *source)
{
    if (source->is_of_all_users || source->node.count == 0 ||
        !is_current(&source->node.ledgers[0].ledger)) {
        if (!source->is_of_all_users)
            node_close(&source->node);
        const enum gc_status status =
            live_open_node(&source->node, source->is_of_all_users, source->why);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status read_view(struct top_reader *reader, struct top_view *view, const char **why)
{
    struct top_source *source = (struct top_source *)reader;
    view->is_of_all_users = source->is_of_all_users;
    *why = source->why;
    const enum gc_status opened = open_node(source);
    if (opened == GC_NOT_OURS)
        return top_view_close(view);
    if (opened != GC_OK)
        return opened;
    if (source->node.count > 0 && !source->is_of_all_users)
        snprintf(source->path, sizeof(source->path), "%s", source->node.ledgers[0].ledger.path);
    refresh(source);
    host_table_begin(&source->hosts);
    for (size_t i = 0; i < source->node.count; i++) {
        struct reading reading = {.view = view,
                                  .from = &source->node.ledgers[i],
                                  .number = i,
                                  .hosts = &source->hosts,
                                  .devices = &source->devices};
        view->truncated_count += read_ledger(&reading) ? 0 : 1;
    }
    *why = gc_status_text(GC_NO_HOST_MEMORY);
    return top_view_close(view);
}

/* ---- what the screen's keys do ---- */

/* A request for each device that the process uses, or, with one size for all, one. */
static bool send_limit(const struct gc_ledger *ledger, const struct gc_ledger_process *row,
                       uint32_t generation, const struct gc_size_spec *limit)
{
    struct gc_ledger_request request = {.kind = GC_REQUEST_LIMIT, .device = GC_LEDGER_NONE};
    struct gc_ledger_ticket ticket;
    if (limit->count == 0 || !limit->entries[0].is_percent) {
        request.bytes = gc_size_spec_resolve(limit, 0, NULL, 0);
        return gc_ledger_send_request(ledger, row->slot, generation, &request, &ticket);
    }
    for (request.device = 0; request.device < GC_LEDGER_DEVICES; request.device++) {
        struct gc_ledger_device device;
        if ((row->device_mask >> request.device & 1) == 0 ||
            !gc_ledger_read_device(ledger, request.device, &device))
            continue;
        request.bytes = gc_size_spec_resolve(limit, 0, NULL, device.total_bytes);
        if (!gc_ledger_send_request(ledger, row->slot, generation, &request, &ticket))
            return false;
    }
    return true;
}

/* TOP_LIMIT, TOP_TRIM, TOP_PAUSE. The answers are not awaited: the next readings show them. */
static const char *ask(const struct gc_ledger *ledger, const struct gc_ledger_process *row,
                       const struct top_subject *process, enum top_action action,
                       const struct gc_size_spec *limit)
{
    const uint32_t generation = process->generation;
    const bool is_paused = process->state == TOP_PAUSED;
    struct gc_ledger_request request = {.kind = GC_REQUEST_TRIM, .device = GC_LEDGER_NONE};
    struct gc_ledger_ticket ticket;
    if (action == TOP_LIMIT)
        return send_limit(ledger, row, generation, limit) ? "it was asked to keep the new limit"
                                                          : "it has ended";
    if (action == TOP_PAUSE)
        request.kind = is_paused ? GC_REQUEST_RESUME : GC_REQUEST_PAUSE;
    if (!gc_ledger_send_request(ledger, row->slot, generation, &request, &ticket))
        return "it has ended";
    if (action == TOP_TRIM)
        return "it was asked for its idle memory";
    return is_paused ? "it was asked to go on" : "it was asked to pause";
}

static const char *act(struct top_reader *reader, const struct top_subject *process,
                       enum top_action action, const struct gc_size_spec *limit)
{
    const struct top_source *source = (struct top_source *)reader;
    const uint32_t slot = process->slot, generation = process->generation;
    struct gc_ledger_process row;
    struct gc_ledger_request request = {.kind = GC_REQUEST_GIVE, .bytes = UINT64_MAX};
    struct gc_ledger_ticket ticket;
    if (process->ledger >= source->node.count)
        return "it has ended";
    const struct gc_ledger *ledger = &source->node.ledgers[process->ledger].ledger;
    if (!gc_ledger_read_process(ledger, slot, &row))
        return "it has ended";
    if (action != TOP_PIN && action != TOP_EVICT)
        return ask(ledger, &row, process, action, limit);
    if (action == TOP_PIN) {
        const bool pins = !process->turn.is_pinned;
        if (!gc_ledger_pin(ledger, slot, generation, pins))
            return "it has ended";
        return pins ? "pinned: no other process gets its memory"
                    : "not pinned: it takes turns with the others";
    }
    for (request.device = 0; request.device < GC_LEDGER_DEVICES; request.device++)
        if ((row.device_mask >> request.device & 1) != 0 &&
            !gc_ledger_send_request(ledger, slot, generation, &request, &ticket))
            return "it has ended";
    return "it was asked for all its memory";
}

void top_source_init(struct top_source *source, bool is_of_all_users)
{
    struct live_place place;
    *source = (struct top_source){.reader = {.read = read_view, .act = act},
                                  .is_of_all_users = is_of_all_users,
                                  .refresh_ms = REFRESH_MS};
    host_table_init(&source->hosts);
    if (is_of_all_users && live_find_place(&place, source->why) == GC_OK)
        snprintf(source->path, sizeof(source->path), "%s", place.root);
}
