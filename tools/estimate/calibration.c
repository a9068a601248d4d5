#include "tools/estimate/calibration.h"
#include "core/base/bits.h"
#include "core/config/file.h"
#include "core/config/size.h"
#include "core/io/text.h"
#include "core/report/snapshot.h"
#include "tools/report/report_load.h"

#include <string.h>

#define MILLION 1000000
#define OVERHEAD_MAX (99 * MILLION)

/* ---- measured ---- */

/* The largest over the devices. */
static uint64_t largest_context(const struct gc_snapshot *snapshot)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < snapshot->device_count; i++)
        bytes = gc_max_u64(bytes, snapshot->devices[i].context.peak);
    return bytes;
}

static int fill(const struct tool_command *command, const char *path,
                const struct report_loaded *loaded, struct calibration *calibration)
{
    const uint64_t measured = gc_sub_or_zero_u64(gc_snapshot_measured_bytes(&loaded->snapshot),
                                                 gc_snapshot_context_bytes(&loaded->snapshot));
    if (measured == 0)
        return tool_fail(command, "%s: the run held no device memory", path);
    calibration->measured_bytes = measured;
    calibration->context_bytes = largest_context(&loaded->snapshot);
    gc_text_printable(loaded->process.program, strlen(loaded->process.program),
                      calibration->program, sizeof(calibration->program));
    gc_text_printable(loaded->process.host, strlen(loaded->process.host), calibration->host,
                      sizeof(calibration->host));
    return TOOL_DONE;
}

/* The run's own estimate (GPUCACHE_MODEL), if it has one, shows another model or other options. */
static void add_doubts(const struct gc_report_estimate *own, struct gc_estimate *estimate)
{
    char batch[GC_NOTE_NUMBER_BYTES];
    char tokens[GC_NOTE_NUMBER_BYTES];
    char weights[GC_TEXT_SIZE_BYTES];
    bool is_same = own == NULL || own->device_count == estimate->device_count;
    for (unsigned part = 0; own != NULL && part < GC_ESTIMATE_overhead; part++)
        is_same = is_same && own->sizes.parts[part] == estimate->total.parts[part];
    if (!is_same)
        gc_notes_add(
            &estimate->notes, "the run was estimated with another model or other options: batch ",
            gc_note_number(own->batch, batch), ", context ", gc_note_number(own->seq_len, tokens),
            ", weights ", gc_text_size(own->sizes.parts[GC_ESTIMATE_weight], weights),
            ": the overhead below is not for this model and these options", NULL);
    if (estimate->unknown_parts != 0)
        gc_notes_add(&estimate->notes,
                     "parts are lower bounds: the overhead below includes what they omit", NULL);
}

static int read_report(const struct tool_command *command, const char *path,
                       struct gc_estimate *estimate, struct calibration *calibration)
{
    struct tool_file *const file = &calibration->report;
    struct report_loaded loaded;
    char why[256];
    int status = tool_map(command, path, file);
    if (status != TOOL_DONE)
        return status;
    if (file->bytes == 0) {
        status = tool_fail(command, "%s: the file is empty", path);
    } else if (report_load(file->data, file->bytes, &loaded, why, sizeof(why)) != GC_OK) {
        status = tool_fail(command, "%s: %s", path, why);
    } else {
        status = fill(command, path, &loaded, calibration);
        add_doubts(loaded.report.facts.estimate, estimate);
        report_unload(&loaded);
    }
    tool_unmap(file);
    return status;
}

int calibration_measure(const struct tool_command *command, const char *report_path,
                        struct gc_estimate *estimate, uint64_t context_bytes,
                        struct calibration *calibration)
{
    const uint64_t contexts = context_bytes * estimate->device_count;
    const uint64_t overhead = estimate->total.parts[GC_ESTIMATE_overhead];
    memset(calibration, 0, sizeof(*calibration));
    calibration->estimated_bytes = gc_sub_or_zero_u64(estimate->total.peak_bytes, contexts);
    calibration->parts_bytes = gc_sub_or_zero_u64(estimate->total.peak_bytes, overhead);
    const int status = read_report(command, report_path, estimate, calibration);
    if (status != TOOL_DONE)
        return status;
    if (calibration->parts_bytes == 0)
        return tool_fail(command, "the estimate is 0 bytes: no overhead follows");
    const uint64_t beyond =
        gc_sub_or_zero_u64(calibration->measured_bytes, calibration->parts_bytes);
    const unsigned __int128 share =
        ((unsigned __int128)beyond * MILLION + calibration->parts_bytes - 1) /
        calibration->parts_bytes;
    if (share > OVERHEAD_MAX)
        return tool_fail(
            command,
            "%s: the run held more than 100 times the estimate: it may be of another model",
            report_path);
    calibration->overhead_millionths = (uint64_t)share;
    return TOOL_DONE;
}

/* ---- the file ---- */

static void write_factor(struct gc_writer *out, uint64_t millionths)
{
    gc_writer_fixed(out, MILLION + millionths, 6);
}

