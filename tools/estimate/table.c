#include "tools/estimate/table.h"
#include "core/base/bits.h"
#include "core/estimator/present.h"
#include "core/io/text.h"

#include <string.h>
#include <unistd.h>

/* GiB of devices that people have, in order. */
static const uint64_t device_sizes[] = {4,  6,  8,  10, 11, 12,  16,  20,  24,  32,
                                        40, 48, 64, 80, 96, 128, 141, 180, 192, 288};
#define DEVICE_SIZES (sizeof(device_sizes) / sizeof(device_sizes[0]))

static const uint64_t contexts[] = {2048, 8192, 32768, 131072};
#define CONTEXTS (sizeof(contexts) / sizeof(contexts[0]))

/* Types of caches, by engine: 8 bits, then 4. */
static const enum gc_dtype llama_cpp_types[] = {GC_DTYPE_F16, GC_DTYPE_Q8_0, GC_DTYPE_Q4_0};
static const enum gc_dtype server_types[] = {GC_DTYPE_F16, GC_DTYPE_F8_E4M3};

/* What each line needs. */
struct table {
    const struct tool_command *command;
    const struct estimate_setup *setup;
    const struct gc_model *model;
    struct gc_estimator *estimator; /* of the weights as they are */
    struct gc_estimate estimate;    /* of the line */
    struct gc_fit fit;
    bool fits; /* the first line */
    bool has_lower_bounds;
    struct gc_writer out;
    struct gc_json json;
};

static int explain(const struct table *table, enum gc_status status)
{
    if (status == GC_OVERFLOW)
        return tool_fail(table->command, "%s: %s: %s", table->setup->models.words[0],
                         gc_estimate_part_key(table->estimate.overflowed), gc_status_text(status));
    return tool_fail(table->command, "%s: %s", table->setup->models.words[0],
                     gc_status_text(status));
}

static bool is_llama_cpp(const struct table *table)
{
    return table->estimate.plan.engine == GC_ENGINE_LLAMA_CPP;
}

/* ---- the smallest device ---- */

/* Whether each device of so much memory suffices. */
static bool fits_in(const struct gc_estimator *estimator, const struct gc_estimate_request *request,
                    uint64_t bytes)
{
    static struct gc_estimate estimate;
    struct gc_estimate_request changed = *request;
    struct gc_estimate_budget budget;
    struct gc_fit fit;
    gc_fit_set_budget(&budget, bytes);
    changed.memory_bytes = budget.device_bytes;
    if (gc_estimator_run(estimator, &changed, &estimate) != GC_OK)
        return false;
    gc_fit_check(&estimate, &budget, &fit);
    return fit.fits;
}

/* GiB; 0: none of the list. */
static uint64_t smallest_device(const struct gc_estimator *estimator,
                                const struct gc_estimate_request *request)
{
    for (size_t i = 0; i < DEVICE_SIZES; i++) {
        if (fits_in(estimator, request, device_sizes[i] << 30))
            return device_sizes[i];
    }
    return 0;
}

/* ---- weights by type ---- */

/* The load that all lines are for. */
static int write_title(struct table *table)
{
    const enum gc_status status =
        gc_estimator_run(table->estimator, &table->setup->request, &table->estimate);
    if (status != GC_OK)
        return explain(table, status);
    gc_present_title(&table->out, table->setup->models.words[0], &table->estimate);
    return TOOL_DONE;
}

enum {
    WEIGHTS_COLUMN = 26,
    KV_COLUMN = 38,
    TOTAL_COLUMN = 50,
    DEVICE_COLUMN = 64,
    FITS_COLUMN = 72
};

static void write_weight_head(struct table *table)
{
    struct gc_writer *out = &table->out;
    gc_writer_text(out, "weights as");
    gc_writer_right(out, WEIGHTS_COLUMN, "weights");
    gc_writer_right(out, KV_COLUMN, "KV cache");
    gc_writer_right(out, TOTAL_COLUMN, "total");
    gc_writer_right(out, DEVICE_COLUMN, "device from");
    if (table->setup->has_budget)
        gc_writer_right(out, FITS_COLUMN, "fits");
    gc_writer_char(out, '\n');
}

static void write_weight_text(struct table *table, const char *label, uint64_t device)
{
    struct gc_writer *out = &table->out;
    const struct gc_estimate_sizes *total = &table->estimate.total;
    char text[GC_NOTE_NUMBER_BYTES];
    gc_writer_text(out, label);
    gc_writer_right_size(out, WEIGHTS_COLUMN, total->parts[GC_ESTIMATE_weight]);
    gc_writer_right_size(out, KV_COLUMN, total->parts[GC_ESTIMATE_kv_cache]);
    gc_writer_right_size(out, TOTAL_COLUMN, total->peak_bytes);
    table->has_lower_bounds = table->has_lower_bounds || table->estimate.unknown_parts != 0;
    gc_writer_char(out, table->estimate.unknown_parts != 0 ? '+' : ' ');
    if (device > 0) {
        gc_writer_right(out, DEVICE_COLUMN - 4, gc_note_number(device, text));
        gc_writer_text(out, " GiB");
    } else {
        gc_writer_right(out, DEVICE_COLUMN, "none");
    }
    if (table->setup->has_budget)
        gc_writer_right(out, FITS_COLUMN, gc_present_verdict(&table->fit));
    gc_writer_char(out, '\n');
}

