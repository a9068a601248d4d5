/* Queries on a finished graph; gc_graph_close. */
#include "core/graph/engine.h"

void gc_graph_close(struct gc_graph *graph)
{
    if (graph == NULL)
        return;
    struct gc_graph_store *store = (struct gc_graph_store *)graph;
    /* The region contains the store: copy it before unmapping. */
    struct gc_region region = store->region;
    gc_region_fini(&store->results);
    gc_region_fini(&region);
}

static bool type_bytes(const struct gc_type *type, uint64_t *bytes)
{
    uint64_t elements;
    return type->kind != GC_TYPE_UNKNOWN && type->kind != GC_TYPE_MAP &&
           gc_infer_elements(&type->shape, &elements) &&
           gc_dtype_bytes(type->dtype, elements, bytes);
}

bool gc_graph_value_bytes(const struct gc_graph *graph, uint32_t value, uint64_t *bytes)
{
    return type_bytes(&graph->values[value].type, bytes);
}
