#include "tools/engines/slurm/shards.h"

#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

/* The count in a list such as "gpu:a100:1(IDX:0),shard:3(0/16)". */
static uint64_t count_in(const char *list)
{
    uint64_t count = 0;
    for (const char *item = list; item != NULL; item = strchr(item, ',')) {
        item += *item == ',';
        if (strncmp(item, "gres:", 5) == 0)
            item += 5;
        if (strncmp(item, "shard:", 6) != 0)
            continue;
        /* The count is the last field; a type may stand before it. */
        const char *number = item + 6;
        const char *end = item + strcspn(item, ",(");
        for (const char *at = number; at < end; at++)
            number = *at == ':' ? at + 1 : number;
        count += strtoull(number, NULL, 10);
    }
    return count;
}

static uint64_t count_on_node(const job_info_t *job, const char *node_name)
{
    /* A pointer; its type's name differs between versions. */
    __typeof__(slurm_hostlist_create(NULL)) nodes = slurm_hostlist_create(job->nodes);
    if (nodes == NULL)
        return 0;
    const int index = slurm_hostlist_find(nodes, node_name);
    slurm_hostlist_destroy(nodes);
    if (index < 0 || (uint32_t)index >= job->gres_detail_cnt || job->gres_detail_str == NULL ||
        job->gres_detail_str[index] == NULL)
        return 0;
    return count_in(job->gres_detail_str[index]);
}

bool shards_of_job(uint32_t id, const char *node_name, uint64_t *count)
{
    job_info_msg_t *jobs = NULL;
    bool is_found = false;
    if (slurm_load_job(&jobs, id, SHOW_DETAIL) != SLURM_SUCCESS)
        return false;
    /* With the number of an array the answer has all its tasks. */
    for (uint32_t i = 0; i < jobs->record_count; i++) {
        if (jobs->job_array[i].job_id != id)
            continue;
        *count = count_on_node(&jobs->job_array[i], node_name);
        is_found = true;
    }
    slurm_free_job_info_msg(jobs);
    return is_found;
}
