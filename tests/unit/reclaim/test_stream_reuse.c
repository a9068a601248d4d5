/* A program that runs ahead of its device: it allocates and frees in a stream's order, and no work
 * completes. What one stream frees serves it again at once, whatever the sizes; other streams get
 * none of it before its work is done. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_A UINT64_C(0xa000)
#define STREAM_COUNT 3
#define LIVE_MAX 2048
#define WORK_MAX 32768

struct live {
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint64_t model_address;
};

/* First fit in one endless piece of memory, without pages, alignment or fences. */
struct model {
    struct {
        uint64_t address;
        uint64_t bytes;
    } holes[LIVE_MAX + 2]; /* by address */
    unsigned count;
    uint64_t end;
};

/* A program, and the stream of each piece of work that it queued, by the driver's number. */
struct program {
    struct workbench bench;
    uint64_t random;
    bool is_registered; /* and its memory is mapped */
    unsigned stream_count;
    uint64_t ended[STREAM_COUNT]; /* streams that had the handle before */
    struct live live[LIVE_MAX];
    unsigned count;
    uint64_t live_bytes;
    uint64_t live_peak;
    struct model model;
    uint64_t stream_of[WORK_MAX];
};

static uint64_t draw(struct program *program, uint64_t below)
{
    program->random =
        program->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return gc_mix_u64(program->random) % below;
}

/* As many of each power of two, from 4 KiB to 64 MiB. */
static uint64_t draw_bytes(struct program *program)
{
    const uint64_t power = UINT64_C(4096) << draw(program, 14);
    return power + draw(program, power);
}

static uint64_t take_in_model(struct model *model, uint64_t bytes)
{
    unsigned i = 0;
    while (i < model->count && model->holes[i].bytes < bytes)
        i++;
    if (i == model->count) {
        model->end += bytes;
        return model->end - bytes;
    }
    const uint64_t address = model->holes[i].address;
    model->holes[i].address += bytes;
    model->holes[i].bytes -= bytes;
    return address;
}

static void remove_hole(struct model *model, unsigned i)
{
    model->count--;
    memmove(&model->holes[i], &model->holes[i + 1], (model->count - i) * sizeof(model->holes[0]));
}

static void give_in_model(struct model *model, uint64_t address, uint64_t bytes)
{
    unsigned i = 0;
    for (unsigned j = model->count; j > 0; j--)
        if (model->holes[j - 1].bytes == 0)
            remove_hole(model, j - 1);
    while (i < model->count && model->holes[i].address < address)
        i++;
    memmove(&model->holes[i + 1], &model->holes[i], (model->count - i) * sizeof(model->holes[0]));
    model->count++;
    model->holes[i].address = address;
    model->holes[i].bytes = bytes;
    if (i + 1 < model->count && address + bytes == model->holes[i + 1].address) {
        model->holes[i].bytes += model->holes[i + 1].bytes;
        remove_hole(model, i + 1);
    }
    if (i > 0 && model->holes[i - 1].address + model->holes[i - 1].bytes == address) {
        model->holes[i - 1].bytes += model->holes[i].bytes;
        remove_hole(model, i);
    }
}

static struct program *open_program(bool has_mapping, uint64_t seed, unsigned stream_count)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64 << 10),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = true};
    struct program *program = calloc(1, sizeof(*program));
    assert_non_null(program);
    workbench_open(&program->bench, &setup);
    program->bench.sim.is_endless = true;
    program->random = seed;
    program->stream_count = stream_count;
    return program;
}

static void close_program(struct program *program)
{
    workbench_retire(&program->bench);
    workbench_close(&program->bench);
    free(program);
}

/* The stream that has the handle now. */
static uint64_t identify(const struct program *program, uint64_t stream)
{
    return stream << 16 | program->ended[stream - STREAM_A];
}

/* Queued work of other streams uses nothing of the block. */
static void expect_ordered(const struct program *program, const struct live *live)
{
    const struct sim_driver *sim = &program->bench.sim;
    for (uint64_t i = 0; i < sim->use_count; i++) {
        const struct sim_use *use = &sim->uses[i];
        if (use->address < live->address + live->bytes && live->address < use->address + use->bytes)
            assert_int_equal(program->stream_of[use->number], identify(program, live->stream));
    }
}

static void use(struct program *program, const struct live *live)
{
    struct sim_driver *sim = &program->bench.sim;
    sim_driver_submit(sim, 1, live->address, live->bytes);
    assert_true(sim->next_work < WORK_MAX);
    program->stream_of[sim->next_work] = identify(program, live->stream);
}

