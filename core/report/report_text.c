/* The report as text: 80 columns, the largest figures first, then the advice. */
#include "core/base/bits.h"
#include "core/device/tenant.h"
#include "core/io/text.h"
#include "core/report/estimate_record.h"
#include "core/report/tables.h"

#include <string.h>

#define LIST_MAX 10 /* entry points and blocks listed for each device */
#define NAME_COLUMNS 34
#define TENANT_COLUMNS 21
#define COMMAND_COLUMNS 66
#define TEXT_COLUMNS 80
#define SENTENCE_COLUMNS 400

/* Numbers end before these columns. */
enum {
    COUNT_COLUMN = 15,
    CURRENT_COLUMN = 25,
    GAUGE_PEAK_COLUMN = 37,
    CALLS_COLUMN = 46,
    DIRECT_COLUMN = 68
};

/* A text of the program or the system in at most so many columns, in memory of the enclosing block.
 * NULL is "?". */
#define SHOWN(text, columns) shown(text, (columns) + 1, (char[(columns) + 1]){0})

static const char *shown(const char *text, size_t size, char *to)
{
    return text != NULL ? gc_text_printable(text, strlen(text), to, size) : "?";
}

/* Writes the words from the next column on and breaks lines, which begin at `indent`. Ends the
 * line. */
static void write_words(struct gc_writer *out, size_t indent, const char *word)
{
    const size_t most = TEXT_COLUMNS - indent;
    while (*word != '\0') {
        const size_t length = strcspn(word, " ");
        if (out->column + 1 + length > TEXT_COLUMNS && out->column > indent) {
            gc_writer_char(out, '\n');
            gc_writer_pad(out, indent - 1);
        }
        gc_writer_char(out, ' ');
        gc_writer_bytes(out, word, length < most ? length : most);
        word += length;
        word += *word == ' ';
    }
    gc_writer_char(out, '\n');
}

/* The verdict is good news, a fault, or a cost. */
static enum gc_writer_style style_of(enum gc_verdict_kind kind)
{
    if (kind == GC_VERDICT_NONE)
        return GC_STYLE_GOOD;
    return kind <= GC_VERDICT_LEAK ? GC_STYLE_ALERT : GC_STYLE_CAUTION;
}

static void write_head(struct gc_writer *out, const struct gc_report *report)
{
    const struct gc_report_facts *facts = &report->facts;
    char verdict[GC_VERDICT_BYTES];
    const enum gc_verdict_kind kind = gc_report_judge(report, verdict);
    gc_writer_set_style(out, GC_STYLE_STRONG);
    gc_writer_text(out, "== gpucache:");
    gc_writer_set_style(out, style_of(kind));
    write_words(out, 4, verdict);
    gc_writer_set_style(out, GC_STYLE_PLAIN);
    gc_writer_print(out, "   program    %s, pid %ld, gpucache %s\n",
                    SHOWN(facts->process->program, 24), (long)facts->process->pid,
                    SHOWN(facts->version, 16));
    gc_writer_print(out, "   command    %s\n   host       %s\n   ran        ",
                    SHOWN(facts->process->command, COMMAND_COLUMNS - 1),
                    SHOWN(facts->process->host, COMMAND_COLUMNS - 1));
    gc_writer_fixed(out, facts->duration_ns / 1000000, 3);
    gc_writer_print(out, " s, mode %s, backend %s, reuse %s, driver %d.%d\n", SHOWN(facts->mode, 8),
                    SHOWN(facts->backend, 8), SHOWN(facts->reuse, 8), facts->driver_version / 1000,
                    facts->driver_version % 1000 / 10);
}

/* ---- figures of a device ---- */

