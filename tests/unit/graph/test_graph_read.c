/* Reading graphs: order, scopes, calls, and files that are refused. */
#include "tests/unit/cmocka_all.h"
#include "tests/unit/onnx_sample.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static struct gc_graph *open_model(const struct onnx_part *model)
{
    struct gc_graph *graph;
    onnx_write(path, model);
    errno = 4711;
    if (gc_graph_open(path, NULL, &graph, &error) != GC_OK)
        fail_msg("%s", error.text);
    if (gc_graph_infer(graph, NULL, &error) != GC_OK)
        fail_msg("%s", error.text);
    assert_int_equal(errno, 4711);
    return graph;
}

static void refused(const struct onnx_part *model, enum gc_status status, const char *why)
{
    struct gc_graph *graph;
    onnx_write(path, model);
    assert_int_equal(gc_graph_open(path, NULL, &graph, &error), status);
    assert_null(graph);
    if (strstr(error.text, why) == NULL || strstr(error.text, path) == NULL)
        fail_msg("no \"%s\" in: %s", why, error.text);
}

static const struct gc_graph_node *maker(const struct gc_graph *graph, const char *value)
{
    return &graph->nodes[onnx_find(graph, value)->producer];
}

/* ---- order ---- */

static void nodes_in_order_stay(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Relu", "x", "a");
    onnx_add(graph, "Exp", "a", "y");
    struct gc_graph *read = open_model(onnx_model(graph));
    assert_int_equal(read->node_count, 2);
    assert_int_equal(read->scopes[0].nodes[0], 0);
    assert_int_equal(read->scopes[0].nodes[1], 1);
    assert_string_equal(maker(read, "y")->op, "Exp");
    assert_int_equal(maker(read, "y")->opset, 17);
    assert_true(onnx_find(read, "y")->is_output);
    assert_true(onnx_find(read, "x")->is_input);
    gc_graph_close(read);
}

static void nodes_out_of_order_are_sorted(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Exp", "b", "y");
    onnx_add(graph, "Relu", "x", "a");
    onnx_add(graph, "Log", "a", "b");
    struct gc_graph *read = open_model(onnx_model(graph));
    assert_int_equal(read->scopes[0].nodes[0], 1);
    assert_int_equal(read->scopes[0].nodes[1], 2);
    assert_int_equal(read->scopes[0].nodes[2], 0);
    assert_string_equal(onnx_shape(read, "y"), "N,4");
    gc_graph_close(read);
}

static void a_cycle_is_refused(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Add", "x,b", "a");
    onnx_add(graph, "Exp", "a", "b");
    onnx_add(graph, "Exp", "a", "y");
    refused(onnx_model(graph), GC_FORMAT, "cycle");
}

static void a_value_that_nobody_makes_is_refused(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Add", "x,nowhere", "y");
    refused(onnx_model(graph), GC_FORMAT, "\"nowhere\" is used");
}

static void an_output_that_nobody_makes_is_refused(void **state)
{
    (void)state;
    refused(onnx_model(onnx_sample_graph()), GC_FORMAT, "\"y\" is used");
}

static void a_value_made_twice_is_refused(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    onnx_add(graph, "Relu", "x", "y");
    onnx_add(graph, "Exp", "x", "y");
    refused(onnx_model(graph), GC_FORMAT, "\"y\" is made twice");
}

/* ---- scopes ---- */

static struct onnx_part *branch(const char *op, const char *inputs, const char *output)
{
    struct onnx_part *graph = onnx_part();
    onnx_add(graph, op, inputs, output);
    onnx_put_part(graph, ONNX_OUTPUT, onnx_value(output, ONNX_FLOAT, NULL));
    return graph;
}

