/* The ledgers of a machine: one of each user, job and pod, in the folders that deploy.md describes.
 *
 * Their owners may be hostile: folders and files are checked when they are opened (owner, mode,
 * kind, size), all content is read as that of any ledger, and a file that its owner cuts short
 * while it is mapped reads as zeroes. */
#ifndef GC_NODE_H
#define GC_NODE_H

#include "core/ledger/ledger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_LEDGERS_MAX 4096
#define NODE_LABEL_BYTES 128

/* What the administrator's programs say of a ledger: the lines KEY=value of the file SCOPE.labels
 * beside a job's or a pod's folder. "": not said. */
#define NODE_LABELS(LABEL) LABEL(pod) LABEL(namespace) LABEL(container) LABEL(job)

struct node_labels {
#define LABEL(name) char name[NODE_LABEL_BYTES];
    NODE_LABELS(LABEL)
#undef LABEL
};

struct node_ledger {
    struct gc_ledger ledger;
    uint32_t uid;
    char user[33]; /* the user's name, else the number */
    struct node_labels labels;
};

struct node {
    struct node_ledger *ledgers;
    size_t count;
    size_t skipped;                      /* that could not be opened */
    char reason[GC_LEDGER_REASON_BYTES]; /* of the last of them */
};

/* Opens the user's own ledger, in `folder`: a node of one. Status and `reason` as of
 * gc_ledger_open. */
enum gc_status node_open_own(struct node *node, const char *folder,
                             char reason[GC_LEDGER_REASON_BYTES]) GC_CHECKED;
/* Opens all ledgers below the folder `root` (GPUCACHE_NODE) and in /dev/shm, for root. Ledgers that
 * are open already stay, at their place or another one. GC_NO_HOST_MEMORY. */
enum gc_status node_open_all(struct node *node, const char *root) GC_CHECKED;
void node_close(struct node *node);

#endif
