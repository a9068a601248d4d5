#include "core/estimator/present.h"
#include "core/estimator/train.h"
#include "core/io/text.h"

#include <string.h>

#define SIZE_COLUMN 36
#define BYTES_COLUMN 60
#define OFFER_COLUMN 26

/* ---- JSON ---- */

static void put_dtype(struct gc_json *json, const char *key, enum gc_dtype dtype)
{
    if (dtype == GC_DTYPE_NONE)
        gc_json_write_null(json, key);
    else
        gc_json_write_string(json, key, gc_dtype_name(dtype));
}

static void put_sizes(struct gc_json *json, const struct gc_estimate_sizes *sizes)
{
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        gc_json_write_uint(json, gc_estimate_part_key((enum gc_estimate_part)part),
                           sizes->parts[part]);
    gc_json_write_uint(json, "peak_bytes", sizes->peak_bytes);
}

static void put_fit(struct gc_json *json, const struct gc_answer *answer)
{
    const struct gc_fit *fit = answer->fit;
    gc_json_write_maybe(json, "budget_bytes",
                        fit != NULL && fit->budget_bytes != GC_ESTIMATE_NO_BUDGET,
                        fit != NULL ? fit->budget_bytes : 0);
    gc_json_key(json, "fits");
    if (fit != NULL)
        gc_json_bool(json, fit->fits);
    else
        gc_json_null(json);
    gc_json_write_maybe(json, "usable_bytes",
                        fit != NULL && fit->usable_bytes != GC_ESTIMATE_NO_BUDGET,
                        fit != NULL ? fit->usable_bytes : 0);
    gc_json_write_maybe(json, "deficit_bytes", fit != NULL, fit != NULL ? fit->deficit_bytes : 0);
    gc_json_key(json, "deficit");
    if (fit == NULL || fit->fits) {
        gc_json_null(json);
        return;
    }
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_uint(json, "device", fit->device);
    gc_json_write_uint(json, "bytes", fit->device_deficit_bytes);
    gc_json_write_string(json, "largest", gc_estimate_part_key(fit->largest));
    gc_json_end_object(json);
}

static void put_mix(struct gc_json *json, const char *key, enum gc_mix mix)
{
    if (mix == GC_MIX_NONE)
        gc_json_write_null(json, key);
    else
        gc_json_write_string(json, key, gc_mix_name(mix));
}

static void put_optimiser(struct gc_json *json, const char *key, enum gc_optimiser optimiser)
{
    if (optimiser == GC_OPTIMISER_NONE)
        gc_json_write_null(json, key);
    else
        gc_json_write_string(json, key, gc_optimiser_name(optimiser));
}

/* null: it does not apply, or no value fits and 0 might have. */
static void put_suggestion(struct gc_json *json, const char *key, enum gc_suggestion_kind kind,
                           uint64_t least, const struct gc_suggestion *suggestion)
{
    const bool fits =
        suggestion->state == GC_SUGGESTION_SOME || suggestion->state == GC_SUGGESTION_ALL;
    if (kind == GC_SUGGESTION_DTYPE)
        put_dtype(json, key, fits ? (enum gc_dtype)suggestion->value : GC_DTYPE_NONE);
    else if (kind == GC_SUGGESTION_MIX)
        put_mix(json, key, fits ? (enum gc_mix)suggestion->value : GC_MIX_NONE);
    else if (kind == GC_SUGGESTION_OPTIMISER)
        put_optimiser(json, key, fits ? (enum gc_optimiser)suggestion->value : GC_OPTIMISER_NONE);
    else if (kind == GC_SUGGESTION_FLAG && suggestion->state != GC_SUGGESTION_NONE)
        gc_json_write_bool(json, key, fits);
    else
        gc_json_write_maybe(json, key,
                            fits || (least > 0 && suggestion->state == GC_SUGGESTION_NOTHING_FITS),
                            fits ? suggestion->value : 0);
}

