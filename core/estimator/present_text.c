#include "core/estimator/present.h"
#include "core/io/text.h"

#include <string.h>

#define SIZE_COLUMN 36
#define BYTES_COLUMN 60
#define OFFER_COLUMN 26

static void write_size(struct gc_out *out, size_t column, uint64_t bytes)
{
    char text[GC_TEXT_SIZE_BYTES];
    gc_out_right(out, column, gc_text_size(bytes, text));
}

static void write_right(struct gc_out *out, size_t column, uint64_t value)
{
    char text[GC_NOTE_NUMBER_BYTES];
    gc_out_right(out, column, gc_note_number(value, text));
}

/* 8030261248 as "8.03 G". */
static void write_count(struct gc_out *out, uint64_t count)
{
    static const char units[] = "KMGT";
    uint64_t scale = 1;
    int unit = -1;
    while (unit < 3 && count / scale >= 1000) {
        scale *= 1000;
        unit++;
    }
    if (unit < 0) {
        gc_out_uint(out, count);
        return;
    }
    gc_out_fixed(out, count / (scale / 100), 2);
    gc_out_char(out, ' ');
    gc_out_char(out, units[unit]);
}

static void write_head(struct gc_out *out, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    char shown[512];
    gc_out_text(out, gc_text_show(answer->model, strlen(answer->model), shown, sizeof(shown)));
    gc_out_text(out, ": ");
    write_count(out, estimate->parameters);
    gc_out_text(out, " parameters in ");
    gc_out_uint(out, estimate->tensor_count);
    gc_out_text(out, " tensors\n  batch ");
    gc_out_uint(out, estimate->batch);
    if (estimate->seq_len > 0) {
        gc_out_text(out, ", context ");
        gc_out_uint(out, estimate->seq_len);
    }
    if (estimate->dtype != GC_DTYPE_NONE) {
        gc_out_text(out, ", activations ");
        gc_out_text(out, gc_dtype_name(estimate->dtype));
    }
    if (estimate->kv_dtype != GC_DTYPE_NONE && estimate->total.parts[GC_ESTIMATE_kv_cache] > 0) {
        gc_out_text(out, ", KV cache ");
        gc_out_text(out, gc_dtype_name(estimate->kv_dtype));
    }
    if (estimate->experts > 0) {
        gc_out_text(out, ", ");
        gc_out_uint(out, estimate->resident_experts);
        gc_out_text(out, " of ");
        gc_out_uint(out, estimate->experts);
        gc_out_text(out, " experts");
    }
    gc_out_text(out, "\n\n");
}

static void write_row(struct gc_out *out, const char *label, uint64_t bytes, bool at_least)
{
    gc_out_text(out, "  ");
    gc_out_text(out, label);
    write_size(out, SIZE_COLUMN, bytes);
    write_right(out, BYTES_COLUMN, bytes);
    gc_out_text(out, at_least ? "  at least\n" : "\n");
}

static void write_parts(struct gc_out *out, const struct gc_estimate *estimate)
{
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++) {
        const bool at_least = (estimate->unknown_parts >> part & 1) != 0;
        if (estimate->total.parts[part] > 0 || at_least)
            write_row(out, gc_estimate_part_label((enum gc_estimate_part)part),
                      estimate->total.parts[part], at_least);
    }
    write_row(out, "peak", estimate->total.peak_bytes, estimate->unknown_parts != 0);
}

static void write_devices(struct gc_out *out, const struct gc_answer *answer)
{
    const struct gc_estimate *estimate = answer->estimate;
    if (estimate->device_count < 2)
        return;
    gc_out_char(out, '\n');
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        gc_out_text(out, "  device ");
        gc_out_uint(out, i);
        write_size(out, SIZE_COLUMN, estimate->devices[i].peak_bytes);
        write_right(out, BYTES_COLUMN, estimate->devices[i].peak_bytes);
        if (answer->budget != NULL && answer->budget->device_bytes[i] != GC_ESTIMATE_NO_BUDGET) {
            gc_out_text(out, "  of");
            write_size(out, BYTES_COLUMN + 15, answer->budget->device_bytes[i]);
        }
        gc_out_char(out, '\n');
    }
}

static void write_offer(struct gc_out *out, const char *label, const struct gc_offer *offer,
                        const char *unit)
{
    if (offer->state == GC_OFFER_NONE)
        return;
    gc_out_text(out, "  ");
    gc_out_text(out, label);
    gc_out_pad(out, OFFER_COLUMN);
    if (offer->state == GC_OFFER_NOT_ANY) {
        gc_out_text(out, "not even the smallest fits\n");
        return;
    }
    gc_out_uint(out, offer->value);
    gc_out_text(out, unit);
    gc_out_text(out, offer->state == GC_OFFER_ALL ? ", all\n" : "\n");
}

