/* The simulated driver: its variables, the journal, look-ups by name and version.
 *
 * Variables are read once per process, so each case runs in a process of its own: the program
 * starts itself again with the case's name, and takes exit status and output. */
#include "tests/unit/sim_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *symbol, void **address, int version, cuuint64_t flags);

#undef cuCtxCreate
#undef cuMemAlloc
CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuMemAlloc(unsigned int *address, unsigned int bytes);
CUresult cuStreamQuery_ptsz(CUstream stream);

#define CHILD_CASE(name) static int name(void)
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* ---- what the children do ---- */

CHILD_CASE(child_sizes)
{
    size_t bytes;
    int count;
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuDeviceGetCount(&count) == CUDA_SUCCESS && cuDeviceTotalMem(&bytes, 0) == CUDA_SUCCESS);
    printf("%d %zu\n", count, bytes);
    return 0;
}

/* As NVIDIA's driver: flags that do not exist and null pointers count before the state, stream
 * handles once cuInit was tried, and those of the legacy and per-thread streams never. */
CHILD_CASE(child_no_device)
{
    static char nothing[4096];
    CUstream wild = (CUstream)(void *)nothing;
    CUgraphExec exec;
    CUdeviceptr address;
    CUstream stream;

    EXPECT(cuStreamCreate(&stream, 0) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuStreamCreate(&stream, 2) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamCreateWithPriority(&stream, 0x80, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_HOST) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamBeginCapture(NULL, 3) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuGraphInstantiate(&exec, (CUgraph)(void *)nothing, 0x80) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamQuery(wild) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuInit(0) == CUDA_ERROR_NO_DEVICE);
    EXPECT(cuStreamQuery(wild) == CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemsetD8Async(0, 0, 1, CU_STREAM_LEGACY) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuEventRecord(NULL, CU_STREAM_LEGACY) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemFreeAsync(0, CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuStreamCreate(&stream, 2) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

CHILD_CASE(child_failures)
{
    CUcontext context;
    CUstream stream;
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuCtxCreate_v2(&context, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY); /* cuCtxCreate_v2@1 */
    EXPECT(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    EXPECT(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    EXPECT(cuStreamQuery(stream) == CUDA_SUCCESS);
    EXPECT(cuStreamQuery(stream) == CUDA_ERROR_LAUNCH_FAILED); /* cuStreamQuery@2+=719 */
    EXPECT(cuStreamQuery(stream) == CUDA_ERROR_LAUNCH_FAILED);
    return 0;
}

/* What cuMemCreate returns for memory of a host's node, and of the host. */
CHILD_CASE(child_host_memory)
{
#if CUDA_VERSION >= 12020
    const CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;

    EXPECT(cuInit(0) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        prop.location.type = types[i];
        printf("%d ", (int)cuMemCreate(&handle, (size_t)2 << 20, &prop, 0));
    }
#endif
    return 0;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

CHILD_CASE(child_times)
{
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUfunction function;
    static struct gate gate;
    static const char ptx[] = ".version 8.0\n.target sm_90\n.visible .entry k()\n{\n ret;\n}\n";
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    EXPECT(cuModuleLoadData(&module, ptx) == CUDA_SUCCESS);
    EXPECT(cuModuleGetFunction(&function, module, "k") == CUDA_SUCCESS);
    EXPECT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    double start = seconds_now();
    EXPECT(cuEventCreate(&event, 0) == CUDA_SUCCESS); /* cuEventCreate=30000 */
    EXPECT(seconds_now() - start >= 0.03);
    /* Launches return although the stream stands still. */
    EXPECT(cuLaunchHostFunc(stream, wait_at_gate, &gate) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) /* SIMCUDA_WORK_US=20000 */
        EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) == CUDA_SUCCESS);
    start = seconds_now();
    atomic_store(&gate.is_open, true);
    EXPECT(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    EXPECT(seconds_now() - start >= 0.04);
    return 0;
}

CHILD_CASE(child_journal)
{
    void *address;
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuGetProcAddress("cuMemAlloc", &address, 3020, 0) == CUDA_SUCCESS);
    EXPECT(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    return 0;
}

CHILD_CASE(child_old_driver)
{
    CUdriverProcAddressQueryResult status;
    void *address, *newest;
    int version;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuDriverGetVersion(&version) == CUDA_SUCCESS &&
           version == 12000);
    /* "If the specified CUDA version is greater than the driver version, …
     * CUDA_ERROR_INVALID_VALUE": NVIDIA's driver gives its newest, as here. */
    EXPECT(cuGetProcAddress_v2("cuCtxCreate", &newest, 12000, 0, &status) == CUDA_SUCCESS);
    EXPECT(cuGetProcAddress_v2("cuCtxCreate", &address, 12050, 0, &status) == CUDA_SUCCESS &&
           address && address == newest);
    EXPECT(cuGetProcAddress_v2("cuCtxRecordEvent", &address, 12000, 0, &status) == CUDA_SUCCESS);
    EXPECT(!address && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(cuGetProcAddress_v2("cuStreamGetId", &address, 12000, 0, &status) == CUDA_SUCCESS &&
           address);
    return 0;
}

CHILD_CASE(child_exits_with_work_under_way)
{
    CUcontext context;
    static struct gate gate;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    EXPECT(cuLaunchHostFunc(NULL, wait_at_gate, &gate) == CUDA_SUCCESS);
    EXPECT(cuLaunchHostFunc(NULL, wait_at_gate, &gate) == CUDA_SUCCESS);
    return 0;
}

static const struct child {
    const char *name;
    int (*run)(void);
} children[] = {
    {"sizes", child_sizes},           {"no_device", child_no_device},
    {"failures", child_failures},     {"host_memory", child_host_memory},
    {"times", child_times},           {"journal", child_journal},
    {"old_driver", child_old_driver}, {"exits", child_exits_with_work_under_way},
};

/* ---- the parent ---- */

static char output[4096], errors[4096];

static void read_all(int fd, char *text, size_t bytes)
{
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, text + length, bytes - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(fd);
}

/* Runs a child with name=value pairs, up to NULL, in its environment; its exit status. */
static int run_child(const char *name, ...)
{
    int out[2], err[2], status;
    va_list variables;
    if (pipe(out) || pipe(err))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        close(out[0]);
        close(err[0]);
        va_start(variables, name);
        for (const char *variable; (variable = va_arg(variables, const char *));)
            setenv(variable, va_arg(variables, const char *), 1);
        va_end(variables);
        execl("/proc/self/exe", "test_sim_settings", name, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    read_all(out[0], output, sizeof output);
    read_all(err[0], errors, sizeof errors);
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define assert_child(...)                                                                          \
    do {                                                                                           \
        if (run_child(__VA_ARGS__) != 0)                                                           \
            fail_msg("%s", errors);                                                                \
    } while (0)

static void devices_and_memory(void **state)
{
    (void)state;
    assert_child("sizes", NULL);
    assert_string_equal(output, "1 17179869184\n");
    assert_child("sizes", "SIMCUDA_DEVICES", "3", "SIMCUDA_MEMORY", "1.5GiB", NULL);
    assert_string_equal(output, "3 1610612736\n");
    assert_child("sizes", "SIMCUDA_MEMORY", "2GB", NULL);
    assert_string_equal(output, "1 2000000000\n");
    assert_string_equal(errors, "");
    assert_child("no_device", "SIMCUDA_DEVICES", "0", NULL);
}

static void assert_complaint(const char *name, const char *value)
{
    char start[128];
    assert_child("sizes", name, value, NULL);
    assert_string_equal(output, "1 17179869184\n");
    snprintf(start, sizeof start, "simcuda: %s=%s: expected ", name, value);
    assert_memory_equal(errors, start, strlen(start));
    assert_ptr_equal(strchr(errors, '\n'), errors + strlen(errors) - 1); /* one line */
}

static void bad_values_cost_a_line_and_keep_the_default(void **state)
{
    (void)state;
    assert_complaint("SIMCUDA_DEVICES", "many");
    assert_complaint("SIMCUDA_DEVICES", "65");
    assert_complaint("SIMCUDA_MEMORY", "4Gix");
    assert_complaint("SIMCUDA_MEMORY", "-1");
    assert_complaint("SIMCUDA_MEMORY", "0m");
    assert_complaint("SIMCUDA_SHARED", "a/b");
    assert_complaint("SIMCUDA_WORK_US", "1.5");
    assert_complaint("SIMCUDA_LATENCY", "h100");
    assert_complaint("SIMCUDA_FAIL", "cuMemAlloc_v2");
    assert_complaint("SIMCUDA_FAIL", "cuMemAlloc_v2@0");
    assert_complaint("SIMCUDA_FAIL", "cuMemAlloc_v2@1=CUDA_ERROR_NOPE");
    assert_complaint("SIMCUDA_LAZY", "lots");
    assert_complaint("SIMCUDA_KERNEL_US", "spin");
    assert_complaint("SIMCUDA_KERNEL_US", "=5");
    assert_complaint("SIMCUDA_LINK", "fast");
    assert_complaint("SIMCUDA_LINK", "up=1GB");
    assert_complaint("SIMCUDA_LINK", "out=");
    assert_complaint("SIMCUDA_PAGEABLE", "0");
    assert_complaint("SIMCUDA_PAGEABLE", "101");
    assert_complaint("SIMCUDA_PIN_US", "-1");
    assert_complaint("SIMCUDA_PIN_US", "1us");
    assert_complaint("SIMCUDA_LOOKUPS", "maybe");
    assert_complaint("SIMCUDA_RDMA", "maybe");
    assert_complaint("SIMCUDA_PEERS", "maybe");
    assert_complaint("SIMCUDA_JOURNAL", "/nowhere/at/all");
    assert_complaint("SIMCUDA_DRIVER_VERSION", "12.4");
}

static void host_memory_needs_a_driver_that_maps_it(void **state)
{
    (void)state;
#if CUDA_VERSION >= 12020
    assert_child("host_memory", NULL);
    assert_string_equal(output, "0 0 ");
    assert_child("host_memory", "SIMCUDA_DRIVER_VERSION", "12090", NULL);
    assert_string_equal(output, "0 1 ");
    assert_child("host_memory", "SIMCUDA_DRIVER_VERSION", "12010", NULL);
    assert_string_equal(output, "1 1 ");
    assert_child("host_memory", "SIMCUDA_ATTRIBUTES", "141=0,145=0", NULL);
    assert_string_equal(output, "801 801 ");
#endif
}

static void calls_fail_as_configured(void **state)
{
    (void)state;
    assert_child("failures", "SIMCUDA_FAIL",
                 "cuCtxCreate_v2@1,cuStreamQuery@2+=CUDA_ERROR_LAUNCH_FAILED", NULL);
    assert_child("failures", "SIMCUDA_FAIL", "cuCtxCreate_v2@1=2,cuStreamQuery@2+=719", NULL);
    assert_int_equal(run_child("failures", NULL), 1);
}

static void calls_and_work_take_time(void **state)
{
    (void)state;
    assert_child("times", "SIMCUDA_LATENCY", "cuEventCreate=30000", "SIMCUDA_WORK_US", "20000",
                 NULL);
    assert_child("sizes", "SIMCUDA_LATENCY", "h200", NULL);
    assert_string_equal(errors, "");
}

static void journal_lists_every_call(void **state)
{
    char path[] = "/tmp/simcuda-journal-XXXXXX", text[4096], expected[256];
    int fd = mkstemp(path), sequence, result;
    long tid;
    (void)state;
    assert_true(fd >= 0);
    assert_child("journal", "SIMCUDA_JOURNAL", path, NULL);
    read_all(fd, text, sizeof text);
    unlink(path);
    assert_int_equal(sscanf(text, "%d %ld %200s %d", &sequence, &tid, expected, &result), 4);
    assert_int_equal(sequence, 1);
    assert_string_equal(expected, "cuInit");
    snprintf(
        expected, sizeof expected,
        "1 %ld cuInit 0 0\n2 %ld cuGetProcAddress 0 cuMemAlloc 3020 0\n3 %ld cuCtxSynchronize 201\n",
        tid, tid, tid);
    assert_string_equal(text, expected);
}

static void old_drivers_hide_new_entry_points(void **state)
{
    (void)state;
    assert_child("old_driver", "SIMCUDA_DRIVER_VERSION", "12000", NULL);
}

/* A GPU's work ends with its process; the process does not wait and does not crash. */
static void exit_does_not_wait_for_work(void **state)
{
    (void)state;
    assert_child("exits", NULL);
}

/* ---- look-ups: in this process ---- */

static void *look_up(const char *name, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult expected)
{
    CUdriverProcAddressQueryResult status;
    void *address = &status, *same;
    assert_cuda(cuGetProcAddress_v2(name, &address, version, flags, &status));
    assert_int_equal(status, expected);
    same = NULL; /* the older ABI says by its result that there is none */
    assert_result(cuGetProcAddress(name, &same, version, flags),
                  address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(address, same);
    return address;
}

/* "this API will return the function pointer to the corresponding versioned function" */
static void look_up_gives_the_abi_of_the_version(void **state)
{
    const CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    (void)state;
    assert_ptr_equal(look_up("cuCtxCreate", 2000, 0, found), (void *)cuCtxCreate);
    assert_ptr_equal(look_up("cuCtxCreate", 3020, 0, found), (void *)cuCtxCreate_v2);
    assert_ptr_equal(look_up("cuCtxCreate", 11030, 0, found), (void *)cuCtxCreate_v2);
    assert_ptr_equal(look_up("cuCtxCreate", 13000, 0, found), (void *)cuCtxCreate_v4);
    assert_ptr_equal(look_up("cuMemAlloc", 2000, 0, found), (void *)cuMemAlloc);
    assert_ptr_equal(look_up("cuMemAlloc", 3020, 0, found), (void *)cuMemAlloc_v2);
    assert_ptr_equal(look_up("cuGetProcAddress", 11030, 0, found), (void *)cuGetProcAddress);
    assert_ptr_equal(look_up("cuGetProcAddress", 12000, 0, found), (void *)cuGetProcAddress_v2);
}

/* "If a per-thread version is not found, the API will return the legacy version." */
static void look_up_follows_the_flags(void **state)
{
    const CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    void *address;
    (void)state;
    assert_ptr_equal(look_up("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_DEFAULT, found),
                     (void *)cuStreamQuery);
    assert_ptr_equal(look_up("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, found),
                     (void *)cuStreamQuery);
    assert_ptr_equal(
        look_up("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, found),
        (void *)cuStreamQuery_ptsz);
    assert_null(look_up("cuMemcpy", 4000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                        CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_ptr_equal(look_up("cuInit", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, found),
                     (void *)cuInit);
    assert_result(cuGetProcAddress("cuInit", &address, 13000, 4), CUDA_ERROR_INVALID_VALUE);
}

/* "The API will return CUDA_SUCCESS and set the returned pfn to NULL if … the driver symbol is
 * invalid." */
static void look_up_of_what_is_not_there(void **state)
{
    const void *table = &state;
    (void)state;
    assert_null(look_up("cuNoSuchThing", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(look_up("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(look_up("", 0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(look_up("cuCtxGetId", 11080, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_result(cuGetProcAddress(NULL, (void **)&table, 13000, 0), CUDA_ERROR_INVALID_VALUE);
    assert_cuda(cuInit(0));
    assert_true(cuGetExportTable(&table, NULL) != CUDA_SUCCESS);
    assert_null(table);
}

static void errors_have_names_and_texts(void **state)
{
    const char *text;
    (void)state;
    assert_cuda(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_cuda(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "out of memory");
    assert_result(cuGetErrorName((CUresult)12345, &text),
                  CUDA_ERROR_INVALID_VALUE); /* "NULL address … and INVALID_VALUE" */
    assert_null(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_and_memory),
        cmocka_unit_test(bad_values_cost_a_line_and_keep_the_default),
        cmocka_unit_test(host_memory_needs_a_driver_that_maps_it),
        cmocka_unit_test(calls_fail_as_configured),
        cmocka_unit_test(calls_and_work_take_time),
        cmocka_unit_test(journal_lists_every_call),
        cmocka_unit_test(old_drivers_hide_new_entry_points),
        cmocka_unit_test(exit_does_not_wait_for_work),
        cmocka_unit_test(look_up_gives_the_abi_of_the_version),
        cmocka_unit_test(look_up_follows_the_flags),
        cmocka_unit_test(look_up_of_what_is_not_there),
        cmocka_unit_test(errors_have_names_and_texts),
    };
    for (size_t i = 0; argc == 2 && i < sizeof children / sizeof children[0]; i++)
        if (strcmp(argv[1], children[i].name) == 0)
            return children[i].run();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