static void put_suggestions(struct gc_json *json, const struct gc_suggestions *suggestions)
{
    static const struct gc_suggestions none;
    const struct gc_suggestions *from = suggestions != NULL ? suggestions : &none;
#define GC_SUGGESTION(field, key, label, unit, kind, least)                                        \
    put_suggestion(json, key, GC_SUGGESTION_##kind, least, &from->field);
#include "core/estimator/suggestions.def"
#undef GC_SUGGESTION
}

static void put_parts(struct gc_json *json, const char *key, unsigned parts)
{
    gc_json_open_array(json, key, GC_JSON_LINE);
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++) {
        if ((parts >> part & 1) != 0)
            gc_json_string(json, gc_estimate_part_key((enum gc_estimate_part)part));
    }
    gc_json_end_array(json);
}

void gc_present_lower_bounds(struct gc_json *json, const struct gc_estimate *estimate)
{
    put_parts(json, "lower_bounds", estimate->unknown_parts);
    put_parts(json, "approximate", estimate->approximate_parts);
}

static void put_devices(struct gc_json *json, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        const uint64_t budget =
            answer->budget != NULL ? answer->budget->device_bytes[i] : GC_ESTIMATE_NO_BUDGET;
        gc_json_begin_object(json, GC_JSON_LINE);
        put_sizes(json, &estimate->devices[i]);
        gc_json_write_maybe(json, "budget_bytes", budget != GC_ESTIMATE_NO_BUDGET, budget);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static bool is_step_peak(const struct gc_estimate *estimate)
{
    return estimate->step_bytes > estimate->backward_bytes;
}

/* Of all devices: a part of their overhead. */
static uint64_t sum_of(const struct gc_estimate *estimate,
                       const uint64_t bytes[GC_ESTIMATE_DEVICE_MAX])
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < estimate->device_count; i++)
        sum += bytes[i];
    return sum;
}

static void put_engine(struct gc_json *json, const struct gc_estimate *estimate)
{
    const struct gc_engine_plan *plan = &estimate->plan;
    gc_json_write_string(json, "mode",
                         gc_training_is_asked(&estimate->training) ? "training" : "inference");
    gc_json_write_string(json, "engine", gc_engine_name(plan->engine));
    gc_json_write_bool(json, "engine_by_files", plan->by_files);
    gc_json_write_maybe(json, "step_tokens", plan->step_tokens > 0, plan->step_tokens);
    gc_json_write_uint(json, "kv_block_tokens", gc_engine_block_tokens(plan->engine));
    gc_json_write_maybe(json, "kv_blocks", estimate->kv_blocks > 0, estimate->kv_blocks);
    gc_json_write_uint(json, "graph_bytes", sum_of(estimate, estimate->graph_bytes));
    put_mix(json, "weights_as", estimate->mix);
    gc_json_write_maybe(json, "gpu_layers", estimate->layer_count > 0, estimate->device_layers);
    gc_json_write_uint(json, "host_weight_bytes", estimate->host_weight_bytes);
    gc_json_write_uint(json, "prompt_bytes", sum_of(estimate, estimate->prompt_bytes));
}

/* null in an estimate of inference; its training_at_least_bytes is null where it is not known. */
static void put_training(struct gc_json *json, const struct gc_estimate *estimate)
{
    const struct gc_training *training = &estimate->training;
    const bool is_zero = training->zero_stage != GC_TRAINING_NO_ZERO;
    gc_json_write_maybe(json, "training_at_least_bytes", estimate->training_at_least_bytes > 0,
                        estimate->training_at_least_bytes);
    if (!gc_training_is_asked(training)) {
        gc_json_write_null(json, "training");
        return;
    }
    gc_json_open_object(json, "training", GC_JSON_LINE);
    gc_json_write_string(json, "optimiser", gc_optimiser_name(training->optimiser));
    gc_json_write_bool(json, "mixed_precision", training->is_mixed);
    gc_json_write_bool(json, "checkpointing", training->is_checkpointed);
    gc_json_write_maybe(json, "zero_stage", is_zero, training->zero_stage);
    gc_json_write_maybe(json, "lora_rank", training->lora_rank > 0, training->lora_rank);
    gc_json_write_uint(json, "trained_parameters", estimate->trained_parameters);
    gc_json_write_uint(json, "backward_bytes", estimate->backward_bytes);
    gc_json_write_uint(json, "step_bytes", estimate->step_bytes);
    gc_json_write_string(json, "peak_phase", is_step_peak(estimate) ? "step" : "backward");
    gc_json_end_object(json);
}

