/* Shards by an index. Each name the index gives is promised to its file; reading the file's own
 * header redeems it. What is promised and not there, or elsewhere, refuses the model. */
#include "core/formats/json_reader.h"
#include "core/formats/safetensors.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

struct index {
    struct gc_json_reader reader;
    struct gc_load *load;
    const char *path;
    struct gc_names shards; /* file name → its number */
    const char **shard_names;
    uint32_t shard_count;
    uint32_t shard_room;
    bool has_map;
    bool has_total;
    uint64_t total_bytes;
};

/* The number of the file a tensor is said to be in. */
static enum gc_status number_shard(struct index *index, const struct gc_json_token *token,
                                   uint32_t *number)
{
    const struct gc_name *known = gc_names_find(&index->shards, token->text, token->length);
    const char *name;
    if (known != NULL) {
        *number = known->value;
        return GC_OK;
    }
    if (gc_text_has_ending(token->text, token->length, ".bin") ||
        gc_text_has_ending(token->text, token->length, ".pt"))
        return gc_source_fail(index->reader.source, token->offset,
                              "weight_map: \"%s\" is a PyTorch pickle; safetensors files are "
                              "accepted",
                              GC_LOAD_SHOWN(token->text, token->length));
    if (token->cut || token->length >= 4096)
        return gc_source_fail(index->reader.source, token->offset,
                              "weight_map: a file name longer than 4095 bytes");
    if (index->shard_count >= index->load->limits.files)
        return gc_load_fail(index->load, GC_OUT_OF_RANGE, index->path,
                            "weight_map names more than %u files", index->load->limits.files);
    enum gc_status status = gc_load_text(index->load, index->path, "weight_map: file", token->text,
                                         token->length, &name);
    if (status == GC_OK)
        status = gc_load_grow(index->load, index->path, (void **)&index->shard_names,
                              index->shard_count, &index->shard_room, sizeof(*index->shard_names));
    if (status != GC_OK)
        return status;
    *number = index->shard_count;
    if (!gc_names_add(&index->shards, &index->load->region, name, token->length, *number))
        return gc_load_no_memory(index->load, index->path);
    index->shard_names[index->shard_count++] = name;
    return GC_OK;
}

static enum gc_status read_promise(struct index *index, const struct gc_json_token *key)
{
    struct gc_load *load = index->load;
    struct gc_json_token token;
    const char *name;
    uint32_t number = 0;
    if (key->cut)
        return gc_source_fail(index->reader.source, key->offset, "a name longer than %d bytes",
                              GC_JSON_READER_TEXT_MAX);
    const size_t length = key->length;
    if (load->tensor_names.used >= load->limits.tensors)
        return gc_load_fail(load, GC_OUT_OF_RANGE, index->path,
                            "weight_map names more than %u tensors", load->limits.tensors);
    const uint32_t hash = gc_names_hash(&load->tensor_names, key->text, length);
    gc_names_prefetch(&load->tensor_names, hash);
    const uint64_t offset = key->offset;
    enum gc_status status = gc_load_text(load, index->path, "tensor", key->text, length, &name);
    if (status == GC_OK)
        status = gc_json_reader_next(&index->reader, &token);
    if (status != GC_OK)
        return status;
    if (token.event != GC_JSON_STRING)
        return gc_source_fail(index->reader.source, token.offset,
                              "weight_map: tensor \"%s\": %s where a file name is expected",
                              GC_LOAD_SHOWN(name, length), gc_json_token_name(&token));
    status = number_shard(index, &token, &number);
    if (status != GC_OK)
        return status;
    bool added;
    struct gc_name *promise =
        gc_names_put_hashed(&load->tensor_names, &load->region, name, length, hash, &added);
    if (promise == NULL)
        return gc_load_no_memory(load, index->path);
    if (!added)
        return gc_source_fail(index->reader.source, offset,
                              "weight_map: tensor \"%s\" is there twice",
                              GC_LOAD_SHOWN(name, length));
    promise->value = number | GC_LOAD_PROMISED;
    return GC_OK;
}

