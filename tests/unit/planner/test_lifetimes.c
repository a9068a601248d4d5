/* Lifetimes of small graphs made by hand: what each buffer is, and the peaks, counted on paper.
 * Sizes are bytes and the alignment is 1 unless a test is about it. */
#include "tests/unit/cmocka_all.h"

#include "core/graph/ops.h"
#include "core/planner/lifetimes.h"

#include <string.h>

#define ROOM 64
#define NONE GC_GRAPH_NONE

/* ---- making a graph ---- */

struct sketch {
    struct gc_graph graph;
    struct gc_graph_value values[ROOM];
    struct gc_dim dims[ROOM];
    struct gc_graph_node nodes[ROOM];
    struct gc_graph_scope scopes[8];
    uint32_t lists[512];
    uint32_t list_used;
    uint32_t of_scope[8][3][ROOM]; /* nodes, inputs, outputs */
    struct gc_graph_attribute attributes[ROOM][2];
};

static struct sketch sketch;
static const struct gc_op op_none = {.memory = GC_OP_NONE};
static const struct gc_op op_view = {.memory = GC_OP_VIEW};
static const struct gc_op op_in_place = {.memory = GC_OP_INPLACE};

static uint32_t scope(uint32_t parent, uint32_t node)
{
    const uint32_t index = sketch.graph.scope_count++;
    struct gc_graph_scope *made = &sketch.scopes[index];
    *made = (struct gc_graph_scope){.name = "", .parent = parent, .node = node};
    made->nodes = sketch.of_scope[index][0];
    made->inputs = sketch.of_scope[index][1];
    made->outputs = sketch.of_scope[index][2];
    return index;
}

static void begin(void)
{
    memset(&sketch, 0, sizeof(sketch));
    sketch.graph.values = sketch.values;
    sketch.graph.nodes = sketch.nodes;
    sketch.graph.scopes = sketch.scopes;
    scope(NONE, NONE);
}

static uint32_t value(uint64_t bytes)
{
    const uint32_t index = sketch.graph.value_count++;
    sketch.dims[index] = (struct gc_dim){.kind = GC_DIM_NUMBER, .number = (int64_t)bytes};
    sketch.values[index] = (struct gc_graph_value){
        .name = "",
        .producer = NONE,
        .type = {.kind = GC_TYPE_TENSOR,
                 .dtype = GC_DTYPE_U8,
                 .shape = {.is_known = true, .rank = 1, .dims = &sketch.dims[index]}}};
    return index;
}

static uint32_t input_of(uint32_t in, uint64_t bytes)
{
    const uint32_t index = value(bytes);
    sketch.values[index].is_input = true;
    sketch.values[index].scope = in;
    sketch.of_scope[in][1][sketch.scopes[in].input_count++] = index;
    return index;
}

static uint32_t input(uint64_t bytes)
{
    return input_of(0, bytes);
}

static uint32_t weight(uint64_t bytes)
{
    const uint32_t index = value(bytes);
    sketch.values[index].is_initializer = true;
    sketch.values[index].is_constant = true;
    return index;
}

static void output_of(uint32_t in, uint32_t index)
{
    sketch.values[index].is_output = true;
    sketch.of_scope[in][2][sketch.scopes[in].output_count++] = index;
}

static void output(uint32_t index)
{
    output_of(0, index);
}

static const uint32_t *list(const uint32_t *items, uint32_t count)
{
    uint32_t *copy = sketch.lists + sketch.list_used;
    memcpy(copy, items, count * sizeof(*items));
    sketch.list_used += count;
    return copy;
}

#define LIST(...) list(ITEMS(__VA_ARGS__), COUNT(__VA_ARGS__)), COUNT(__VA_ARGS__)
#define ITEMS(...) ((const uint32_t[]){__VA_ARGS__})
#define COUNT(...) ((uint32_t)(sizeof(ITEMS(__VA_ARGS__)) / sizeof(uint32_t)))