static void put_warnings(struct gc_json *json, const struct gc_notes *notes)
{
    gc_json_open_array(json, "warnings", GC_JSON_LINES);
    for (uint32_t i = 0; i < notes->count; i++)
        gc_json_string(json, notes->texts[i]);
    gc_json_end_array(json);
}

void gc_present_members(struct gc_json *json, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    gc_json_write_string(json, "model", answer->model);
    gc_json_write_uint(json, "parameters", estimate->parameters);
    gc_json_write_uint(json, "tensors", estimate->tensor_count);
    gc_json_write_uint(json, "batch", estimate->batch);
    gc_json_write_maybe(json, "seq_len", estimate->seq_len > 0, estimate->seq_len);
    put_dtype(json, "dtype", estimate->dtype);
    put_dtype(json, "kv_dtype", estimate->kv_dtype);
    put_engine(json, estimate);
    put_training(json, estimate);
    put_sizes(json, &estimate->total);
    put_fit(json, answer);
    gc_json_write_fixed(json, "coverage", estimate->coverage_thousandths, 3);
    gc_present_lower_bounds(json, estimate);
    put_suggestions(json, answer->suggestions);
    gc_json_write_maybe(json, "experts_per_layer", estimate->experts > 0, estimate->experts);
    put_devices(json, answer);
    put_warnings(json, &estimate->notes);
}

void gc_present_json(struct gc_json *json, const struct gc_answer *answer)
{
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_present_members(json, answer);
    gc_json_end_object(json);
}

/* ---- text ---- */

/* A number in digits, in memory of the enclosing block. */
#define NUMBER(value) gc_note_number((value), (char[GC_NOTE_NUMBER_BYTES]){0})

/* 8030261248 as "8.03 G". */
static void write_count(struct gc_writer *out, uint64_t count)
{
    static const char units[] = "KMGT";
    uint64_t scale = 1;
    int unit = -1;
    while (unit < 3 && count / scale >= 1000) {
        scale *= 1000;
        unit++;
    }
    if (unit < 0) {
        gc_writer_uint(out, count);
        return;
    }
    gc_writer_fixed(out, count / (scale / 100), 2);
    gc_writer_char(out, ' ');
    gc_writer_char(out, units[unit]);
}

static void write_training(struct gc_writer *out, const struct gc_estimate *estimate)
{
    const struct gc_training *training = &estimate->training;
    gc_writer_print(out, "\n  trained with %s%s%s", gc_optimiser_label(training->optimiser),
                    training->is_mixed ? ", mixed precision" : "",
                    training->is_checkpointed ? ", checkpointing" : "");
    if (training->lora_rank > 0) {
        gc_writer_print(out, "\n  adapters of rank %lu: ", training->lora_rank);
        write_count(out, estimate->trained_parameters);
        gc_writer_text(out, " parameters are trained");
    }
    if (training->zero_stage != GC_TRAINING_NO_ZERO)
        gc_writer_print(out, "\n  ZeRO stage %u over %u devices, a batch on each",
                        training->zero_stage, estimate->device_count);
    gc_writer_print(out, "\n  the parts are those of the peak, in %s\n\n",
                    is_step_peak(estimate) ? "the optimiser's step" : "forward and backward");
}