static void write_weight_json(struct table *table, const char *label, uint64_t device)
{
    struct gc_json *json = &table->json;
    const struct gc_estimate_sizes *total = &table->estimate.total;
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "weights_as", label);
    gc_json_write_uint(json, "weight_bytes", total->parts[GC_ESTIMATE_weight]);
    gc_json_write_uint(json, "kv_cache_bytes", total->parts[GC_ESTIMATE_kv_cache]);
    gc_json_write_uint(json, "peak_bytes", total->peak_bytes);
    gc_present_lower_bounds(json, &table->estimate);
    gc_json_write_maybe(json, "device_gib", device > 0, device);
    gc_json_key(json, "fits");
    if (table->setup->has_budget)
        gc_json_bool(json, table->fit.fits);
    else
        gc_json_null(json);
    gc_json_end_object(json);
}

static int write_weights(struct table *table, const struct gc_estimator *estimator,
                         const struct gc_estimate_request *request, const char *label)
{
    const enum gc_status status = gc_estimator_run(estimator, request, &table->estimate);
    if (status != GC_OK)
        return explain(table, status);
    gc_fit_check(&table->estimate, &table->setup->budget, &table->fit);
    const uint64_t device = smallest_device(estimator, request);
    (table->setup->json ? write_weight_json : write_weight_text)(table, label, device);
    return TOOL_DONE;
}

/* The floating-point weights in another type. */
static int write_plain(struct table *table, enum gc_dtype dtype)
{
    struct gc_estimator *estimator;
    const enum gc_status status = gc_estimator_open(table->model, dtype, &estimator);
    if (status != GC_OK)
        return explain(table, status);
    struct gc_estimate_request request = table->setup->request;
    request.mix = GC_MIX_NONE;
    const int result = write_weights(table, estimator, &request, gc_dtype_name(dtype));
    gc_estimator_close(estimator);
    return result;
}

static int write_mixes(struct table *table)
{
    struct gc_estimate_request request = table->setup->request;
    const bool is_gguf = is_llama_cpp(table);
    int status = TOOL_DONE;
    for (unsigned i = 0; i < GC_MIX_COUNT && status == TOOL_DONE; i++) {
        request.mix = (enum gc_mix)i;
        if (gc_mix_is_gguf(request.mix) == is_gguf)
            status = write_weights(table, table->estimator, &request, gc_mix_name(request.mix));
    }
    return status;
}

static int write_all_weights(struct table *table)
{
    const struct estimate_setup *setup = table->setup;
    const bool is_changed =
        setup->request.mix != GC_MIX_NONE || setup->weight_dtype != GC_DTYPE_NONE;
    int status = write_weights(table, table->estimator, &setup->request,
                               is_changed ? "as asked" : "as they are");
    table->fits = !setup->has_budget || table->fit.fits;
    if (status == TOOL_DONE && !gc_estimator_is_quantised(table->estimator))
        status = write_plain(table, GC_DTYPE_F32);
    if (status == TOOL_DONE && !gc_estimator_is_quantised(table->estimator))
        status = write_plain(table, GC_DTYPE_BF16);
    if (status == TOOL_DONE && gc_estimator_has_kinds(table->estimator))
        status = write_mixes(table);
    if (status == TOOL_DONE && table->has_lower_bounds && !setup->json)
        gc_writer_text(
            &table->out,
            "+ parts are unknown (at least, or about): the estimate without --table lists them\n");
    return status;
}

/* ---- the cache by context and type ---- */

enum { FIRST_COLUMN = 26, COLUMN_WIDTH = 12 };

static int cache_bytes(struct table *table, uint64_t tokens, enum gc_dtype dtype, uint64_t *bytes)
{
    struct gc_estimate_request request = table->setup->request;
    request.seq_len = tokens;
    request.kv_dtype = dtype;
    const enum gc_status status = gc_estimator_run(table->estimator, &request, &table->estimate);
    *bytes = table->estimate.total.parts[GC_ESTIMATE_kv_cache];
    return status == GC_OK ? TOOL_DONE : explain(table, status);
}

