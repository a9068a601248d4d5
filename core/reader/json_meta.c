#include "core/reader/json_meta.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

#define KEY_BYTES_MAX 1024

/* A container that is open. */
struct level {
    bool is_array;
    uint32_t key_length;         /* of the key of the container */
    struct gc_meta_value *items; /* of an array: the kept items */
    uint32_t room;
    uint64_t count;
    uint64_t kept;
};

struct flattener {
    struct gc_json_reader *json;
    struct gc_reader *reader;
    bool keep;
    uint32_t depth;
    uint32_t key_length; /* of the next value */
    char key[KEY_BYTES_MAX];
    struct level levels[GC_JSON_READER_DEPTH_MAX + 1];
};

/* The key of a member: the container's key, a dot, the member's name. */
static enum gc_status extend_key(struct flattener *flat, uint64_t offset, const char *text,
                                 size_t length)
{
    const struct level *level = &flat->levels[flat->depth];
    const size_t dot = level->key_length > 0;
    if (level->key_length + dot + length >= sizeof(flat->key))
        return gc_source_fail(flat->json->source, offset, "a key longer than %d bytes",
                              KEY_BYTES_MAX - 1);
    flat->key[level->key_length] = '.';
    memcpy(flat->key + level->key_length + dot, text, length);
    flat->key_length = level->key_length + (uint32_t)(dot + length);
    return GC_OK;
}

static enum gc_status index_key(struct flattener *flat, uint64_t offset, uint64_t index)
{
    char digits[20];
    size_t used = sizeof(digits);
    do {
        digits[--used] = (char)('0' + index % 10);
        index /= 10;
    } while (index != 0);
    return extend_key(flat, offset, digits + used, sizeof(digits) - used);
}

static enum gc_status scalar_value(struct flattener *flat, const struct gc_json_token *token,
                                   struct gc_meta_value *value)
{
    *value = (struct gc_meta_value){.kind = GC_META_NULL};
    if (token->event == GC_JSON_BOOL) {
        value->kind = GC_META_BOOL;
        value->unsigned_value = token->truth;
    } else if (token->event == GC_JSON_INTEGER || token->event == GC_JSON_REAL) {
        value->kind = token->event == GC_JSON_INTEGER ? GC_META_INTEGER : GC_META_REAL;
        value->negative = token->negative;
        value->unsigned_value = token->event == GC_JSON_INTEGER ? token->magnitude : 0;
        value->real = token->real;
    } else if (token->event == GC_JSON_STRING) {
        const char *nul = memchr(token->text, '\0', token->length);
        size_t length = nul != NULL ? (size_t)(nul - token->text) : token->length;
        value->cut = token->cut || nul != NULL || length > GC_META_TEXT_MAX;
        if (length > GC_META_TEXT_MAX) {
            length = GC_META_TEXT_MAX;
            while (length > 0 && ((unsigned char)token->text[length] & 0xc0) == 0x80)
                length--;
        }
        value->kind = GC_META_TEXT;
        value->text = gc_region_text(&flat->reader->region, token->text, length);
        if (value->text == NULL)
            return gc_reader_no_memory(flat->reader, flat->json->source->path);
    }
    return GC_OK;
}

/* Adds a value to the open array's items, or to the metas under flat->key. */
static enum gc_status add_value(struct flattener *flat, uint64_t offset,
                                const struct gc_meta_value *value)
{
    struct level *level = &flat->levels[flat->depth];
    const char *path = flat->json->source->path;
    struct gc_meta meta = {.value = *value};
    enum gc_status status;
    if (level->is_array) {
        level->count++;
        if (level->count > GC_META_ITEMS_MAX)
            return GC_OK;
        status = gc_reader_grow(flat->reader, path, (void **)&level->items, (uint32_t)level->kept,
                                &level->room, sizeof(*level->items));
        if (status == GC_OK)
            level->items[level->kept++] = *value;
        return status;
    }
    if (memchr(flat->key, '\0', flat->key_length) != NULL)
        return gc_source_fail(flat->json->source, offset, "a key with a NUL in it");
    status = gc_reader_text(flat->reader, path, "key", flat->key, flat->key_length, &meta.key);
    return status != GC_OK ? status : gc_reader_add_meta(flat->reader, path, &meta);
}

static enum gc_status close_level(struct flattener *flat, uint64_t offset)
{
    const struct level closed = flat->levels[flat->depth--];
    const struct level *level = &flat->levels[flat->depth];
    const struct gc_meta_value value = {
        .kind = GC_META_ARRAY,
        .cut = closed.count > closed.kept,
        .items = closed.items,
        .count = closed.count,
        .kept = closed.kept,
    };
    const struct gc_meta_value nothing = {.kind = GC_META_NULL};
    flat->key_length = closed.key_length;
    /* A container in an array leaves an empty item there; an inner array also becomes a meta. */
    if (level->is_array) {
        const enum gc_status status = add_value(flat, offset, &nothing);
        if (status != GC_OK || !closed.is_array)
            return status;
        struct level *outer = &flat->levels[flat->depth];
        outer->is_array = false;
        const enum gc_status listed = add_value(flat, offset, &value);
        outer->is_array = true;
        return listed;
    }
    return closed.is_array ? add_value(flat, offset, &value) : GC_OK;
}

static enum gc_status add_token(struct flattener *flat, const struct gc_json_token *token)
{
    const struct level *level = &flat->levels[flat->depth];
    struct gc_meta_value value;
    enum gc_status status = GC_OK;
    switch (token->event) {
    case GC_JSON_KEY:
        if (token->cut)
            return gc_source_fail(flat->json->source, token->offset, "a key longer than %d bytes",
                                  KEY_BYTES_MAX - 1);
        return extend_key(flat, token->offset, token->text, token->length);
    case GC_JSON_BEGIN_OBJECT:
    case GC_JSON_BEGIN_ARRAY:
        if (level->is_array)
            status = index_key(flat, token->offset, level->count);
        if (status != GC_OK)
            return status;
        flat->levels[++flat->depth] = (struct level){
            .is_array = token->event == GC_JSON_BEGIN_ARRAY, .key_length = flat->key_length};
        return GC_OK;
    case GC_JSON_END_OBJECT:
    case GC_JSON_END_ARRAY:
        return close_level(flat, token->offset);
    default:
        status = scalar_value(flat, token, &value);
        return status != GC_OK ? status : add_value(flat, token->offset, &value);
    }
}

enum gc_status gc_json_meta_read(struct gc_json_reader *json, const char *prefix, bool keep)
{
    struct gc_reader *reader = json->source->reader;
    struct gc_json_token token;
    enum gc_status status = gc_json_reader_next(json, &token);
    if (status != GC_OK)
        return status;
    if (token.event != GC_JSON_BEGIN_OBJECT)
        return gc_source_fail(json->source, token.offset, "%s where an object is expected",
                              gc_json_token_name(&token));
    if (!keep)
        return gc_json_reader_skip(json, &token);
    struct flattener *flat = gc_reader_alloc(reader, json->source->path, sizeof(*flat));
    if (flat == NULL)
        return gc_reader_no_memory(reader, json->source->path);
    flat->json = json;
    flat->reader = reader;
    if (prefix != NULL && gc_text_copy(flat->key, sizeof(flat->key), prefix, strlen(prefix)))
        flat->levels[0].key_length = (uint32_t)strlen(prefix);
    const uint32_t outer = json->depth;
    for (;;) {
        status = gc_json_reader_next(json, &token);
        if (status != GC_OK || json->depth < outer)
            return status;
        status = add_token(flat, &token);
        if (status != GC_OK)
            return status;
    }
}
