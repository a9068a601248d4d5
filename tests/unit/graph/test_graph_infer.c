/* Inference: content, branches, loops, what files declare. Rules of single operators are tested
 * against ONNX's own inference in tests/formats/test_ops.sh. */
#include "tests/unit/cmocka_all.h"
#include "tests/unit/onnx_sample.h"
#include "tests/unit/scratch.h"

#include <stdio.h>
#include <string.h>

static char folder[64];
static char path[128];
static struct gc_model_error error;

static int setup(void **state)
{
    (void)state;
    scratch_folder(folder, sizeof(folder));
    scratch_path(path, sizeof(path), folder, "graph.onnx");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    onnx_reset();
    scratch_remove(folder);
    return 0;
}

static void add_with_int(struct onnx_part *graph, const char *op, const char *inputs,
                         const char *outputs, const char *name, int64_t value)
{
    struct onnx_part *node = onnx_node(op, inputs, outputs);
    onnx_int(node, name, value);
    onnx_put_part(graph, ONNX_NODE, node);
}

static void put_ints(struct onnx_part *graph, const char *name, const char *dims, int64_t a,
                     int64_t b)
{
    const int64_t values[] = {a, b};
    onnx_put_part(graph, ONNX_INITIALIZER,
                  onnx_ints(name, ONNX_INT64, dims, values, strcmp(dims, "2") == 0 ? 2 : 1));
}

static struct gc_graph *open_graph(const struct onnx_part *graph)
{
    struct gc_graph *read;
    onnx_write(path, onnx_model(graph));
    if (gc_graph_open(path, NULL, &read, &error) != GC_OK)
        fail_msg("%s", error.text);
    return read;
}

static struct gc_graph *inferred(const struct onnx_part *graph, const char *dims)
{
    struct gc_graph *read = open_graph(graph);
    if (gc_graph_infer(read, dims, &error) != GC_OK)
        fail_msg("%s", error.text);
    return read;
}

static int64_t item(const struct gc_graph *graph, const char *name, uint32_t index)
{
    const struct gc_graph_value *value = onnx_find(graph, name);
    assert_non_null(value->data);
    assert_in_range(index, 0, value->data->count - 1);
    assert_int_equal(value->data->items[index].kind, GC_DIM_NUMBER);
    return value->data->items[index].number;
}

/* ---- dims ---- */

static void symbols_pass_and_take_numbers(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Relu", "x", "a");
    add_with_int(graph, "Concat", "a,x", "y", "axis", 1);
    struct gc_graph *read = inferred(graph, NULL);
    uint64_t bytes;
    assert_string_equal(onnx_shape(read, "y"), "N,8");
    assert_false(
        gc_graph_value_bytes(read, (uint32_t)(onnx_find(read, "y") - read->values), &bytes));
    assert_int_equal(read->coverage.open, 2);
    assert_int_equal(gc_graph_infer(read, "M=1,N=3", &error), GC_OK);
    assert_string_equal(onnx_shape(read, "y"), "3,8");
    assert_true(
        gc_graph_value_bytes(read, (uint32_t)(onnx_find(read, "y") - read->values), &bytes));
    assert_int_equal(bytes, 3 * 8 * 4);
    assert_int_equal(read->coverage.known, 2);
    assert_int_equal(gc_graph_infer(read, NULL, &error), GC_OK);
    assert_string_equal(onnx_shape(read, "y"), "N,8");
    gc_graph_close(read);
}

static void dims_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"N",    "=3",       "N=",   "N=x",
                                        "N=-1", "N=3,,M=2", "N=3 ", "N=99999999999999999999"};
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Relu", "x", "y");
    struct gc_graph *read = open_graph(graph);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(gc_graph_infer(read, wrong[i], &error), GC_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "name=N"));
    }
    assert_int_equal(gc_graph_infer(read, "N=3", &error), GC_OK);
    gc_graph_close(read);
}