static int write_cache(struct table *table, enum gc_dtype dtype)
{
    struct gc_json *json = &table->json;
    int status = TOOL_DONE;
    if (table->setup->json)
        gc_json_begin_object(json, GC_JSON_LINE);
    if (table->setup->json)
        gc_json_write_string(json, "kv_dtype", gc_dtype_name(dtype));
    else
        gc_writer_print(&table->out, "KV cache %s", gc_dtype_name(dtype));
    for (size_t i = 0; i < CONTEXTS && status == TOOL_DONE; i++) {
        char key[GC_NOTE_NUMBER_BYTES];
        uint64_t bytes = 0;
        status = cache_bytes(table, contexts[i], dtype, &bytes);
        if (table->setup->json)
            gc_json_write_uint(json, gc_note_number(contexts[i], key), bytes);
        else
            gc_writer_right_size(&table->out, FIRST_COLUMN + (unsigned)i * COLUMN_WIDTH, bytes);
    }
    if (table->setup->json)
        gc_json_end_object(json);
    else
        gc_writer_char(&table->out, '\n');
    return status;
}

static void write_cache_head(struct table *table)
{
    gc_writer_text(&table->out, "\ntokens");
    for (size_t i = 0; i < CONTEXTS; i++) {
        char text[GC_NOTE_NUMBER_BYTES];
        gc_writer_right(&table->out, FIRST_COLUMN + (unsigned)i * COLUMN_WIDTH,
                        gc_note_number(contexts[i], text));
    }
    gc_writer_char(&table->out, '\n');
}

static int write_caches(struct table *table)
{
    const bool is_gguf = is_llama_cpp(table);
    const enum gc_dtype *types = is_gguf ? llama_cpp_types : server_types;
    const size_t count = is_gguf ? sizeof(llama_cpp_types) / sizeof(llama_cpp_types[0])
                                 : sizeof(server_types) / sizeof(server_types[0]);
    int status = TOOL_DONE;
    if (!table->setup->json)
        write_cache_head(table);
    for (size_t i = 0; i < count && status == TOOL_DONE; i++)
        status = write_cache(table, types[i]);
    return status;
}

/* ---- the whole ---- */

static int write_table(struct table *table)
{
    struct gc_json *json = &table->json;
    if (!table->setup->json) {
        int status = write_title(table);
        write_weight_head(table);
        if (status == TOOL_DONE)
            status = write_all_weights(table);
        return status == TOOL_DONE && table->estimate.total.parts[GC_ESTIMATE_kv_cache] > 0
                   ? write_caches(table)
                   : status;
    }
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_string(json, "model", table->setup->models.words[0]);
    gc_json_open_array(json, "weights", GC_JSON_LINES);
    int status = write_all_weights(table);
    const uint64_t seq_len = table->estimate.seq_len;
    gc_json_end_array(json);
    gc_json_write_string(json, "engine", gc_engine_name(table->estimate.plan.engine));
    gc_json_open_array(json, "kv_cache", GC_JSON_LINES);
    if (status == TOOL_DONE && table->estimate.total.parts[GC_ESTIMATE_kv_cache] > 0)
        status = write_caches(table);
    gc_json_end_array(json);
    gc_json_write_uint(json, "batch", table->setup->request.batch);
    gc_json_write_uint(json, "seq_len", seq_len);
    gc_json_end_object(json);
    return status;
}

static int open_table(struct table *table, struct gc_model **model)
{
    struct gc_model_error error;
    if (gc_model_open(table->setup->models.words[0], NULL, model, &error) != GC_OK)
        return estimate_refuse_model(table->command, table->setup->models.words[0], &error);
    table->model = *model;
    const enum gc_status status =
        gc_estimator_open(*model, table->setup->weight_dtype, &table->estimator);
    if (status == GC_OK)
        return TOOL_DONE;
    gc_model_close(*model);
    return explain(table, status);
}

/* Refuses before the first line what a line or the cache's last column cannot hold: none is more
 * than 32-bit weights, and the longest context. */
static int check_largest(struct table *table)
{
    struct gc_estimator *widest;
    struct gc_estimate_request request = table->setup->request;
    enum gc_status status = gc_estimator_open(table->model, GC_DTYPE_F32, &widest);
    if (status != GC_OK)
        return explain(table, status);
    request.mix = GC_MIX_NONE;
    request.seq_len = gc_max_u64(request.seq_len, contexts[CONTEXTS - 1]);
    status = gc_estimator_run(widest, &request, &table->estimate);
    gc_estimator_close(widest);
    return status == GC_OK ? TOOL_DONE : explain(table, status);
}

int estimate_table_run(const struct tool_command *command, const struct estimate_setup *setup)
{
    static struct table table;
    struct gc_model *model;
    table = (struct table){.command = command, .setup = setup};
    int status = open_table(&table, &model);
    if (status != TOOL_DONE)
        return status;
    status = check_largest(&table);
    if (status != TOOL_DONE) {
        gc_estimator_close(table.estimator);
        gc_model_close(model);
        return status;
    }
    gc_writer_init(&table.out, STDOUT_FILENO);
    gc_json_init(&table.json, &table.out);
    status = write_table(&table);
    gc_estimator_close(table.estimator);
    gc_model_close(model);
    const int finished = tool_finish(command, &table.out);
    if (status == TOOL_DONE && finished == TOOL_DONE && !table.fits)
        return TOOL_DOES_NOT_FIT;
    return status != TOOL_DONE ? status : finished;
}
