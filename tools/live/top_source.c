/* One reading of the ledger for `gpucache top`. It first requests fresh figures from all
 * processes. A process that does not answer in time (one without a helper thread, a stopped one)
 * is shown with the figures that it published last, and their age. */
#include "tools/live/top_source.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* For all processes together. */
#define REFRESH_MS 100

void top_source_fini(struct top_source *source)
{
    if (source->is_open)
        gc_ledger_close(&source->ledger);
    source->is_open = false;
}

const char *top_source_path(const struct top_source *source)
{
    return source->is_open ? source->ledger.path : "";
}

/* ---- requests for figures ---- */

static void refresh(const struct gc_ledger *ledger)
{
    const struct gc_ledger_request request = {.kind = GC_REQUEST_REFRESH, .device = GC_LEDGER_NONE};
    struct gc_ledger_ticket tickets[GC_LEDGER_SLOTS];
    const uint32_t high = gc_ledger_slot_high(ledger);
    size_t count = 0;
    for (uint32_t slot = 0; slot < high; slot++) {
        struct gc_ledger_process process;
        struct gc_ledger_ticket ticket;
        if (!gc_ledger_read_process(ledger, slot, &process) ||
            live_is_stopped(ledger, slot, process.pid) ||
            !gc_ledger_send_request(ledger, slot, process.generation, &request, &ticket))
            continue;
        if (process.has_helper && count < GC_LEDGER_SLOTS)
            tickets[count++] = ticket;
    }
    const uint64_t until = gc_clock_ns() + REFRESH_MS * GC_NS_PER_MS;
    for (size_t i = 0; i < count; i++) {
        const uint64_t now = gc_clock_ns();
        (void)gc_ledger_wait_response(
            ledger, &tickets[i], now < until ? (uint32_t)((until - now) / GC_NS_PER_MS) : 0, NULL);
    }
}

/* ---- from the ledger to the view ---- */

/* A device row's index in the view; TOP_NONE: none. */
struct devices {
    size_t index[GC_LEDGER_DEVICES];
};

static void add_devices(struct top_view *view, const struct gc_ledger *ledger,
                        struct devices *devices)
{
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct gc_ledger_device row;
        devices->index[i] = TOP_NONE;
        if (!gc_ledger_read_device(ledger, i, &row))
            continue;
        struct top_device device = {.number = i, .total_bytes = row.total_bytes};
        snprintf(device.uuid, sizeof(device.uuid), "%s", row.uuid);
        snprintf(device.name, sizeof(device.name), "%s", row.name);
        devices->index[i] = top_view_add_device(view, &device);
    }
}

