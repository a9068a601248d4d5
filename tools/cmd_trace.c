/* gpucache trace: a native trace as CSV, or what is in it. */
#include "core/json.h"
#include "core/text.h"
#include "tools/tool.h"
#include "tools/trace_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t duration_ns(const struct trace_sum *sum)
{
    return sum->last_ns > sum->first_ns ? sum->last_ns - sum->first_ns : 0;
}

/* ---- the summary ---- */

static void put_line(struct gc_out *out, const char *name, uint64_t value, const char *note)
{
    gc_out_text(out, name);
    gc_out_pad(out, 22);
    gc_out_uint(out, value);
    gc_out_text(out, note);
    gc_out_char(out, '\n');
}

static void put_bytes(struct gc_out *out, const char *name, uint64_t bytes, uint64_t count)
{
    char size[GC_TEXT_SIZE_BYTES];
    gc_out_text(out, name);
    gc_out_pad(out, 22);
    gc_out_uint(out, bytes);
    gc_out_text(out, " (");
    gc_out_text(out, gc_text_size(bytes, size));
    gc_out_text(out, ") in ");
    gc_out_uint(out, count);
    gc_out_text(out, " allocations\n");
}

static void print_text(struct gc_out *out, const struct gc_trace_reader *reader,
                       const struct trace_sum *sum)
{
    put_line(out, "pid", reader->pid, "");
    put_line(out, "events", sum->events, "");
    gc_out_text(out, "duration");
    gc_out_pad(out, 22);
    gc_out_fixed(out, duration_ns(sum) / 1000, 6);
    gc_out_text(out, " s\n");
    put_line(out, "allocations", sum->allocs, "");
    put_line(out, "frees", sum->frees, "");
    put_line(out, "out of memory", sum->ooms, "");
    put_bytes(out, "peak live bytes", sum->peak_bytes, sum->peak_count);
    put_bytes(out, "live at the end", sum->live_bytes, sum->live_count);
    if (sum->unknown_frees > 0)
        put_line(out, "unknown frees", sum->unknown_frees, " (address not live: left out)");
    if (sum->implied_frees > 0)
        put_line(out, "implied frees", sum->implied_frees, " (address handed out again)");
    if (reader->skipped > 0)
        put_line(out, "damaged records", reader->skipped, " (left out)");
    if (reader->torn)
        gc_out_text(out, "the last record is incomplete: the recording was cut off\n");
    for (uint16_t i = 0; i < reader->api_count; i++) {
        if (sum->apis[i].count == 0)
            continue;
        gc_out_text(out, "  ");
        gc_out_text(out, gc_trace_reader_api_name(reader, i));
        gc_out_pad(out, 22);
        gc_out_uint(out, sum->apis[i].count);
        gc_out_text(out, " allocations, ");
        gc_out_uint(out, sum->apis[i].bytes);
        gc_out_text(out, " bytes\n");
    }
}

static void print_json(struct gc_out *out, const struct gc_trace_reader *reader,
                       const struct trace_sum *sum)
{
    struct gc_json json;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_put_uint(&json, "pid", reader->pid);
    gc_json_put_uint(&json, "start_unix", reader->start_unix);
    gc_json_put_uint(&json, "events", sum->events);
    gc_json_put_uint(&json, "duration_ns", duration_ns(sum));
    gc_json_put_uint(&json, "alloc_count", sum->allocs);
    gc_json_put_uint(&json, "free_count", sum->frees);
    gc_json_put_uint(&json, "oom_count", sum->ooms);
    gc_json_put_uint(&json, "peak_live_bytes", sum->peak_bytes);
    gc_json_put_uint(&json, "live_bytes", sum->live_bytes);
    gc_json_put_uint(&json, "live_count", sum->live_count);
    gc_json_put_uint(&json, "unknown_free_count", sum->unknown_frees);
    gc_json_put_uint(&json, "implied_free_count", sum->implied_frees);
    gc_json_put_uint(&json, "damaged_record_count", reader->skipped);
    gc_json_key(&json, "torn");
    gc_json_bool(&json, reader->torn);
    gc_json_key(&json, "by_api");
    gc_json_begin_object(&json, GC_JSON_LINES);
    for (uint16_t i = 0; i < reader->api_count; i++) {
        if (sum->apis[i].count == 0)
            continue;
        gc_json_key(&json, gc_trace_reader_api_name(reader, i));
        gc_json_begin_object(&json, GC_JSON_LINE);
        gc_json_put_uint(&json, "count", sum->apis[i].count);
        gc_json_put_uint(&json, "bytes", sum->apis[i].bytes);
        gc_json_end_object(&json);
    }
    gc_json_end_object(&json);
    gc_json_end_object(&json);
}

