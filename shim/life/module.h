/* Opens libgpucache-model.so, which reads models for admission (core/report/model_module.h). */
#ifndef GC_SHIM_MODULE_H
#define GC_SHIM_MODULE_H

#include "core/report/model_module.h"

#define GC_MODULE_REASON_BYTES 1536

struct gc_module {
    const struct gc_model_module *calls; /* NULL: see reason */
    char reason[GC_MODULE_REASON_BYTES]; /* why the module is missing or refused, and the remedy */
};

/* Searches beside the file that this library was loaded from, and nowhere else. The module stays
 * loaded. Takes the dynamic linker's lock: no other thread may be waiting for the caller. Several
 * threads may call it at once; they get the same module. Needs 32 KiB of stack. */
void gc_module_open(struct gc_module *module);

#endif
