#define _GNU_SOURCE
#include "tests/unit/ledger_members.h"

#include "core/ledger/account.h"
#include "core/ledger/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "ledger member: %s\n", what);
    _exit(99);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void put_figures(struct gc_ledger_slot *slot, uint32_t row, const struct member *member)
{
    gc_ledger_word *words = slot->figures[row].words;
    const uint64_t reserved = member->requested + member->idle;
    words[GC_LEDGER_FIGURE_requested] = member->requested;
    words[GC_LEDGER_FIGURE_allocated] = member->requested;
    words[GC_LEDGER_FIGURE_reserved] = reserved;
    words[GC_LEDGER_FIGURE_idle] = member->idle;
    words[GC_LEDGER_FIGURE_limit] = member->limit == 0 ? UINT64_MAX : member->limit;
    if (words[GC_LEDGER_FIGURE_peak] < reserved)
        words[GC_LEDGER_FIGURE_peak] = reserved;
    words[GC_LEDGER_FIGURE_hit_count] = 3;
    words[GC_LEDGER_FIGURE_miss_count] = 1;
    words[GC_LEDGER_FIGURE_swapped] = member->swapped;
    slot->figures_ns = now_ns();
}

static void put_tenant(struct gc_ledger_slot *slot, const struct member *member)
{
    struct gc_ledger_tenant_row *row = &slot->tenants[0];
    gc_ledger_set_text(row->name, sizeof(row->name), member->tenant);
    row->device = GC_LEDGER_DEVICES;
    row->words[GC_LEDGER_FIGURE_reserved] = member->requested;
    row->words[GC_LEDGER_FIGURE_limit] = UINT64_MAX;
    row->in_use = 1;
}

static void put_turn(struct gc_ledger_slot *slot, const struct member *member)
{
    slot->turn.state = member->turn;
    slot->turn.priority = 5;
    slot->turn.waiting_ns = member->waits_ms != 0 ? now_ns() - member->waits_ms * 1000000U : 0;
    slot->turn.waited_ns = 2000000000;
    slot->turn.exchange_count = 7;
    slot->turn.out_bytes = 70;
    slot->turn.in_bytes = 60;
}

void member_join(struct gc_ledger *ledger, const struct member *member)
{
    struct gc_ledger_device device = {.total_bytes = MEMBER_DEVICE_BYTES};
    snprintf(device.uuid, sizeof(device.uuid), MEMBER_UUID);
    snprintf(device.name, sizeof(device.name), "Made up");
    const int pid = member->pid != 0 ? member->pid : (int)getpid();
    check(gc_ledger_acquire_slot(ledger), "no slot");
    const uint32_t row = gc_ledger_find_or_add_device(ledger, &device);
    check(row != GC_LEDGER_NONE, "no device row");
    struct gc_ledger_slot *slot = gc_ledger_own_slot(ledger);
    gc_ledger_set_text(slot->program, sizeof(slot->program), member->name);
    gc_ledger_set_text(slot->tenant, sizeof(slot->tenant), member->name);
    if (member->group != NULL) {
        check(gc_ledger_find_or_add_group(ledger, member->group) != GC_LEDGER_NONE, "no group row");
        gc_ledger_set_text(slot->group, sizeof(slot->group), member->group);
        ledger->file->group_keys[ledger->own] = gc_ledger_key(member->group);
        ledger->file->accounts[row][ledger->own] =
            (uint64_t)slot->generation << GC_LEDGER_BYTES_BITS | (member->requested + member->idle);
    }
    put_figures(slot, row, member);
    put_turn(slot, member);
    ledger->file->accounts[GC_LEDGER_HOST][ledger->own] =
        (uint64_t)slot->generation << GC_LEDGER_BYTES_BITS | member->swapped;
    if (member->tenant != NULL)
        put_tenant(slot, member);
    slot->device_mask = UINT64_C(1) << row;
    slot->flags = member->manner != MEMBER_LATE ? GC_LEDGER_HAS_HELPER : 0;
    slot->pid_namespace = gc_ledger_pid_namespace();
    slot->start_ticks = gc_ledger_start_ticks((uint32_t)pid);
    slot->pid = (uint32_t)pid;
}

