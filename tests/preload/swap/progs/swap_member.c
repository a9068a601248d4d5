/* link: -l:libcuda.so.1 */
/* A member of a group whose members take turns in device memory: swap_member BYTES [NAME=VALUE]...
 *
 * Holds BYTES in blocks of random sizes, whose content is a function of the process, the chunk and
 * its version, and serves requests. A request reads back all that it touches and checks it, copies
 * new content to half of it, launches a kernel, has work of kernel_us on its stream, copies between
 * blocks on the device, and checks all once more. Without whole=1 only the first and the last word
 * of each chunk are written, so that a run is not limited by this machine's own memory.
 *
 * NAME: seed, block (most bytes of a block), kernel_us, touch (percent of the blocks that a request
 * touches), chunk (bytes of whole words, two or more), churn (percent of requests that free a block
 * and allocate another), whole (0, 1), refused (1: out of memory is counted, not an error),
 * patience_s (for a context), module (0: no kernel is loaded and launched, only kernel_us are
 * spent), weights (percent of the blocks that are declared unchanging and no more written).
 *
 * tenants=N: so many threads, each a tenant that holds BYTES, do all that at once; with
 * "requests N TENANT" that one alone does, from 1.
 *
 * Lines of input: "requests N"; "busy": requests until the next line; "random MEAN_US": requests at
 * random times until the next line; "idle"; "fork MS": a child that lives so long; "exec": starts
 * itself anew; "spoil": one word is changed behind the program's own back; "quit": ends and frees
 * nothing; "end": frees all and ends, as the end of the input does. Output: "ready AT_US held
 * BYTES"; "request N at US took US first US", the time until the first block was read; "done N
 * held BYTES" after the requests of one line; "forked MS"; "end requests N refused N". A wrong word
 * ends it with status 3.
 */
#define _GNU_SOURCE
#include "tests/preload/progs/public.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS_MAX 4096
#define SMALL_BLOCKS 4 /* of less than a chunk */
#define COPY_CHUNKS_MAX 16
#define CHUNK_BYTES_MIN (2 * sizeof(uint64_t)) /* its first and its last word */
#define STATUS_WRONG 3
#define TENANTS_MAX 8

struct block {
    CUdeviceptr address;
    size_t chunk_bytes; /* of each chunk */
    size_t chunks;
    uint64_t *stamps; /* of each chunk: its content */
    uint64_t *image;  /* host memory for copies */
    bool is_touched;
    bool is_weights;
};

static struct {
    uint64_t bytes, seed, block, kernel_us, touch, churn, whole, refused, patience_s, module, chunk,
        tenants, weights;
} options = {.seed = 1,
             .block = UINT64_C(64) << 20,
             .touch = 100,
             .patience_s = 60,
             .module = 1,
             .chunk = 64 << 10};

static atomic_size_t process_bytes; /* held by all threads */

/* Of each thread, which is one tenant: */
static _Thread_local struct block blocks[BLOCKS_MAX];
static _Thread_local size_t block_count;
static _Thread_local CUstream stream;
static _Thread_local uint64_t random_state;
static CUcontext context;
static CUfunction kernel;
static _Atomic uint64_t version, request_count, refused_count;
static char **arguments;
static char line[128];
static size_t line_length;

static const char kernel_text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry touch(.param .u64 block)\n{\n    ret;\n}\n";

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void sleep_us(uint64_t us)
{
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    while (nanosleep(&pause, &pause) != 0)
        ;
}

/* splitmix64 (Vigna 2015) */
static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t draw(uint64_t below)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(random_state) % below;
}

/* ---- content ---- */