/* A gauge or counter that stayed 0 is left out. */
static void write_gauges(struct gc_writer *out, const struct gc_device_snapshot *device)
{
    gc_writer_text(out, "   bytes");
    gc_writer_right(out, CURRENT_COLUMN, "at exit");
    gc_writer_right(out, GAUGE_PEAK_COLUMN, "peak");
    gc_writer_char(out, '\n');
    for (size_t i = 0; i < gc_report_device_figures.count; i++) {
        const struct gc_figure *figure = &gc_report_device_figures.figures[i];
        if (figure->type != GC_FIGURE_GAUGE || gc_emitter_peak(figure, device) == 0)
            continue;
        gc_writer_text(out, "   ");
        gc_writer_bytes(out, figure->key, strlen(figure->key) - strlen("_bytes"));
        gc_writer_right_size(out, CURRENT_COLUMN, gc_emitter_number(figure, device));
        gc_writer_right_size(out, GAUGE_PEAK_COLUMN, gc_emitter_peak(figure, device));
        gc_writer_print(out, "  %s\n", figure->text);
    }
}

/* Figures with a text that are no gauges; zeros and absent limits are left out. */
static void write_numbers(struct gc_writer *out, const struct gc_device_snapshot *device)
{
    gc_writer_text(out, "   counts\n");
    for (size_t i = 0; i < gc_report_device_figures.count; i++) {
        const struct gc_figure *figure = &gc_report_device_figures.figures[i];
        if (figure->type == GC_FIGURE_GAUGE || figure->text == NULL ||
            gc_emitter_number(figure, device) == 0 ||
            gc_emitter_number(figure, device) == UINT64_MAX)
            continue;
        gc_writer_set_style(out, figure->is_failure ? GC_STYLE_ALERT : GC_STYLE_PLAIN);
        gc_emitter_cell(out, COUNT_COLUMN, figure, device);
        gc_writer_print(out, "  %s", figure->text);
        gc_writer_set_style(out, GC_STYLE_PLAIN);
        gc_writer_char(out, '\n');
    }
}

static void write_fragmentation(struct gc_writer *out, const struct gc_device_snapshot *device)
{
    gc_writer_print(out, "   idle in the cache %s, free %s, largest free block %s",
                    GC_TEXT_SIZE(device->idle_bytes), GC_TEXT_SIZE(device->free_bytes),
                    GC_TEXT_SIZE(device->largest_free_bytes));
    if (device->stitchable_bytes > 0)
        gc_writer_print(out, "\n   of it in whole pages, which serve any size: %s",
                        GC_TEXT_SIZE(device->stitchable_bytes));
    if (device->stuck_bytes > 0)
        gc_writer_print(out, "\n   of it in handles in use, which serves only where it is: %s",
                        GC_TEXT_SIZE(device->stuck_bytes));
    gc_writer_char(out, '\n');
}

static void write_limit(struct gc_writer *out, uint64_t bytes)
{
    if (bytes == UINT64_MAX)
        gc_writer_text(out, ", no limit");
    else
        gc_writer_print(out, ", limit %s", GC_TEXT_SIZE(bytes));
}

/* The process's own limit, and its group's if it has one. */
static void write_limits(struct gc_writer *out, const struct gc_device_snapshot *device)
{
    write_limit(out, device->limit_bytes);
    if (device->group[0] != '\0') {
        gc_writer_print(out, "%s\n   group      %s",
                        device->limit_bytes != UINT64_MAX ? "" : " of its own",
                        SHOWN(device->group, 44));
        write_limit(out, device->group_limit_bytes);
    }
    gc_writer_char(out, '\n');
}

