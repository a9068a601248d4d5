/* Graph nodes that name memory by its address: the NODE rows, from which the wrappers are made. The
 * launch of a graph checks no address: it reaches any memory (graph_api.c). But memory that a node
 * uses must be open to the node's device by then, and the NODE wrappers note that memory. */
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/reach.h"
#include "shim/wrap/relieve.h"

#define API(...)
#define USE(...)
#define RUNTIME(...)
#define NODE(symbol, base, version, context, word, operands, parameters, arguments)                \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        if (gc_life_ready()) {                                                                     \
            gc_shim_enter(GC_API_##symbol);                                                        \
            struct gc_reach reach = gc_reach_of_node(context);                                     \
            GC_REACH(&reach, word, operands);                                                      \
            gc_shim_leave();                                                                       \
        }                                                                                          \
        return GC_FORWARD(symbol, GC_REACH_LIST arguments);                                        \
    }
#include "shim/api.def"
