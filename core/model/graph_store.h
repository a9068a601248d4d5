/* The memory of a graph. Only core/onnx/, which builds graphs, and core/graph/, which completes
 * them, include it. */
#ifndef GC_GRAPH_STORE_H
#define GC_GRAPH_STORE_H

#include "core/base/region.h"
#include "core/model/graph.h"

#define GC_GRAPH_NOTES_MAX 64

struct gc_graph_store {
    struct gc_graph graph;
    struct gc_region region;                    /* the file's content, and this struct */
    struct gc_region results;                   /* results of inference; replaced by each run */
    uint64_t memory_max;                        /* of each of the two regions */
    const struct gc_graph_symbol *file_symbols; /* named in the file */
    uint32_t file_symbol_count;
    const char *const *file_notes;
    uint32_t file_note_count;
};

#endif