static uint32_t node(uint32_t in, const char *op, const struct gc_op *rule, const uint32_t *inputs,
                     uint32_t input_count, const uint32_t *outputs, uint32_t output_count)
{
    const uint32_t index = sketch.graph.node_count++;
    sketch.nodes[index] = (struct gc_graph_node){.name = "",
                                                 .op = op,
                                                 .domain = "",
                                                 .rule = rule,
                                                 .scope = in,
                                                 .opset = 17,
                                                 .inputs = inputs,
                                                 .input_count = input_count,
                                                 .outputs = outputs,
                                                 .output_count = output_count,
                                                 .attributes = sketch.attributes[index]};
    for (uint32_t i = 0; i < output_count; i++) {
        if (outputs[i] != NONE) {
            sketch.values[outputs[i]].producer = index;
            sketch.values[outputs[i]].scope = in;
        }
    }
    sketch.of_scope[in][0][sketch.scopes[in].node_count++] = index;
    return index;
}

/* One input, one output. */
static uint32_t step_in(uint32_t in, const struct gc_op *rule, uint32_t from, uint64_t bytes)
{
    const uint32_t made = value(bytes);
    node(in, "Op", rule, LIST(from), LIST(made));
    return made;
}

static uint32_t step(const struct gc_op *rule, uint32_t from, uint64_t bytes)
{
    return step_in(0, rule, from, bytes);
}

static uint32_t step2(const struct gc_op *rule, uint32_t a, uint32_t b, uint64_t bytes)
{
    const uint32_t made = value(bytes);
    node(0, "Op", rule, LIST(a, b), LIST(made));
    return made;
}

static uint32_t inner(uint32_t of)
{
    struct gc_graph_node *outer = &sketch.nodes[of];
    const uint32_t made = scope(outer->scope, of);
    struct gc_graph_attribute *attribute = &sketch.attributes[of][outer->attribute_count++];
    *attribute =
        (struct gc_graph_attribute){.name = "body", .kind = GC_ATTRIBUTE_GRAPH, .count = 1};
    attribute->scope = made;
    return made;
}

/* ---- asking ---- */

static struct gc_region region;
static struct gc_lifetimes found;

static uint64_t plan_by(const struct gc_lifetimes_rules *rules)
{
    struct gc_placement placement;
    gc_region_fini(&region);
    gc_region_init(&region, UINT64_C(1) << 26);
    assert_int_equal(gc_lifetimes_find(&region, &sketch.graph, rules, &found), GC_OK);
    const struct gc_placement_problem problem = {
        found.buffers + found.base_count, found.count - found.base_count, GC_PLACEMENT_UNLIMITED};
    const struct gc_placement_options options = {.node_max = 100000};
    assert_int_equal(gc_solve_placement(&region, &problem, &options, &placement), GC_OK);
    assert_int_equal(placement.peak_bytes, placement.lower_bound_bytes);
    return found.base_bytes + placement.peak_bytes;
}

static struct gc_lifetimes_rules rules_1(void)
{
    struct gc_lifetimes_rules rules;
    gc_lifetimes_rules_init(&rules);
    rules.alignment = 1;
    return rules;
}

static uint64_t plan(void)
{
    const struct gc_lifetimes_rules rules = rules_1();
    return plan_by(&rules);
}

static const struct gc_life_tensor *tensor(uint32_t index)
{
    for (uint32_t i = 0; i < found.tensor_count; i++) {
        if (found.tensors[i].value == index)
            return &found.tensors[i];
    }
    return NULL;
}

static uint32_t buffer_of(uint32_t index)
{
    assert_non_null(tensor(index));
    return tensor(index)->buffer;
}

static void expect_life(uint32_t index, uint64_t lower, uint64_t upper)
{
    const struct gc_placement_buffer *buffer = &found.buffers[buffer_of(index)];
    assert_int_equal(buffer->lower, lower);
    assert_int_equal(buffer->upper, upper);
}

/* ---- plain graphs ---- */

static void empty_graph_takes_nothing(void **state)
{
    (void)state;
    begin();
    assert_int_equal(plan(), 0);
    assert_int_equal(found.count, 0);
    assert_int_equal(found.step_count, 0);
}

static void input_that_is_output_counts_once(void **state)
{
    (void)state;
    begin();
    output(input(40));
    assert_int_equal(plan(), 40);
    assert_int_equal(found.count, 1);
}

/* x 100, a 100, b 200, y 50: x and y throughout; a and b are there together. */
static void chain(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(100), 100);
    const uint32_t b = step(&op_none, a, 200);
    const uint32_t y = step(&op_none, b, 50);
    output(y);
    assert_int_equal(plan(), 100 + 50 + 100 + 200);
    assert_int_equal(found.total_bytes, 450);
    expect_life(a, 0, 2);
    expect_life(b, 1, 3);
    expect_life(y, 0, 3);
    assert_int_equal(found.base_bytes, 150);
}