/* ---- a process of its own ---- */

/* As a process would that holds its idle memory in one piece. */
static void trim(struct gc_ledger *ledger, struct member *member)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(ledger);
    const uint32_t row = (uint32_t)__builtin_ctzll(slot->device_mask);
    member->idle = 0;
    if (member->group != NULL)
        ledger->file->accounts[row][ledger->own] -= slot->figures[row].words[GC_LEDGER_FIGURE_idle];
}

static void serve(struct gc_ledger *ledger, struct member *member, uint32_t requests)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(ledger);
    const uint32_t row = (uint32_t)__builtin_ctzll(slot->device_mask);
    const bool refuses = member->manner == MEMBER_REFUSES;
    for (int kind = 0; kind < GC_REQUEST_COUNT; kind++) {
        char text[GC_LEDGER_RESPONSE_BYTES] = "because of peers";
        if ((requests >> kind & 1) == 0)
            continue;
        if (!refuses && kind == GC_REQUEST_LIMIT) {
            member->limit = slot->limits[row] == UINT64_MAX ? 0 : slot->limits[row];
            if (member->limit != 0 && member->requested + member->idle > member->limit)
                trim(ledger, member);
        }
        if (!refuses && kind == GC_REQUEST_TRIM)
            trim(ledger, member);
        if (!refuses && kind == GC_REQUEST_PAUSE)
            snprintf(text, sizeof(text), "paused %s%s\x1b[2J", slot->request_tenant,
                     slot->request_drop != 0 ? ", dropped" : "");
        if (!refuses && kind == GC_REQUEST_RESUME)
            snprintf(text, sizeof(text), "resumed");
        if (!refuses && kind == GC_REQUEST_GIVE) {
            member->swapped =
                slot->turn.give[row] < member->requested ? slot->turn.give[row] : member->requested;
            snprintf(text, sizeof(text), "gave %llu", (unsigned long long)member->swapped);
        }
        gc_ledger_respond(ledger, (enum gc_ledger_request_kind)kind,
                          refuses ? GC_RESPONSE_REFUSED : GC_RESPONSE_DONE, text);
    }
    put_figures(slot, row, member);
}

static void live(const char *folder, const struct member *given, int ready)
{
    static struct gc_ledger ledger;
    struct member member = *given;
    char reason[GC_LEDGER_REASON_BYTES] = "";
    uint32_t seen = 0;
    check(gc_ledger_open(folder, true, &ledger, reason) == GC_OK, reason);
    member_join(&ledger, &member);
    struct gc_ledger_slot *slot = gc_ledger_own_slot(&ledger);
    check(write(ready, "r", 1) == 1, "pipe");
    for (;;) {
        const uint32_t control = slot->control;
        if (control == seen) {
            gc_ledger_wait_request(&ledger, seen, UINT32_MAX);
            continue;
        }
        seen = control;
        const uint32_t requests = atomic_exchange(&slot->requests, 0);
        const bool only_figures = requests == UINT32_C(1) << GC_REQUEST_REFRESH;
        if (member.manner == MEMBER_DIES && !only_figures)
            _exit(0);
        if (member.manner == MEMBER_SILENT || member.manner == MEMBER_LATE)
            continue;
        serve(&ledger, &member, requests);
        gc_ledger_set_served(&ledger, control);
    }
}

pid_t member_start(const char *folder, const struct member *member)
{
    int ready[2];
    char byte;
    check(pipe(ready) == 0, "pipe");
    const pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        live(folder, member, ready[1]);
        _exit(0);
    }
    close(ready[1]);
    check(read(ready[0], &byte, 1) == 1, "a member did not start");
    close(ready[0]);
    return pid;
}

void member_end(pid_t pid)
{
    kill(pid, SIGKILL);
    kill(pid, SIGCONT);
    waitpid(pid, NULL, 0);
}