/* A model without layers has no engine's rules: a graph, or weights alone. */
static void write_inference(struct gc_writer *out, const struct gc_estimate *estimate)
{
    const struct gc_engine_plan *plan = &estimate->plan;
    const uint64_t block = gc_engine_block_tokens(plan->engine);
    if (estimate->device_layers <= estimate->layer_count)
        gc_writer_print(out, "\n  %lu of %lu layers on the GPU, the output being one",
                        estimate->device_layers, (uint64_t)estimate->layer_count + 1);
    gc_writer_text(out, "\n  for inference alone");
    if (estimate->layer_count > 0)
        gc_writer_print(out, ", by %s%s", gc_engine_name(plan->engine),
                        plan->by_files ? " (from the files)" : "");
    if (estimate->layer_count > 0 && plan->step_tokens > 0)
        gc_writer_print(out, "\n  steps of %lu tokens, KV cache in blocks of %lu",
                        plan->step_tokens, block);
    if (estimate->training_at_least_bytes > 0)
        gc_writer_print(out, "\n  training takes at least %s, with AdamW; see --train",
                        GC_TEXT_SIZE(estimate->training_at_least_bytes));
    gc_writer_text(out, "\n\n");
}

void gc_present_title(struct gc_writer *out, const char *model, const struct gc_estimate *estimate)
{
    char shown[512];
    gc_writer_text(out, gc_text_printable(model, strlen(model), shown, sizeof(shown)));
    gc_writer_text(out, ": ");
    write_count(out, estimate->parameters);
    gc_writer_print(out, " parameters in %lu tensors\n  batch %lu", estimate->tensor_count,
                    estimate->batch);
    if (estimate->seq_len > 0)
        gc_writer_print(out, ", context %lu", estimate->seq_len);
    if (estimate->dtype != GC_DTYPE_NONE)
        gc_writer_print(out, ", activations %s", gc_dtype_name(estimate->dtype));
    if (estimate->kv_dtype != GC_DTYPE_NONE && estimate->total.parts[GC_ESTIMATE_kv_cache] > 0)
        gc_writer_print(out, ", KV cache %s", gc_dtype_name(estimate->kv_dtype));
    if (estimate->experts > 0)
        gc_writer_print(out, ", %lu of %lu experts", estimate->resident_experts, estimate->experts);
    if (estimate->mix != GC_MIX_NONE)
        gc_writer_print(out, "\n  weights as %s", gc_mix_name(estimate->mix));
    if (gc_training_is_asked(&estimate->training))
        write_training(out, estimate);
    else
        write_inference(out, estimate);
}

/* Rounded with a unit, then exact. */
static void write_bytes(struct gc_writer *out, uint64_t bytes)
{
    gc_writer_right_size(out, SIZE_COLUMN, bytes);
    gc_writer_right(out, BYTES_COLUMN, NUMBER(bytes));
}

/* What a figure with these parts is. */
static const char *certainty_of(const struct gc_estimate *estimate, unsigned parts)
{
    const unsigned approximate = estimate->approximate_parts & parts;
    const unsigned more = estimate->unknown_parts & parts & ~approximate;
    if (approximate != 0)
        return more != 0 ? "about or more" : "about";
    return more != 0 ? "at least" : "";
}

static void write_row(struct gc_writer *out, const char *label, uint64_t bytes,
                      const char *certainty)
{
    gc_writer_print(out, "  %s", label);
    write_bytes(out, bytes);
    gc_writer_print(out, "%s%s\n", certainty[0] != '\0' ? "  " : "", certainty);
}

static void write_phases(struct gc_writer *out, const struct gc_estimate *estimate)
{
    const bool is_one = estimate->device_count == 1;
    if (!gc_training_is_asked(&estimate->training))
        return;
    write_row(out, is_one ? "  forward and backward" : "  passes, each device",
              estimate->backward_bytes, certainty_of(estimate, ~0U));
    write_row(out, is_one ? "  optimiser's step" : "  step, each device", estimate->step_bytes,
              certainty_of(estimate, ~GC_TRAIN_PASS_PARTS));
}

