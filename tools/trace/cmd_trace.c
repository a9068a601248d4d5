/* gpucache trace: summarises a native trace or converts it to another format. */
#include "core/io/json.h"
#include "core/io/text.h"
#include "tools/base/tool.h"
#include "tools/trace/trace_export.h"

#include <string.h>
#include <unistd.h>

/* ---- the summary ---- */

static void write_line(struct gc_writer *out, const char *name, uint64_t value, const char *note)
{
    gc_writer_text(out, name);
    gc_writer_pad(out, 22);
    gc_writer_uint(out, value);
    gc_writer_text(out, note);
    gc_writer_char(out, '\n');
}

static void write_bytes(struct gc_writer *out, const char *name, uint64_t bytes, uint64_t count)
{
    char size[GC_TEXT_SIZE_BYTES];
    gc_writer_text(out, name);
    gc_writer_pad(out, 22);
    gc_writer_uint(out, bytes);
    gc_writer_text(out, " (");
    gc_writer_text(out, gc_text_size(bytes, size));
    gc_writer_text(out, ") in ");
    gc_writer_uint(out, count);
    gc_writer_text(out, " allocations\n");
}

static void print_text(struct gc_writer *out, const struct gc_trace_reader *reader,
                       const struct trace_sum *sum)
{
    write_line(out, "pid", reader->pid, "");
    write_line(out, "events", sum->events, "");
    gc_writer_text(out, "duration");
    gc_writer_pad(out, 22);
    gc_writer_fixed(out, trace_sum_duration_ns(sum) / 1000, 6);
    gc_writer_text(out, " s\n");
    write_line(out, "allocations", sum->allocs, "");
    write_line(out, "frees", sum->frees, "");
    write_line(out, "out of memory", sum->ooms, "");
    write_bytes(out, "peak live bytes", sum->peak_bytes, sum->peak_count);
    write_bytes(out, "live at the end", sum->live_bytes, sum->live_count);
    if (sum->unknown_frees > 0)
        write_line(out, "unknown frees", sum->unknown_frees, " (address not live: left out)");
    if (sum->implied_frees > 0)
        write_line(out, "implied frees", sum->implied_frees,
                   " (address reused: its free was not recorded)");
    if (reader->skipped > 0)
        write_line(out, "damaged records", reader->skipped, " (left out)");
    if (reader->torn)
        gc_writer_text(out, "the last record is incomplete: the recording was cut off\n");
    for (uint16_t i = 0; i < reader->api_count; i++) {
        if (sum->apis[i].count == 0)
            continue;
        gc_writer_text(out, "  ");
        gc_writer_text(out, gc_trace_reader_api_name(reader, i));
        gc_writer_pad(out, 22);
        gc_writer_uint(out, sum->apis[i].count);
        gc_writer_text(out, " allocations, ");
        gc_writer_uint(out, sum->apis[i].bytes);
        gc_writer_text(out, " bytes\n");
    }
}

static void print_json(struct gc_writer *out, const struct gc_trace_reader *reader,
                       const struct trace_sum *sum)
{
    struct gc_json json;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_uint(&json, "pid", reader->pid);
    gc_json_write_uint(&json, "start_unix", reader->start_unix);
    gc_json_write_uint(&json, "events", sum->events);
    gc_json_write_uint(&json, "duration_ns", trace_sum_duration_ns(sum));
    gc_json_write_uint(&json, "alloc_count", sum->allocs);
    gc_json_write_uint(&json, "free_count", sum->frees);
    gc_json_write_uint(&json, "oom_count", sum->ooms);
    gc_json_write_uint(&json, "peak_live_bytes", sum->peak_bytes);
    gc_json_write_uint(&json, "live_bytes", sum->live_bytes);
    gc_json_write_uint(&json, "live_count", sum->live_count);
    gc_json_write_uint(&json, "unknown_free_count", sum->unknown_frees);
    gc_json_write_uint(&json, "implied_free_count", sum->implied_frees);
    gc_json_write_uint(&json, "damaged_record_count", reader->skipped);
    gc_json_write_bool(&json, "torn", reader->torn);
    gc_json_open_object(&json, "by_api", GC_JSON_LINES);
    for (uint16_t i = 0; i < reader->api_count; i++) {
        if (sum->apis[i].count == 0)
            continue;
        gc_json_open_object(&json, gc_trace_reader_api_name(reader, i), GC_JSON_LINE);
        gc_json_write_uint(&json, "count", sum->apis[i].count);
        gc_json_write_uint(&json, "bytes", sum->apis[i].bytes);
        gc_json_end_object(&json);
    }
    gc_json_end_object(&json);
    gc_json_end_object(&json);
}

static int print_summary(const struct gc_trace_reader *reader, const struct trace_sum *sum,
                         bool json)
{
    struct gc_writer out;
    gc_writer_init(&out, STDOUT_FILENO);
    if (json)
        print_json(&out, reader, sum);
    else
        print_text(&out, reader, sum);
    return tool_finish(&tool_command_trace, &out);
}

