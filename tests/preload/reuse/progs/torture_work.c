/* Effects on blocks: chosen, applied to the model, queued, and read back. */
#include "torture.h"

CUdeviceptr address_at(const struct block *block, size_t at)
{
    return block->address + at / block->width * block->pitch + at % block->width;
}

static size_t watched(const struct block *block)
{
    return block->width * block->height;
}

/* ---- chosen ---- */

static struct block *some_block(struct worker *worker, unsigned context, unsigned ways)
{
    const unsigned first = (unsigned)pick(worker, SLOTS);

    for (unsigned i = 0; i < SLOTS; i++) {
        struct block *block = worker->slots[(first + i) % SLOTS];
        if (block->address != 0 && block->is_written && may_touch(worker, block, context, ways))
            return block;
    }
    return NULL;
}

/* `bytes` in one row, at a multiple of `step`. */
static bool choose_place(struct worker *worker, const struct block *block, size_t bytes,
                         size_t step, size_t *at)
{
    if (bytes > block->width)
        return false;
    *at = pick(worker, block->height) * block->width +
          pick(worker, (block->width - bytes) / step + 1) * step;
    return true;
}

static size_t some_bytes(struct worker *worker)
{
    return chance(worker, 50) ? 4 * (1 + pick(worker, ROW_BYTES / 4)) : 1 + pick(worker, ROW_BYTES);
}

void fill_whole(struct worker *worker, struct block *block, struct effect *effect)
{
    static const unsigned elements[] = {4, 4, 2, 1};

    *effect = (struct effect){
        .kind = FILL, .to = block, .is_whole = true, .bytes = watched(block), .value = tag(worker)};
    effect->element = elements[pick(worker, 4)];
    while (block->width % effect->element != 0)
        effect->element /= 2;
}

static bool choose_fill(struct worker *worker, struct effect *effect)
{
    effect->element = 1u << pick(worker, 3);
    effect->bytes = effect->element * (1 + pick(worker, ROW_BYTES / effect->element));
    effect->value = tag(worker);
    return choose_place(worker, effect->to, effect->bytes, effect->element, &effect->to_at);
}

static bool choose_value(struct worker *worker, struct effect *effect)
{
    effect->element = chance(worker, 50) ? 8 : 4;
    effect->bytes = effect->element;
    effect->value = tag(worker);
    return choose_place(worker, effect->to, effect->bytes, 8, &effect->to_at);
}

static bool choose_copy(struct worker *worker, unsigned context, struct effect *effect)
{
    const struct world *world = worker->world;

    effect->from = some_block(worker, context, ANY_COPY);
    if (effect->from == NULL || effect->from == effect->to)
        return false;
    effect->to_context = world->contexts[effect->to->context].handle;
    effect->from_context = world->contexts[effect->from->context].handle;
    effect->bytes = some_bytes(worker);
    return choose_place(worker, effect->from, effect->bytes, 1, &effect->from_at) &&
           choose_place(worker, effect->to, effect->bytes, 1, &effect->to_at);
}

static unsigned ways_of(enum effect_kind kind)
{
    return kind == COPY      ? ANY_COPY
           : kind == COPY_IN ? TO_COPY_IN
           : kind == VALUE   ? ANY_VALUE
                             : TO_FILL;
}

bool choose_effect(struct worker *worker, unsigned context, struct effect *effect)
{
    static const enum effect_kind kinds[] = {FILL, FILL, COPY_IN, COPY, COPY, COPY, VALUE};

    *effect = (struct effect){.kind = kinds[pick(worker, sizeof(kinds) / sizeof(kinds[0]))]};
    if (effect->kind == VALUE && !with(worker, WITH_values))
        effect->kind = FILL;
    effect->to = some_block(worker, context, ways_of(effect->kind));
    if (effect->to == NULL)
        return false;
    switch (effect->kind) {
    case FILL:
        if (chance(worker, 40)) {
            fill_whole(worker, effect->to, effect);
            return true;
        }
        return choose_fill(worker, effect);
    case VALUE:
        return choose_value(worker, effect);
    case COPY_IN:
        effect->bytes = some_bytes(worker);
        effect->value = tag(worker);
        return choose_place(worker, effect->to, effect->bytes, 1, &effect->to_at);
    default:
        return choose_copy(worker, context, effect);
    }
}

/* ---- in the model ---- */

void apply(const struct effect *effect)
{
    unsigned char *to = effect->to == NULL ? NULL : effect->to->model + effect->to_at;

    switch (effect->kind) {
    case FILL:
    case VALUE:
    case TEMPORARY: {
        const unsigned element = effect->kind == FILL ? effect->element : 4;
        for (size_t i = 0; i < effect->bytes; i++)
            to[i] = (unsigned char)(effect->value >> i % element * 8);
        effect->to->is_written = effect->to->is_written || effect->is_whole;
        return;
    }
    case COPY_IN:
        memcpy(to, effect->host, effect->bytes);
        return;
    case COPY:
        memcpy(to, effect->from->model + effect->from_at, effect->bytes);
        return;
    case READ:
        return;
    }
}

void order_effect(struct worker *worker, unsigned lane, const struct effect *effect)
{
    if (effect->from != NULL)
        order_read(worker, lane, effect->from);
    if (effect->to != NULL)
        order_write(worker, lane, effect->to);
}

