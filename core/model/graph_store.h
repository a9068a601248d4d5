/* What a graph lies in: shared by those who build one (core/onnx/) and those who complete it
 * (core/graph/), nobody else's. */
#ifndef GC_GRAPH_STORE_H
#define GC_GRAPH_STORE_H

#include "core/base/region.h"
#include "core/model/graph.h"

#define GC_GRAPH_NOTES_MAX 64

struct gc_graph_store {
    struct gc_graph graph;
    struct gc_region region;  /* what the file says; holds this too */
    struct gc_region results; /* what inference finds; anew with each of its runs */
    uint64_t memory_max;      /* for each of the two */
    const struct gc_graph_symbol *file_symbols; /* those that the file names */
    uint32_t file_symbol_count;
    const char *const *file_notes;
    uint32_t file_note_count;
};

#endif
