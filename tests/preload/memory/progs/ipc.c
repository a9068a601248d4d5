/* Gives memory to a second process by handle: a block that was cached and serves again, one of two
 * small neighbours by an address inside it, and blocks one after the other while the first stays
 * open. Contents are checked on both sides.
 *
 * usage: ipc [plain]: with `plain` the second process runs without what is preloaded here. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE ((size_t)(3 << 20) + 100)
#define SMALL 1000
#define ROUNDS 20

/* Asks the importer to open the handle, to look whether `bytes` at `offset` are all `expected`, to
 * fill them with `filled`, and to close it, or not. */
struct errand {
    CUipcMemHandle handle;
    size_t offset;
    size_t bytes;
    unsigned char expected;
    unsigned char filled;
    bool stays_open;
};

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

static bool is_all(CUdeviceptr address, size_t bytes, unsigned char value)
{
    unsigned char *copy = malloc(bytes);
    bool is_same = true;

    CHECK(cuMemcpyDtoH(copy, address, bytes));
    for (size_t i = 0; i < bytes; i++)
        is_same &= copy[i] == value;
    free(copy);
    return is_same;
}

static void fill(CUdeviceptr address, size_t bytes, unsigned char value)
{
    CHECK(cuMemsetD8(address, value, bytes));
    CHECK(cuCtxSynchronize());
}

/* ---- the second process ---- */

static void import(void)
{
    struct errand errand;
    CUdeviceptr base, found;
    size_t size;
    char done = 1;

    program_start();
    while (read(STDIN_FILENO, &errand, sizeof(errand)) == (ssize_t)sizeof(errand)) {
        CHECK(cuIpcOpenMemHandle(&base, errand.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CHECK(cuMemGetAddressRange(&found, &size, base + errand.offset));
        must(found == base, "the handle opens at the allocation's base");
        must(size >= errand.offset + errand.bytes && size < errand.offset + errand.bytes + 1024,
             "the handle opens the block and nothing else");
        must(is_all(base + errand.offset, errand.bytes, errand.expected), "another content");
        fill(base + errand.offset, errand.bytes, errand.filled);
        if (!errand.stays_open)
            CHECK(cuIpcCloseMemHandle(base));
        must(write(STDOUT_FILENO, &done, 1) == 1, "no answer");
    }
}

/* ---- the first ---- */

static int to_importer = -1, from_importer = -1;

static void start_importer(bool is_plain)
{
    int there[2], back[2];

    must(pipe2(there, 0) == 0 && pipe2(back, 0) == 0, "no pipe");
    if (fork() == 0) {
        dup2(there[0], STDIN_FILENO);
        dup2(back[1], STDOUT_FILENO);
        close(there[1]);
        close(back[0]);
        if (is_plain)
            unsetenv("LD_PRELOAD");
        setenv("GPUCACHE_REPORT", "none", 1);
        execl("/proc/self/exe", "ipc", "import", (char *)NULL);
        _exit(127);
    }
    close(there[0]);
    close(back[1]);
    to_importer = there[1];
    from_importer = back[0];
}

static void send(CUdeviceptr address, struct errand errand)
{
    CUdeviceptr base;
    char done = 0;

    CHECK(cuIpcGetMemHandle(&errand.handle, address));
    CHECK(cuMemGetAddressRange(&base, NULL, address));
    errand.offset = address - base;
    must(write(to_importer, &errand, sizeof(errand)) == (ssize_t)sizeof(errand), "no importer");
    must(read(from_importer, &done, 1) == 1, "the importer failed");
}

static void give_reused(void)
{
    CUdeviceptr block = program_alloc(LARGE);

    for (int i = 0; i < ROUNDS; i++) {
        fill(block, LARGE, 1);
        CHECK(cuMemFree(block));
        block = program_alloc(LARGE);
    }
    fill(block, LARGE, 2);
    send(block, (struct errand){.bytes = LARGE, .expected = 2, .filled = 3});
    must(is_all(block, LARGE, 3), "what the importer wrote is not here");
    CHECK(cuMemFree(block));
}

static void give_small(void)
{
    CUdeviceptr blocks[3];

    for (int i = 0; i < 3; i++) {
        blocks[i] = program_alloc(SMALL);
        fill(blocks[i], SMALL, (unsigned char)(10 + i));
    }
    send(blocks[1] + 100, (struct errand){.bytes = SMALL - 100, .expected = 11, .filled = 20});
    must(is_all(blocks[1], 100, 11) && is_all(blocks[1] + 100, SMALL - 100, 20) &&
             is_all(blocks[0], SMALL, 10) && is_all(blocks[2], SMALL, 12),
         "the importer wrote elsewhere");
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFree(blocks[i]));
}

/* Each block is new: what another process has open does not serve again. */
static void give_one_after_the_other(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block = program_alloc(LARGE);
        fill(block, LARGE, (unsigned char)(30 + i));
        send(block, (struct errand){
                        .bytes = LARGE, .expected = (unsigned char)(30 + i), .stays_open = true});
        CHECK(cuMemFree(block));
    }
}

int main(int count, char **arguments)
{
    int status = -1;

    if (count > 1 && strcmp(arguments[1], "import") == 0) {
        import();
        return 0;
    }
    start_importer(count > 1 && strcmp(arguments[1], "plain") == 0);
    program_start();
    give_reused();
    give_small();
    give_one_after_the_other();
    close(to_importer);
    must(wait(&status) > 0 && status == 0, "the importer failed");
    return 0;
}