/* ---- the export ---- */

/* Opens the CSV file, which must not be the trace itself; *fd is standard output for "-". */
static int open_csv(const char *path, const struct tool_file *trace, int *fd)
{
    struct stat info;
    if (strcmp(path, "-") == 0) {
        *fd = STDOUT_FILENO;
        return TOOL_DONE;
    }
    const int opened = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (opened < 0 || fstat(opened, &info) != 0) {
        const int status = tool_fail(&tool_command_trace, "%s: %s", path, strerror(errno));
        if (opened >= 0)
            close(opened);
        return status;
    }
    if ((unsigned long long)info.st_dev == trace->device &&
        (unsigned long long)info.st_ino == trace->inode) {
        close(opened);
        return tool_fail(&tool_command_trace, "%s: is the trace itself", path);
    }
    if (S_ISREG(info.st_mode) && ftruncate(opened, 0) != 0) {
        const int error = errno;
        close(opened);
        return tool_fail(&tool_command_trace, "%s: %s", path, strerror(error));
    }
    *fd = opened;
    return TOOL_DONE;
}

static int close_csv(const char *path, struct gc_out *csv)
{
    const bool flushed = gc_out_flush(csv) == GC_OK;
    int error = errno;
    if (csv->fd != STDOUT_FILENO && close(csv->fd) != 0 && flushed) {
        error = errno;
        return tool_fail(&tool_command_trace, "%s: %s", path, strerror(error));
    }
    return flushed ? TOOL_DONE : tool_fail(&tool_command_trace, "%s: %s", path, strerror(error));
}

static int print_summary(const struct gc_trace_reader *reader, const struct trace_sum *sum,
                         bool json)
{
    struct gc_out out;
    gc_out_init(&out, STDOUT_FILENO);
    if (json)
        print_json(&out, reader, sum);
    else
        print_text(&out, reader, sum);
    return tool_finish(&tool_command_trace, &out);
}

static int show(const struct tool_file *file, const char *csv_path, bool json)
{
    struct gc_trace_reader reader;
    struct trace_sum sum;
    struct gc_out csv;
    const char *why;
    int fd = -1;
    int status;
    if (gc_trace_reader_init(&reader, file->data, file->bytes, &why) != GC_OK)
        return tool_fail(&tool_command_trace, "%s: %s", file->path,
                         file->bytes == 0 ? "the file is empty" : why);
    if (csv_path != NULL) {
        status = open_csv(csv_path, file, &fd);
        if (status != TOOL_DONE)
            return status;
        gc_out_init(&csv, fd);
    }
    const enum gc_status walked = trace_walk(&reader, csv_path != NULL ? &csv : NULL, &sum);
    status = csv_path != NULL ? close_csv(csv_path, &csv) : TOOL_DONE;
    if (walked != GC_OK)
        return tool_fail(&tool_command_trace, "%s: %s", file->path, gc_status_text(walked));
    if (status == TOOL_DONE && (csv_path == NULL || json))
        status = print_summary(&reader, &sum, json);
    trace_sum_fini(&sum);
    return status;
}

static int run(int argc, char **argv)
{
    bool json = false;
    const char *csv = NULL;
    const char *path;
    struct tool_file file;
    const struct tool_option options[] = {
        {.name = "--csv", .value = &csv, .bare = "-"},
        {.name = "--json", .flag = &json},
        {.name = "--perfetto", .absent = true},
        {.name = "--pickle", .absent = true},
        {.name = "--html", .absent = true},
    };
    int status = tool_parse_file(&tool_command_trace, options, sizeof(options) / sizeof(options[0]),
                                 argc, argv, &path);
    if (status != TOOL_DONE || path == NULL)
        return status;
    if (json && csv != NULL && strcmp(csv, "-") == 0)
        return tool_usage(&tool_command_trace, "--json and --csv - both print on standard output");
    status = tool_map(&tool_command_trace, path, &file);
    if (status != TOOL_DONE)
        return status;
    status = show(&file, csv, json);
    tool_unmap(&file);
    return status;
}

const struct tool_command tool_command_trace = {
    .name = "trace",
    .synopsis = "FILE [--csv [OUT]] [--json]",
    .summary = "sum up a recorded trace, or export it",
    .help =
        "  --csv [OUT]     op,id,bytes,stream,time_us rows; without OUT, or with -, on standard output\n"
        "  --json          the summary as one JSON object\n"
        "\n"
        "A record of GPUCACHE_TRACE. Allocations are numbered from 1; time begins at the\n"
        "first event; a free of an address that is not live is left out and counted.\n",
    .run = run,
};