static void dims_without_names_and_numbers_are_given_by_input(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_part();
    onnx_put_part(graph, ONNX_INPUT, onnx_value("a.b", ONNX_FLOAT, "?,?"));
    onnx_put_part(graph, ONNX_INPUT, onnx_value("count", ONNX_INT64, "1"));
    onnx_put_part(graph, ONNX_OUTPUT, onnx_value("y", ONNX_FLOAT, NULL));
    onnx_add(graph, "Expand", "a.b,count", "y");
    struct gc_graph *read = inferred(graph, "a.b.0=2,a.b.1=1,count=7,a.b.2=5");
    assert_string_equal(onnx_shape(read, "a.b"), "2,1");
    assert_string_equal(onnx_shape(read, "y"), "2,7");
    gc_graph_close(read);
}

static void an_unknown_operator_leaves_the_declared_type(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *node = onnx_node("Secret", "x", "a,b");
    onnx_put_text(node, 7, "f");
    onnx_put_part(graph, ONNX_NODE, node);
    onnx_put_part(graph, ONNX_INFO, onnx_value("a", ONNX_FLOAT, "N,7"));
    onnx_add(graph, "Relu", "a", "y");
    struct gc_graph *read = inferred(graph, "N=2");
    assert_string_equal(onnx_shape(read, "y"), "2,7");
    assert_string_equal(onnx_shape(read, "b"), "none");
    assert_int_equal(read->coverage.unknown_nodes, 1);
    assert_int_equal(read->coverage.unknown, 1);
    gc_graph_close(read);
}

static void a_contradiction_is_a_note(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_put_part(graph, ONNX_INFO, onnx_value("a", ONNX_FLOAT, "N,5"));
    onnx_add(graph, "Relu", "x", "a");
    onnx_put_part(graph, ONNX_INITIALIZER, onnx_zeros("w", "3", 3));
    onnx_add(graph, "Add", "a,w", "y");
    struct gc_graph *read = inferred(graph, NULL);
    assert_int_equal(read->note_count, 2);
    assert_non_null(strstr(read->notes[0], "dimension 1 of a: 4 by its inputs, 5 by the file"));
    assert_non_null(strstr(read->notes[1], "4 and 3 do not broadcast"));
    assert_non_null(strstr(read->notes[1], "node \"Add\""));
    assert_string_equal(onnx_shape(read, "a"), "N,4");
    assert_string_equal(onnx_shape(read, "y"), "none");
    assert_int_equal(read->coverage.failed_nodes, 1);
    gc_graph_close(read);
}

/* ---- content ---- */

/* As exporters write x.view(x.size(0), -1, 2). */
static void shapes_are_computed(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    put_ints(graph, "zero", "1", 0, 0);
    put_ints(graph, "rest", "2", -1, 2);
    onnx_add(graph, "Shape", "x", "s");
    onnx_add(graph, "Gather", "s,zero", "n");
    add_with_int(graph, "Concat", "n,rest", "w", "axis", 0);
    onnx_add(graph, "Reshape", "x,w", "y");
    struct gc_graph *read = inferred(graph, NULL);
    assert_string_equal(onnx_shape(read, "y"), "N,2,2");
    assert_int_equal(item(read, "w", 1), -1);
    assert_int_equal(gc_graph_infer(read, "N=6", &error), GC_OK);
    assert_string_equal(onnx_shape(read, "y"), "6,2,2");
    assert_int_equal(item(read, "w", 0), 6);
    assert_true(onnx_find(read, "w")->data->is_complete);
    gc_graph_close(read);
}

