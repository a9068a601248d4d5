#include "core/formats/hf.h"

#include "core/io/text.h"
#include "core/reader/json_meta.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_MAX 100000 /* entries of a folder that are read */

static const char config_name[] = "config.json";

/* The files of a folder that this reader knows. */
struct listing {
    const char *safetensors; /* the first by name */
    const char *gguf;
    const char *onnx;
    const char *index; /* any "*.safetensors.index.json" */
    uint32_t safetensors_count;
    uint32_t gguf_count; /* first shards and whole files */
    uint32_t onnx_count;
    uint32_t index_count;
    bool has_pickle;
    bool has_pipeline; /* a diffusion pipeline's model_index.json */
};

/* True for "NAME-00002-of-00003.gguf": a shard, but not the first. */
static bool is_later_shard(const char *name)
{
    const char *of = strstr(name, "-of-");
    if (of == NULL || of - name < 6)
        return false;
    const char *digits = of - 5;
    for (int i = 0; i < 5; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
    }
    return digits[-1] == '-' && memcmp(digits, "00001", 5) != 0;
}

static enum gc_status remember(struct gc_reader *reader, const struct gc_folder *folder,
                               const char *name, const char **first, uint32_t *count)
{
    (*count)++;
    if (*first != NULL && strcmp(name, *first) >= 0)
        return GC_OK;
    *first = gc_region_text(&reader->region, name, strlen(name));
    return *first != NULL ? GC_OK : gc_reader_no_memory(reader, folder->path);
}

static enum gc_status classify(struct gc_reader *reader, const struct gc_folder *folder,
                               const char *name, struct listing *listing)
{
    if (gc_text_has_ending(name, strlen(name), ".safetensors.index.json"))
        return remember(reader, folder, name, &listing->index, &listing->index_count);
    if (gc_text_has_ending(name, strlen(name), ".safetensors"))
        return remember(reader, folder, name, &listing->safetensors, &listing->safetensors_count);
    if (gc_text_has_ending(name, strlen(name), ".gguf") && !is_later_shard(name))
        return remember(reader, folder, name, &listing->gguf, &listing->gguf_count);
    if (gc_text_has_ending(name, strlen(name), ".onnx"))
        return remember(reader, folder, name, &listing->onnx, &listing->onnx_count);
    if (gc_text_has_ending(name, strlen(name), ".bin") ||
        gc_text_has_ending(name, strlen(name), ".pt") ||
        gc_text_has_ending(name, strlen(name), ".pth"))
        listing->has_pickle = true;
    if (strcmp(name, "model_index.json") == 0)
        listing->has_pipeline = true;
    return GC_OK;
}

/* Directory entries in the kernel's format (getdents64): readdir would call malloc. */
struct kernel_entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static enum gc_status list(struct gc_reader *reader, const struct gc_folder *folder,
                           struct listing *listing)
{
    _Alignas(struct kernel_entry) char buffer[4096];
    uint32_t entries = 0;
    enum gc_status status = GC_OK;
    const int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return gc_reader_fail(reader, GC_IO, folder->path, "the folder cannot be listed");
    while (status == GC_OK) {
        const long got = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
        if (got < 0)
            status = gc_reader_fail(reader, GC_IO, folder->path, "the folder cannot be listed");
        if (got <= 0)
            break;
        for (long at = 0; at < got && status == GC_OK;) {
            const struct kernel_entry *entry = (const void *)(buffer + at);
            at += entry->bytes;
            if (++entries > ENTRIES_MAX)
                status = gc_reader_fail(reader, GC_OUT_OF_RANGE, folder->path,
                                        "the folder has more than %d files; name the model's",
                                        ENTRIES_MAX);
            else if (entry->type != DT_DIR)
                status = classify(reader, folder, entry->name, listing);
        }
    }
    close(fd);
    return status;
}

static enum gc_status find_none(struct gc_reader *reader, const struct gc_folder *folder,
                                const struct listing *listing)
{
    static const char accepted[] =
        "safetensors, GGUF and ONNX files are accepted, or a config.json";
    if (listing->has_pipeline)
        return gc_reader_fail(reader, GC_FORMAT, folder->path,
                              "a diffusion pipeline: name the folder of one of its models");
    if (listing->has_pickle)
        return gc_reader_fail(reader, GC_FORMAT, folder->path,
                              "its weights are PyTorch pickles, which are not read; %s", accepted);
    return gc_reader_fail(reader, GC_FORMAT, folder->path, "the folder has no weights; %s",
                          accepted);
}