static void a_branch_sees_values_around_it(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *node = onnx_node("If", "c", "y");
    onnx_graph(node, "then_branch", branch("Relu", "late", "t"));
    onnx_graph(node, "else_branch", branch("Exp", "x", "e"));
    onnx_put_part(graph, ONNX_INPUT, onnx_value("c", ONNX_BOOL, ""));
    onnx_put_part(graph, ONNX_NODE, node);
    onnx_add(graph, "Log", "x", "late"); /* behind its use: sorted before the If */
    struct gc_graph *read = open_model(onnx_model(graph));
    assert_int_equal(read->scope_count, 3);
    assert_true(onnx_find(read, "late")->is_captured);
    assert_true(onnx_find(read, "x")->is_captured);
    assert_false(onnx_find(read, "y")->is_captured);
    assert_string_equal(read->nodes[read->scopes[0].nodes[0]].op, "Log");
    assert_int_equal(read->scopes[1].parent, 0);
    assert_string_equal(read->nodes[read->scopes[1].node].op, "If");
    assert_string_equal(onnx_shape(read, "y"), "N,4");
    gc_graph_close(read);
}

/* Names in a body may hide those around it, and nothing sees into a body. */
static void names_of_a_body_are_its_own(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *node = onnx_node("If", "c", "y");
    onnx_graph(node, "then_branch", branch("Relu", "x", "y"));
    onnx_graph(node, "else_branch", branch("Exp", "x", "inner"));
    onnx_put_part(graph, ONNX_INPUT, onnx_value("c", ONNX_BOOL, ""));
    onnx_put_part(graph, ONNX_NODE, node);
    gc_graph_close(open_model(onnx_model(graph)));
    onnx_add(graph, "Exp", "inner", "z");
    refused(onnx_model(graph), GC_FORMAT, "\"inner\" is used");
}

static void graphs_nested_too_deep_are_refused(void **state)
{
    (void)state;
    struct onnx_part *inner = branch("Exp", "x", "y");
    for (int i = 0; i < 40; i++) {
        struct onnx_part *outer = onnx_part();
        struct onnx_part *node = onnx_node("If", "c", "y");
        onnx_graph(node, "then_branch", inner);
        onnx_put_part(outer, ONNX_NODE, node);
        onnx_put_part(outer, ONNX_OUTPUT, onnx_value("y", ONNX_FLOAT, NULL));
        inner = outer;
    }
    onnx_put_part(inner, ONNX_INPUT, onnx_value("x", ONNX_FLOAT, "N,4"));
    onnx_put_part(inner, ONNX_INPUT, onnx_value("c", ONNX_BOOL, ""));
    refused(onnx_model(inner), GC_FORMAT, "nested deeper");
}

/* ---- calls ---- */

static void each_call_has_its_own_values(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *function = onnx_function("twice", "a", "c");
    onnx_put_part(function, ONNX_FUNCTION_NODE, onnx_node("Relu", "a", "t"));
    onnx_put_part(function, ONNX_FUNCTION_NODE, onnx_node("Add", "t,a", "c"));
    struct onnx_part *first = onnx_node("twice", "x", "u");
    struct onnx_part *second = onnx_node("twice", "u", "y");
    onnx_put_text(first, 7, "f");
    onnx_put_text(second, 7, "f");
    onnx_put_part(graph, ONNX_NODE, first);
    onnx_put_part(graph, ONNX_NODE, second);
    struct onnx_part *model = onnx_model(graph);
    onnx_put_part(model, ONNX_FUNCTION, function);
    struct gc_graph *read = open_model(model);
    assert_int_equal(read->node_count, 4);
    assert_int_equal(read->value_count, 5);
    assert_string_equal(maker(read, "u")->op, "Add");
    assert_string_equal(maker(read, "y")->op, "Add");
    assert_string_equal(onnx_shape(read, "y"), "N,4");
    assert_int_equal(maker(read, "y")->inputs[1], maker(read, "u")->outputs[0]);
    gc_graph_close(read);
}