/* Six of 100: two of them at a time. */
static void long_chain_alternates(void **state)
{
    (void)state;
    begin();
    uint32_t at = input(10);
    for (unsigned i = 0; i < 6; i++)
        at = step(&op_none, at, 100);
    output(step(&op_none, at, 10));
    assert_int_equal(plan(), 20 + 200);
    assert_int_equal(found.total_bytes, 620);
}

/* x → a, b → y: both arms at once, with the second arm's own step: a 100, b 60, then y. */
static void diamond(void **state)
{
    (void)state;
    begin();
    const uint32_t x = input(8);
    const uint32_t top = step(&op_none, x, 30);
    const uint32_t a = step(&op_none, top, 100);
    const uint32_t b = step(&op_none, top, 60);
    output(step2(&op_none, a, b, 100));
    assert_int_equal(plan(), 8 + 100 + 30 + 100 + 60);
}

/* A residual keeps x alive over the block: 100 + 400 + 400, not 100 + 400. */
static void residual(void **state)
{
    (void)state;
    begin();
    const uint32_t x = step(&op_none, input(4), 100);
    const uint32_t a = step(&op_none, x, 400);
    const uint32_t b = step(&op_none, a, 400);
    const uint32_t c = step(&op_none, b, 100);
    const uint32_t sum = step2(&op_in_place, x, c, 100);
    output(step(&op_none, sum, 4));
    assert_int_equal(plan(), 8 + 100 + 400 + 400);
    assert_int_equal(buffer_of(sum), buffer_of(x));
    expect_life(x, 0, 6);
}

/* One table for the first and the last layer. */
static void tied_weights_are_there_once(void **state)
{
    (void)state;
    begin();
    const uint32_t table = weight(1000);
    const uint32_t a = step2(&op_none, input(8), table, 64);
    output(step2(&op_none, a, table, 200));
    assert_int_equal(plan(), 1000 + 8 + 200 + 64);
    assert_int_equal(found.role_count[GC_LIFE_WEIGHT], 1);
    assert_int_equal(found.role_bytes[GC_LIFE_WEIGHT], 1000);
}

static void weights_that_nobody_reads_are_not_planned(void **state)
{
    (void)state;
    begin();
    weight(1000);
    output(step(&op_none, input(8), 8));
    assert_int_equal(plan(), 16);
    assert_int_equal(found.folded_count, 1);
}

/* An output that nobody reads is there while it is made: 50 + 500 in the second step. */
static void dead_outputs_live_for_their_step(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 50);
    const uint32_t y = value(50);
    const uint32_t mask = value(500);
    node(0, "Dropout", &op_none, LIST(a), LIST(y, mask));
    const uint32_t z = step(&op_none, y, 300);
    output(step(&op_none, z, 8));
    assert_int_equal(plan(), 16 + 50 + 50 + 500);
    expect_life(mask, 1, 2);
}

/* ---- views and in place ---- */

static void views_share_and_lengthen(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 100);
    const uint32_t b = step(&op_view, a, 100);
    const uint32_t c = step(&op_view, b, 100);
    const uint32_t other = step(&op_none, a, 30);
    output(step2(&op_none, c, other, 8));
    assert_int_equal(plan(), 16 + 100 + 30);
    assert_int_equal(buffer_of(c), buffer_of(a));
    assert_int_equal(tensor(c)->share, GC_LIFE_VIEW);
    expect_life(a, 0, 5);
    assert_int_equal(found.total_bytes, 8 + 100 + 30 + 8);
}

/* A tensor that is read through a view later is not overwritten now. */
static void views_keep_in_place_away(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 100);
    const uint32_t seen = step(&op_view, a, 100);
    const uint32_t b = step(&op_in_place, a, 100);
    output(step2(&op_none, seen, b, 8));
    assert_int_equal(plan(), 16 + 200);
    assert_int_not_equal(buffer_of(b), buffer_of(a));
}

static void output_is_no_view_of_input_or_weight(void **state)
{
    (void)state;
    begin();
    const uint32_t w = weight(100);
    output(step(&op_view, input(60), 60));
    output(step(&op_view, w, 100));
    assert_int_equal(plan(), 100 + 60 + 60 + 100);
}

