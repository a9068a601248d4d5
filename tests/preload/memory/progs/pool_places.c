/* Pools beside a device's own: of the host and of managed memory, made, and the defaults of their
 * places; and a pool that is shared with a second process, whose events order the two.
 *
 * usage: pool_places places: allocates 256 MiB from each, at once, and frees them.
 *        pool_places shared: 8 MiB of a shared pool are written here, read and written there.
 *        pool_places held: the same, and the last 8 MiB are never freed. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PLACE_BYTES (256 * MIB)
#define SHARED_BYTES (8 * MIB)
#define ROUNDS 5
#define FD_IN_CHILD 9

/* ---- places ---- */

static const struct {
    CUmemLocationType type;
    CUmemAllocationType kind;
} places[] = {{CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED},
              {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ALLOCATION_TYPE_PINNED},
              {CU_MEM_LOCATION_TYPE_NONE, CU_MEM_ALLOCATION_TYPE_MANAGED},
              {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED}};
#define PLACES (int)(sizeof places / sizeof places[0])

static void use_places(void)
{
    CUdeviceptr pointers[2 * PLACES];
    CUmemoryPool made[PLACES];

    program_start();
    for (int i = 0; i < PLACES; i++) {
        CUmemPoolProps props = {.allocType = places[i].kind, .location = {places[i].type, 0}};
        CUmemLocation location = {places[i].type, 0};
        CUmemoryPool pool;

        CHECK(cuMemPoolCreate(&made[i], &props));
        CHECK(i % 2 == 0 ? cuMemGetDefaultMemPool(&pool, &location, places[i].kind)
                         : cuMemGetMemPool(&pool, &location, places[i].kind));
        CHECK(cuMemAllocFromPoolAsync(&pointers[2 * i], PLACE_BYTES, made[i], NULL));
        CHECK(cuMemAllocFromPoolAsync(&pointers[2 * i + 1], PLACE_BYTES, pool, NULL));
    }
    CHECK(cuStreamSynchronize(NULL));
    for (int i = 0; i < 2 * PLACES; i++)
        memset((void *)(uintptr_t)pointers[i], i, 4096);
    for (int i = 0; i < 2 * PLACES; i++)
        CHECK(i % 2 == 0 ? cuMemFreeAsync(pointers[i], NULL) : cuMemFree(pointers[i]));
    CHECK(cuStreamSynchronize(NULL));
    for (int i = 0; i < PLACES; i++)
        CHECK(cuMemPoolDestroy(made[i]));
}

/* ---- shared ---- */

struct errand {
    CUmemPoolPtrExportData data;
    CUipcEventHandle written;
    unsigned char expected, filled;
    bool is_held;
};

static void must(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

/* The second process: reads what the event says is written, writes, and records the event. */
static void import(void)
{
    CUmemoryPool pool;
    CUstream stream;
    CUevent event = NULL;
    struct errand errand;
    char done = 1;

    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)FD_IN_CHILD,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    for (int i = 0; read(STDIN_FILENO, &errand, sizeof errand) == (ssize_t)sizeof errand; i++) {
        unsigned char *copy;
        CUdeviceptr pointer, own;

        if (event == NULL)
            CHECK(cuIpcOpenEventHandle(&event, errand.written));
        CHECK(cuMemPoolImportPointer(&pointer, pool, &errand.data));
        CHECK(cuMemAlloc(&own, SHARED_BYTES));
        CHECK(cuMemHostAlloc((void **)&copy, SHARED_BYTES, 0));
        CHECK(cuStreamWaitEvent(stream, event, 0));
        CHECK(cuMemcpyDtoDAsync(own, pointer, SHARED_BYTES, stream));
        CHECK(cuMemsetD8Async(pointer, errand.filled, SHARED_BYTES, stream));
        CHECK(cuEventRecord(event, stream));
        CHECK(cuMemcpyDtoHAsync(copy, own, SHARED_BYTES, stream));
        CHECK(cuMemFree(own));
        if (!errand.is_held)
            CHECK(i % 2 == 0 ? cuMemFreeAsync(pointer, stream) : cuMemFree(pointer));
        CHECK(cuStreamSynchronize(stream));
        must(copy[0] == errand.expected && copy[SHARED_BYTES - 1] == errand.expected,
             "another content in the second process");
        CHECK(cuMemFreeHost(copy));
        must(write(STDOUT_FILENO, &done, 1) == 1, "no answer");
    }
    CHECK(cuMemPoolDestroy(pool));
}

static void start_importer(int fd, int *to, int *from)
{
    int there[2], back[2];

    must(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0, "no pipe");
    if (fork() == 0) {
        dup2(there[0], STDIN_FILENO);
        dup2(back[1], STDOUT_FILENO);
        dup2(fd, FD_IN_CHILD);
        if (getenv("REPORT_OF_IMPORTER") != NULL)
            setenv("GPUCACHE_REPORT", getenv("REPORT_OF_IMPORTER"), 1);
        execl("/proc/self/exe", "pool_places", "import", (char *)NULL);
        _exit(127);
    }
    close(there[0]);
    close(back[1]);
    *to = there[1];
    *from = back[0];
}

static void share(bool is_held)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    struct errand errand = {.expected = 1};
    int fd, to, from, status;
    CUmemoryPool pool;
    CUstream stream;
    CUevent event;
    char done;

    program_start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuIpcGetEventHandle(&errand.written, event));
    CHECK(cuMemPoolCreate(&pool, &props));
    CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    start_importer(fd, &to, &from);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr pointer, copy;
        unsigned char seen[2];

        errand.expected = (unsigned char)(3 * i + 1);
        errand.filled = (unsigned char)(3 * i + 2);
        errand.is_held = is_held && i == ROUNDS - 1;
        CHECK(cuMemAllocFromPoolAsync(&pointer, SHARED_BYTES, pool, stream));
        CHECK(cuMemsetD8Async(pointer, errand.expected, SHARED_BYTES, stream));
        CHECK(cuEventRecord(event, stream));
        CHECK(cuMemPoolExportPointer(&errand.data, pointer));
        must(write(to, &errand, sizeof errand) == (ssize_t)sizeof errand, "no importer");
        must(read(from, &done, 1) == 1, "the importer failed");
        /* A copy behind the other process's fill, from memory that is freed at once. */
        CHECK(cuMemAlloc(&copy, SHARED_BYTES));
        CHECK(cuStreamWaitEvent(stream, event, 0));
        CHECK(cuMemcpyDtoDAsync(copy, pointer, SHARED_BYTES, stream));
        if (!errand.is_held)
            CHECK(cuMemFreeAsync(pointer, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH(&seen[0], copy, 1));
        CHECK(cuMemcpyDtoH(&seen[1], copy + SHARED_BYTES - 1, 1));
        CHECK(cuMemFree(copy));
        must(seen[0] == errand.filled && seen[1] == errand.filled,
             "another content in the first process");
    }
    close(to);
    must(wait(&status) > 0 && status == 0, "the second process failed");
    CHECK(cuMemPoolDestroy(pool));
    CHECK(cuEventDestroy(event));
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";

    if (strcmp(mode, "places") == 0)
        use_places();
    else if (strcmp(mode, "import") == 0)
        import();
    else
        share(strcmp(mode, "held") == 0);
    return EXIT_SUCCESS;
}
