/* The opcodes of pickles that are read or written here. */
#ifndef GC_PICKLE_OPS_H
#define GC_PICKLE_OPS_H

enum pickle_op {
#define READ(name, code) OP_##name = (code),
#define REFUSED(name, code)
#include "tools/trace/pickle_ops.def"
#undef READ
#undef REFUSED
};

#endif