/* The view is the output: what it looks at is made there. */
static void output_through_a_view_is_made_in_place(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 100);
    const uint32_t y = step(&op_view, a, 100);
    output(y);
    assert_int_equal(plan(), 108);
    assert_int_equal(buffer_of(a), buffer_of(y));
    assert_int_equal(found.role_bytes[GC_LIFE_OUTPUT], 100);
}

/* A chain of element-wise operators takes one buffer, and the last of it is the output's. */
static void in_place_chain(void **state)
{
    (void)state;
    begin();
    const uint32_t x = input(100);
    const uint32_t a = step(&op_in_place, x, 100);
    const uint32_t b = step(&op_in_place, a, 100);
    const uint32_t y = step(&op_in_place, b, 100);
    output(y);
    assert_int_equal(plan(), 200);
    assert_int_not_equal(buffer_of(a), buffer_of(x));
    assert_int_equal(buffer_of(a), buffer_of(y));
    assert_int_equal(tensor(b)->share, GC_LIFE_IN_PLACE);
    struct gc_lifetimes_rules rules = rules_1();
    rules.no_in_place = true;
    assert_int_equal(plan_by(&rules), 400);
}

static void in_place_only_over_as_many_bytes_of_the_same_width(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 64);
    const uint32_t wide = step(&op_in_place, a, 128);
    const uint32_t b = step(&op_in_place, wide, 32);
    sketch.values[b].type.dtype = GC_DTYPE_F32;
    const uint32_t c = step(&op_none, b, 128);
    output(step(&op_none, c, 8));
    plan();
    assert_int_not_equal(buffer_of(wide), buffer_of(a));
    assert_int_equal(tensor(b)->bytes, 128);
    assert_int_not_equal(buffer_of(b), buffer_of(wide));
}

static void in_place_takes_the_input_that_dies(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 100);
    const uint32_t b = step(&op_none, a, 100);
    const uint32_t sum = step2(&op_in_place, a, b, 100);
    const uint32_t last = step2(&op_none, a, sum, 10);
    output(last);
    assert_int_equal(plan(), 8 + 10 + 200);
    assert_int_equal(buffer_of(sum), buffer_of(b));
}

/* ---- constants and contents ---- */

static void constants_on_the_way_take_nothing(void **state)
{
    (void)state;
    begin();
    const uint32_t made = step(&op_none, weight(16), 4000);
    sketch.values[made].is_constant = true;
    const uint32_t table = step(&op_none, made, 500);
    sketch.values[table].is_constant = true;
    output(step2(&op_none, input(8), table, 8));
    assert_int_equal(plan(), 16 + 500);
    assert_int_equal(found.step_count, 1);
    assert_null(tensor(made));
}

static void views_of_weights_are_the_weights(void **state)
{
    (void)state;
    begin();
    const uint32_t w = weight(700);
    const uint32_t flat = step(&op_view, w, 700);
    sketch.values[flat].is_constant = true;
    output(step2(&op_none, input(8), flat, 8));
    assert_int_equal(plan(), 716);
    assert_int_equal(buffer_of(flat), buffer_of(w));
}

/* A runtime leaves these for the run: the table is there twice, once small, for the step. */
static void weights_are_dequantised_in_the_run(void **state)
{
    (void)state;
    begin();
    const uint32_t wide = value(400);
    const uint32_t w = weight(100);
    node(0, "DequantizeLinear", &op_none, LIST(w), LIST(wide));
    sketch.values[wide].is_constant = true;
    output(step2(&op_none, input(8), wide, 8));
    assert_int_equal(plan(), 100 + 16 + 400);
    expect_life(wide, 0, 2);
}

/* The shape of x is known: neither it nor its node is there, and x does not live for it. */
static void contents_that_are_known_take_nothing(void **state)
{
    static const struct gc_dim items[] = {{.kind = GC_DIM_NUMBER, .number = 7}};
    static const struct gc_data data = {.count = 1, .is_complete = true, .items = items};
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 100);
    const uint32_t b = step(&op_none, a, 100);
    const uint32_t shape = step(&op_none, a, 8);
    sketch.values[shape].data = &data;
    output(step2(&op_none, b, shape, 8));
    assert_int_equal(plan(), 16 + 200);
    assert_null(tensor(shape));
    expect_life(a, 0, 2);
}

/* ---- If ---- */

struct branches {
    uint32_t scopes[2];
    uint32_t result;
};