static void write_plan(struct gc_writer *out, const struct gc_follow_figures *plan)
{
    if (plan->entry_count == 0)
        return;
    gc_writer_print(out,
                    "   plan       %s, %lu allocations, %lu iteration%s\n"
                    "     %lu (%s) followed it\n",
                    GC_TEXT_SIZE(plan->peak_bytes), plan->entry_count, plan->iterations,
                    plan->iterations == 1 ? "" : "s", plan->followed_count,
                    GC_TEXT_SIZE(plan->followed_bytes));
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    if (plan->key##_count > 0)                                                                     \
        gc_writer_print(out, "     %lu (%s) did not: " text "\n", plan->key##_count,               \
                        GC_TEXT_SIZE(plan->key##_bytes));
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
}

static void write_tenants(struct gc_writer *out, const struct gc_device_snapshot *device)
{
    for (uint32_t i = 0; i < device->tenant_count; i++) {
        const struct gc_tenant_figures *tenant = &device->tenants[i];
        if (i == 0) {
            gc_writer_text(out, "   tenant");
            gc_emitter_titles(out, &gc_report_tenant_figures);
            gc_writer_text(out, "  refused\n");
        }
        gc_writer_print(out, "     %s", SHOWN(tenant->name, TENANT_COLUMNS - 1));
        gc_emitter_cells(out, &gc_report_tenant_figures, tenant);
        gc_writer_print(out, "  %lu\n%s", tenant->oom_count,
                        tenant->is_paused ? "       (paused)\n" : "");
    }
}

/* ---- lists ---- */

/* Walks entry points from the largest `key` down; equal ones in the table's order. */
struct ranking {
    const void *figures;
    uint16_t count;
    uint64_t (*key)(const void *figures, int i);
    int last; /* the last result, -1 at first */
};

static int rank_next(struct ranking *ranking)
{
    int best = -1;
    for (int i = 0; i < ranking->count; i++) {
        const uint64_t value = ranking->key(ranking->figures, i);
        if (value == 0)
            continue;
        if (ranking->last >= 0) {
            const uint64_t last = ranking->key(ranking->figures, ranking->last);
            if (value > last || (value == last && i <= ranking->last))
                continue;
        }
        if (best < 0 || value > ranking->key(ranking->figures, best))
            best = i;
    }
    ranking->last = best;
    return best;
}

static uint64_t key_bytes(const void *figures, int i)
{
    const struct gc_api_figures *api = (const struct gc_api_figures *)figures + i;
    return api->count > 0 ? api->peak_bytes + 1 : 0;
}

static uint64_t key_calls(const void *figures, int i)
{
    return ((const struct gc_api_figures *)figures)[i].driver_calls;
}

static uint64_t key_process_calls(const void *figures, int i)
{
    return ((const uint64_t *)figures)[i];
}

static void write_more(struct gc_writer *out, uint64_t more)
{
    if (more > 0)
        gc_writer_print(out, "     ... and %lu more\n", more);
}

static void write_apis(struct gc_writer *out, const struct gc_report *report,
                       const struct gc_device_snapshot *device)
{
    struct ranking ranking = {device->apis, report->snapshot->api_count, key_bytes, -1};
    uint64_t listed = 0;
    for (int i = rank_next(&ranking); i >= 0; i = rank_next(&ranking)) {
        if (listed++ >= LIST_MAX)
            continue;
        if (listed == 1) {
            gc_writer_text(out, "   entry point");
            gc_emitter_titles(out, &gc_report_api_figures);
            gc_writer_char(out, '\n');
        }
        gc_writer_print(out, "     %s", SHOWN(report->api_names[i], NAME_COLUMNS - 1));
        gc_emitter_cells(out, &gc_report_api_figures, &device->apis[i]);
        gc_writer_char(out, '\n');
    }
    write_more(out, listed > LIST_MAX ? listed - LIST_MAX : 0);
}

static void write_calls(struct gc_writer *out, const struct gc_report *report, const char *title,
                        struct ranking ranking)
{
    uint64_t listed = 0;
    uint64_t rest = 0;
    for (int i = rank_next(&ranking); i >= 0; i = rank_next(&ranking)) {
        const uint64_t calls = ranking.key(ranking.figures, i);
        if (listed++ >= LIST_MAX) {
            rest += calls;
            continue;
        }
        gc_writer_print(out, "%s     %s", listed == 1 ? title : "",
                        SHOWN(report->api_names[i], NAME_COLUMNS - 1));
        gc_writer_right_uint(out, CALLS_COLUMN, calls);
        gc_writer_char(out, '\n');
    }
    if (rest > 0) {
        gc_writer_print(out, "     ... and %lu more entry point%s", listed - LIST_MAX,
                        listed == LIST_MAX + 1 ? "" : "s");
        gc_writer_right_uint(out, CALLS_COLUMN, rest);
        gc_writer_char(out, '\n');
    }
}

static const char *direct_text(enum gc_direct_kind kind)
{
    static const char *const texts[GC_DIRECT_KIND_COUNT] = {
#define GC_DIRECT(name, text, charged) text,
#include "core/observe/direct.def"
#undef GC_DIRECT
    };
    return texts[kind];
}

static void write_direct(struct gc_writer *out, const struct gc_device_snapshot *device)
{
    const char *title = "   outside the pool, at exit\n";
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++) {
        if (device->direct_bytes[kind] == 0)
            continue;
        gc_writer_print(out, "%s     %s", title, direct_text((enum gc_direct_kind)kind));
        gc_writer_right_size(out, DIRECT_COLUMN, device->direct_bytes[kind]);
        gc_writer_char(out, '\n');
        title = "";
    }
}

static void write_spills(struct gc_writer *out, const struct gc_report_spills *spills)
{
    const uint32_t listed = spills->count < LIST_MAX ? spills->count : LIST_MAX;
    for (uint32_t i = 0; i < listed; i++) {
        const struct gc_spilled *block = &spills->blocks[i];
        if (i == 0)
            gc_writer_text(out,
                           "   in host memory, by time, with what was full and what it took\n");
        gc_writer_text(out, "     at ");
        gc_writer_fixed(out, block->at_ns / 100000000, 1);
        gc_writer_text(out, " s");
        if (block->ended_ns != 0) {
            gc_writer_text(out, " to ");
            gc_writer_fixed(out, block->ended_ns / 100000000, 1);
            gc_writer_text(out, " s");
        }
        gc_writer_print(out, ": %s, %s full, %s%s\n", GC_TEXT_SIZE(block->bytes),
                        gc_spills_reason_text(block->reason), GC_TEXT_SPAN(block->cost_ns),
                        block->is_moved ? ", moved" : "");
    }
    write_more(out, spills->count - listed);
}

/* ---- devices ---- */

static void write_device(struct gc_writer *out, const struct gc_report *report, uint32_t index)
{
    const struct gc_device_snapshot *device = &report->snapshot->devices[index];
    const char *reason = device->info.backend_reason;
    gc_writer_set_style(out, GC_STYLE_STRONG);
    gc_writer_print(out, "-- device %d", device->info.ordinal);
    gc_writer_set_style(out, GC_STYLE_PLAIN);
    gc_writer_print(out, ": %s, %s", SHOWN(device->info.name, 32),
                    GC_TEXT_SIZE(device->info.total_bytes));
    write_limits(out, device);
    gc_writer_print(out, "   backend    %s%s", device->is_mapped ? "vmm" : "driver",
                    reason[0] != '\0' ? ":" : "");
    write_words(out, 14, SHOWN(reason, sizeof(device->info.backend_reason) - 1));
    write_gauges(out, device);
    write_numbers(out, device);
    write_fragmentation(out, device);
    write_plan(out, &device->plan);
    write_tenants(out, device);
    write_apis(out, report, device);
    write_calls(out, report, "   calls that reached the driver\n",
                (struct ranking){device->apis, report->snapshot->api_count, key_calls, -1});
    write_direct(out, device);
    gc_report_print_sites(out, report, index);
    if (report->spills != NULL)
        write_spills(out, &report->spills[index]);
    gc_report_print_leaks(out, report, index);
}

/* Whether the device comes before the other: its peak is higher, or as high and its number lower.
 */
static bool comes_before(const struct gc_snapshot *snapshot, uint32_t i, uint32_t other)
{
    const uint64_t peak = snapshot->devices[i].reserved.peak;
    const uint64_t other_peak = snapshot->devices[other].reserved.peak;
    return peak > other_peak || (peak == other_peak && i < other);
}

/* The devices by their peak, the highest first (selection sort). */
static void write_devices(struct gc_writer *out, const struct gc_report *report)
{
    const struct gc_snapshot *snapshot = report->snapshot;
    const uint32_t none = UINT32_MAX;
    uint32_t last = none;
    for (uint32_t written = 0; written < snapshot->device_count; written++) {
        uint32_t next = none;
        for (uint32_t i = 0; i < snapshot->device_count; i++) {
            const bool is_left = last == none || comes_before(snapshot, last, i);
            if (is_left && (next == none || comes_before(snapshot, i, next)))
                next = i;
        }
        if (next == none)
            return;
        write_device(out, report, next);
        last = next;
    }
}

/* ---- the process ---- */

static void write_latency(struct gc_writer *out, const char *name, const struct gc_latency *latency)
{
    if (latency->count > 0)
        gc_writer_print(out, "   %s: p50 %s, p99 %s, max %s\n", name, GC_TEXT_SPAN(latency->p50),
                        GC_TEXT_SPAN(latency->p99), GC_TEXT_SPAN(latency->max));
}

static void write_turns(struct gc_writer *out, const struct gc_report *report)
{
    const struct gc_ledger_turn *turn = &report->snapshot->turn;
    const uint64_t ran_ns = report->facts.duration_ns;
    if (!report->snapshot->takes_turns)
        return;
    gc_writer_print(out, "   turns      %lu exchange%s, %s out, %s in, waited %s",
                    turn->exchange_count, turn->exchange_count == 1 ? "" : "s",
                    GC_TEXT_SIZE(turn->out_bytes), GC_TEXT_SIZE(turn->in_bytes),
                    GC_TEXT_SPAN(turn->waited_ns));
    if (ran_ns != 0 && turn->waited_ns != 0) {
        gc_writer_text(out, " (");
        gc_writer_fixed(out, (uint64_t)((unsigned __int128)turn->waited_ns * 1000 / ran_ns), 1);
        gc_writer_text(out, " %)");
    }
    gc_writer_char(out, '\n');
}

struct advice {
    struct gc_writer *out;
    bool any;
};

/* A sentence over as many lines as it needs, from the fourth column on. */
static void write_sentence(void *argument, const char *sentence)
{
    struct advice *advice = argument;
    if (!advice->any) {
        gc_writer_set_style(advice->out, GC_STYLE_STRONG);
        gc_writer_text(advice->out, "-- what to do\n");
        gc_writer_set_style(advice->out, GC_STYLE_PLAIN);
    }
    advice->any = true;
    gc_writer_text(advice->out, "   -");
    write_words(advice->out, 5, SHOWN(sentence, SENTENCE_COLUMNS));
}

enum gc_status gc_report_write_text(const struct gc_report *report, int fd)
{
    const struct gc_snapshot *snapshot = report->snapshot;
    struct gc_writer out;
    gc_writer_init(&out, fd);
    out.is_colored = gc_writer_wants_color(fd);
    write_head(&out, report);
    write_devices(&out, report);
    write_calls(&out, report, "   calls that reached the driver, of no device\n",
                (struct ranking){snapshot->process_driver_calls, snapshot->api_count,
                                 key_process_calls, -1});
    write_turns(&out, report);
    gc_report_estimate_text(&out, report);
    write_latency(&out, "allocations", &snapshot->alloc_latency);
    write_latency(&out, "frees", &snapshot->free_latency);
    gc_report_advise(report, write_sentence, &(struct advice){&out, false});
    return gc_writer_flush(&out);
}
