/* Entry points of the driver: for every row of shim/api.def the exported symbol beside the pointers
 * of both ABIs of cuGetProcAddress. Then the device's attributes on which the library decides, and
 * the granularities of physical memory. */
#include "tests/gpu/gpu.h"

enum { NONE = 0, PTSZ = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };

struct entry {
    const char *symbol, *base;
    int version, flags;
    bool is_used; /* by the library alone, which asks for this version and no later one */
};

static const struct entry entries[] = {
#define API(symbol, base, version, variant, ...) {#symbol, #base, version, variant, false},
#define SUBMIT(symbol, base, version, variant, ...) {#symbol, #base, version, variant, false},
#define PASS(symbol, base, version, variant, ...) {#symbol, #base, version, variant, false},
#define NODE(symbol, base, version, ...) {#symbol, #base, version, NONE, false},
#define USE(symbol, base, version, ...) {#symbol, #base, version, NONE, true},
#define RUNTIME(...)
#define NVML(...)
#define NVML_USE(...)
#include "shim/api.def"
};
#define ENTRY_COUNT (sizeof(entries) / sizeof(entries[0]))

/* Names that the runtime 13.2 asks for. */
static const struct entry newer[] = {
    {"", "cuDevSmResourceSplit", 13010, 0, false},
    {"", "cuGraphExecGetId", 13010, 0, false},
    {"", "cuGraphGetId", 13010, 0, false},
    {"", "cuGraphNodeGetContainingGraph", 13010, 0, false},
    {"", "cuGraphNodeGetLocalId", 13010, 0, false},
    {"", "cuGraphNodeGetToolsId", 13010, 0, false},
    {"", "cuLaunchHostFunc", 13010, 0, false},
    {"", "cuStreamGetDevResource", 13010, 0, false},
    {"", "cuFuncGetParamCount", 13020, 0, false},
    {"", "cuGraphNodeGetParams", 13020, 0, false},
    {"", "cuKernelGetParamCount", 13020, 0, false},
    {"", "cuMemcpyWithAttributesAsync", 13020, 0, false},
    {"", "cuMemcpy3DWithAttributesAsync", 13020, 0, false},
};

typedef CUresult first_lookup(const char *name, void **pointer, int version, cuuint64_t flags);
typedef CUresult second_lookup(const char *name, void **pointer, int version, cuuint64_t flags,
                               CUdriverProcAddressQueryResult *status);

static first_lookup *look_up_first;
static second_lookup *look_up_second;

static void *found(const struct entry *entry, bool is_first, int version)
{
    void *pointer = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result =
        is_first
            ? look_up_first(entry->base, &pointer, version, (cuuint64_t)entry->flags)
            : look_up_second(entry->base, &pointer, version, (cuuint64_t)entry->flags, &status);

    return result == CUDA_SUCCESS ? pointer : NULL;
}

/* The version of the next ABI of a name, or that of the driver. */
static int last_version(const struct entry *entry)
{
    int last = gpu.version;

    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (strcmp(entries[i].base, entry->base) == 0 && entries[i].version > entry->version &&
            entries[i].version <= last)
            last = entries[i].version - 1;
    return last;
}

static void compare_entries(void)
{
    unsigned known = 0, absent = 0, not_exported = 0, not_found = 0, abis_differ = 0,
             later_differ = 0;
    unsigned differ[2] = {0, 0};

    for (const struct entry *entry = entries; entry < entries + ENTRY_COUNT; entry++) {
        if (entry->version > gpu.version || strncmp(entry->base, "cuGetProcAddress", 16) == 0)
            continue;
        void *exported = dlsym(gpu.library, entry->symbol);
        void *first = found(entry, true, entry->version);
        void *second = found(entry, false, entry->version);
        if (exported == NULL && second == NULL) {
            printf("%s is not there\n", entry->symbol);
            absent++;
            continue;
        }
        known++;
        if (exported == NULL || second == NULL)
            printf("%s: exported %p, looked up %p\n", entry->symbol, exported, second);
        not_exported += exported == NULL;
        not_found += second == NULL;
        abis_differ += first != second;
        differ[entry->flags != NONE] += exported != NULL && second != NULL && exported != second;
        if (second != NULL && !entry->is_used &&
            found(entry, false, last_version(entry)) != second) {
            printf("%s: another pointer at %d\n", entry->symbol, last_version(entry));
            later_differ++;
        }
    }
    row(known, "names", "entries.known");
    row(absent, "names", "entries.absent");
    row(not_exported, "names", "entries.not_exported");
    row(not_found, "names", "entries.not_found");
    row(differ[0], "names", "entries.differ.flags0");
    row(differ[1], "names", "entries.differ.flags2");
    row(abis_differ, "names", "entries.abis_differ");
    row(later_differ, "names", "entries.later_differ");
}

static void look_for_newer(void)
{
    unsigned count = 0;

    for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
        if (found(&newer[i], false, newer[i].version) != NULL) {
            printf("%s is there at %d\n", newer[i].base, newer[i].version);
            count++;
        }
    row(count, "names", "entries.newer");
}

static void show_device(void)
{
    static const int attributes[] = {102, 103, 110, 115, 116, 117, 128, 133, 136};

    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        row(gpu_attribute(attributes[i]), "value", "attribute.%d", attributes[i]);
    for (int flag = 0; flag < 2; flag++) {
        const CUmemAllocationProp properties = memory_of(flag != 0);
        size_t least = 0, advised = 0;
        CUresult result =
            cu.cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        if (result == CUDA_SUCCESS)
            result = cu.cuMemGetAllocationGranularity(&advised, &properties,
                                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
        row(result, "code", "granularity.rdma%d.code", flag);
        row((double)least, "bytes", "granularity.rdma%d.minimum", flag);
        row((double)advised, "bytes", "granularity.rdma%d.recommended", flag);
    }
}

static void show_peers(void)
{
    int count = 0, can;

    CU(cuDeviceGetCount, &count);
    if (count < 2)
        skip("peers.*", "there is one device alone");
    for (int from = 0; from < count; from++)
        for (int to = 0; to < count; to++)
            if (from != to && cu.cuDeviceCanAccessPeer(&can, from, to) == CUDA_SUCCESS)
                row(can, "yes", "peers.%d.%d", from, to);
}

int main(void)
{
    gpu_open();
    *(void **)&look_up_first = dlsym(gpu.library, "cuGetProcAddress");
    *(void **)&look_up_second = dlsym(gpu.library, "cuGetProcAddress_v2");
    row(gpu.version, "version", "driver");
    if (look_up_first == NULL || look_up_second == NULL) {
        skip("entries.*", "the driver has one ABI of cuGetProcAddress alone");
    } else {
        compare_entries();
        look_for_newer();
    }
    show_device();
    show_peers();
    return EXIT_SUCCESS;
}
