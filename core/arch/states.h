/* Internal to arch: the sizes of states. */
#ifndef GC_ARCH_STATES_H
#define GC_ARCH_STATES_H

#include "core/arch/layers.h"

/* Sets each layer's state size and the channels of each kind; the layers' kinds are set before. */
void gc_states_set(const struct gc_arch *arch, struct gc_layers *layers);

#endif