static void arithmetic_is_done(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    put_ints(graph, "a", "2", -7, 9);
    put_ints(graph, "b", "1", 2, 0);
    put_ints(graph, "n", "", 5, 0);
    put_ints(graph, "i", "", 0, 0);
    put_ints(graph, "d", "", 2, 0);
    put_ints(graph, "last", "", -1, 0);
    onnx_add(graph, "Gather", "a,last", "gather");
    onnx_add(graph, "Div", "a,b", "div");
    onnx_add(graph, "Mod", "a,b", "mod");
    onnx_add(graph, "Mul", "a,b", "mul");
    onnx_add(graph, "Max", "a,b,n", "max");
    onnx_add(graph, "Less", "a,b", "less");
    onnx_add(graph, "Where", "less,a,b", "where");
    add_with_int(graph, "ReduceProd", "a", "prod", "keepdims", 0);
    onnx_add(graph, "Range", "i,n,d", "range");
    add_with_int(graph, "Cast", "a", "cast", "to", ONNX_BOOL);
    onnx_add(graph, "Relu", "x", "y");
    struct gc_graph *read = inferred(graph, NULL);
    assert_int_equal(item(read, "gather", 0), 9);
    assert_int_equal(item(read, "div", 0), -3);
    assert_int_equal(item(read, "mod", 0), 1);
    assert_int_equal(item(read, "mul", 1), 18);
    assert_int_equal(item(read, "max", 0), 5);
    assert_int_equal(item(read, "less", 0), 1);
    assert_int_equal(item(read, "where", 0), -7);
    assert_int_equal(item(read, "where", 1), 2);
    assert_int_equal(item(read, "prod", 0), -63);
    assert_string_equal(onnx_shape(read, "prod"), "");
    assert_string_equal(onnx_shape(read, "range"), "3");
    assert_int_equal(item(read, "range", 2), 4);
    assert_int_equal(item(read, "cast", 0), 1);
    assert_int_equal(onnx_find(read, "less")->type.dtype, GC_DTYPE_BOOL);
    gc_graph_close(read);
}

/* A dimension is never negative, whatever it is. */
static void a_symbol_is_known_not_to_be_negative(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    put_ints(graph, "m", "2", -1, 4);
    onnx_add(graph, "Shape", "x", "s");
    onnx_add(graph, "Equal", "s,m", "equal");
    onnx_add(graph, "Where", "equal,m,s", "where");
    onnx_add(graph, "Expand", "x,where", "y");
    struct gc_graph *read = inferred(graph, NULL);
    assert_int_equal(item(read, "equal", 0), 0);
    assert_int_equal(item(read, "equal", 1), 1);
    assert_string_equal(onnx_shape(read, "y"), "N,4");
    gc_graph_close(read);
}

static void what_constants_make_is_constant(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    uint64_t bytes;
    put_ints(graph, "dims", "2", 4, 5);
    put_ints(graph, "w_dims", "2", 4, 5);
    onnx_add(graph, "ConstantOfShape", "dims", "w");
    onnx_add(graph, "MatMul", "x,w", "y");
    struct gc_graph *read = inferred(graph, NULL);
    assert_true(onnx_find(read, "w")->is_constant);
    assert_false(onnx_find(read, "y")->is_constant);
    assert_string_equal(onnx_shape(read, "y"), "N,5");
    assert_true(
        gc_graph_value_bytes(read, (uint32_t)(onnx_find(read, "w") - read->values), &bytes));
    assert_int_equal(bytes, 80);
    gc_graph_close(read);
}

/* ---- If ---- */

static struct onnx_part *branch(const char *op, const char *inputs, const char *output,
                                int64_t axis)
{
    struct onnx_part *graph = onnx_part();
    add_with_int(graph, op, inputs, output, "axis", axis);
    onnx_put_part(graph, ONNX_OUTPUT, onnx_value(output, ONNX_FLOAT, NULL));
    return graph;
}

static struct onnx_part *graph_with_if(bool is_known, int64_t value)
{
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *node = onnx_node("If", "c", "y");
    onnx_graph(node, "then_branch", branch("Concat", "x,x", "t", 1));
    onnx_graph(node, "else_branch", branch("Concat", "x,x,x", "e", 1));
    if (is_known)
        onnx_put_part(graph, ONNX_INITIALIZER, onnx_ints("c", ONNX_BOOL, "", &value, 1));
    else
        onnx_put_part(graph, ONNX_INPUT, onnx_value("c", ONNX_BOOL, ""));
    onnx_put_part(graph, ONNX_NODE, node);
    return graph;
}