static struct branches begin_if(uint64_t bytes)
{
    struct branches made;
    made.result = value(bytes);
    const uint32_t condition = input(1);
    const uint32_t index = node(0, "If", &op_none, LIST(condition), LIST(made.result));
    made.scopes[0] = inner(index);
    made.scopes[1] = inner(index);
    return made;
}

/* One branch takes 300 + 100 for its result, the other 50 + 100; never both. x is read in one. */
static void if_takes_its_worse_branch(void **state)
{
    (void)state;
    begin();
    const uint32_t x = step(&op_none, input(8), 40);
    const struct branches both = begin_if(100);
    const uint32_t a = step_in(both.scopes[0], &op_none, x, 50);
    output_of(both.scopes[0], step_in(both.scopes[0], &op_none, a, 100));
    const uint32_t b = step_in(both.scopes[1], &op_none, x, 300);
    output_of(both.scopes[1], step_in(both.scopes[1], &op_none, b, 100));
    output(step(&op_none, both.result, 8));
    /* x, the condition and the output; then x 40 with b 300 and the result 100. */
    assert_int_equal(plan(), 8 + 1 + 8 + 40 + 300 + 100);
}

/* The heavier branch, 300 + 300, is not burdened with the result that the other has made. */
static void if_runs_its_heavier_branch_first(void **state)
{
    (void)state;
    begin();
    const uint32_t x = step(&op_none, input(8), 40);
    const struct branches both = begin_if(100);
    output_of(both.scopes[0], step_in(both.scopes[0], &op_none, x, 100));
    const uint32_t b = step_in(both.scopes[1], &op_none, x, 300);
    const uint32_t c = step_in(both.scopes[1], &op_none, b, 300);
    output_of(both.scopes[1], step_in(both.scopes[1], &op_none, c, 100));
    output(step(&op_none, both.result, 8));
    assert_int_equal(plan(), 8 + 1 + 8 + 40 + 300 + 300);
}

/* One branch makes its result and then reads x, the other's result is x: not one buffer. */
static void if_does_not_write_over_what_a_branch_reads(void **state)
{
    (void)state;
    begin();
    const uint32_t k = step(&op_none, input(8), 40);
    const uint32_t x = step(&op_none, k, 100);
    const struct branches both = begin_if(100);
    output_of(both.scopes[0], step_in(both.scopes[0], &op_none, k, 100));
    step_in(both.scopes[0], &op_none, x, 10);
    output_of(both.scopes[1], x);
    output(step(&op_none, both.result, 8));
    plan();
    assert_int_not_equal(buffer_of(x), buffer_of(both.result));
}

static void if_that_is_decided_is_its_branch(void **state)
{
    (void)state;
    begin();
    const uint32_t x = step(&op_none, input(8), 40);
    const struct branches both = begin_if(100);
    const uint32_t a = step_in(both.scopes[0], &op_none, x, 50);
    const uint32_t made = step_in(both.scopes[0], &op_none, a, 100);
    output_of(both.scopes[0], made);
    output_of(both.scopes[1], step_in(both.scopes[1], &op_none, x, 100));
    sketch.scopes[both.scopes[1]].is_dead = true;
    output(step(&op_none, both.result, 8));
    assert_int_equal(plan(), 8 + 1 + 8 + 50 + 100);
    assert_int_equal(buffer_of(made), buffer_of(both.result));
}

/* A branch that gives what it found outside copies it: x and the result are both there. */
static void if_copies_what_it_does_not_make(void **state)
{
    (void)state;
    begin();
    const uint32_t x = step(&op_none, input(8), 100);
    const struct branches both = begin_if(100);
    output_of(both.scopes[0], x);
    const uint32_t made = step_in(both.scopes[1], &op_none, x, 100);
    output_of(both.scopes[1], made);
    const uint32_t again = step(&op_none, x, 10);
    output(step2(&op_none, both.result, again, 8));
    assert_int_equal(plan(), 8 + 1 + 8 + 100 + 100 + 10);
    assert_int_equal(buffer_of(made), buffer_of(both.result));
    assert_int_not_equal(buffer_of(x), buffer_of(both.result));
}

/* ---- Loop ---- */

struct loop {
    uint32_t node;
    uint32_t body;
    uint32_t carried; /* in the body */
    uint32_t result;
};

