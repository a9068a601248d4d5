/* The table of operators, ops.def, and its index. */
#ifndef GC_GRAPH_OPS_H
#define GC_GRAPH_OPS_H

#include "core/base/region.h"
#include "core/graph/infer.h"

struct gc_op {
    const char *domain;
    const char *name;
    uint32_t since;
    gc_infer_rule *rule;
    enum gc_op_memory memory;
};

#define GC_OP(domain, name, since, rule, memory) gc_infer_rule gc_rule_##rule;
#include "core/graph/ops.def"
#undef GC_OP

/* An index over the table, in the region. False: no memory. */
struct gc_op_index {
    uint16_t *places; /* 1 + a row's number, 0 for none */
    uint32_t mask;
};
bool gc_op_index_init(struct gc_op_index *index, struct gc_region *region);
/* The domain "ai.onnx" is "". NULL: not known, or only in versions above `opset`. */
const struct gc_op *gc_op_find(const struct gc_op_index *index, const char *domain,
                               const char *name, uint32_t opset);

#endif
