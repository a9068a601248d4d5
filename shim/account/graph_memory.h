/* Accounts of graph memory, which the driver itself keeps: see graph_memory.c. */
#ifndef GC_GRAPH_MEMORY_H
#define GC_GRAPH_MEMORY_H

#include "shim/shim.h"

/* From now on the device may have graph memory: its figure is read. */
void gc_graph_expect(struct gc_device *device);
void gc_graph_refresh(struct gc_device *device);
void gc_graph_refresh_all(void);
bool gc_graph_is_expected(void);
/* True if the account shrank. */
bool gc_graph_trim(struct gc_device *device);

#endif