static void write_parts(struct gc_writer *out, const struct gc_estimate *estimate)
{
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++) {
        if (estimate->total.parts[part] > 0 || (estimate->unknown_parts >> part & 1) != 0)
            write_row(out, gc_estimate_part_label((enum gc_estimate_part)part),
                      estimate->total.parts[part], certainty_of(estimate, 1U << part));
    }
    const uint64_t graphs = sum_of(estimate, estimate->graph_bytes);
    const uint64_t prompt = sum_of(estimate, estimate->prompt_bytes);
    if (graphs > 0)
        write_row(out, "  CUDA graphs, by rule", graphs, "");
    if (prompt > 0)
        write_row(out, "  prompt behind windows", prompt, "");
    write_row(out, "peak", estimate->total.peak_bytes, certainty_of(estimate, ~0U));
    write_phases(out, estimate);
    if (estimate->host_weight_bytes > 0)
        write_row(out, "weights in host memory", estimate->host_weight_bytes, "");
}

static void write_devices(struct gc_writer *out, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    if (estimate->device_count < 2)
        return;
    gc_writer_char(out, '\n');
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        gc_writer_print(out, "  device %u", i);
        write_bytes(out, estimate->devices[i].peak_bytes);
        if (answer->budget != NULL && answer->budget->device_bytes[i] != GC_ESTIMATE_NO_BUDGET) {
            gc_writer_text(out, "  of");
            gc_writer_right_size(out, BYTES_COLUMN + 15, answer->budget->device_bytes[i]);
        }
        gc_writer_char(out, '\n');
    }
}

static void write_value(struct gc_writer *out, const char *unit, enum gc_suggestion_kind kind,
                        const struct gc_suggestion *suggestion)
{
    if (kind == GC_SUGGESTION_DTYPE)
        gc_writer_text(out, gc_dtype_name((enum gc_dtype)suggestion->value));
    else if (kind == GC_SUGGESTION_MIX)
        gc_writer_text(out, gc_mix_name((enum gc_mix)suggestion->value));
    else if (kind == GC_SUGGESTION_OPTIMISER)
        gc_writer_text(out, gc_optimiser_name((enum gc_optimiser)suggestion->value));
    else if (kind == GC_SUGGESTION_FLAG)
        gc_writer_text(out, "it fits");
    else
        gc_writer_print(out, "%lu%s%s", suggestion->value, unit,
                        suggestion->state == GC_SUGGESTION_ALL ? ", all" : "");
}

static void write_offer(struct gc_writer *out, const char *heading, const char *label,
                        const char *unit, enum gc_suggestion_kind kind,
                        const struct gc_suggestion *suggestion, bool *has_any)
{
    if (suggestion->state == GC_SUGGESTION_NONE)
        return;
    if (!*has_any)
        gc_writer_text(out, heading);
    *has_any = true;
    gc_writer_print(out, "  %s", label);
    gc_writer_pad(out, OFFER_COLUMN);
    if (suggestion->state == GC_SUGGESTION_NOTHING_FITS)
        gc_writer_text(out, kind == GC_SUGGESTION_FEWEST ? "no number fits"
                            : kind == GC_SUGGESTION_FLAG ? "it does not fit"
                                                         : "not even the smallest fits");
    else
        write_value(out, unit, kind, suggestion);
    gc_writer_char(out, '\n');
}

