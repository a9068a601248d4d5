/* What the machine knows of a process in a ledger, from /proc: its PID here, its command line, its
 * container and its job. The ledger's words are not believed: a PID is the process's only if the
 * user and the time of its start agree. */
#ifndef GC_HOST_PROCESS_H
#define GC_HOST_PROCESS_H

#include "core/ledger/ledger.h"

#define HOST_COMMAND_BYTES 160
#define HOST_CONTAINER_BYTES 80
#define HOST_JOB_BYTES 32

struct host_process {
    int pid; /* in this PID namespace; 0: not found */
    char command[HOST_COMMAND_BYTES];
    char container[HOST_CONTAINER_BYTES]; /* the runtime's id of it; "": none */
    char job[HOST_JOB_BYTES];             /* of Slurm; "": none */
};

/* What was found, from one reading of the ledgers to the next: the facts of a process do not change
 * while it owns its slot. And the PIDs of processes in other PID namespaces. */
struct host_table {
    uint64_t pid_namespace;     /* this process's */
    struct host_entry *entries; /* sorted; of this reading */
    size_t count;
    bool is_read;
    struct host_known *known; /* sorted; of the reading before */
    size_t known_count;
    struct host_known *seen; /* of this reading */
    size_t seen_count;
};

void host_table_init(struct host_table *table);
void host_table_fini(struct host_table *table);
/* A new reading begins: what the last one did not see is forgotten. */
void host_table_begin(struct host_table *table);
/* The process in the ledger's slot, whose ledger belongs to the user `uid`. */
void host_process_find(struct host_table *table, const struct gc_ledger *ledger,
                       const struct gc_ledger_process *process, uint32_t uid,
                       struct host_process *found);

#endif
