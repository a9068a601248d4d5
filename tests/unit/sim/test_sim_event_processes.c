/* Events between processes: cuIpcGetEventHandle and cuIpcOpenEventHandle. */
#include "tests/unit/sim_child.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define FLAGS (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)

static struct child other;
static atomic_int *gate; /* both processes' */

static void wait_for_gate(void *argument)
{
    while (atomic_load(gate) < (int)(intptr_t)argument)
        usleep(100);
}

/* Work that ends when the gate is at `height`. */
static void submit_until(CUstream stream, intptr_t height)
{
    MUST(cuLaunchHostFunc(stream, wait_for_gate, (void *)height));
}

/* Records an event behind work that this process lets end, then waits for a record of the other
 * process. Its commands come as bytes. */
static void run_exporter(int socket)
{
    CUipcEventHandle handle;
    CUevent event, plain;
    CUstream stream;
    CUresult refused[2];
    char command;

    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuEventCreate(&event, FLAGS) ||
        cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING))
        _exit(5);
    refused[0] = cuIpcGetEventHandle(&handle, plain);
    submit_until(stream, 1);
    if (cuEventRecord(event, stream) || cuIpcGetEventHandle(&handle, event))
        _exit(4);
    refused[1] = cuIpcOpenEventHandle(&plain, handle);
    send_all(socket, refused, sizeof refused);
    send_all(socket, &handle, sizeof handle);
    hear(socket, &command, 1); /* the other process has recorded, behind its gate */
    CUresult before = cuEventQuery(event);
    send_all(socket, &before, sizeof before);
    if (cuEventSynchronize(event) || cuEventQuery(event))
        _exit(3);
    send_all(socket, "s", 1);
    hear(socket, &command, 1);
}

/* "cuEventRecord, cuEventSynchronize, cuStreamWaitEvent and cuEventQuery may be used in either
 * process." */
static void either_process_records_and_waits(void **state)
{
    CUipcEventHandle handle;
    CUresult refused[2], seen;
    CUevent event;
    CUstream stream;
    CUdeviceptr memory;
    char byte;

    (void)state;
    go(other);
    hear(other.socket, refused, sizeof refused);
    assert_int_equal(refused[0], CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(refused[1], CUDA_ERROR_INVALID_CONTEXT);
    hear(other.socket, &handle, sizeof handle);
    MUST(cuIpcOpenEventHandle(&event, handle));
    MUST_BE(CUDA_ERROR_NOT_READY, cuEventQuery(event)); /* the other process's gate is shut */

    /* A stream waits for the other process's record. */
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&memory, 64));
    MUST(cuMemsetD8(memory, 1, 64));
    MUST(cuCtxSynchronize());
    MUST(cuStreamWaitEvent(stream, event, 0));
    MUST(cuMemsetD8Async(memory, 2, 64, stream));
    usleep(20000);
    MUST_BE(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    assert_int_equal(*(volatile unsigned char *)(uintptr_t)memory, 1);
    atomic_store(gate, 1);
    MUST(cuEventSynchronize(event));
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(memory), 2);

    /* This process records; the other one waits. */
    submit_until(stream, 2);
    MUST(cuEventRecord(event, stream));
    MUST_BE(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    send_all(other.socket, "r", 1);
    hear(other.socket, &seen, sizeof seen);
    assert_int_equal(seen, CUDA_ERROR_NOT_READY);
    usleep(20000);
    assert_int_equal(recv(other.socket, &byte, 1, MSG_DONTWAIT), -1);
    atomic_store(gate, 2);
    hear(other.socket, &byte, 1);
    MUST(cuEventQuery(event));
    send_all(other.socket, "q", 1);
    waitpid(other.pid, NULL, 0);

    MUST(cuMemFree(memory));
    MUST(cuStreamDestroy(stream));
    MUST(cuEventDestroy(event)); /* "This event must be freed with cuEventDestroy." */
    MUST_BE(CUDA_ERROR_MAP_FAILED, cuIpcOpenEventHandle(&event, handle)); /* its process is gone */
    memset(&handle, 0, sizeof handle);
    MUST_BE(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&event, handle));
}

/* A place that an event gave back serves the next one, which is complete until it is recorded. */
static void places_are_used_again(void **state)
{
    CUevent event;
    CUstream stream;

    (void)state;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    submit_until(stream, 3);
    for (int i = 0; i < 3; i++) {
        MUST(cuEventCreate(&event, FLAGS));
        MUST(cuEventQuery(event));
        MUST(cuEventRecord(event, stream));
        MUST_BE(CUDA_ERROR_NOT_READY, cuEventQuery(event));
        MUST(cuEventDestroy(event));
    }
    MUST(cuEventCreate(&event, FLAGS));
    MUST(cuEventRecord(event, stream));
    atomic_store(gate, 3);
    MUST(cuEventSynchronize(event));
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuEventQuery(event));
    MUST(cuEventDestroy(event));
    MUST(cuStreamDestroy(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(either_process_records_and_waits),
        cmocka_unit_test(places_are_used_again),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    other = fork_child(run_exporter);
    if (gate == MAP_FAILED || start_device("1") != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
