/* Name resolution of a graph being read. A use is looked up at once. If the value has no producer
 * so far, it is looked up again when its graph is closed: by then all names of the graph are known,
 * and an unresolved name must come from the outer graph. */
#include "core/base/bits.h"
#include "core/onnx/graph.h"

#include <stdio.h>
#include <string.h>

void *gc_onnx_alloc(struct gc_onnx_builder *builder, uint64_t bytes)
{
    return gc_reader_alloc(builder->onnx.reader, builder->onnx.source->path, bytes);
}

static enum gc_status no_memory(struct gc_onnx_builder *builder)
{
    return gc_reader_no_memory(builder->onnx.reader, builder->onnx.source->path);
}

bool gc_onnx_is_made(const struct gc_graph_value *value)
{
    return value->producer != GC_GRAPH_NONE || value->is_input || value->is_initializer;
}

enum gc_status gc_onnx_open_space(struct gc_onnx_builder *builder, const struct gc_onnx_space *like,
                                  uint32_t *space)
{
    if (builder->space_count == GC_ONNX_NEST_MAX)
        return gc_source_fail(builder->onnx.source, 0, "graphs and calls nested deeper than %d",
                              GC_ONNX_NEST_MAX / 2);
    *space = builder->space_count++;
    struct gc_onnx_space *made = &builder->spaces[*space];
    *made = *like;
    made->pending_begin = builder->pending_count;
    gc_strmap_init(&made->names);
    return GC_OK;
}

static void resolve_use(struct gc_onnx_builder *builder, uint32_t value,
                        const struct gc_onnx_pending *use)
{
    *use->slot = value;
    if (value != GC_GRAPH_NONE && builder->graph->values[value].scope != use->scope)
        builder->graph->values[value].is_captured = true;
}

static bool is_there(const struct gc_onnx_builder *builder, const struct gc_strmap_entry *name)
{
    return name != NULL &&
           (name->value == GC_GRAPH_NONE || gc_onnx_is_made(&builder->graph->values[name->value]));
}

enum gc_status gc_onnx_close_space(struct gc_onnx_builder *builder)
{
    const struct gc_onnx_space *space = &builder->spaces[--builder->space_count];
    uint32_t kept = space->pending_begin;
    for (uint32_t i = space->pending_begin; i < builder->pending_count; i++) {
        const struct gc_onnx_pending *use = &builder->pending[i];
        const size_t length = strlen(use->name);
        const struct gc_strmap_entry *name = gc_strmap_find(&space->names, use->name, length);
        if (is_there(builder, name))
            resolve_use(builder, name->value, use);
        else if (space->parent == GC_GRAPH_NONE)
            return gc_reader_fail(builder->onnx.reader, GC_FORMAT, builder->onnx.source->path,
                                  "value \"%s\" is used, and no node makes it; nor is it an input "
                                  "or initializer",
                                  GC_READER_SHOWN(use->name, length));
        else
            builder->pending[kept++] = *use;
    }
    builder->pending_count = kept;
    return GC_OK;
}

const char *gc_onnx_join(struct gc_onnx_builder *builder, const char *prefix, const char *name)
{
    if (prefix[0] == '\0')
        return name;
    const size_t bytes = strlen(prefix) + strlen(name) + 2;
    char *text = gc_onnx_alloc(builder, bytes);
    if (text != NULL)
        snprintf(text, bytes, "%s/%s", prefix, name);
    return text;
}

enum gc_status gc_onnx_put_value(struct gc_onnx_builder *builder, uint32_t space, const char *name,
                                 uint32_t *value)
{
    struct gc_onnx_space *here = &builder->spaces[space];
    struct gc_graph *graph = builder->graph;
    struct gc_reader *reader = builder->onnx.reader;
    bool added;
    struct gc_strmap_entry *entry =
        gc_strmap_find_or_add(&here->names, &reader->region, name, strlen(name), &added);
    if (entry == NULL)
        return no_memory(builder);
    entry->text = added ? name : entry->text;
    /* An input that the caller omitted gets a value of the body's own. */
    if (!added && entry->value != GC_GRAPH_NONE) {
        *value = entry->value;
        return GC_OK;
    }
    entry->value = graph->value_count;
    const enum gc_status status =
        gc_reader_grow(reader, builder->onnx.source->path, (void **)&graph->values,
                       graph->value_count, &builder->value_room, sizeof(*graph->values));
    if (status != GC_OK)
        return status;
    *value = graph->value_count++;
    graph->values[*value] = (struct gc_graph_value){
        .name = gc_onnx_join(builder, here->prefix, name),
        .scope = here->scope,
        .producer = GC_GRAPH_NONE,
        .declared.dtype = GC_DTYPE_NONE,
        .type.dtype = GC_DTYPE_NONE,
    };
    return graph->values[*value].name != NULL ? GC_OK : no_memory(builder);
}