void note_effect(struct worker *worker, const struct effect *effect, struct access access)
{
    if (effect->from != NULL)
        note_read(worker, effect->from, access);
    if (effect->to != NULL)
        note_write(effect->to, access);
}

/* ---- queued ---- */

static struct stage *some_stage(struct worker *worker, const struct effect *effect)
{
    struct stage *stage = &worker->stages[worker->next_stage++ % STAGES];

    wait_for(worker, stage->use);
    for (size_t i = 0; i < effect->bytes; i++)
        stage->data[i] = (unsigned char)(effect->value >> i % 4 * 8);
    return stage;
}

/* Which of the calls that do the same. The legacy stream takes no batches of copies. */
static unsigned some_call(struct worker *worker, const struct effect *effect, unsigned lane)
{
    const bool has_batches = with(worker, WITH_batches);
    const bool has_copies =
        has_batches && lane % STREAMS != LEGACY && worker->world->driver_version >= 12080;
    const unsigned way = (unsigned)pick(worker, 8);
    const unsigned context = context_of(lane);
    unsigned ways = TO_ALL;

    if ((effect->to != NULL && effect->to->context != context) ||
        (effect->from != NULL && effect->from->context != context))
        ways = worker->world->foreign;
    if (effect->kind == VALUE)
        return has_batches && (way % 3 == 0 || (ways & TO_VALUE) == 0) && (ways & TO_VALUE_BATCH)
                   ? 0
                   : 1;
    if (effect->kind != COPY)
        return way == 5 && !has_copies ? 0 : way;
    if (has_copies && (ways & TO_COPY_BATCH) && (way == 5 || (ways & TO_COPY) == 0))
        return 5;
    if ((ways & TO_COPY_PEER) && (way >= 6 || (ways & TO_COPY) == 0))
        return 6 + way % 2;
    return way % 5;
}

static bool queue_at_once(struct worker *worker, unsigned lane, const struct effect *effect)
{
    const unsigned place = lane % STREAMS;

    if (!with(worker, WITH_synchronous) || worker->is_holding || !chance(worker, 30) ||
        (place != LEGACY && place != PER_THREAD) ||
        (effect->kind == COPY && effect->to->context != effect->from->context))
        return false;
    const CUresult result = (place == LEGACY ? &legacy_calls : &thread_calls)
                                ->work_at_once(effect, (unsigned)pick(worker, 2));
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        return false;
    CHECK(result);
    return true;
}

void queue(struct worker *worker, unsigned lane, struct effect *effect)
{
    struct stage *stage = effect->kind == COPY_IN ? some_stage(worker, effect) : NULL;

    if (stage != NULL)
        effect->host = stage->data;
    order_effect(worker, lane, effect);
    enter(worker, context_of(lane));
    if (!queue_at_once(worker, lane, effect)) {
        const struct calls *calls = some_calls(worker);
        CHECK(calls->work(effect, some_call(worker, effect, lane), stream_of(worker, lane, calls)));
    }
    const struct access access = add_work(worker, lane);
    if (stage != NULL)
        stage->use = access;
    note_effect(worker, effect, access);
    apply(effect);
}

/* ---- read back ---- */

void check_block(struct worker *worker, unsigned lane, struct block *block)
{
    struct effect effect = {.kind = READ, .from = block};

    if (worker->check_count == CHECKS)
        end_check(worker);
    struct check *check = &worker->checks[(worker->first_check + worker->check_count++) % CHECKS];
    effect.host = check->data;
    check->bytes = watched(block);
    memcpy(check->expected, block->model, check->bytes);
    check->step = worker->step;
    check->address = block->address;
    check->block_bytes = block->bytes;
    check->how = block->how;
    check->context = block->context;
    queue(worker, lane, &effect);
    check->done = block->reads[block->read_count - 1];
    atomic_fetch_add_explicit(&worker->world->checks, 1, memory_order_relaxed);
}

static void complain(struct worker *worker, const struct check *check, size_t at)
{
    uint32_t found = 0, expected = 0;
    const size_t word = at & ~(size_t)3;

    if (atomic_fetch_add(&worker->world->wrong, 1) >= 8)
        return;
    memcpy(&found, check->data + word, 4);
    memcpy(&expected, check->expected + word, 4);
    fprintf(stderr,
            "wrong bytes: seed %llu thread %u step %llu: at %zu found %08x (as written by thread "
            "%u in step %u of 65536), expected %08x; block 0x%llx of %zu bytes, way %d, context "
            "%u\n",
            (unsigned long long)worker->world->seed, worker->index, (unsigned long long)check->step,
            at, found, (found >> 28) - 1, found >> 12 & 0xffff, expected,
            (unsigned long long)check->address, check->block_bytes, (int)check->how,
            check->context);
}

/* Looks at what the oldest check brought. */
void end_check(struct worker *worker)
{
    struct check *check = &worker->checks[worker->first_check];

    wait_for(worker, check->done);
    for (size_t i = 0; i < check->bytes; i++)
        if (check->data[i] != check->expected[i]) {
            complain(worker, check, i);
            break;
        }
    worker->first_check = (worker->first_check + 1) % CHECKS;
    worker->check_count--;
}

void end_checks(struct worker *worker)
{
    while (worker->check_count > 0)
        end_check(worker);
}
