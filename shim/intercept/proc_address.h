/* The wrappers of shim/api.def's rows. */
#ifndef GC_PROC_ADDRESS_H
#define GC_PROC_ADDRESS_H

#include "shim/real/resolve.h"

/* The function the library exports under the row's name; NULL where the row is not wrapped. */
void *gc_proc_address_wrapper(const struct gc_row *row);

#endif
