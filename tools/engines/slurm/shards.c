#include "tools/engines/slurm/shards.h"

#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

/* The length of a list of numbers and ranges, "0-1,3" up to a bracket. */
static uint32_t count_indexes(const char *text)
{
    uint32_t count = 0;
    char *end;
    while (*text >= '0' && *text <= '9') {
        const uint64_t first = strtoull(text, &end, 10);
        const uint64_t last = *end == '-' ? strtoull(end + 1, &end, 10) : first;
        count += (uint32_t)(last - first) + 1;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* Devices of which some are the job's: 2 for "(3/8,0/8,1/8)" and "(IDX:0-1)", 1 without a list. */
static uint32_t count_devices(const char *text)
{
    if (strncmp(text, "(IDX:", 5) == 0)
        return count_indexes(text + 5);
    uint32_t count = 0;
    const char *end = text + strcspn(text, ")");
    if (*text != '(' || memchr(text, '/', (size_t)(end - text)) == NULL)
        return 1;
    while (text < end) {
        count += strtoull(text + 1, NULL, 10) > 0;
        text += 1 + strcspn(text + 1, ",)");
    }
    return count;
}

/* The count in a list such as "gpu:a100:1(IDX:0),shard:3(0/16)". */
static struct shards count_in(const char *list)
{
    struct shards shards = {.count = 0};
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
        const uint64_t count = strtoull(number, NULL, 10);
        shards.count += count;
        shards.device_count += count > 0 ? count_devices(item + strcspn(item, ",(")) : 0;
    }
    return shards;
}

static struct shards count_on_node(const job_info_t *job, const char *node_name)
{
    /* A pointer; its type's name differs between versions. */
    __typeof__(slurm_hostlist_create(NULL)) nodes = slurm_hostlist_create(job->nodes);
    if (nodes == NULL)
        return (struct shards){.count = 0};
    const int index = slurm_hostlist_find(nodes, node_name);
    slurm_hostlist_destroy(nodes);
    if (index < 0 || (uint32_t)index >= job->gres_detail_cnt || job->gres_detail_str == NULL ||
        job->gres_detail_str[index] == NULL)
        return (struct shards){.count = 0};
    return count_in(job->gres_detail_str[index]);
}

bool shards_of_job(uint32_t id, const char *node_name, struct shards *shards)
{
    job_info_msg_t *jobs = NULL;
    bool is_found = false;
    if (slurm_load_job(&jobs, id, SHOW_DETAIL) != SLURM_SUCCESS)
        return false;
    /* With the number of an array the answer has all its tasks. */
    for (uint32_t i = 0; i < jobs->record_count; i++) {
        if (jobs->job_array[i].job_id != id)
            continue;
        *shards = count_on_node(&jobs->job_array[i], node_name);
        is_found = true;
    }
    slurm_free_job_info_msg(jobs);
    return is_found;
}