static void add_groups(struct top_view *view, const struct gc_ledger *ledger,
                       const struct devices *devices)
{
    struct gc_ledger_group row;
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS; i++) {
        /* A group without processes is not shown. */
        if (!gc_ledger_read_group(ledger, i, &row) || row.member_count == 0)
            continue;
        struct top_subject subject = {.kind = TOP_GROUP, .key = UINT64_C(1) << 62 | i};
        snprintf(subject.name, sizeof(subject.name), "%s", row.name);
        const size_t group = top_view_add(view, &subject);
        for (uint32_t device = 0; device < GC_LEDGER_DEVICES; device++) {
            const struct gc_ledger_figures figures = {.limit = row.limits[device]};
            if (devices->index[device] != TOP_NONE &&
                (row.limits[device] != UINT64_MAX || row.held[device] > 0))
                top_view_add_account(view, group, devices->index[device], &figures);
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

static void add_tenants(struct top_view *view, const struct gc_ledger *ledger,
                        const struct devices *devices, uint32_t slot, size_t parent)
{
    const struct top_subject process = view->subjects[parent];
    const size_t first = view->subject_count;
    for (uint32_t i = 0; i < GC_LEDGER_TENANTS; i++) {
        struct gc_ledger_tenant row;
        if (!gc_ledger_read_tenant(ledger, slot, i, &row))
            continue;
        struct top_subject subject = {.kind = TOP_TENANT,
                                      .state = row.is_paused ? TOP_PAUSED
                                               : row.is_away ? TOP_AWAY
                                                             : TOP_RUNNING,
                                      .key = process.key ^ (uint64_t)(i + 1) << 48,
                                      .parent = parent};
        snprintf(subject.name, sizeof(subject.name), "%s", row.name);
        snprintf(subject.group, sizeof(subject.group), "%s", process.group);
        const size_t device =
            row.device < GC_LEDGER_DEVICES ? devices->index[row.device] : TOP_NONE;
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

static void add_process(struct top_view *view, const struct gc_ledger *ledger,
                        const struct devices *devices, const struct gc_ledger_process *process)
{
    struct top_subject subject = {.kind = TOP_PROCESS,
                                  .pid = process->pid,
                                  .key = (uint64_t)process->slot << 32 | process->generation,
                                  .age_ms = age_ms(process->figures_ns)};
    bool has_account = false;
    if (live_is_stopped(ledger, process->slot, process->pid))
        subject.state = TOP_STOPPED;
    else if (process->is_paused)
        subject.state = TOP_PAUSED;
    subject.takes_turns = gc_ledger_read_turn(ledger, process->slot, gc_clock_ns(), &subject.turn);
    snprintf(subject.name, sizeof(subject.name), "%s", process->tenant);
    snprintf(subject.program, sizeof(subject.program), "%s", process->program);
    snprintf(subject.group, sizeof(subject.group), "%s", process->group);
    const size_t index = top_view_add(view, &subject);
    if (index == TOP_NONE)
        return;
    for (uint32_t device = 0; device < GC_LEDGER_DEVICES; device++) {
        struct gc_ledger_figures figures;
        if (devices->index[device] == TOP_NONE ||
            !gc_ledger_read_figures(ledger, process->slot, device, &figures))
            continue;
        top_view_add_account(view, index, devices->index[device], &figures);
        has_account = true;
    }
    if (!has_account) {
        const struct gc_ledger_figures none = {.limit = TOP_NO_LIMIT};
        top_view_add_account(view, index, TOP_NONE, &none);
    }
    add_tenants(view, ledger, devices, process->slot, index);
}

/* True if the ledger's path still leads to it: the folder may have been removed, and another
 * ledger created. */
static bool is_current(const struct gc_ledger *ledger)
{
    struct stat here, there;
    return fstat(ledger->fd, &here) == 0 && stat(ledger->path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

static enum gc_status read_view(struct top_reader *reader, struct top_view *view, const char **why)
{
    struct top_source *source = (struct top_source *)reader;
    struct devices devices;
    if (source->is_open && !is_current(&source->ledger))
        top_source_fini(source);
    if (!source->is_open) {
        const enum gc_status opened = live_open(&source->ledger, source->why);
        if (opened == GC_NOT_OURS)
            return top_view_close(view);
        *why = source->why;
        if (opened != GC_OK)
            return opened;
        source->is_open = true;
    }
    const struct gc_ledger *ledger = &source->ledger;
    refresh(ledger);
    add_devices(view, ledger, &devices);
    add_groups(view, ledger, &devices);
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t slot = 0; slot < high; slot++) {
        struct gc_ledger_process process;
        if (gc_ledger_read_process(ledger, slot, &process))
            add_process(view, ledger, &devices, &process);
    }
    *why = gc_status_text(GC_NO_HOST_MEMORY);
    return top_view_close(view);
}

/* ---- what the screen's keys do ---- */

static const char *act(struct top_reader *reader, const struct top_subject *process,
                       enum top_action action)
{
    const struct top_source *source = (struct top_source *)reader;
    const uint32_t slot = (uint32_t)(process->key >> 32), generation = (uint32_t)process->key;
    struct gc_ledger_process row;
    struct gc_ledger_request request = {.kind = GC_REQUEST_GIVE, .bytes = UINT64_MAX};
    struct gc_ledger_ticket ticket;
    if (!source->is_open || !gc_ledger_read_process(&source->ledger, slot, &row))
        return "it has ended";
    if (action == TOP_PIN) {
        const bool pins = !process->turn.is_pinned;
        if (!gc_ledger_pin(&source->ledger, slot, generation, pins))
            return "it has ended";
        return pins ? "pinned: no other process gets its memory"
                    : "not pinned: it takes turns with the others";
    }
    for (request.device = 0; request.device < GC_LEDGER_DEVICES; request.device++)
        if ((row.device_mask >> request.device & 1) != 0 &&
            !gc_ledger_send_request(&source->ledger, slot, generation, &request, &ticket))
            return "it has ended";
    return "it was asked for all its memory";
}

void top_source_init(struct top_source *source)
{
    *source = (struct top_source){.reader = {.read = read_view, .act = act}};
}
