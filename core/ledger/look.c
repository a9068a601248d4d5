/* A look at one group on one device, by a process that takes no part itself. */
#include "core/ledger/ledger.h"

#include <string.h>

#define UUID_PREFIX_LENGTH 4 /* "GPU-" or "MIG-": CUDA names an instance with the former */

static bool is_same_device(const char *a, const char *b)
{
    return strlen(a) > UUID_PREFIX_LENGTH && strlen(b) > UUID_PREFIX_LENGTH &&
           strcmp(a + UUID_PREFIX_LENGTH, b + UUID_PREFIX_LENGTH) == 0;
}

static bool find(const struct gc_ledger *ledger, const char *group_name, const char *uuid,
                 struct gc_ledger_share *share)
{
    const uint32_t row = gc_ledger_find_group(ledger, group_name);
    struct gc_ledger_device device;
    struct gc_ledger_group group;
    if (row == GC_LEDGER_NONE)
        return false;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        if (!gc_ledger_read_device(ledger, i, &device) || !is_same_device(device.uuid, uuid))
            continue;
        if (!gc_ledger_read_group(ledger, row, &group))
            return false;
        *share = (struct gc_ledger_share){group.limits[i], group.held[i], group.member_count};
        return true;
    }
    return false;
}

bool gc_ledger_look(const char *folder, const char *group, const char *uuid,
                    struct gc_ledger_share *share)
{
    struct gc_ledger ledger;
    char reason[GC_LEDGER_REASON_BYTES];
    if (gc_ledger_open(folder, false, &ledger, reason) != GC_OK)
        return false;
    const bool is_found = find(&ledger, group, uuid, share);
    gc_ledger_close(&ledger);
    return is_found;
}