/* Who registers memory finds each block in one piece. */
static void expect_one_piece(struct program *program, const struct live *live)
{
    const struct sim_piece piece =
        sim_driver_translate(&program->bench.sim, live->address, live->bytes);
    if (program->is_registered && live->bytes >= GC_MIB(2))
        assert_true(piece.bytes >= live->bytes);
}

static struct live *alloc_in(struct program *program, uint64_t bytes, uint64_t stream)
{
    const struct gc_request request = {
        .bytes = bytes, .stream = stream, .api = API_MALLOC, .is_ordered = true};
    struct live *live = &program->live[program->count++];
    *live = (struct live){.bytes = bytes, .stream = stream};
    assert_status(gc_alloc(program->bench.core, program->bench.contexts[0], &request,
                           &live->address, &program->bench.driver_code),
                  GC_OK);
    expect_ordered(program, live);
    expect_one_piece(program, live);
    use(program, live);
    live->model_address = take_in_model(&program->model, bytes);
    program->live_bytes += bytes;
    program->live_peak = gc_max_u64(program->live_peak, program->live_bytes);
    return live;
}

static void free_one(struct program *program, unsigned i)
{
    const struct live live = program->live[i];
    program->live[i] = program->live[--program->count];
    program->live_bytes -= live.bytes;
    give_in_model(&program->model, live.model_address, live.bytes);
    assert_status(gc_free_ordered(program->bench.core, live.address, NULL, live.stream, API_MALLOC,
                                  &program->bench.driver_code),
                  GC_OK);
}

/* Keeps up to `most` bytes live. */
static void step(struct program *program, uint64_t most)
{
    const uint64_t bytes = draw_bytes(program);
    while (program->count == LIVE_MAX || (program->count > 0 && program->live_bytes + bytes > most))
        free_one(program, (unsigned)draw(program, program->count));
    alloc_in(program, bytes, STREAM_A + draw(program, program->stream_count));
    if (draw(program, 3) == 0)
        free_one(program, (unsigned)draw(program, program->count));
}

static void reserves_little_more_than_is_live(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct program *program = open_program(true, seed, 1);
        for (unsigned i = 0; i < 8000; i++)
            step(program, GC_MIB(4096));
        workbench_check(&program->bench);
        const uint64_t reserved = program->bench.sim.peak_bytes;
        print_message("# seed %" PRIu64 ": reserved/live %.3f, first fit %.3f\n", seed,
                      (double)reserved / (double)program->live_peak,
                      (double)program->model.end / (double)program->live_peak);
        assert_true(reserved <= program->model.end + program->model.end / 16);
        close_program(program);
    }
}

/* Another stream has the handle then. */
static void end_stream(struct program *program, unsigned number)
{
    for (unsigned i = program->count; i > 0; i--)
        if (program->live[i - 1].stream == STREAM_A + number)
            free_one(program, i - 1);
    gc_core_close_stream(program->bench.core, STREAM_A + number);
    program->ended[number]++;
}

/* What else a program and its device do: the device passes the fences that it is asked for, the
 * program waits, a stream ends, memory of no stream is allocated and freed. */
static void do_else(struct program *program)
{
    struct workbench *bench = &program->bench;
    const uint64_t kind = draw(program, 100);
    bench->sim.is_prompt = kind < 10;
    if (kind == 10)
        workbench_retire(bench);
    else if (kind == 11)
        end_stream(program, (unsigned)draw(program, program->stream_count));
    else if (kind < 15)
        gc_reclaim_trim(bench->core, bench->device, draw(program, GC_MIB(256)));
    if (kind >= 30)
        return;
    const uint64_t bytes = draw_bytes(program);
    const uint64_t address = workbench_alloc(bench, 0, bytes); /* expected to be idle */
    sim_driver_submit(&bench->sim, 1, address, bytes);
    assert_true(bench->sim.next_work < WORK_MAX);
    program->stream_of[bench->sim.next_work] = 0;
    workbench_free(bench, address);
}

static void run_random(uint64_t seed, bool has_mapping, bool is_registered)
{
    struct program *program = open_program(has_mapping, seed, STREAM_COUNT);
    for (unsigned i = 0; i < 3000; i++) {
        if (is_registered && i == 500) {
            gc_export_expect_registration(program->bench.core);
            program->is_registered = has_mapping;
        }
        step(program, GC_MIB(512));
        do_else(program);
        if (i % 16 == 0)
            workbench_check(&program->bench);
    }
    close_program(program);
}

static void no_stream_gets_memory_before_its_work_is_done(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        run_random(seed, seed > 2, seed > 4);
}