/* The file has a function's constants once; each call has its own. */
static void constants_of_later_calls_are_known(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *function = onnx_function("shift", "a", "c");
    struct onnx_part *constant = onnx_node("Constant", "", "k");
    onnx_tensor(constant, "value", onnx_zeros("", "4", 4));
    onnx_put_part(function, ONNX_FUNCTION_NODE, constant);
    onnx_put_part(function, ONNX_FUNCTION_NODE, onnx_node("Add", "a,k", "c"));
    struct onnx_part *first = onnx_node("shift", "x", "u");
    struct onnx_part *second = onnx_node("shift", "u", "y");
    onnx_put_text(first, 7, "f");
    onnx_put_text(second, 7, "f");
    onnx_put_part(graph, ONNX_NODE, first);
    onnx_put_part(graph, ONNX_NODE, second);
    struct onnx_part *model = onnx_model(graph);
    onnx_put_part(model, ONNX_FUNCTION, function);
    struct gc_graph *read = open_model(model);
    const struct gc_graph_value *one = &read->values[maker(read, "u")->inputs[1]];
    const struct gc_graph_value *two = &read->values[maker(read, "y")->inputs[1]];
    assert_true(one != two && one->is_constant && two->is_constant);
    assert_false(one->is_repeated);
    assert_true(two->is_repeated);
    gc_graph_close(read);
}

/* A function's node that refers to an attribute has the call's, and where that has none, none. */
static void attributes_go_into_the_body(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *function = onnx_function("join", "a", "c");
    struct onnx_part *concat = onnx_node("Concat", "a,a", "c");
    onnx_refer(concat, "axis", "along", 2);
    onnx_put_part(function, ONNX_FUNCTION_NODE, concat);
    struct onnx_part *call = onnx_node("join", "x", "y");
    onnx_put_text(call, 7, "f");
    onnx_int(call, "along", 1);
    onnx_put_part(graph, ONNX_NODE, call);
    struct onnx_part *model = onnx_model(graph);
    onnx_put_part(model, ONNX_FUNCTION, function);
    struct gc_graph *read = open_model(model);
    assert_string_equal(onnx_shape(read, "y"), "N,8");
    gc_graph_close(read);
}

/* Each function calls the one before twice: what is short in the file would be without end. */
static void calls_that_multiply_are_refused(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *functions[26];
    char name[16] = "f0";
    for (int i = 0; i < 26; i++) {
        char before[16];
        snprintf(before, sizeof(before), "f%d", i - 1);
        snprintf(name, sizeof(name), "f%d", i);
        functions[i] = onnx_function(name, "a", "c");
        struct onnx_part *one = onnx_node(i > 0 ? before : "Relu", "a", "b");
        struct onnx_part *two = onnx_node(i > 0 ? before : "Relu", "b", "c");
        if (i > 0) {
            onnx_put_text(one, 7, "f");
            onnx_put_text(two, 7, "f");
        }
        onnx_put_part(functions[i], ONNX_FUNCTION_NODE, one);
        onnx_put_part(functions[i], ONNX_FUNCTION_NODE, two);
    }
    struct onnx_part *call = onnx_node(name, "x", "y");
    onnx_put_text(call, 7, "f");
    onnx_put_part(graph, ONNX_NODE, call);
    struct onnx_part *model = onnx_model(graph);
    for (int i = 0; i < 26; i++)
        onnx_put_part(model, ONNX_FUNCTION, functions[i]);
    refused(model, GC_OUT_OF_RANGE, "");
}

static void a_function_that_calls_itself_is_refused(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *function = onnx_function("self", "a", "c");
    struct onnx_part *call = onnx_node("self", "a", "c");
    struct onnx_part *from_outside = onnx_node("self", "x", "y");
    onnx_put_text(call, 7, "f");
    onnx_put_text(from_outside, 7, "f");
    onnx_put_part(function, ONNX_FUNCTION_NODE, call);
    onnx_put_part(graph, ONNX_NODE, from_outside);
    struct onnx_part *model = onnx_model(graph);
    onnx_put_part(model, ONNX_FUNCTION, function);
    refused(model, GC_FORMAT, "nested deeper");
}

