/* The estimate beside the measured peak, and the error. Both exclude contexts: those are not the
 * model's memory and cannot be measured everywhere. */
#include "core/report/estimate_record.h"
#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/report/report.h"

#include <string.h>

#define MODEL_COLUMNS 62

/* Estimated and measured peak, both without contexts. */
struct comparison {
    uint64_t estimated_bytes;
    uint64_t measured_bytes;
};

static struct comparison compare(const struct gc_report *report)
{
    const struct gc_report_estimate *estimate = report->facts.estimate;
    return (struct comparison){
        .estimated_bytes = gc_sub_or_zero_u64(estimate->sizes.peak_bytes, estimate->context_bytes),
        .measured_bytes = gc_sub_or_zero_u64(gc_snapshot_measured_bytes(report->snapshot),
                                             gc_snapshot_context_bytes(report->snapshot)),
    };
}

/* The snapshot of the device with this number; NULL if the run used none. */
static const struct gc_device_snapshot *find_device(const struct gc_report *report,
                                                    uint32_t ordinal)
{
    for (uint32_t i = 0; i < report->snapshot->device_count; i++) {
        if (report->snapshot->devices[i].info.ordinal == (int)ordinal)
            return &report->snapshot->devices[i];
    }
    return NULL;
}

/* ---- JSON ---- */

/* How far the estimate is above the measured peak, in thousandths of the peak. */
static int64_t error_thousandths(const struct comparison *sides)
{
    const bool is_over = sides->estimated_bytes >= sides->measured_bytes;
    const uint64_t apart = is_over ? sides->estimated_bytes - sides->measured_bytes
                                   : sides->measured_bytes - sides->estimated_bytes;
    const unsigned __int128 share = (unsigned __int128)apart * 1000 / sides->measured_bytes;
    const int64_t rounded = share > INT64_MAX ? INT64_MAX : (int64_t)share;
    return is_over ? rounded : -rounded;
}