static uint64_t pending_bytes(struct program *program)
{
    return workbench_figures(&program->bench).pending.current;
}

/* The device passes what it had at the last fence, and no more. */
static void pass_fences(struct program *program)
{
    program->bench.sim.is_prompt = true;
    (void)gc_fence_poll(program->bench.contexts[0]);
    (void)gc_defer_collect(program->bench.contexts[0]);
    program->bench.sim.is_prompt = false;
    workbench_check(&program->bench);
}

static void block_is_cut_and_coalesced_in_its_stream(void **state)
{
    (void)state;
    for (int has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct program *program = open_program(has_mapping != 0, 1, 2);
        const uint64_t base = alloc_in(program, GC_MIB(12), STREAM_A)->address;
        free_one(program, 0);
        /* Between 2 MiB and 1.5 MiB is nothing; the third is aligned to 2 MiB. */
        assert_int_equal(alloc_in(program, GC_MIB(2), STREAM_A)->address, base);
        assert_int_equal(alloc_in(program, GC_KIB(1536), STREAM_A)->address, base + GC_MIB(2));
        assert_int_equal(alloc_in(program, GC_MIB(4), STREAM_A)->address, base + GC_MIB(4));
        assert_int_equal(pending_bytes(program), GC_KIB(4608));
        workbench_check(&program->bench);
        const uint64_t other = alloc_in(program, GC_MIB(2), STREAM_A + 1)->address;
        assert_true(other < base || other >= base + GC_MIB(12));
        free_one(program, 1); /* the other one takes its place in the list */
        free_one(program, 0);
        free_one(program, 0);
        assert_int_equal(pending_bytes(program), GC_MIB(12));
        assert_int_equal(alloc_in(program, GC_MIB(12), STREAM_A)->address, base);
        close_program(program);
    }
}

/* Two neighbours of a segment, of `first` and `second` bytes, are freed, a fence behind the first
 * alone. Returns what is pending once the fence is passed. */
static uint64_t pend_beside_older(uint64_t first, uint64_t second)
{
    struct program *program = open_program(false, 1, 1);
    const uint64_t base = alloc_in(program, first, STREAM_A)->address;
    assert_int_equal(alloc_in(program, second, STREAM_A)->address, base + first);
    free_one(program, 0);
    (void)gc_fence_record(program->bench.contexts[0]);
    use(program, &program->live[0]);
    free_one(program, 0);
    assert_int_equal(pending_bytes(program), first + second);
    pass_fences(program);
    const uint64_t bytes = pending_bytes(program);
    close_program(program);
    return bytes;
}

static void free_keeps_no_more_older_memory_than_its_own_bytes(void **state)
{
    (void)state;
    assert_int_equal(pend_beside_older(GC_MIB(6), GC_MIB(2)), GC_MIB(2));
    assert_int_equal(pend_beside_older(GC_MIB(2), GC_MIB(6)), GC_MIB(8));
}

/* More than a stream has groups. */
static void blocks_of_many_epochs_serve_their_stream(void **state)
{
    enum { COUNT = 4 * GC_STREAM_GROUPS };
    struct program *program = open_program(false, 1, 1);
    uint64_t blocks[COUNT];
    (void)state;
    for (unsigned i = 0; i < 2 * COUNT; i++)
        alloc_in(program, 4096, STREAM_A);
    for (unsigned i = 0; i < COUNT; i++) /* none beside another */
        blocks[i] = program->live[2 * i].address;
    for (unsigned i = COUNT; i > 0; i--) {
        use(program, &program->live[2 * (i - 1)]);
        free_one(program, 2 * (i - 1));
        (void)gc_submit_advance(gc_core_submissions(program->bench.core));
        workbench_check(&program->bench);
    }
    assert_int_equal(pending_bytes(program), COUNT * 4096);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(alloc_in(program, 4096, STREAM_A)->address, blocks[i]);
    assert_int_equal(pending_bytes(program), 0);
    while (program->count > 0)
        free_one(program, program->count - 1);
    workbench_retire(&program->bench);
    assert_int_equal(pending_bytes(program), 0);
    close_program(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_is_cut_and_coalesced_in_its_stream),
        cmocka_unit_test(free_keeps_no_more_older_memory_than_its_own_bytes),
        cmocka_unit_test(blocks_of_many_epochs_serve_their_stream),
        cmocka_unit_test(reserves_little_more_than_is_live),
        cmocka_unit_test(no_stream_gets_memory_before_its_work_is_done),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stream_reuse", tests, NULL, NULL);
}
