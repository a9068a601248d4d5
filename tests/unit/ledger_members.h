/* For tests: processes in a ledger that only play their part. */
#ifndef GC_TEST_LEDGER_MEMBERS_H
#define GC_TEST_LEDGER_MEMBERS_H

#include "core/ledger/ledger.h"

#include <sys/types.h>

enum member_manner {
    MEMBER_ANSWERS, /* does as it is asked: in its figures */
    MEMBER_REFUSES, /* "because of peers" */
    MEMBER_SILENT,  /* has a helper, and never answers */
    MEMBER_LATE,    /* has no helper, and never answers */
    MEMBER_DIES,    /* when it is asked */
};

#define MEMBER_UUID "GPU-00000000-0000-0000-0000-000000000001"
#define MEMBER_DEVICE_BYTES (UINT64_C(16) << 30)

struct member {
    enum member_manner manner;
    const char *name;
    const char *group;  /* NULL: none */
    const char *tenant; /* a row inside it; NULL: none */
    uint64_t requested;
    uint64_t idle;
    uint64_t limit; /* 0: none */
    int pid;        /* the PID that it enters; 0: its own */
    uint64_t swapped;
    enum gc_turn_state turn;
    uint64_t waits_ms; /* since so long */
};

/* Takes a slot through `ledger`, which is open, and fills it. */
void member_join(struct gc_ledger *ledger, const struct member *member);
/* Forks one that joins the ledger in `folder`; returns when it has. End it with member_end. */
pid_t member_start(const char *folder, const struct member *member);
void member_end(pid_t pid);

#endif
