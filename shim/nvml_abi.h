/* The few types of NVML's ABI that api.def needs. Toolkits do not always bring nvml.h. */
#ifndef GC_NVML_ABI_H
#define GC_NVML_ABI_H

#define GC_NVML_SUCCESS 0
#define GC_NVML_ERROR_LIBRARY_NOT_FOUND 12
#define GC_NVML_ERROR_FUNCTION_NOT_FOUND 13
#define GC_NVML_UUID_BYTES 96

struct nvmlDevice_st;

/* nvmlMemory_t: total = free + used. */
struct gc_nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

/* nvmlMemory_v2_t: total = reserved + free + used. */
struct gc_nvml_memory_v2 {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};

#define GC_NVML_NO_VALUE (~0ull) /* NVML_VALUE_NOT_AVAILABLE */

/* nvmlProcessInfo_v1_t. */
struct gc_nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
};

/* nvmlProcessInfo_v2_t. */
struct gc_nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned instance;
    unsigned compute_instance;
};

/* nvmlProcessDetail_v1_t. */
struct gc_nvml_process_detail {
    unsigned pid;
    unsigned long long used;
    unsigned instance;
    unsigned compute_instance;
    unsigned long long protected_bytes;
};

/* nvmlProcessDetailList_v1_t. */
struct gc_nvml_process_details {
    unsigned version;
    unsigned mode;
    unsigned count;
    struct gc_nvml_process_detail *processes;
};

#endif