static void write_offers(struct gc_writer *out, const struct gc_suggestions *suggestions,
                         bool is_lower_bound)
{
    const char *heading =
        is_lower_bound ? "\nValues with which the known parts fit, each with all else unchanged:\n"
                       : "\nValues that fit, each with all else unchanged:\n";
    bool has_any = false;
#define GC_SUGGESTION(field, key, label, unit, kind, least)                                        \
    write_offer(out, heading, label, unit, GC_SUGGESTION_##kind, &suggestions->field, &has_any);
#include "core/estimator/suggestions.def"
#undef GC_SUGGESTION
}

/* What the engine reports when it starts. */
static void write_blocks(struct gc_writer *out, const struct gc_estimate *estimate)
{
    if (estimate->kv_blocks == 0)
        return;
    gc_writer_text(out, "  KV blocks");
    gc_writer_right(out, SIZE_COLUMN, NUMBER(estimate->kv_blocks));
    gc_writer_print(out, " of %lu tokens\n", gc_engine_block_tokens(estimate->plan.engine));
}

static void write_fit(struct gc_writer *out, const struct gc_answer *answer)
{
    const struct gc_fit *fit = answer->fit;
    if (fit == NULL) {
        gc_writer_text(out, "\nNo budget given: --budget SIZE checks whether it fits.\n");
        return;
    }
    if (fit->budget_bytes != GC_ESTIMATE_NO_BUDGET)
        write_row(out, "budget", fit->budget_bytes, "");
    if (fit->usable_bytes < fit->budget_bytes)
        write_row(out, "of it usable", fit->usable_bytes, "");
    write_blocks(out, answer->estimate);
    if (fit->fits) {
        gc_writer_text(out, fit->lower_bound ? "\nThe known parts fit.\n" : "\nIt fits.\n");
    } else {
        gc_writer_print(out, "\nIt does not fit: %s short", GC_TEXT_SIZE(fit->deficit_bytes));
        if (answer->estimate->device_count > 1)
            gc_writer_print(out, ", most on device %u", fit->device);
        gc_writer_print(out, "; most of it is %s.\n", gc_estimate_part_label(fit->largest));
    }
    write_offers(out, answer->suggestions, fit->lower_bound);
}

void gc_present_text(struct gc_writer *out, const struct gc_answer *answer)
{
    const struct gc_notes *notes = &answer->estimate->notes;
    gc_present_title(out, answer->model, answer->estimate);
    write_parts(out, answer->estimate);
    write_devices(out, answer);
    write_fit(out, answer);
    if (notes->count > 0)
        gc_writer_text(out, "\nNotes:\n");
    for (uint32_t i = 0; i < notes->count; i++)
        gc_writer_print(out, "  %s\n", notes->texts[i]);
    if (notes->lost > 0)
        gc_writer_text(out, "  and more\n");
}

/* ---- a table of several estimates ---- */

const char *gc_present_verdict(const struct gc_fit *fit)
{
    if (fit == NULL)
        return "-";
    if (!fit->fits)
        return "no";
    return fit->lower_bound ? "?" : "yes";
}

/* Columns: each ends before its number. */
enum { WEIGHTS_COLUMN = 38, KV_COLUMN = 50, REST_COLUMN = 62, PEAK_COLUMN = 74 };

void gc_present_head(struct gc_writer *out)
{
    gc_writer_text(out, "model");
    gc_writer_right(out, WEIGHTS_COLUMN, "weights");
    gc_writer_right(out, KV_COLUMN, "KV cache");
    gc_writer_right(out, REST_COLUMN, "rest");
    gc_writer_right(out, PEAK_COLUMN, "peak");
    gc_writer_text(out, "  fits\n");
}

void gc_present_foot(struct gc_writer *out)
{
    gc_writer_text(
        out, "\n+ parts are unknown (at least, or about): an estimate of it alone lists them\n");
}

void gc_present_line(struct gc_writer *out, const struct gc_answer *answer)
{
    const struct gc_estimate_sizes *total = &answer->estimate->total;
    const uint64_t weights = total->parts[GC_ESTIMATE_weight];
    const uint64_t kv = total->parts[GC_ESTIMATE_kv_cache];
    const size_t length = strlen(answer->model);
    const size_t skip = length > 26 ? length - 26 : 0;
    char shown[32];
    gc_writer_text(out,
                   gc_text_printable(answer->model + skip, length - skip, shown, sizeof(shown)));
    gc_writer_right_size(out, WEIGHTS_COLUMN, weights);
    gc_writer_right_size(out, KV_COLUMN, kv);
    gc_writer_right_size(out, REST_COLUMN, total->peak_bytes - weights - kv);
    gc_writer_right_size(out, PEAK_COLUMN, total->peak_bytes);
    gc_writer_print(out, "%s%s\n", answer->estimate->unknown_parts != 0 ? "+ " : "  ",
                    gc_present_verdict(answer->fit));
}