static uint64_t word_at(uint64_t stamp, size_t index)
{
    return (stamp + index) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t new_stamp(void)
{
    return mix(((uint64_t)getpid() << 40) + version++);
}

static size_t image_words(const struct block *block)
{
    return options.whole ? block->chunks * block->chunk_bytes / sizeof(uint64_t)
                         : 2 * block->chunks;
}

/* One word of each chunk, at the same place in each, between the block and `words`. */
static void copy_words(const struct block *block, size_t offset, uint64_t *words, bool to_device)
{
    const CUDA_MEMCPY2D copy = {
        .srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = to_device ? words : NULL,
        .srcDevice = to_device ? 0 : block->address + offset,
        .srcPitch = to_device ? sizeof(uint64_t) : block->chunk_bytes,
        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = to_device ? NULL : words,
        .dstDevice = to_device ? block->address + offset : 0,
        .dstPitch = to_device ? block->chunk_bytes : sizeof(uint64_t),
        .WidthInBytes = sizeof(uint64_t),
        .Height = block->chunks,
    };
    CHECK(cuMemcpy2DAsync(&copy, stream));
}

static size_t last_word(const struct block *block)
{
    return block->chunk_bytes / sizeof(uint64_t) - 1;
}

static void copy_image(const struct block *block, bool to_device)
{
    const size_t bytes = image_words(block) * sizeof(uint64_t);
    if (!options.whole) {
        copy_words(block, 0, block->image, to_device);
        copy_words(block, last_word(block) * sizeof(uint64_t), block->image + block->chunks,
                   to_device);
    } else if (to_device) {
        CHECK(cuMemcpyHtoDAsync(block->address, block->image, bytes, stream));
    } else {
        CHECK(cuMemcpyDtoHAsync(block->image, block->address, bytes, stream));
    }
}

/* The word of the image that holds word `index` of a chunk; without whole=1 the first and the last
 * only. */
static uint64_t *image_word(const struct block *block, size_t chunk, size_t index)
{
    if (options.whole)
        return &block->image[chunk * (last_word(block) + 1) + index];
    return &block->image[index == 0 ? chunk : block->chunks + chunk];
}

static size_t word_step(const struct block *block)
{
    return options.whole ? 1 : last_word(block);
}

static void write_block(struct block *block)
{
    for (size_t chunk = 0; chunk < block->chunks; chunk++) {
        block->stamps[chunk] = new_stamp();
        for (size_t index = 0; index <= last_word(block); index += word_step(block))
            *image_word(block, chunk, index) = word_at(block->stamps[chunk], index);
    }
    copy_image(block, true);
}

static void check_block(struct block *block)
{
    memset(block->image, 0x5a, image_words(block) * sizeof(uint64_t));
    copy_image(block, false);
    CHECK(cuStreamSynchronize(stream));
    for (size_t chunk = 0; chunk < block->chunks; chunk++) {
        for (size_t index = 0; index <= last_word(block); index += word_step(block)) {
            const uint64_t seen = *image_word(block, chunk, index);
            if (seen == word_at(block->stamps[chunk], index))
                continue;
            fprintf(stderr,
                    "%d: request %llu: wrong word %zu of chunk %zu of block %zu of %zu bytes at "
                    "%#llx: %#llx\n",
                    (int)getpid(), (unsigned long long)request_count, index, chunk,
                    (size_t)(block - blocks), block->chunks * block->chunk_bytes,
                    (unsigned long long)block->address, (unsigned long long)seen);
            exit(STATUS_WRONG);
        }
    }
}

/* ---- blocks ---- */

/* False: refused, and that is no error. */
static bool allocate(struct block *block, size_t bytes)
{
    block->chunk_bytes = bytes < options.chunk ? (bytes + CHUNK_BYTES_MIN) / 8 * 8 : options.chunk;
    block->chunks = bytes < options.chunk ? 1 : bytes / options.chunk;
    const CUresult result = cuMemAlloc(&block->address, block->chunks * block->chunk_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && options.refused) {
        refused_count++;
        return false;
    }
    program_check(result, "cuMemAlloc", __LINE__);
    block->stamps = malloc(block->chunks * sizeof(*block->stamps));
    block->image = malloc(image_words(block) * sizeof(*block->image));
    if (block->stamps == NULL || block->image == NULL)
        exit(EXIT_FAILURE);
    process_bytes += block->chunks * block->chunk_bytes;
    write_block(block);
    CHECK(cuStreamSynchronize(stream));
    block->is_weights = options.weights != 0 && draw(100) < options.weights;
    if (block->is_weights)
        EXPECT_STATUS(gc.gpucache_advise((const void *)(uintptr_t)block->address,
                                         block->chunks * block->chunk_bytes,
                                         GPUCACHE_ADVICE_UNCHANGING),
                      GPUCACHE_OK);
    return true;
}

static void release(struct block *block)
{
    process_bytes -= block->chunks * block->chunk_bytes;
    check_block(block);
    CHECK(cuMemFree(block->address));
    free(block->stamps);
    free(block->image);
}

static size_t held_bytes(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < block_count; i++)
        bytes += blocks[i].chunks * blocks[i].chunk_bytes;
    return bytes;
}

