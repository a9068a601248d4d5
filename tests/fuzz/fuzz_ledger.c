/* A ledger whose content is garbage: read like `gpucache top` does, asked, taken part in. An input
 * is a list of writes: 4 bytes of a position, 1 of a length, the bytes. */
#define _GNU_SOURCE
#include "core/ledger/account.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT 1000
#define SLOTS_LOOKED_AT 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct gc_ledger ledger;
static struct gc_account account;

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void start(void)
{
    static const struct gc_ledger_device device = {.uuid = "GPU-fuzz"};
    char folder[] = "/tmp/gpucache-fuzz-XXXXXX";
    char reason[GC_LEDGER_REASON_BYTES];
    require(mkdtemp(folder) != NULL);
    require(gc_ledger_open(folder, true, &ledger, reason) == GC_OK);
    unlink(ledger.path);
    rmdir(folder);
    require(gc_ledger_acquire_slot(&ledger));
    atomic_store(&ledger.file->group_keys[ledger.own], gc_ledger_key("g"));
    require(gc_account_open(&account, &ledger, &device, "g"));
}

/* Positions count from the tables, wrap, and reach the first slots. */
static void scribble(const uint8_t *data, size_t bytes)
{
    const size_t first = offsetof(struct gc_ledger_file, slot_high);
    const size_t end =
        offsetof(struct gc_ledger_file, slots) + SLOTS_LOOKED_AT * sizeof(struct gc_ledger_slot);
    while (bytes > 5) {
        uint32_t position;
        memcpy(&position, data, sizeof(position));
        const size_t at = first + position % (end - first);
        size_t length = data[4];
        data += 5;
        bytes -= 5;
        length = length < bytes ? length : bytes;
        length = length < end - at ? length : end - at;
        memcpy((char *)ledger.file + at, data, length);
        data += length;
        bytes -= length;
    }
}

static void read_process(uint32_t slot)
{
    struct gc_ledger_process process;
    struct gc_ledger_figures figures;
    struct gc_ledger_tenant tenant;
    struct gc_ledger_ticket ticket;
    const struct gc_ledger_request request = {.kind = GC_REQUEST_LIMIT, .device = GC_LEDGER_NONE};
    char text[GC_LEDGER_RESPONSE_BYTES];
    if (!gc_ledger_read_process(&ledger, slot, &process))
        return;
    require(process.pid > 0 && strlen(process.program) < sizeof(process.program) &&
            strlen(process.tenant) < sizeof(process.tenant) &&
            strlen(process.group) < sizeof(process.group));
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        (void)gc_ledger_read_figures(&ledger, slot, i, &figures);
    for (uint32_t i = 0; i < GC_LEDGER_TENANTS; i++)
        if (gc_ledger_read_tenant(&ledger, slot, i, &tenant))
            require(strlen(tenant.name) < sizeof(tenant.name) &&
                    (tenant.device < GC_LEDGER_DEVICES || tenant.device == GC_LEDGER_NONE));
    if (gc_ledger_send_request(&ledger, slot, process.generation, &request, &ticket))
        (void)gc_ledger_wait_response(&ledger, &ticket, 0, text);
}

static void read_rows(void)
{
    struct gc_ledger_device device;
    static struct gc_ledger_group group;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        if (gc_ledger_read_device(&ledger, i, &device))
            require(strlen(device.uuid) < sizeof(device.uuid) &&
                    strlen(device.name) < sizeof(device.name));
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS; i += 32)
        if (gc_ledger_read_group(&ledger, i, &group))
            require(strlen(group.name) < sizeof(group.name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (ledger.file == NULL)
        start();
    scribble(data, bytes);
    require(gc_ledger_slot_high(&ledger) <= GC_LEDGER_SLOTS);
    for (uint32_t i = 0; i < SLOTS_LOOKED_AT; i++)
        read_process(i);
    read_rows();
    (void)gc_ledger_limit_group(&ledger, "g", GC_LEDGER_NONE, LIMIT);
    if (gc_account_try_charge(&account, LIMIT))
        gc_account_uncharge(&account, LIMIT);
    gc_account_force_charge(&account, UINT64_MAX);
    require(gc_account_of(&account, account.ledger->own) <= GC_LEDGER_BYTES_MASK);
    gc_account_uncharge(&account, UINT64_MAX);
    require(gc_account_of(&account, account.ledger->own) == 0);
    return 0;
}
