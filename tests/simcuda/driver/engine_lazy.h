/* Device memory taken at first use: see engine_lazy.c. Without SIMCUDA_LAZY all succeed and take
 * nothing. No lock of the engine is held by callers, but where it says so. */
#ifndef SIM_ENGINE_LAZY_H
#define SIM_ENGINE_LAZY_H

#include "tests/simcuda/driver/engine_module.h"

#define LAZY_STACK_BYTES 1024 /* a thread's stack that every context has */
#define LAZY_STREAM_BYTES (UINT64_C(128) << 10)
#define LAZY_EVENT_BYTES (UINT64_C(4) << 10)
#define LAZY_GRAPH_BYTES (UINT64_C(64) << 10)

enum lazy_part { LAZY_FILLS, LAZY_COPIES, LAZY_FIFO, LAZY_HEAP };

/* What the module takes, at load or at its first launch. */
uint64_t lazy_module_bytes(const struct sim_image *image);
/* A launch of one of the module's kernels, or cuFuncLoad. */
/* Before a kernel runs whose threads need so much local memory. */
CUresult lazy_load(struct sim_module *module, uint64_t stack_bytes);
bool lazy_is_loaded(const struct sim_module *module);
/* cuCtxSetLimit, before the value is changed. */
CUresult lazy_set_limit(struct sim_context *context, CUlimit limit, size_t value);
/* A stream, event or instantiated graph. Giving may be done with the engine's lock held. */
CUresult lazy_take_slice(struct sim_context *context, uint64_t bytes);
void lazy_give_slice(struct sim_context *context, uint64_t bytes);
/* All that a context which ends has taken so. */
uint64_t lazy_bytes(struct sim_context *context);

#endif