static void write_file(struct gc_writer *out, const struct calibration *calibration)
{
    gc_writer_text(out, "# Overhead of ");
    gc_writer_text(out, calibration->program);
    gc_writer_text(out, " on ");
    gc_writer_text(out, calibration->host);
    gc_writer_text(out, ", by gpucache estimate --calibrate: estimated ");
    gc_writer_uint(out, calibration->parts_bytes);
    gc_writer_text(out, " bytes without it, held ");
    gc_writer_uint(out, calibration->measured_bytes);
    gc_writer_text(out, "\nGPUCACHE_OVERHEAD=");
    write_factor(out, calibration->overhead_millionths);
    gc_writer_char(out, '\n');
    if (calibration->context_bytes == 0)
        return;
    gc_writer_text(out, "GPUCACHE_CONTEXT_MEMORY=");
    gc_writer_uint(out, calibration->context_bytes);
    gc_writer_char(out, '\n');
}

int calibration_store(const struct tool_command *command, const struct calibration *calibration,
                      const char *path)
{
    struct gc_writer out;
    if (path == NULL)
        return TOOL_DONE;
    const int status = tool_output_open(command, path, &calibration->report, &out);
    if (status != TOOL_DONE)
        return status;
    write_file(&out, calibration);
    return tool_output_close(command, path, &out);
}

struct found {
    bool has_factor;
    bool is_factor_good;
    bool is_context_good;
    uint64_t millionths;
    uint64_t context_bytes; /* 0: none */
};

static void read_factor(struct found *found, const char *value)
{
    struct gc_decimal number;
    const char *end;
    found->has_factor = true;
    found->is_factor_good = gc_text_decimal(value, &end, &number) && *end == '\0' &&
                            number.whole >= 1 && number.whole <= 100;
    if (found->is_factor_good)
        found->millionths = (number.whole - 1) * MILLION +
                            (uint64_t)((unsigned __int128)number.fraction * MILLION / number.scale);
}

static void read_entry(void *argument, const char *key, const char *value)
{
    struct found *found = argument;
    if (strcmp(key, "GPUCACHE_OVERHEAD") == 0)
        read_factor(found, value);
    else if (strcmp(key, "GPUCACHE_CONTEXT_MEMORY") == 0)
        found->is_context_good = gc_size_parse(value, &found->context_bytes) == GC_OK;
}

static void skip_line(void *argument, unsigned line)
{
    (void)argument;
    (void)line;
}

int calibration_load(const struct tool_command *command, const char *path,
                     uint64_t *overhead_millionths, uint64_t *context_bytes)
{
    struct found found = {.is_context_good = true};
    struct gc_config config = {NULL};
    const struct gc_config_visitor visitor = {
        .argument = &found, .entry = read_entry, .bad = skip_line};
    if (gc_config_read(path, &visitor, &config) != GC_OK)
        return tool_fail(command, "%s: not a readable file of KEY=value lines, at most 64 KiB",
                         path);
    gc_config_close(&config);
    if (!found.has_factor)
        return tool_fail(command, "%s: there is no GPUCACHE_OVERHEAD in it", path);
    if (!found.is_factor_good)
        return tool_fail(
            command, "%s: its GPUCACHE_OVERHEAD is not valid; accepted: a factor, 1 to 100", path);
    if (!found.is_context_good)
        return tool_fail(command, "%s: its GPUCACHE_CONTEXT_MEMORY is not valid; accepted: a size",
                         path);
    *overhead_millionths = found.millionths;
    if (found.context_bytes > 0)
        *context_bytes = found.context_bytes;
    return TOOL_DONE;
}

/* ---- output ---- */

void calibration_write_json(struct gc_json *json, const struct calibration *calibration)
{
    gc_json_open_object(json, "calibration", GC_JSON_LINE);
    gc_json_write_string(json, "program", calibration->program);
    gc_json_write_string(json, "host", calibration->host);
    gc_json_write_uint(json, "estimated_bytes", calibration->estimated_bytes);
    gc_json_write_uint(json, "measured_bytes", calibration->measured_bytes);
    gc_json_write_fixed(json, "overhead", MILLION + calibration->overhead_millionths, 6);
    if (calibration->context_bytes > 0)
        gc_json_write_uint(json, "context_bytes", calibration->context_bytes);
    else
        gc_json_write_null(json, "context_bytes");
    gc_json_end_object(json);
}

void calibration_print_text(struct gc_writer *out, const struct calibration *calibration)
{
    char text[GC_TEXT_SIZE_BYTES];
    const uint64_t estimated = calibration->estimated_bytes;
    const uint64_t measured = calibration->measured_bytes;
    const bool is_over = estimated >= measured;
    const uint64_t apart = is_over ? estimated - measured : measured - estimated;
    gc_writer_text(out, "\nAgainst the run of ");
    gc_writer_text(out, calibration->program);
    gc_writer_text(out, ":\n  estimated without context  ");
    gc_writer_text(out, gc_text_size(estimated, text));
    gc_writer_text(out, "\n  measured peak              ");
    gc_writer_text(out, gc_text_size(measured, text));
    gc_writer_text(out, "\n  error                      ");
    gc_writer_char(out, is_over ? '+' : '-');
    gc_writer_fixed(out, (uint64_t)((unsigned __int128)apart * 1000 / measured), 1);
    gc_writer_text(out, "%\n  derived overhead           ");
    write_factor(out, calibration->overhead_millionths);
    gc_writer_text(out, measured < calibration->parts_bytes
                            ? ": the run used less than the parts without overhead\n"
                            : "\n");
    gc_writer_text(out, "  memory of a context        ");
    gc_writer_text(out, calibration->context_bytes > 0
                            ? gc_text_size(calibration->context_bytes, text)
                            : "not measured in that run");
    gc_writer_char(out, '\n');
}