/* The members of an object, each given to `take`. */
static enum gc_status each_member(struct index *index, const char *what,
                                  enum gc_status (*take)(struct index *,
                                                         const struct gc_json_token *))
{
    struct gc_json_token token;
    enum gc_status status = gc_json_reader_next(&index->reader, &token);
    if (status == GC_OK && token.event != GC_JSON_BEGIN_OBJECT)
        return gc_source_fail(index->reader.source, token.offset,
                              "%s: %s where an object is expected", what,
                              gc_json_token_name(&token));
    while (status == GC_OK) {
        status = gc_json_reader_next(&index->reader, &token);
        if (status != GC_OK || token.event == GC_JSON_END_OBJECT)
            break;
        status = take(index, &token);
    }
    return status;
}

static enum gc_status take_metadata(struct index *index, const struct gc_json_token *key)
{
    struct gc_json_token token;
    const bool is_total = gc_json_token_is(key, "total_size");
    enum gc_status status = gc_json_reader_next(&index->reader, &token);
    if (status == GC_OK && is_total)
        index->has_total = gc_json_token_uint(&token, &index->total_bytes);
    return status != GC_OK ? status : gc_json_reader_skip(&index->reader, &token);
}

static enum gc_status take_top(struct index *index, const struct gc_json_token *key)
{
    struct gc_json_token token;
    if (gc_json_token_is(key, "metadata"))
        return each_member(index, "metadata", take_metadata);
    if (gc_json_token_is(key, "weight_map")) {
        if (index->has_map)
            return gc_source_fail(index->reader.source, key->offset, "weight_map is there twice");
        index->has_map = true;
        return each_member(index, "weight_map", read_promise);
    }
    const enum gc_status status = gc_json_reader_next(&index->reader, &token);
    return status != GC_OK ? status : gc_json_reader_skip(&index->reader, &token);
}

static enum gc_status read_shards(struct index *index, const struct gc_folder *folder)
{
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct gc_source source;
        enum gc_status status = gc_source_open_in(index->load, folder, index->shard_names[i],
                                                  index->path, "weight_map", &source);
        if (status != GC_OK)
            return status;
        status = gc_safetensors_read(&source, i);
        gc_source_close(&source);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status check_promises(struct index *index)
{
    const struct gc_names *names = &index->load->tensor_names;
    for (uint32_t i = 0; i < names->place_count; i++) {
        const struct gc_name *name = &names->places[i];
        if (name->text == NULL || (name->value & GC_LOAD_PROMISED) == 0)
            continue;
        const char *shard = index->shard_names[name->value & ~GC_LOAD_PROMISED];
        return gc_load_fail(
            index->load, GC_FORMAT, index->path, "weight_map: tensor \"%s\" is not in \"%s\"",
            GC_LOAD_SHOWN(name->text, strlen(name->text)), GC_LOAD_SHOWN(shard, strlen(shard)));
    }
    return GC_OK;
}

/* A total that is wrong misleads no reader of the headers: it is told, no more. */
static enum gc_status check_total(struct index *index)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < index->load->tensor_count; i++) {
        if (!gc_add_u64(bytes, index->load->tensors[i].bytes, &bytes))
            return GC_OK; /* and said where all is summed up */
    }
    if (index->has_total && bytes != index->total_bytes)
        gc_load_warn(index->load, index->path,
                     "metadata: total_size is %llu, the tensors have %llu bytes",
                     (unsigned long long)index->total_bytes, (unsigned long long)bytes);
    return GC_OK;
}

enum gc_status gc_sharded_read(struct gc_source *source, const struct gc_folder *folder)
{
    struct index index = {.load = source->load, .path = source->path};
    struct gc_json_token token;
    gc_names_init(&index.shards);
    gc_json_reader_init(&index.reader, source, 0, source->bytes);
    enum gc_status status = each_member(&index, "the index", take_top);
    if (status == GC_OK)
        status = gc_json_reader_next(&index.reader, &token);
    if (status == GC_OK && !index.has_map)
        status = gc_load_fail(source->load, GC_FORMAT, source->path,
                              "no weight_map: an index of safetensors shards has one");
    if (status == GC_OK)
        status =
            gc_load_expect_tensors(source->load, source->path, source->load->tensor_names.used);
    if (status == GC_OK)
        status = read_shards(&index, folder);
    if (status == GC_OK)
        status = check_promises(&index);
    return status == GC_OK ? check_total(&index) : status;
}