/* One carried value; its trips and its condition are inputs of 8 and 1. */
static struct loop begin_loop(uint32_t first, uint64_t bytes)
{
    struct loop made;
    made.result = value(bytes);
    const uint32_t trips = input(8);
    const uint32_t condition = input(1);
    made.node = node(0, "Loop", &op_none, LIST(trips, condition, first), LIST(made.result));
    made.body = inner(made.node);
    const uint32_t turn = input_of(made.body, 8);
    const uint32_t again = input_of(made.body, 1);
    (void)turn;
    output_of(made.body, again);
    made.carried = input_of(made.body, bytes);
    return made;
}

/* v ← Op(w(v)): w 300; v's place is kept for the next turn, what is written is moved there. An
 * outer value that is read (k, 50) stays for all iterations. */
static void loop_keeps_what_it_carries_and_captures(void **state)
{
    (void)state;
    begin();
    const uint32_t k = step(&op_none, input(8), 50);
    const uint32_t v = step(&op_none, k, 100);
    const struct loop loop = begin_loop(v, 100);
    const uint32_t a = step_in(loop.body, &op_none, loop.carried, 300);
    const uint32_t b = step_in(loop.body, &op_none, k, 20);
    const uint32_t written = value(100);
    node(loop.body, "Op", &op_none, LIST(a, b), LIST(written));
    output_of(loop.body, written);
    output(step(&op_none, loop.result, 8));
    /* inputs 8 + 8 + 1, output 8; k 50, carried 100, turn and condition 8 + 1 … at the third node
     * of the body: k, carried, condition 1, a 300, b 20, written 100. */
    assert_int_equal(plan(), 25 + 50 + 100 + 1 + 300 + 20 + 100);
    /* v is not needed any more: it is where the loop carries it, and where its result is. */
    assert_int_equal(buffer_of(v), buffer_of(loop.carried));
    assert_int_equal(buffer_of(loop.result), buffer_of(loop.carried));
    /* Steps: k 0, v 1, the loop 2, its body 3 to 5, its end 6, then 7. */
    expect_life(k, 0, 7);
    expect_life(loop.carried, 1, 8);
    expect_life(written, 5, 7);
    assert_int_equal(found.step_count, 8);
}

/* v ← v + 1: written over itself, so there is one of it. */
static void loop_adds_in_place(void **state)
{
    (void)state;
    begin();
    const uint32_t v = step(&op_none, input(8), 100);
    const struct loop loop = begin_loop(v, 100);
    const uint32_t sum = step_in(loop.body, &op_in_place, loop.carried, 100);
    output_of(loop.body, sum);
    output(step(&op_none, loop.result, 8));
    assert_int_equal(plan(), 25 + 100 + 1 + 8);
    assert_int_equal(buffer_of(sum), buffer_of(v));
}

/* v ← Op(f(v)): f may not write over v, for v's place is where the next turn's is put. */
static void loop_holds_the_place_for_the_next_turn(void **state)
{
    (void)state;
    begin();
    const uint32_t v = step(&op_none, input(8), 100);
    const struct loop loop = begin_loop(v, 100);
    const uint32_t a = step_in(loop.body, &op_in_place, loop.carried, 100);
    const uint32_t b = step_in(loop.body, &op_none, a, 100);
    output_of(loop.body, b);
    output(step(&op_none, loop.result, 8));
    /* v, a and b in one step. */
    assert_int_equal(plan(), 25 + 300 + 1);
    assert_int_not_equal(buffer_of(a), buffer_of(loop.carried));
}

/* The first content is needed afterwards: it is copied. */
static void loop_copies_what_is_still_needed(void **state)
{
    (void)state;
    begin();
    const uint32_t v = step(&op_none, input(8), 100);
    const struct loop loop = begin_loop(v, 100);
    output_of(loop.body, step_in(loop.body, &op_in_place, loop.carried, 100));
    output(step2(&op_none, loop.result, v, 8));
    assert_int_equal(plan(), 25 + 200 + 1 + 8);
    assert_int_not_equal(buffer_of(v), buffer_of(loop.carried));
}