static void a_function_that_does_not_make_its_output_is_refused(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part *function = onnx_function("idle", "a", "c");
    onnx_put_part(function, ONNX_FUNCTION_NODE, onnx_node("Relu", "a", "b"));
    struct onnx_part *call = onnx_node("idle", "x", "y");
    onnx_put_text(call, 7, "f");
    onnx_put_part(graph, ONNX_NODE, call);
    struct onnx_part *model = onnx_model(graph);
    onnx_put_part(model, ONNX_FUNCTION, function);
    refused(model, GC_FORMAT, "does not make its output");
}

/* ---- size ---- */

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* 10,000 nodes are to take well under 50 ms; here ten times that, for slow builds and machines. */
static void ten_thousand_nodes_are_quick(void **state)
{
    (void)state;
    struct onnx_part *graph = onnx_sample_graph();
    struct onnx_part node = {0};
    char from[16] = "x";
    char to[16];
    for (int i = 0; i < 10000; i++) {
        snprintf(to, sizeof(to), i == 9999 ? "y" : "v%d", i);
        onnx_put_text(&node, 1, from);
        onnx_put_text(&node, 1, "x");
        onnx_put_text(&node, 2, to);
        onnx_put_text(&node, 4, "Add");
        onnx_put_part(graph, ONNX_NODE, &node);
        node.used = 0;
        memcpy(from, to, sizeof(from));
    }
    free(node.bytes);
    onnx_write(path, onnx_model(graph));
    struct gc_graph *read;
    const uint64_t begin = now_ns();
    assert_int_equal(gc_graph_open(path, NULL, &read, &error), GC_OK);
    assert_int_equal(gc_graph_infer(read, "N=3", &error), GC_OK);
    const uint64_t ns = now_ns() - begin;
    assert_int_equal(read->coverage.known, 10000);
    print_message("# ten_thousand_nodes_ms %.1f\n", (double)ns / 1e6);
    assert_in_range(ns, 1, 500000000);
    gc_graph_close(read);
}

static void memory_is_limited(void **state)
{
    (void)state;
    const struct gc_model_limits limits = {.memory_bytes = 16 << 10};
    struct onnx_part *graph = onnx_sample_graph();
    struct gc_graph *read;
    onnx_add(graph, "Relu", "x", "y");
    onnx_write(path, onnx_model(graph));
    assert_int_equal(gc_graph_open(path, &limits, &read, &error), GC_OUT_OF_RANGE);
    assert_null(read);
    assert_non_null(strstr(error.text, "16384 bytes of memory"));
}

static void other_files_are_no_graphs(void **state)
{
    (void)state;
    struct gc_graph *read;
    scratch_write(path, "{\"tensors\": []}", 15);
    assert_int_equal(gc_graph_open(path, NULL, &read, &error), GC_FORMAT);
    assert_non_null(strstr(error.text, "no ONNX model"));
    assert_int_equal(gc_graph_open("/nowhere/at.onnx", NULL, &read, &error), GC_IO);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nodes_in_order_stay),
        TEST(nodes_out_of_order_are_sorted),
        TEST(a_cycle_is_refused),
        TEST(a_value_that_nobody_makes_is_refused),
        TEST(an_output_that_nobody_makes_is_refused),
        TEST(a_value_made_twice_is_refused),
        TEST(a_branch_sees_values_around_it),
        TEST(names_of_a_body_are_its_own),
        TEST(graphs_nested_too_deep_are_refused),
        TEST(each_call_has_its_own_values),
        TEST(constants_of_later_calls_are_known),
        TEST(attributes_go_into_the_body),
        TEST(calls_that_multiply_are_refused),
        TEST(a_function_that_calls_itself_is_refused),
        TEST(a_function_that_does_not_make_its_output_is_refused),
        TEST(ten_thousand_nodes_are_quick),
        TEST(memory_is_limited),
        TEST(other_files_are_no_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