enum gc_status gc_hf_find(struct gc_reader *reader, const struct gc_folder *folder,
                          const char **name, enum gc_hf_kind *kind)
{
    static const char index_name[] = "model.safetensors.index.json";
    static const char single_name[] = "model.safetensors";
    struct listing listing = {0};
    uint32_t count = 1;
    const enum gc_status status = list(reader, folder, &listing);
    if (status != GC_OK)
        return status;
    if (gc_source_folder_has(folder, index_name)) {
        *name = index_name;
        *kind = GC_HF_INDEX;
    } else if (gc_source_folder_has(folder, single_name)) {
        *name = single_name;
        *kind = GC_HF_SAFETENSORS;
    } else if (listing.index != NULL) {
        *name = listing.index;
        *kind = GC_HF_INDEX;
        count = listing.index_count;
    } else if (listing.safetensors != NULL) {
        *name = listing.safetensors;
        *kind = GC_HF_SAFETENSORS;
        count = listing.safetensors_count;
    } else if (listing.gguf != NULL) {
        *name = listing.gguf;
        *kind = GC_HF_GGUF;
        count = listing.gguf_count;
    } else if (listing.onnx != NULL) {
        *name = listing.onnx;
        *kind = GC_HF_ONNX;
        count = listing.onnx_count;
    } else if (gc_source_folder_has(folder, config_name) && !listing.has_pipeline) {
        *name = config_name;
        *kind = GC_HF_CONFIGURATION;
        if (listing.has_pickle)
            gc_reader_warn(reader, folder->path,
                           "its weights are PyTorch pickles, which are not read: they are computed "
                           "from config.json");
    } else {
        return find_none(reader, folder, &listing);
    }
    if (count > 1)
        return gc_reader_fail(reader, GC_FORMAT, folder->path,
                              "%u files could be the model, \"%s\" among them: name the file",
                              count, GC_READER_SHOWN(*name, strlen(*name)));
    return GC_OK;
}

enum gc_status gc_hf_read_config_file(struct gc_source *source)
{
    struct gc_json_reader json;
    struct gc_json_token token;
    gc_json_reader_init(&json, source, 0, source->bytes);
    json.takes_python = true; /* state-space models have "time_step_limit": [0.0, Infinity] */
    const enum gc_status status = gc_json_meta_read(&json, NULL, true);
    return status != GC_OK ? status : gc_json_reader_next(&json, &token);
}

enum gc_status gc_hf_read_config(struct gc_reader *reader, const struct gc_folder *folder,
                                 bool required)
{
    struct gc_source source;
    const uint32_t metas = reader->meta_count;
    if (!gc_source_folder_has(folder, config_name))
        return GC_OK;
    enum gc_status status =
        gc_source_open_in(reader, folder, config_name, folder->path, config_name, &source);
    if (status == GC_OK)
        status = gc_hf_read_config_file(&source);
    gc_source_close(&source);
    reader->model->has_config = status == GC_OK;
    if (status != GC_FORMAT || required)
        return status;
    /* The config beside a single file may belong to another model. */
    char text[GC_MODEL_ERROR_BYTES];
    memcpy(text, reader->error->text, sizeof(text));
    reader->failed = false;
    reader->meta_count = metas;
    gc_strmap_init(&reader->meta_names);
    gc_reader_warn(reader, folder->path, "not used: %s", text);
    return GC_OK;
}

static bool is_embedding(const char *name)
{
    static const char *const names[] = {"embed_tokens.weight", "wte.weight",
                                        "word_embeddings.weight", "tok_embeddings.weight",
                                        "embed_in.weight"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
        const size_t length = strlen(name);
        const size_t end = strlen(names[i]);
        if (length > end && name[length - end - 1] == '.' &&
            strcmp(name + length - end, names[i]) == 0)
            return true;
    }
    return false;
}

static bool same_shape(const struct gc_model_tensor *a, const struct gc_model_tensor *b)
{
    return a->dtype == b->dtype && a->dim_count == b->dim_count &&
           memcmp(a->dims, b->dims, a->dim_count * sizeof(*a->dims)) == 0;
}

static struct gc_model_tensor *find_tensor(struct gc_reader *reader, const char *name)
{
    const struct gc_strmap_entry *found = gc_strmap_find(&reader->tensor_names, name, strlen(name));
    return found != NULL ? &reader->tensors[found->value] : NULL;
}

void gc_hf_note_tie(struct gc_reader *reader, const char *path)
{
    static const char tie[] = "tie_word_embeddings";
    const struct gc_strmap_entry *meta = gc_strmap_find(&reader->meta_names, tie, sizeof(tie) - 1);
    if (meta == NULL || reader->metas[meta->value].value.kind != GC_META_BOOL ||
        reader->metas[meta->value].value.unsigned_value == 0)
        return;
    const struct gc_model_tensor *head = find_tensor(reader, "lm_head.weight");
    if (head == NULL)
        head = find_tensor(reader, "embed_out.weight");
    if (head == NULL || head->alias_of != GC_MODEL_NONE)
        return;
    for (uint32_t i = 0; i < reader->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &reader->tensors[i];
        if (tensor == head || tensor->alias_of != GC_MODEL_NONE || !is_embedding(tensor->name) ||
            !same_shape(tensor, head))
            continue;
        gc_reader_warn(
            reader, path,
            "%s: \"%s\" is stored beside \"%s\"; both are counted, as transformers makes "
            "them one only where they are equal",
            tie, GC_READER_SHOWN(head->name, strlen(head->name)),
            GC_READER_SHOWN(tensor->name, strlen(tensor->name)));
        return;
    }
}
