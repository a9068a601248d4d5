/* The source of `gpucache top`: the user's ledger, or all ledgers of the machine. */
#ifndef GC_TOP_SOURCE_H
#define GC_TOP_SOURCE_H

#include "tools/live/live.h"
#include "tools/live/top_screen.h"
#include "tools/node/devices.h"

struct top_source {
    struct top_reader reader; /* first: read() casts it to the source */
    struct node node;
    struct host_table hosts;
    struct node_devices devices;
    bool is_of_all_users;
    uint32_t refresh_ms; /* how long a reading waits for fresh figures */
    char path[GC_LEDGER_PATH_BYTES];
    char why[GC_LEDGER_REASON_BYTES];
};

/* Opens no ledger yet: each reading tries until there is one. A user without a ledger has no
 * processes, which is not an error. */
void top_source_init(struct top_source *source, bool is_of_all_users);
void top_source_fini(struct top_source *source);
/* The ledger's path, or the folder of all; "" if there is none. */
const char *top_source_path(const struct top_source *source);

#endif
