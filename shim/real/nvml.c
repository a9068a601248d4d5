/* NVML's functions, and the order of devices that follows from them.
 *
 * NVML numbers devices by their place on the bus, CUDA by its own rule and by the devices visible
 * to the program. In a process that has started CUDA the UUID connects the two; in one that has
 * not, only the facts that the environment proves count: CUDA_VISIBLE_DEVICES and
 * CUDA_DEVICE_ORDER. */
#define _GNU_SOURCE
#include "shim/real/nvml.h"
#include "shim/real/open.h"
#include "shim/real/rows.h"

#include "core/io/elf_object.h"
#include "core/io/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NVML_LIBRARY GC_NVML_NAME ".so.1"

static atomic_bool is_filled;

bool gc_nvml_find(void)
{
    struct gc_elf_object object = {.base = 0};

    /* acquire: pairs with the release at the end */
    if (atomic_load_explicit(&is_filled, memory_order_acquire))
        return true;
    if (!gc_elf_object_open_named(&object, NVML_LIBRARY))
        return false;
    for (const struct gc_row *row = gc_rows; row < gc_rows + GC_ROW_COUNT; row++) {
        void *real =
            row->type == GC_ROW_TYPE_NVML ? gc_elf_object_find(&object, gc_row_symbol(row)) : NULL;

        if (real != NULL && !gc_row_is_own(real))
            gc_row_record(row, real);
    }
    gc_open_keep(object.dynamic);
    atomic_store_explicit(&is_filled, true, memory_order_release);
    return true;
}

/* A second task where the first one ended without NVML: the program has loaded it since then, by a
 * path, and may be loading it still. The task begins after NVML was found, so it waits for that. */
bool gc_nvml_open(bool load)
{
    static struct gc_open_task opening, again;

    return (load || gc_nvml_find()) && gc_open_object(&opening, NVML_LIBRARY) && gc_nvml_find() &&
           (opening.error[0] == '\0' || gc_open_object(&again, NVML_LIBRARY));
}

/* ---- the order of devices ---- */

static bool is_in_bus_order(void)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    unsigned count = 0;

    if (order != NULL && strcmp(order, "PCI_BUS_ID") == 0)
        return true;
    /* With one device both orders are the same. */
    return GC_REAL(nvmlDeviceGetCount_v2) != NULL && GC_REAL(nvmlDeviceGetCount_v2)(&count) == 0 &&
           count == 1;
}

/* An entry of CUDA_VISIBLE_DEVICES: NVML's index, or a prefix of the UUID. */
static bool names_device(const char *entry, size_t length, unsigned index, const char *uuid,
                         bool *is_certain)
{
    uint64_t number;

    if (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0)
        return length <= strlen(uuid) && strncasecmp(entry, uuid, length) == 0;
    *is_certain &= is_in_bus_order();
    for (; length > 0 && *entry == ' '; length--)
        entry++;
    /* Not strtoul: built with glibc 2.38 or later it is a symbol that older versions lack. */
    return gc_text_uint(entry, length, &number) && number == index;
}

int gc_nvml_ordinal(struct nvmlDevice_st *device, const char *uuid)
{
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");
    bool is_certain = true;
    unsigned index;

    if (GC_REAL(nvmlDeviceGetIndex) == NULL || GC_REAL(nvmlDeviceGetIndex)(device, &index) != 0)
        return -1;
    if (entry == NULL)
        return is_in_bus_order() ? (int)index : -1;
    for (int ordinal = 0;; ordinal++) {
        const size_t length = strcspn(entry, ",");

        if (names_device(entry, length, index, uuid, &is_certain))
            return is_certain ? ordinal : -1;
        if (entry[length] == '\0')
            return -1;
        entry += length + 1;
    }
}