static void write_parts(struct gc_json *json, const struct gc_report_estimate *estimate)
{
    for (unsigned part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        gc_json_write_uint(json, gc_estimate_part_key((enum gc_estimate_part)part),
                           estimate->sizes.parts[part]);
    gc_json_write_uint(json, "peak_bytes", estimate->sizes.peak_bytes);
    gc_json_write_uint(json, "context_bytes", estimate->context_bytes);
    gc_json_write_fixed(json, "coverage", estimate->coverage_thousandths, 3);
    gc_json_write_limit(json, "budget_bytes", estimate->budget_bytes);
    gc_json_write_bool(json, "fits", estimate->fits);
}

static void write_measured(struct gc_json *json, const struct gc_report *report)
{
    const struct comparison sides = compare(report);
    const uint64_t contexts = gc_snapshot_context_bytes(report->snapshot);
    gc_json_write_uint(json, "measured_peak_bytes", gc_snapshot_measured_bytes(report->snapshot));
    gc_json_write_maybe(json, "measured_context_bytes", contexts > 0, contexts);
    gc_json_key(json, "error_thousandths");
    if (sides.measured_bytes > 0)
        gc_json_int(json, error_thousandths(&sides));
    else
        gc_json_null(json);
}

static void put_devices(struct gc_json *json, const struct gc_report *report)
{
    const struct gc_report_estimate *estimate = report->facts.estimate;
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        const struct gc_report_estimate_device *device = &estimate->devices[i];
        const struct gc_device_snapshot *used = find_device(report, i);
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_uint(json, "ordinal", i);
        gc_json_write_uint(json, "peak_bytes", device->peak_bytes);
        gc_json_write_limit(json, "budget_bytes", device->budget_bytes);
        gc_json_write_maybe(json, "measured_peak_bytes", used != NULL,
                            used != NULL ? used->reserved.peak : 0);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void put_warnings(struct gc_json *json, const struct gc_notes *notes)
{
    gc_json_open_array(json, "warnings", GC_JSON_LINES);
    for (uint32_t i = 0; notes != NULL && i < notes->count; i++)
        gc_json_string(json, notes->texts[i]);
    gc_json_end_array(json);
}

void gc_report_estimate_json(struct gc_json *json, const struct gc_report *report)
{
    const struct gc_report_estimate *estimate = report->facts.estimate;
    if (estimate == NULL) {
        gc_json_write_null(json, "estimate");
        gc_json_write_null(json, "gate");
        return;
    }
    gc_json_open_object(json, "estimate", GC_JSON_LINES);
    gc_json_write_string(json, "model", estimate->model);
    gc_json_write_uint(json, "batch", estimate->batch);
    gc_json_write_uint(json, "seq_len", estimate->seq_len);
    write_parts(json, estimate);
    write_measured(json, report);
    put_devices(json, report);
    put_warnings(json, estimate->notes);
    gc_json_end_object(json);
    gc_json_write_string(json, "gate", estimate->fits ? "fits" : "exceeds");
}

/* ---- text ---- */

static void write_peak(struct gc_writer *out, const struct gc_report_estimate *estimate)
{
    gc_writer_print(out, "\n   peak       %s", GC_TEXT_SIZE(estimate->sizes.peak_bytes));
    if (estimate->budget_bytes != UINT64_MAX)
        gc_writer_print(out, ", %s the budget of %s", estimate->fits ? "within" : "above",
                        GC_TEXT_SIZE(estimate->budget_bytes));
    gc_writer_char(out, '\n');
}

static void write_devices(struct gc_writer *out, const struct gc_report *report)
{
    const struct gc_report_estimate *estimate = report->facts.estimate;
    if (estimate->device_count < 2)
        return;
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        const struct gc_report_estimate_device *device = &estimate->devices[i];
        const struct gc_device_snapshot *used = find_device(report, i);
        gc_writer_print(out, "   device %u   %s", i, GC_TEXT_SIZE(device->peak_bytes));
        if (device->budget_bytes != UINT64_MAX)
            gc_writer_print(out, " of %s", GC_TEXT_SIZE(device->budget_bytes));
        if (used != NULL)
            gc_writer_print(out, ", held at most %s", GC_TEXT_SIZE(used->reserved.peak));
        gc_writer_char(out, '\n');
    }
}

static void write_error(struct gc_writer *out, const struct comparison *sides)
{
    const bool is_over = sides->estimated_bytes >= sides->measured_bytes;
    const uint64_t apart = is_over ? sides->estimated_bytes - sides->measured_bytes
                                   : sides->measured_bytes - sides->estimated_bytes;
    gc_writer_print(out, "   without contexts %s, held at most %s",
                    GC_TEXT_SIZE(sides->estimated_bytes), GC_TEXT_SIZE(sides->measured_bytes));
    if (sides->measured_bytes > 0) {
        gc_writer_text(out, is_over ? ": too much by " : ": too little by ");
        gc_writer_fixed(out, (uint64_t)((unsigned __int128)apart * 1000 / sides->measured_bytes),
                        1);
        gc_writer_char(out, '%');
    }
    gc_writer_char(out, '\n');
}

static void write_warnings(struct gc_writer *out, const struct gc_notes *notes)
{
    char text[GC_NOTE_BYTES];
    if (notes == NULL || notes->count == 0)
        return;
    gc_writer_print(
        out, "   notes      %s",
        gc_text_printable(notes->texts[0], strlen(notes->texts[0]), text, MODEL_COLUMNS));
    if (notes->count > 1)
        gc_writer_print(out, "\n              and %lu more: gpucache estimate lists all",
                        (uint64_t)notes->count + notes->lost - 1);
    gc_writer_char(out, '\n');
}

void gc_report_estimate_text(struct gc_writer *out, const struct gc_report *report)
{
    const struct gc_report_estimate *estimate = report->facts.estimate;
    const uint64_t contexts = gc_snapshot_context_bytes(report->snapshot);
    char text[MODEL_COLUMNS + 1];
    if (estimate == NULL)
        return;
    const struct comparison sides = compare(report);
    const char *model = estimate->model != NULL ? estimate->model : "?";
    gc_writer_print(out, "-- estimate of %s",
                    gc_text_printable(model, strlen(model), text, sizeof(text)));
    write_peak(out, estimate);
    write_devices(out, report);
    write_error(out, &sides);
    gc_writer_print(out, "   contexts   %s, %s%s\n", GC_TEXT_SIZE(estimate->context_bytes),
                    contexts > 0 ? "measured " : "not measured",
                    contexts > 0 ? GC_TEXT_SIZE(contexts) : "");
    write_warnings(out, estimate->notes);
}
