/* Physical memory handles (cuMemCreate and imports): the references and mappings of each.
 *
 * A record lives while the program holds references to the handle or mappings of it; the charge
 * ends with the record. The driver may reuse a handle's number for other memory once its last
 * reference is dropped, mapped or not: then only the mappings lead to the record. */
#ifndef GC_PHYSICAL_H
#define GC_PHYSICAL_H

#include "shim/account/direct.h"

/* New memory with one reference: a record of `kind` (HANDLE, or IMPORT with nothing charged), made
 * with the request's charge. False: as gc_direct_record. */
bool gc_physical_add(struct gc_direct_request *request, enum gc_direct_kind kind, uint64_t handle,
                     uint64_t bytes);
/* The driver returned one more reference, `handle`, to the memory mapped at `address`. */
void gc_physical_retain(uint64_t handle, uint64_t address);
/* Around the driver's release of a reference. */
void *gc_physical_release_begin(uint64_t handle);
void gc_physical_release_end(void *record, uint64_t handle, bool is_released);

void gc_physical_map(uint64_t handle, uint64_t address, uint64_t bytes);
/* Around the driver's unmapping of a range, which holds whole mappings. */
void gc_physical_unmap_begin(uint64_t address, uint64_t bytes);
void gc_physical_unmap_end(uint64_t address, uint64_t bytes, bool is_unmapped);

/* A tile of a sparse array, named by a hash of its place: mapped; unmapped; all tiles of an array
 * removed. */
void gc_physical_map_tile(uint64_t handle, uint64_t tile, uint64_t array);
void gc_physical_unmap_tile(uint64_t tile);
void gc_physical_unmap_array(uint64_t array);

#endif