/* Two values that change places need a third. */
static void loop_that_swaps_needs_a_spare(void **state)
{
    (void)state;
    begin();
    const uint32_t x = step(&op_none, input(8), 100);
    const uint32_t y = step(&op_none, input(8), 100);
    const uint32_t one = value(100);
    const uint32_t other = value(100);
    const uint32_t trips = input(8);
    const uint32_t index = node(0, "Loop", &op_none, LIST(trips, NONE, x, y), LIST(one, other));
    const uint32_t body = inner(index);
    input_of(body, 8);
    output_of(body, input_of(body, 1));
    const uint32_t first = input_of(body, 100);
    const uint32_t second = input_of(body, 100);
    output_of(body, second);
    output_of(body, first);
    output(step2(&op_none, one, other, 8));
    /* inputs 8 + 8 + 8, output 8; the two, the condition and what the swap needs, a spare for each.
     */
    assert_int_equal(plan(), 32 + 200 + 1 + 200);
}

/* The outputs that a loop collects (1,000) are there from the first iteration; a slice (100) is
 * not. */
static void loop_collects(void **state)
{
    (void)state;
    begin();
    const uint32_t x = input(8);
    const uint32_t all = value(1000);
    const uint32_t trips = input(8);
    const uint32_t index = node(0, "Loop", &op_none, LIST(trips, NONE), LIST(all));
    const uint32_t body = inner(index);
    input_of(body, 8);
    output_of(body, input_of(body, 1));
    const uint32_t big = step_in(body, &op_none, x, 400);
    const uint32_t slice = step_in(body, &op_none, big, 100);
    output_of(body, slice);
    output(step(&op_none, all, 8));
    assert_int_equal(plan(), 24 + 1000 + 1 + 400 + 100);
    expect_life(all, 0, 5);
}

/* A value made outside two loops and read in the inner one lives as long as the outer one. */
static void loops_in_loops(void **state)
{
    (void)state;
    begin();
    const uint32_t k = step(&op_none, input(8), 50);
    const struct loop outer = begin_loop(step(&op_none, k, 10), 10);
    const uint32_t inside = value(10);
    const uint32_t index =
        node(outer.body, "Loop", &op_none, LIST(NONE, NONE, outer.carried), LIST(inside));
    const uint32_t body = inner(index);
    input_of(body, 8);
    output_of(body, input_of(body, 1));
    const uint32_t v = input_of(body, 10);
    const uint32_t made = value(10);
    node(body, "Op", &op_none, LIST(v, k), LIST(made));
    output_of(body, made);
    const uint32_t big = step_in(outer.body, &op_none, inside, 500);
    output_of(outer.body, step_in(outer.body, &op_none, big, 10));
    output(step(&op_none, outer.result, 8));
    plan();
    /* k 0, first 1, outer 2, inner 3, its node 4, its end 5, big 6, written 7, end 8, last 9. */
    expect_life(k, 0, 9);
    expect_life(big, 6, 8);
    expect_life(made, 4, 6);
}

/* ---- rules ---- */

static void roles_are_kept_used_or_left(void **state)
{
    struct gc_lifetimes_rules rules = rules_1();
    (void)state;
    begin();
    const uint32_t first = weight(100);
    const uint32_t second = weight(200);
    const uint32_t a = step2(&op_none, input(30), first, 10);
    const uint32_t b = step2(&op_none, a, second, 10);
    const uint32_t y = step(&op_none, b, 40);
    output(y);
    assert_int_equal(plan(), 300 + 30 + 40 + 20);
    rules.keep[GC_LIFE_WEIGHT] = GC_LIFE_USE;
    rules.keep[GC_LIFE_INPUT] = GC_LIFE_USE;
    rules.keep[GC_LIFE_OUTPUT] = GC_LIFE_USE;
    /* Steps: 30 + 100 + 10, then 10 + 200 + 10, then 10 + 40. */
    assert_int_equal(plan_by(&rules), 220);
    expect_life(first, 0, 1);
    expect_life(second, 1, 2);
    expect_life(y, 2, 3);
    rules.keep[GC_LIFE_WEIGHT] = GC_LIFE_LEAVE;
    rules.keep[GC_LIFE_INPUT] = GC_LIFE_LEAVE;
    rules.keep[GC_LIFE_OUTPUT] = GC_LIFE_LEAVE;
    assert_int_equal(plan_by(&rules), 20);
    assert_null(tensor(first));
}

static void sizes_are_rounded_up_to_the_alignment(void **state)
{
    struct gc_lifetimes_rules rules;
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(1), 257);
    output(step(&op_none, a, 256));
    gc_lifetimes_rules_init(&rules);
    assert_int_equal(plan_by(&rules), 256 + 512 + 256);
    assert_int_equal(found.total_bytes, 1024);
    assert_int_equal(tensor(a)->bytes, 257);
    rules.alignment = 100;
    assert_int_equal(plan_by(&rules), 100 + 300 + 300);
}