static void write_offers(struct gc_out *out, const struct gc_offers *offers)
{
    if (offers->batch.state == GC_OFFER_NONE && offers->seq_len.state == GC_OFFER_NONE &&
        offers->resident_experts.state == GC_OFFER_NONE && offers->kv_dtype.state == GC_OFFER_NONE)
        return;
    gc_out_text(out, "\nWhat fits, each with all else as it is:\n");
    write_offer(out, "largest batch", &offers->batch, "");
    write_offer(out, "largest context", &offers->seq_len, " tokens");
    write_offer(out, "resident experts", &offers->resident_experts, " of each layer");
    if (offers->kv_dtype.state == GC_OFFER_NONE)
        return;
    gc_out_text(out, "  type of KV cache");
    gc_out_pad(out, OFFER_COLUMN);
    gc_out_text(out, offers->kv_dtype.state == GC_OFFER_NOT_ANY
                         ? "not even the smallest fits"
                         : gc_dtype_name((enum gc_dtype)offers->kv_dtype.value));
    gc_out_char(out, '\n');
}

static void write_fit(struct gc_out *out, const struct gc_answer *answer)
{
    const struct gc_fit *fit = answer->fit;
    char text[GC_TEXT_SIZE_BYTES];
    if (fit == NULL) {
        gc_out_text(out, "\nNo budget is named: --budget SIZE says whether it fits.\n");
        return;
    }
    if (fit->budget_bytes != GC_ESTIMATE_NO_BUDGET)
        write_row(out, "budget", fit->budget_bytes, false);
    if (fit->fits) {
        gc_out_text(out, fit->lower_bound ? "\nWhat is known of it fits.\n" : "\nIt fits.\n");
    } else {
        gc_out_text(out, "\nIt does not fit: ");
        gc_out_text(out, gc_text_size(fit->deficit_bytes, text));
        gc_out_text(out, " short");
        if (answer->estimate->device_count > 1) {
            gc_out_text(out, ", most on device ");
            gc_out_uint(out, fit->device);
        }
        gc_out_text(out, "; most of it is ");
        gc_out_text(out, gc_estimate_part_label(fit->largest));
        gc_out_text(out, ".\n");
    }
    write_offers(out, answer->offers);
}

void gc_answer_write_text(struct gc_out *out, const struct gc_answer *answer)
{
    const struct gc_notes *notes = &answer->estimate->notes;
    write_head(out, answer);
    write_parts(out, answer->estimate);
    write_devices(out, answer);
    write_fit(out, answer);
    if (notes->count > 0)
        gc_out_text(out, "\nTo know:\n");
    for (uint32_t i = 0; i < notes->count; i++) {
        gc_out_text(out, "  ");
        gc_out_text(out, notes->texts[i]);
        gc_out_char(out, '\n');
    }
    if (notes->lost > 0)
        gc_out_text(out, "  and more\n");
}

/* ---- several beside each other ---- */

static const size_t line_columns[] = {38, 50, 62, 74};

void gc_answer_write_head(struct gc_out *out)
{
    static const char *const titles[] = {"weights", "KV cache", "rest", "peak"};
    gc_out_text(out, "model");
    for (unsigned i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        gc_out_right(out, line_columns[i], titles[i]);
    gc_out_text(out, "  fits\n");
}

void gc_answer_write_foot(struct gc_out *out)
{
    gc_out_text(out, "\n+ at least: not all of the model is known; alone it is told what is not\n");
}

void gc_answer_write_line(struct gc_out *out, const struct gc_answer *answer)
{
    const struct gc_estimate_sizes *total = &answer->estimate->total;
    const uint64_t weights = total->parts[GC_ESTIMATE_weight];
    const uint64_t kv = total->parts[GC_ESTIMATE_kv_cache];
    const size_t length = strlen(answer->model);
    const size_t skip = length > 26 ? length - 26 : 0;
    char shown[32];
    gc_out_text(out, gc_text_show(answer->model + skip, length - skip, shown, sizeof(shown)));
    write_size(out, line_columns[0], weights);
    write_size(out, line_columns[1], kv);
    write_size(out, line_columns[2], total->peak_bytes - weights - kv);
    write_size(out, line_columns[3], total->peak_bytes);
    gc_out_text(out, answer->estimate->unknown_parts != 0 ? "+ " : "  ");
    if (answer->fit == NULL)
        gc_out_text(out, "-\n");
    else
        gc_out_text(out, answer->fit->fits ? "yes\n" : "no\n");
}