/* Blocks of random sizes until BYTES are held, or until one is refused. */
static void fill_up(void)
{
    size_t held = held_bytes();
    while (held + options.chunk <= options.bytes && block_count < BLOCKS_MAX) {
        const size_t left = options.bytes - held;
        size_t bytes = options.chunk + draw(options.block);
        bytes = block_count < SMALL_BLOCKS ? 1 + draw(options.chunk - 1) : bytes;
        if (!allocate(&blocks[block_count], bytes < left ? bytes : left))
            return;
        held += blocks[block_count].chunks * blocks[block_count].chunk_bytes;
        block_count++;
    }
}

static void churn(void)
{
    if (block_count > SMALL_BLOCKS && draw(100) < options.churn) {
        struct block *victim = &blocks[draw(block_count)];
        release(victim);
        *victim = blocks[--block_count];
    }
    if (options.churn != 0)
        fill_up();
}

/* ---- requests ---- */

static void CUDA_CB take_time(void *unused)
{
    (void)unused;
    sleep_us(options.kernel_us);
}

static void compute(void)
{
    const CUdeviceptr first = block_count != 0 ? blocks[0].address : 0;
    if (kernel != NULL)
        CHECK(
            cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){(void *)&first}, NULL));
    if (options.kernel_us != 0)
        CHECK(cuLaunchHostFunc(stream, take_time, NULL));
}

/* Chunks of one block become those of another one. */
static void copy_between(void)
{
    struct block *from = &blocks[draw(block_count)], *to = &blocks[draw(block_count)];
    const size_t chunks = from->chunks < to->chunks ? from->chunks : to->chunks;
    if (from == to || to->is_weights || !from->is_touched || !to->is_touched ||
        from->chunk_bytes != to->chunk_bytes)
        return;
    const size_t count = 1 + draw(chunks < COPY_CHUNKS_MAX ? chunks : COPY_CHUNKS_MAX);
    const size_t source = draw(from->chunks - count + 1), target = draw(to->chunks - count + 1);
    CHECK(cuMemcpyDtoDAsync(to->address + target * to->chunk_bytes,
                            from->address + source * from->chunk_bytes, count * to->chunk_bytes,
                            stream));
    memcpy(&to->stamps[target], &from->stamps[source], count * sizeof(*to->stamps));
}

static void serve_request(void)
{
    const uint64_t begin_us = now_us();
    uint64_t first_us = 0;
    for (size_t i = 0; i < block_count; i++) {
        blocks[i].is_touched = draw(100) < options.touch;
        if (!blocks[i].is_touched)
            continue;
        check_block(&blocks[i]);
        first_us = first_us == 0 ? now_us() - begin_us : first_us;
    }
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].is_touched && !blocks[i].is_weights && draw(2) == 0)
            write_block(&blocks[i]);
    compute();
    for (unsigned i = 0; i < 4 && block_count != 0; i++)
        copy_between();
    CHECK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].is_touched)
            check_block(&blocks[i]);
    churn();
    printf("request %llu at %llu took %llu first %llu\n", (unsigned long long)++request_count,
           (unsigned long long)begin_us, (unsigned long long)(now_us() - begin_us),
           (unsigned long long)first_us);
    fflush(stdout);
}

/* ---- tenants ---- */