static void sizes_that_are_not_known_are_a_lower_bound(void **state)
{
    (void)state;
    begin();
    const uint32_t a = step(&op_none, input(8), 100);
    sketch.dims[a] = (struct gc_dim){.kind = GC_DIM_SYMBOL};
    sketch.values[a].type.dtype = GC_DTYPE_F32;
    const uint32_t b = step(&op_in_place, a, 100);
    sketch.values[b].type.shape.is_known = false;
    output(step(&op_none, b, 8));
    assert_int_equal(plan(), 16 + 4);
    assert_int_equal(found.known_count, 2);
    assert_int_equal(found.unknown_count, 2);
    assert_int_equal(found.unknown_value, a);
    assert_false(tensor(b)->is_known);
}

static void sizes_that_pass_64_bits_are_refused(void **state)
{
    const struct gc_lifetimes_rules rules = rules_1();
    (void)state;
    begin();
    const uint32_t x = input(INT64_MAX);
    const uint32_t a = step(&op_none, x, INT64_MAX);
    output(step(&op_none, a, INT64_MAX));
    gc_region_fini(&region);
    gc_region_init(&region, UINT64_C(1) << 26);
    assert_int_equal(gc_lifetimes_find(&region, &sketch.graph, &rules, &found), GC_OVERFLOW);
}

static void memory_that_is_not_there_is_an_error(void **state)
{
    const struct gc_lifetimes_rules rules = rules_1();
    (void)state;
    begin();
    output(step(&op_none, input(8), 8));
    gc_region_fini(&region);
    gc_region_init(&region, 0);
    assert_int_equal(gc_lifetimes_find(&region, &sketch.graph, &rules, &found), GC_NO_HOST_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_graph_takes_nothing),
        cmocka_unit_test(input_that_is_output_counts_once),
        cmocka_unit_test(chain),
        cmocka_unit_test(long_chain_alternates),
        cmocka_unit_test(diamond),
        cmocka_unit_test(residual),
        cmocka_unit_test(tied_weights_are_there_once),
        cmocka_unit_test(weights_that_nobody_reads_are_not_planned),
        cmocka_unit_test(dead_outputs_live_for_their_step),
        cmocka_unit_test(views_share_and_lengthen),
        cmocka_unit_test(views_keep_in_place_away),
        cmocka_unit_test(output_is_no_view_of_input_or_weight),
        cmocka_unit_test(output_through_a_view_is_made_in_place),
        cmocka_unit_test(in_place_chain),
        cmocka_unit_test(in_place_only_over_as_many_bytes_of_the_same_width),
        cmocka_unit_test(in_place_takes_the_input_that_dies),
        cmocka_unit_test(constants_on_the_way_take_nothing),
        cmocka_unit_test(views_of_weights_are_the_weights),
        cmocka_unit_test(weights_are_dequantised_in_the_run),
        cmocka_unit_test(contents_that_are_known_take_nothing),
        cmocka_unit_test(if_takes_its_worse_branch),
        cmocka_unit_test(if_runs_its_heavier_branch_first),
        cmocka_unit_test(if_does_not_write_over_what_a_branch_reads),
        cmocka_unit_test(if_that_is_decided_is_its_branch),
        cmocka_unit_test(if_copies_what_it_does_not_make),
        cmocka_unit_test(loop_keeps_what_it_carries_and_captures),
        cmocka_unit_test(loop_adds_in_place),
        cmocka_unit_test(loop_holds_the_place_for_the_next_turn),
        cmocka_unit_test(loop_copies_what_is_still_needed),
        cmocka_unit_test(loop_that_swaps_needs_a_spare),
        cmocka_unit_test(loop_collects),
        cmocka_unit_test(loops_in_loops),
        cmocka_unit_test(roles_are_kept_used_or_left),
        cmocka_unit_test(sizes_are_rounded_up_to_the_alignment),
        cmocka_unit_test(sizes_that_are_not_known_are_a_lower_bound),
        cmocka_unit_test(sizes_that_pass_64_bits_are_refused),
        cmocka_unit_test(memory_that_is_not_there_is_an_error),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gc_region_fini(&region);
    return failed;
}
