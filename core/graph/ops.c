#include "core/graph/ops.h"

#include <string.h>

static const struct gc_op table[] = {
#define GC_OP(domain, name, since, rule, memory)                                                   \
    {domain, name, since, gc_rule_##rule, GC_OP_##memory},
#include "core/graph/ops.def"
#undef GC_OP
};

#define ROW_COUNT (sizeof(table) / sizeof(table[0]))
_Static_assert(ROW_COUNT < UINT16_MAX / 4, "the index holds rows as 16 bits");

/* FNV-1a. The table's names are fixed, so no file can make them collide. */
static uint32_t hash_name(const char *name)
{
    uint32_t hash = UINT32_C(2166136261);
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * UINT32_C(16777619);
    return hash ^ hash >> 15;
}

bool gc_op_index_init(struct gc_op_index *index, struct gc_region *region)
{
    uint32_t count = 64;
    while (count < 4 * ROW_COUNT)
        count *= 2;
    index->mask = count - 1;
    index->places = gc_region_alloc(region, count * sizeof(*index->places));
    if (index->places == NULL)
        return false;
    for (uint32_t row = 0; row < ROW_COUNT; row++) {
        uint32_t place = hash_name(table[row].name) & index->mask;
        while (index->places[place] != 0)
            place = (place + 1) & index->mask;
        index->places[place] = (uint16_t)(row + 1);
    }
    return true;
}

const struct gc_op *gc_op_find(const struct gc_op_index *index, const char *domain,
                               const char *name, uint32_t opset)
{
    const struct gc_op *best = NULL;
    uint32_t place = hash_name(name) & index->mask;
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    for (; index->places[place] != 0; place = (place + 1) & index->mask) {
        const struct gc_op *op = &table[index->places[place] - 1];
        if (op->since <= opset && (best == NULL || op->since > best->since) &&
            strcmp(op->name, name) == 0 && strcmp(op->domain, domain) == 0)
            best = op;
    }
    return best;
}

enum gc_op_memory gc_graph_node_memory(const struct gc_graph_node *node)
{
    return node->rule != NULL ? node->rule->memory : GC_OP_NONE;
}
