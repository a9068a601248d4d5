/* A group's figures in the ledger of the environment: group_state GROUP. Reaps dead processes
 * first. Prints `members N held N limit N`, of all devices together. */
#include "core/ledger/ledger.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static struct gc_ledger ledger;
    static struct gc_ledger_group group;
    char reason[GC_LEDGER_REASON_BYTES];
    char place[GC_LEDGER_PATH_BYTES];
    const char *given = getenv("GPUCACHE_LEDGER");
    const char *folder = gc_ledger_folder(given != NULL ? given : "", "/run/gpucache", place);
    uint64_t held = 0, limit = 0;
    if (argc != 2)
        return 2;
    if (gc_ledger_open(folder, false, &ledger, reason) != GC_OK) {
        fprintf(stderr, "no ledger: %s\n", reason);
        return EXIT_FAILURE;
    }
    if (!gc_ledger_read_group(&ledger, gc_ledger_find_group(&ledger, argv[1]), &group)) {
        fprintf(stderr, "no group %s\n", argv[1]);
        return EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        held += group.held[i];
        limit += group.limits[i] != UINT64_MAX ? group.limits[i] : 0;
    }
    printf("members %u held %llu limit %llu\n", group.member_count, (unsigned long long)held,
           (unsigned long long)limit);
    return EXIT_SUCCESS;
}
