/* The plugin's arguments, the words behind its path in plugstack.conf:
 *
 *   default=SIZE      the limit of a job without --gpu-mem
 *   required          a job without --gpu-mem, shards and default is refused
 *   shard=SIZE        memory for each shard (gres) of the job on the node
 *   library=PATH      libgpucache.so
 *   node=FOLDER       in place of /run/gpucache
 *   summary=comment   the job's use into its comment; summary=log: only into slurmd's log
 *   set=NAME=VALUE    a GPUCACHE_… variable of each task of a job with a limit, whatever the user
 * set */
#ifndef GC_SLURM_ARGUMENTS_H
#define GC_SLURM_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARGUMENTS_SETS_MAX 16
#define ARGUMENTS_REASON_BYTES 768

struct arguments {
    const char *default_limit; /* NULL: none */
    const char *library;
    const char *node;
    const char *sets[ARGUMENTS_SETS_MAX]; /* NAME=VALUE */
    size_t set_count;
    uint64_t shard_bytes; /* 0: shards mean nothing */
    bool is_required;
    bool has_comment;
};

/* Points into argv. False, with a reason, if a word is none of the above or its value is bad. */
bool arguments_read(int argc, char **argv, struct arguments *arguments,
                    char reason[ARGUMENTS_REASON_BYTES]);

/* A value of --gpu-mem, which becomes GPUCACHE_GROUP_LIMIT. False, with a reason, if it is none. */
bool arguments_check_limit(const char *name, const char *value,
                           char reason[ARGUMENTS_REASON_BYTES]);

/* Where the site sets a limit, a value must hold on every device. False, with a reason. */
bool arguments_check_option(const struct arguments *arguments, const char *value,
                            char reason[ARGUMENTS_REASON_BYTES]);

#endif