static void a_known_condition_takes_its_branch(void **state)
{
    (void)state;
    struct gc_graph *read = inferred(graph_with_if(true, 1), NULL);
    assert_string_equal(onnx_shape(read, "y"), "N,8");
    assert_false(read->nodes[onnx_find(read, "t")->producer].is_dead);
    assert_true(read->nodes[onnx_find(read, "e")->producer].is_dead);
    assert_int_equal(read->coverage.values, 2);
    gc_graph_close(read);
    onnx_reset();
    read = inferred(graph_with_if(true, 0), NULL);
    assert_string_equal(onnx_shape(read, "y"), "N,12");
    assert_true(read->nodes[onnx_find(read, "t")->producer].is_dead);
    gc_graph_close(read);
}

static void both_branches_agree_or_are_open(void **state)
{
    (void)state;
    struct gc_graph *read = inferred(graph_with_if(false, 0), NULL);
    assert_string_equal(onnx_shape(read, "y"), "N,?");
    assert_int_equal(read->coverage.values, 3);
    assert_int_equal(gc_graph_infer(read, "c=1", &error), GC_OK);
    assert_string_equal(onnx_shape(read, "y"), "N,8");
    assert_int_equal(gc_graph_infer(read, NULL, &error), GC_OK);
    assert_false(read->nodes[onnx_find(read, "e")->producer].is_dead);
    gc_graph_close(read);
}

/* ---- Loop and Scan ---- */

/* y, z = a loop of `count` turns that carries x; its body is given. */
static struct onnx_part *graph_with_loop(int64_t count, const char *op, const char *inputs)
{
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *body = onnx_part();
    struct onnx_part *node = onnx_node("Loop", "m,,x", "y,z");
    onnx_put_part(body, ONNX_INPUT, onnx_value("turn", ONNX_INT64, ""));
    onnx_put_part(body, ONNX_INPUT, onnx_value("go", ONNX_BOOL, ""));
    onnx_put_part(body, ONNX_INPUT, onnx_value("in", ONNX_FLOAT, NULL));
    onnx_put_part(body, ONNX_OUTPUT, onnx_value("on", ONNX_BOOL, NULL));
    onnx_put_part(body, ONNX_OUTPUT, onnx_value("out", ONNX_FLOAT, NULL));
    onnx_put_part(body, ONNX_OUTPUT, onnx_value("each", ONNX_FLOAT, NULL));
    onnx_add(body, "Identity", "go", "on");
    add_with_int(body, op, inputs, "out", "axis", 0);
    onnx_add(body, "Relu", "x", "each");
    onnx_graph(node, "body", body);
    put_ints(graph, "m", "", count, 0);
    onnx_put_part(graph, ONNX_NODE, node);
    onnx_put_part(graph, ONNX_OUTPUT, onnx_value("z", ONNX_FLOAT, NULL));
    return graph;
}

static void what_a_loop_keeps_is_known(void **state)
{
    (void)state;
    struct gc_graph *read = inferred(graph_with_loop(5, "Add", "in,x"), NULL);
    assert_string_equal(onnx_shape(read, "y"), "N,4");
    assert_string_equal(onnx_shape(read, "z"), "5,N,4");
    assert_true(onnx_find(read, "x")->is_captured);
    gc_graph_close(read);
}

static void what_grows_in_a_loop_is_open(void **state)
{
    (void)state;
    struct gc_graph *read = inferred(graph_with_loop(5, "Concat", "in,x"), "N=2");
    assert_string_equal(onnx_shape(read, "in"), "?,4");
    assert_string_equal(onnx_shape(read, "out"), "?,4"); /* in every turn, not the first alone */
    assert_string_equal(onnx_shape(read, "y"), "?,4");
    assert_string_equal(onnx_shape(read, "z"), "5,2,4");
    gc_graph_close(read);
}

static void a_single_turn_is_followed(void **state)
{
    (void)state;
    struct gc_graph *read = inferred(graph_with_loop(1, "Concat", "in,x"), "N=2");
    assert_string_equal(onnx_shape(read, "y"), "4,4");
    assert_string_equal(onnx_shape(read, "z"), "1,2,4");
    gc_graph_close(read);
}