static enum gc_status add_pending(struct gc_onnx_builder *builder,
                                  const struct gc_onnx_pending *use)
{
    const enum gc_status status =
        gc_reader_grow(builder->onnx.reader, builder->onnx.source->path, (void **)&builder->pending,
                       builder->pending_count, &builder->pending_room, sizeof(*builder->pending));
    if (status == GC_OK)
        builder->pending[builder->pending_count++] = *use;
    return status;
}

enum gc_status gc_onnx_use_value(struct gc_onnx_builder *builder, uint32_t space,
                                 const struct gc_protobuf *message,
                                 const struct gc_protobuf_field *field, uint32_t *slot)
{
    struct gc_onnx_pending use = {.slot = slot, .scope = builder->spaces[space].scope};
    const unsigned char *view;
    *slot = GC_GRAPH_NONE;
    if (field->bytes == 0)
        return GC_OK;
    if (field->bytes < GC_SOURCE_WINDOW_BYTES / 4) {
        const enum gc_status status = gc_source_view(message->source, field->offset,
                                                     (size_t)field->bytes, "a value's name", &view);
        if (status != GC_OK)
            return status;
        for (uint32_t at = space; at != GC_GRAPH_NONE; at = builder->spaces[at].parent) {
            const struct gc_strmap_entry *name = gc_strmap_find(
                &builder->spaces[at].names, (const char *)view, (size_t)field->bytes);
            if (is_there(builder, name)) {
                resolve_use(builder, name->value, &use);
                return GC_OK;
            }
            /* Declared in this graph: the value may still get a producer here, and then shadows an
             * outer value. */
            if (name != NULL)
                break;
        }
    }
    const enum gc_status status = gc_protobuf_text(message, field, "a value's name", &use.name);
    return status == GC_OK ? add_pending(builder, &use) : status;
}

/* ---- types ---- */

static enum gc_status symbol_of(struct gc_onnx_builder *builder, const char *text,
                                struct gc_dim *dim)
{
    struct gc_graph *graph = builder->graph;
    struct gc_reader *reader = builder->onnx.reader;
    bool added;
    struct gc_strmap_entry *name =
        gc_strmap_find_or_add(&builder->symbols, &reader->region, text, strlen(text), &added);
    if (name == NULL)
        return no_memory(builder);
    if (added) {
        name->text = text;
        name->value = graph->symbol_count;
        const enum gc_status status =
            gc_reader_grow(reader, builder->onnx.source->path, (void **)&graph->symbols,
                           graph->symbol_count, &builder->symbol_room, sizeof(*graph->symbols));
        if (status != GC_OK)
            return status;
        graph->symbols[graph->symbol_count++] = (struct gc_graph_symbol){.name = text};
    }
    *dim = (struct gc_dim){.kind = GC_DIM_SYMBOL, .symbol = name->value};
    return GC_OK;
}

enum gc_status gc_onnx_type(struct gc_onnx_builder *builder, const struct gc_onnx_value *declared,
                            struct gc_type *type)
{
    struct gc_dim *dims = NULL;
    const uint32_t rank = declared->declared.has_shape ? declared->declared.dim_count : 0;
    *type = (struct gc_type){.kind = declared->kind, .dtype = declared->declared.dtype};
    if (!declared->declared.has_shape)
        return GC_OK;
    dims = gc_onnx_alloc(builder, rank * sizeof(*dims));
    if (dims == NULL)
        return no_memory(builder);
    for (uint32_t i = 0; i < rank; i++) {
        enum gc_status status = GC_OK;
        if (declared->dims[i] != GC_MODEL_UNKNOWN_DIM)
            dims[i] = (struct gc_dim){.kind = GC_DIM_NUMBER, .number = (int64_t)declared->dims[i]};
        else if (declared->symbols[i] != NULL && declared->symbols[i][0] != '\0')
            status = symbol_of(builder, declared->symbols[i], &dims[i]);
        if (status != GC_OK)
            return status;
    }
    type->shape = (struct gc_shape){.is_known = true, .rank = rank, .dims = dims};
    return GC_OK;
}

enum gc_status gc_onnx_add_node(struct gc_onnx_builder *builder, uint32_t *node)
{
    struct gc_graph *graph = builder->graph;
    const enum gc_status status =
        gc_reader_grow(builder->onnx.reader, builder->onnx.source->path, (void **)&graph->nodes,
                       graph->node_count, &builder->node_room, sizeof(*graph->nodes));
    if (status != GC_OK)
        return status;
    *node = graph->node_count++;
    graph->nodes[*node] = (struct gc_graph_node){.name = "", .op = "", .domain = ""};
    return GC_OK;
}