struct worker {
    pthread_t thread;
    unsigned number;
    enum { FILL, SERVE, END } job;
    unsigned long long requests;
};

static struct worker workers[TENANTS_MAX];
static pthread_barrier_t begin_jobs, end_jobs;

static void start_stream(void)
{
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void release_all(void)
{
    while (block_count != 0)
        release(&blocks[--block_count]);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    char name[16];
    gpucache_tenant tenant;
    snprintf(name, sizeof(name), "tenant%u", worker->number);
    CHECK(cuCtxSetCurrent(context));
    EXPECT_STATUS(gc.gpucache_tenant_register(name, 0, GPUCACHE_NO_LIMIT, &tenant), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(tenant, NULL), GPUCACHE_OK);
    random_state = mix(options.seed + worker->number);
    start_stream();
    for (bool has_ended = false; !has_ended;) {
        pthread_barrier_wait(&begin_jobs);
        if (worker->job == FILL)
            fill_up();
        for (unsigned long long i = 0; worker->job == SERVE && i < worker->requests; i++)
            serve_request();
        has_ended = worker->job == END;
        if (has_ended) {
            release_all();
            EXPECT_STATUS(gc.gpucache_tenant_set_current(0, NULL), GPUCACHE_OK);
            EXPECT_STATUS(gc.gpucache_tenant_unregister(tenant), GPUCACHE_OK);
        }
        pthread_barrier_wait(&end_jobs);
    }
    return NULL;
}

/* All tenants do it, at the same time; `only`: of these alone requests are served, 0: of all. */
static void do_job(int job, unsigned long long requests, unsigned long long only)
{
    for (unsigned i = 0; i < options.tenants; i++) {
        workers[i].job = job;
        workers[i].requests = only == 0 || only == i + 1 ? requests : 0;
    }
    pthread_barrier_wait(&begin_jobs);
    pthread_barrier_wait(&end_jobs);
}

static void start_tenants(void)
{
    if (options.tenants > TENANTS_MAX || gpucache_load(NULL, &gc) != GPUCACHE_OK)
        exit(EXIT_FAILURE);
    pthread_barrier_init(&begin_jobs, NULL, (unsigned)options.tenants + 1);
    pthread_barrier_init(&end_jobs, NULL, (unsigned)options.tenants + 1);
    for (unsigned i = 0; i < options.tenants; i++) {
        workers[i].number = i;
        EXPECT(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    do_job(FILL, 0, 0);
}

/* ---- commands ---- */

/* Waits up to that long for input; reads what there is. True: there is a whole line, or the end of
 * the input, which counts as "end". The input is read without a buffer of stdio's, which an exec
 * would lose. */
static bool hears(int timeout_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, timeout_ms) > 0) {
        char letter = '\0';
        if (read(STDIN_FILENO, &letter, 1) != 1) {
            strcpy(line, "end");
            return true;
        }
        if (letter == '\n' || line_length + 1 == sizeof(line)) {
            line[line_length] = '\0';
            line_length = 0;
            return true;
        }
        line[line_length++] = letter;
    }
    return false;
}

static void serve_until_heard(uint64_t mean_us)
{
    do {
        if (options.tenants != 0)
            do_job(SERVE, 1, 0);
        else
            serve_request();
        /* from 0 to twice the mean */
        if (mean_us != 0 && hears((int)(draw(2 * mean_us) / 1000)))
            return;
    } while (!hears(0));
}

static void fork_child(uint64_t ms)
{
    const pid_t child = fork();
    if (child == 0) {
        (void)cuCtxSynchronize(); /* an error here, as CUDA has it after a fork */
        sleep_us(ms * 1000);
        _exit(EXIT_SUCCESS);
    }
    printf("forked %llu\n", (unsigned long long)ms);
    fflush(stdout);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* So that a test can see that a wrong word is found. */
static void spoil(void)
{
    const uint64_t word = ~word_at(blocks[block_count - 1].stamps[0], 0);
    CHECK(cuMemcpyHtoD(blocks[block_count - 1].address, &word, sizeof(word)));
}

static void end_well(void)
{
    if (options.tenants != 0)
        do_job(END, 0, 0);
    release_all();
    printf("end requests %llu refused %llu\n", (unsigned long long)request_count,
           (unsigned long long)refused_count);
    exit(EXIT_SUCCESS);
}

static void obey(void)
{
    unsigned long long number = 0, only = 0;
    char word[16] = "";
    (void)sscanf(line, "%15s %llu %llu", word, &number, &only);
    if (strcmp(word, "requests") == 0 && options.tenants != 0) {
        do_job(SERVE, number, only);
        printf("done %llu held %zu\n", number, process_bytes);
        fflush(stdout);
    } else if (strcmp(word, "requests") == 0) {
        for (unsigned long long i = 0; i < number; i++)
            serve_request();
        printf("done %llu held %zu\n", number, process_bytes);
        fflush(stdout);
    } else if (strcmp(word, "busy") == 0 || strcmp(word, "random") == 0) {
        serve_until_heard(strcmp(word, "busy") == 0 ? 0 : number + 1000);
        obey(); /* the line that ended it */
    } else if (strcmp(word, "fork") == 0) {
        fork_child(number);
    } else if (strcmp(word, "exec") == 0) {
        execv("/proc/self/exe", arguments);
        exit(EXIT_FAILURE);
    } else if (strcmp(word, "spoil") == 0 && block_count != 0) {
        spoil();
    } else if (strcmp(word, "quit") == 0) {
        exit(EXIT_SUCCESS);
    } else if (strcmp(word, "end") == 0) {
        end_well();
    } else if (strcmp(word, "idle") != 0) {
        fprintf(stderr, "%s is no command\n", line);
        exit(EXIT_FAILURE);
    }
}

/* ---- start ---- */

static void read_option(const char *text)
{
    static const struct {
        const char *name;
        uint64_t *value;
    } names[] = {{"seed=", &options.seed},           {"block=", &options.block},
                 {"kernel_us=", &options.kernel_us}, {"touch=", &options.touch},
                 {"churn=", &options.churn},         {"whole=", &options.whole},
                 {"refused=", &options.refused},     {"patience_s=", &options.patience_s},
                 {"module=", &options.module},       {"chunk=", &options.chunk},
                 {"tenants=", &options.tenants},     {"weights=", &options.weights}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(names[i].name);
        if (strncmp(text, names[i].name, length) == 0) {
            *names[i].value = strtoull(text + length, NULL, 0);
            return;
        }
    }
    fprintf(stderr, "%s is no option\n", text);
    exit(2);
}

/* A context may have to wait until a process that was killed is gone. */
static void start(void)
{
    const uint64_t end_us = now_us() + options.patience_s * 1000000;
    CUmodule module;
    CHECK(cuInit(0));
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    for (; result == CUDA_ERROR_OUT_OF_MEMORY && now_us() < end_us; sleep_us(20000))
        result = cuDevicePrimaryCtxRetain(&context, 0);
    program_check(result, "cuDevicePrimaryCtxRetain", __LINE__);
    CHECK(cuCtxSetCurrent(context));
    start_stream();
    if (options.module != 0) {
        CHECK(cuModuleLoadData(&module, kernel_text));
        CHECK(cuModuleGetFunction(&kernel, module, "touch"));
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    arguments = argv;
    options.bytes = strtoull(argv[1], NULL, 0);
    for (int i = 2; i < argc; i++)
        read_option(argv[i]);
    if (options.bytes == 0 || options.block == 0 || options.chunk % sizeof(uint64_t) != 0 ||
        options.chunk < CHUNK_BYTES_MIN)
        return 2;
    random_state = mix(options.seed);
    if (options.weights != 0)
        EXPECT(gpucache_load(NULL, &gc) == GPUCACHE_OK);
    start();
    if (options.tenants != 0)
        start_tenants();
    else
        fill_up();
    printf("ready %llu held %zu\n", (unsigned long long)now_us(), process_bytes);
    fflush(stdout);
    for (;;)
        if (hears(-1))
            obey();
}