static void a_scan_sees_slices(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *body = onnx_part();
    struct onnx_part *node = onnx_node("Scan", "w,x", "y,z");
    onnx_put_part(body, ONNX_INPUT, onnx_value("sum", ONNX_FLOAT, NULL));
    onnx_put_part(body, ONNX_INPUT, onnx_value("slice", ONNX_FLOAT, NULL));
    onnx_put_part(body, ONNX_OUTPUT, onnx_value("next", ONNX_FLOAT, NULL));
    onnx_put_part(body, ONNX_OUTPUT, onnx_value("each", ONNX_FLOAT, NULL));
    onnx_add(body, "Add", "sum,slice", "next");
    add_with_int(body, "Concat", "slice,slice", "each", "axis", 0);
    onnx_graph(node, "body", body);
    onnx_int(node, "num_scan_inputs", 1);
    onnx_put_part(graph, ONNX_INITIALIZER, onnx_zeros("w", "4", 4));
    onnx_put_part(graph, ONNX_NODE, node);
    onnx_put_part(graph, ONNX_OUTPUT, onnx_value("z", ONNX_FLOAT, NULL));
    struct gc_graph *read = inferred(graph, NULL);
    assert_string_equal(onnx_shape(read, "slice"), "4");
    assert_string_equal(onnx_shape(read, "y"), "4");
    assert_string_equal(onnx_shape(read, "z"), "N,8");
    gc_graph_close(read);
}

/* Each body is walked several times, and so are those in it: more than a few in one another would
 * never end. */
static void loops_in_loops_end(void **state)
{
    (void)state;
    struct onnx_part *inner = onnx_part();
    add_with_int(inner, "Concat", "x,x", "y", "axis", 0);
    for (int i = 0; i < 20; i++) {
        struct onnx_part *outer = onnx_part();
        struct onnx_part *node = onnx_node("Loop", "m,,x", "y");
        struct onnx_part *body = inner;
        onnx_put_part(body, ONNX_INPUT, onnx_value("turn", ONNX_INT64, ""));
        onnx_put_part(body, ONNX_INPUT, onnx_value("go", ONNX_BOOL, ""));
        onnx_put_part(body, ONNX_INPUT, onnx_value("x", ONNX_FLOAT, NULL));
        onnx_put_part(body, ONNX_OUTPUT, onnx_value("go", ONNX_BOOL, NULL));
        onnx_put_part(body, ONNX_OUTPUT, onnx_value("y", ONNX_FLOAT, NULL));
        onnx_graph(node, "body", body);
        onnx_put_part(outer, ONNX_NODE, node);
        inner = outer;
    }
    onnx_put_part(inner, ONNX_INPUT, onnx_value("x", ONNX_FLOAT, "2,4"));
    onnx_put_part(inner, ONNX_INPUT, onnx_value("m", ONNX_INT64, ""));
    onnx_put_part(inner, ONNX_OUTPUT, onnx_value("y", ONNX_FLOAT, NULL));
    struct gc_graph *read = inferred(inner, NULL);
    assert_int_equal(read->scope_count, 21);
    /* True of every turn, and not of the first alone. */
    assert_int_not_equal(strcmp(onnx_shape(read, "y"), "2,4"), 0);
    gc_graph_close(read);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(symbols_pass_and_take_numbers),
        TEST(dims_that_are_none_are_refused),
        TEST(dims_without_names_and_numbers_are_given_by_input),
        TEST(an_unknown_operator_leaves_the_declared_type),
        TEST(a_contradiction_is_a_note),
        TEST(shapes_are_computed),
        TEST(arithmetic_is_done),
        TEST(a_symbol_is_known_not_to_be_negative),
        TEST(what_constants_make_is_constant),
        TEST(a_known_condition_takes_its_branch),
        TEST(both_branches_agree_or_are_open),
        TEST(what_a_loop_keeps_is_known),
        TEST(what_grows_in_a_loop_is_open),
        TEST(a_single_turn_is_followed),
        TEST(a_scan_sees_slices),
        TEST(loops_in_loops_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
