#include "tests/unit/onnx_sample.h"

#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 512

static struct onnx_part parts[PARTS_MAX];
static size_t part_count;

void onnx_reset(void)
{
    for (size_t i = 0; i < part_count; i++)
        free(parts[i].bytes);
    memset(parts, 0, sizeof(parts));
    part_count = 0;
}

struct onnx_part *onnx_part(void)
{
    assert_in_range(part_count, 0, PARTS_MAX - 1);
    return &parts[part_count++];
}

static void put(struct onnx_part *to, const void *bytes, size_t count)
{
    while (to->used + count > to->room) {
        to->room = to->room == 0 ? 256 : to->room * 2;
        to->bytes = realloc(to->bytes, to->room);
        assert_non_null(to->bytes);
    }
    memcpy(to->bytes + to->used, bytes, count);
    to->used += count;
}

static void put_varint(struct onnx_part *to, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(to, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

void onnx_put_int(struct onnx_part *to, unsigned field, uint64_t value)
{
    put_varint(to, field << 3);
    put_varint(to, value);
}

static void put_bytes(struct onnx_part *to, unsigned field, const void *bytes, size_t count)
{
    put_varint(to, field << 3 | 2);
    put_varint(to, count);
    if (count > 0)
        put(to, bytes, count);
}

void onnx_put_text(struct onnx_part *to, unsigned field, const char *text)
{
    put_bytes(to, field, text, strlen(text));
}

void onnx_put_part(struct onnx_part *to, unsigned field, const struct onnx_part *inner)
{
    put_bytes(to, field, inner->bytes, inner->used);
}

/* Calls `take` for each of "a,,b"; not at all for "". */
static void each(const char *list, struct onnx_part *to, unsigned field,
                 void (*take)(struct onnx_part *to, unsigned field, const char *word))
{
    char word[64];
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        assert_in_range(length, 0, sizeof(word) - 1);
        memcpy(word, list, length);
        word[length] = '\0';
        take(to, field, word);
        list += length;
        if (*list == ',' && list[1] == '\0')
            take(to, field, "");
        list += *list == ',';
    }
}

static void put_dim(struct onnx_part *to, unsigned field, const char *word)
{
    struct onnx_part *dim = onnx_part();
    if (word[0] >= '0' && word[0] <= '9')
        onnx_put_int(dim, 1, strtoull(word, NULL, 10));
    else if (word[0] != '?')
        onnx_put_text(dim, 2, word);
    onnx_put_part(to, field, dim);
}

static void put_number(struct onnx_part *to, unsigned field, const char *word)
{
    onnx_put_int(to, field, strtoull(word, NULL, 10));
}

struct onnx_part *onnx_value(const char *name, enum onnx_type type, const char *shape)
{
    struct onnx_part *value = onnx_part();
    struct onnx_part *outer = onnx_part();
    struct onnx_part *tensor = onnx_part();
    onnx_put_int(tensor, 1, type);
    if (shape != NULL) {
        struct onnx_part *dims = onnx_part();
        each(shape, dims, 1, put_dim);
        onnx_put_part(tensor, 2, dims);
    }
    onnx_put_part(outer, 1, tensor);
    onnx_put_text(value, 1, name);
    onnx_put_part(value, 2, outer);
    return value;
}

struct onnx_part *onnx_ints(const char *name, enum onnx_type type, const char *dims,
                            const int64_t *values, size_t count)
{
    struct onnx_part *tensor = onnx_part();
    each(dims, tensor, 1, put_number);
    onnx_put_int(tensor, 2, type);
    for (size_t i = 0; i < count; i++)
        onnx_put_int(tensor, type == ONNX_INT64 ? 7 : 5, (uint64_t)values[i]);
    onnx_put_text(tensor, 8, name);
    return tensor;
}

struct onnx_part *onnx_zeros(const char *name, const char *dims, size_t count)
{
    struct onnx_part *tensor = onnx_part();
    uint8_t *bytes = calloc(count, 4);
    assert_non_null(bytes);
    each(dims, tensor, 1, put_number);
    onnx_put_int(tensor, 2, ONNX_FLOAT);
    onnx_put_text(tensor, 8, name);
    put_bytes(tensor, 9, bytes, count * 4);
    free(bytes);
    return tensor;
}

struct onnx_part *onnx_node(const char *op, const char *inputs, const char *outputs)
{
    struct onnx_part *node = onnx_part();
    each(inputs, node, 1, onnx_put_text);
    each(outputs, node, 2, onnx_put_text);
    onnx_put_text(node, 3, op);
    onnx_put_text(node, 4, op);
    return node;
}

static struct onnx_part *attribute(const char *name, unsigned kind)
{
    struct onnx_part *part = onnx_part();
    onnx_put_text(part, 1, name);
    onnx_put_int(part, 20, kind);
    return part;
}

void onnx_int(struct onnx_part *node, const char *name, int64_t value)
{
    struct onnx_part *part = attribute(name, 2);
    onnx_put_int(part, 3, (uint64_t)value);
    onnx_put_part(node, 5, part);
}

void onnx_tensor(struct onnx_part *node, const char *name, const struct onnx_part *tensor)
{
    struct onnx_part *part = attribute(name, 4);
    onnx_put_part(part, 5, tensor);
    onnx_put_part(node, 5, part);
}

void onnx_graph(struct onnx_part *node, const char *name, const struct onnx_part *graph)
{
    struct onnx_part *part = attribute(name, 5);
    onnx_put_part(part, 6, graph);
    onnx_put_part(node, 5, part);
}

void onnx_refer(struct onnx_part *node, const char *name, const char *of_call, unsigned kind)
{
    struct onnx_part *part = attribute(name, kind);
    onnx_put_text(part, 21, of_call);
    onnx_put_part(node, 5, part);
}

static void put_import(struct onnx_part *to, unsigned field, const char *domain, uint64_t version)
{
    struct onnx_part *import = onnx_part();
    onnx_put_text(import, 1, domain);
    onnx_put_int(import, 2, version);
    onnx_put_part(to, field, import);
}

struct onnx_part *onnx_function(const char *name, const char *inputs, const char *outputs)
{
    struct onnx_part *function = onnx_part();
    onnx_put_text(function, 1, name);
    each(inputs, function, 4, onnx_put_text);
    each(outputs, function, 5, onnx_put_text);
    put_import(function, 9, "", 17);
    put_import(function, 9, "f", 1);
    onnx_put_text(function, 10, "f");
    return function;
}

struct onnx_part *onnx_sample_graph(void)
{
    struct onnx_part *graph = onnx_part();
    onnx_put_part(graph, ONNX_INPUT, onnx_value("x", ONNX_FLOAT, "N,4"));
    onnx_put_part(graph, ONNX_OUTPUT, onnx_value("y", ONNX_FLOAT, NULL));
    return graph;
}

void onnx_add(struct onnx_part *graph, const char *op, const char *inputs, const char *outputs)
{
    onnx_put_part(graph, ONNX_NODE, onnx_node(op, inputs, outputs));
}

struct onnx_part *onnx_model(const struct onnx_part *graph)
{
    struct onnx_part *model = onnx_part();
    onnx_put_int(model, 1, 9);
    onnx_put_part(model, 7, graph);
    put_import(model, 8, "", 17);
    put_import(model, 8, "f", 1);
    return model;
}

void onnx_write(const char *path, const struct onnx_part *model)
{
    scratch_write(path, model->bytes, model->used);
}

const struct gc_graph_value *onnx_find(const struct gc_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (strcmp(graph->values[i].name, name) == 0)
            return &graph->values[i];
    }
    fail_msg("no value is named %s", name);
    return NULL;
}

const char *onnx_shape(const struct gc_graph *graph, const char *name)
{
    static char text[256];
    const struct gc_shape *shape = &onnx_find(graph, name)->type.shape;
    size_t used = 0;
    if (!shape->is_known)
        return "none";
    text[0] = '\0';
    for (uint32_t i = 0; i < shape->rank && used < sizeof(text); i++) {
        const struct gc_dim dim = shape->dims[i];
        const char *symbol = dim.kind == GC_DIM_SYMBOL ? graph->symbols[dim.symbol].name : NULL;
        const char *comma = i > 0 ? "," : "";
        if (dim.kind == GC_DIM_NUMBER)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%lld", comma,
                                     (long long)dim.number);
        else
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", comma,
                                     symbol != NULL ? symbol : "?");
    }
    return text;
}
