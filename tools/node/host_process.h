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

/* PIDs of processes in other PID namespaces, as they were at host_table_open. */
struct host_table {
    struct host_entry *entries; /* sorted */
    size_t count;
    bool is_read;
};

/* Reads /proc when a process of another namespace is first looked for. */
void host_table_init(struct host_table *table);
void host_table_fini(struct host_table *table);
/* The process in the ledger's slot, whose ledger belongs to the user `uid`. */
void host_process_find(struct host_table *table, const struct gc_ledger *ledger,
                       const struct gc_ledger_process *process, uint32_t uid,
                       struct host_process *found);

#endif