/* ---- the exports ---- */

struct output {
    trace_export *write;
    const char *path; /* NULL: not requested; "-": standard output */
};

static int export(const struct tool_file *file, const struct gc_trace_reader *reader,
                  const struct output *output)
{
    struct gc_writer out;
    int status = tool_output_open(&tool_command_trace, output->path, file, &out);
    if (status != TOOL_DONE)
        return status;
    const enum gc_status written = output->write(*reader, &out);
    status = tool_output_close(&tool_command_trace, output->path, &out);
    if (written != GC_OK)
        return tool_fail(&tool_command_trace, "%s: %s", file->path, gc_status_text(written));
    return status;
}

static int show(const struct tool_file *file, const struct output *outputs, size_t count, bool json)
{
    struct gc_trace_reader reader;
    struct trace_sum sum;
    const char *why;
    bool exported = false;
    int status = TOOL_DONE;
    if (gc_trace_reader_init(&reader, file->data, file->bytes, &why) != GC_OK)
        return tool_fail(&tool_command_trace, "%s: %s%s", file->path,
                         file->bytes == 0 ? "the file is empty" : why,
                         tool_file_hint(file, TOOL_TRACE));
    for (size_t i = 0; status == TOOL_DONE && i < count; i++) {
        if (outputs[i].path == NULL)
            continue;
        status = export(file, &reader, &outputs[i]);
        exported = true;
    }
    if (status != TOOL_DONE || (exported && !json))
        return status;
    const enum gc_status walked = trace_walk(&reader, NULL, &sum);
    if (walked != GC_OK)
        return tool_fail(&tool_command_trace, "%s: %s", file->path, gc_status_text(walked));
    status = print_summary(&reader, &sum, json);
    trace_sum_fini(&sum);
    return status;
}

/* Only one output can go to standard output. */
static bool has_output_conflict(const struct output *outputs, size_t count, bool json)
{
    unsigned writers = json;
    for (size_t i = 0; i < count; i++)
        writers += outputs[i].path != NULL && strcmp(outputs[i].path, "-") == 0;
    return writers > 1;
}

static int run(int argc, char **argv)
{
    bool json = false;
    bool symbols = false;
    const char *path;
    struct tool_file file;
    struct output outputs[] = {{trace_export_csv, NULL},
                               {trace_export_rmm, NULL},
                               {trace_export_perfetto, NULL},
                               {trace_export_pickle, NULL},
                               {trace_export_html, NULL}};
    const size_t count = sizeof(outputs) / sizeof(outputs[0]);
    const struct tool_option options[] = {
        {.name = "--csv", .value = &outputs[0].path, .bare = "-"},
        {.name = "--rmm", .value = &outputs[1].path, .bare = "-"},
        {.name = "--perfetto", .value = &outputs[2].path, .bare = "-"},
        {.name = "--pickle", .value = &outputs[3].path},
        {.name = "--json", .flag = &json},
        {.name = "--html", .value = &outputs[4].path},
        {.name = "--symbols", .flag = &symbols},
    };
    int status = tool_parse_file(&tool_command_trace, options, sizeof(options) / sizeof(options[0]),
                                 argc, argv, &path);
    if (status != TOOL_DONE || path == NULL)
        return status;
    if (symbols && outputs[4].path == NULL)
        return tool_usage(&tool_command_trace, "--symbols goes with --html");
    if (symbols)
        outputs[4].write = trace_export_named_html;
    if (has_output_conflict(outputs, count, json))
        return tool_usage(&tool_command_trace,
                          "only one of --json and the exports to - can write to standard output");
    status = tool_map(&tool_command_trace, path, &file);
    if (status != TOOL_DONE)
        return status;
    status = show(&file, outputs, count, json);
    tool_unmap(&file);
    return status;
}

const struct tool_command tool_command_trace = {
    .name = "trace",
    .synopsis = "FILE [OPTIONS]",
    .summary = "summarise a recorded trace, or export it",
    .help = "  --csv [OUT]       op,id,bytes,stream,time_us rows\n"
            "  --rmm [OUT]       RMM's log, as its logging resource writes it\n"
            "  --perfetto [OUT]  Chrome's trace JSON, for ui.perfetto.dev: counters of live,\n"
            "                    reserved and pending bytes and of the limit, a slice for\n"
            "                    each allocation\n"
            "  --pickle OUT      a PyTorch memory snapshot, for pytorch.org/memory_viz\n"
            "  --html OUT        a page for any browser, which needs no network\n"
            "  --symbols         with --html: call stacks with the names and lines that the\n"
            "                    programs' files have\n"
            "  --json            the summary as one JSON object\n"
            "\n"
            "A record of GPUCACHE_TRACE. Without OUT, or with -, an export goes to standard\n"
            "output. Allocations are numbered from 1; time begins at the first event; a free\n"
            "of an address that is not live is left out and counted.\n",
    .run = run,
};
