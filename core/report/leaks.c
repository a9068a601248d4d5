/* Leaks by call site: one entry for all leaks of a stack and an entry point. The table is open
 * addressing with linear probing; it is sorted in place by heapsort. */
#include "core/report/report.h"
#include "core/report/tables.h"

#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

#define TEXT_GROUPS 10
#define NAME_COLUMNS 38
#define API_COLUMNS 38

#define GROUP(key, type, ...) GC_FIGURE(key, type, struct gc_leak_group, __VA_ARGS__)
static const struct gc_figure group_array[] = {
    GROUP("count", COUNT, count, GC_CELL(51, "count")),
    GROUP("bytes", BYTES, bytes, GC_CELL(62, "bytes")),
    GROUP("largest_bytes", BYTES, largest_bytes, GC_CELL(73, "largest")),
};
const struct gc_figures gc_report_leak_figures = GC_FIGURES(group_array);

/* ---- the table ---- */

static bool is_of(const struct gc_leak_group *group, const struct gc_leak *leak)
{
    return group->site == leak->site && group->api == leak->api &&
           (leak->site != 0 || group->largest_bytes == leak->bytes);
}

static void join(struct gc_leak_group *to, const struct gc_leak_group *from)
{
    if (from->largest_bytes > to->largest_bytes) {
        to->largest_bytes = from->largest_bytes;
        to->address = from->address;
    }
    to->count += from->count;
    to->bytes += from->bytes;
}

void gc_leak_table_add(struct gc_leak_table *table, const struct gc_leak *leak)
{
    const uint32_t mask = table->slot_count - 1;
    const uint64_t key = (uint64_t)leak->site << 16 | leak->api;
    const struct gc_leak_group one = {.count = 1,
                                      .bytes = leak->bytes,
                                      .largest_bytes = leak->bytes,
                                      .address = leak->address,
                                      .site = leak->site,
                                      .api = leak->api};
    uint32_t at =
        (uint32_t)gc_mix_u64(leak->site != 0 ? key : key ^ gc_mix_u64(leak->bytes)) & mask;
    while (table->slots[at].count != 0 && !is_of(&table->slots[at], leak))
        at = (at + 1) & mask;
    if (table->slots[at].count != 0) {
        join(&table->slots[at], &one);
    } else if (table->used < table->slot_count / 4 * 3) {
        table->slots[at] = one;
        table->used++;
    }
}

static bool comes_before(const struct gc_leak_group *a, const struct gc_leak_group *b)
{
    return a->bytes > b->bytes || (a->bytes == b->bytes && a->address < b->address);
}

/* Moves the group at `i` below all that come after it: the last one is on top of the heap. */
static void sift_down(struct gc_leak_group *groups, uint32_t count, uint32_t i)
{
    const struct gc_leak_group moved = groups[i];
    for (uint32_t child = 2 * i + 1; child < count; child = 2 * i + 1) {
        if (child + 1 < count && comes_before(&groups[child], &groups[child + 1]))
            child++;
        if (!comes_before(&moved, &groups[child]))
            break;
        groups[i] = groups[child];
        i = child;
    }
    groups[i] = moved;
}

static void sort(struct gc_leak_group *groups, uint32_t count)
{
    for (uint32_t i = count / 2; i > 0; i--)
        sift_down(groups, count, i - 1);
    for (uint32_t left = count; left > 1; left--) {
        const struct gc_leak_group last = groups[0];
        groups[0] = groups[left - 1];
        groups[left - 1] = last;
        sift_down(groups, left - 1, 0);
    }
}

uint32_t gc_leak_table_sort(struct gc_leak_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->slot_count; i++) {
        if (table->slots[i].count != 0)
            table->slots[count++] = table->slots[i];
    }
    sort(table->slots, count);
    return count;
}

/* ---- stacks that read the same ---- */

/* Of the entry point and the frames from the program's own on. */
static uint64_t hash_of(const struct gc_report *report, const struct gc_leak_group *group)
{
    char text[GC_STACK_TEXT_BYTES];
    uint64_t hash = gc_hash_fnv1a(GC_HASH_FNV1A, group->api);
    for (uint32_t i = 0; gc_report_outer_frame(report, group->site, i, text); i++) {
        for (const char *c = text; *c != '\0'; c++)
            hash = gc_hash_fnv1a(hash, (unsigned char)*c);
        hash = gc_hash_fnv1a(hash, '\n');
    }
    return hash;
}

static bool read_the_same(const struct gc_report *report, const struct gc_leak_group *a,
                          const struct gc_leak_group *b)
{
    char text[GC_STACK_TEXT_BYTES];
    char other[GC_STACK_TEXT_BYTES];
    if (a->api != b->api)
        return false;
    for (uint32_t i = 0;; i++) {
        const bool more = gc_report_outer_frame(report, a->site, i, text);
        if (more != gc_report_outer_frame(report, b->site, i, other))
            return false;
        if (!more)
            return true;
        if (strcmp(text, other) != 0)
            return false;
    }
}

uint32_t gc_report_join_leaks(const struct gc_report *report, struct gc_leak_group *groups,
                              uint32_t count)
{
    uint64_t hashes[GC_REPORT_LEAK_MAX];
    uint32_t left = 0;
    for (uint32_t i = 0; i < count && i < GC_REPORT_LEAK_MAX; i++) {
        const struct gc_leak_group group = groups[i];
        const uint64_t hash = group.site != 0 ? hash_of(report, &group) : 0;
        uint32_t same = 0;
        while (same < left && (group.site == 0 || hashes[same] != hash ||
                               !read_the_same(report, &groups[same], &group)))
            same++;
        if (same < left) {
            join(&groups[same], &group);
            continue;
        }
        groups[left] = group;
        hashes[left++] = hash;
    }
    sort(groups, left);
    return left;
}

/* ---- JSON, text ---- */

void gc_report_put_leak_groups(struct gc_json *json, const struct gc_report *report,
                               uint32_t device)
{
    const struct gc_report_leaks *leaks = &report->leaks[device];
    gc_json_begin_array(json, GC_JSON_LINES);
    for (uint32_t i = 0; i < leaks->group_count; i++) {
        const struct gc_leak_group *group = &leaks->groups[i];
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_emitter_members(json, &gc_report_leak_figures, group, NULL);
        gc_json_write_hex(json, "address", group->address);
        gc_json_write_string(json, "api", gc_report_api_name(report, group->api));
        gc_report_put_own(json, report, group->site);
        gc_json_key(json, "stack");
        gc_report_put_stack(json, report, group->site);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

/* The row's name is the program's own frame; the entry point follows with the address of the
 * largest allocation. Without a stack the entry point is the name. */
static void print_group(struct gc_writer *out, const struct gc_report *report,
                        const struct gc_leak_group *group)
{
    const char *api = gc_report_api_name(report, group->api);
    char frame[GC_STACK_TEXT_BYTES];
    char name[NAME_COLUMNS + 1];
    char shown_api[API_COLUMNS + 1];
    const bool is_known = gc_report_short_frame(report, group->site, frame);
    (void)gc_text_printable(api, strlen(api), shown_api, sizeof(shown_api));
    gc_writer_print(out, "     %s",
                    is_known ? gc_text_printable(frame, strlen(frame), name, sizeof(name))
                             : gc_text_printable(api, strlen(api), name, sizeof(name)));
    gc_emitter_cells(out, &gc_report_leak_figures, group);
    gc_writer_print(out, "\n       %s%s", is_known ? shown_api : "",
                    group->count == 1 ? (is_known ? " at " : "at ")
                                      : (is_known ? ", the largest at " : "the largest at "));
    gc_writer_hex(out, group->address);
    gc_writer_char(out, '\n');
    gc_report_print_stack(out, report, group->site);
}

void gc_report_print_leaks(struct gc_writer *out, const struct gc_report *report, uint32_t index)
{
    const struct gc_device_snapshot *device = &report->snapshot->devices[index];
    const struct gc_report_leaks *leaks = &report->leaks[index];
    uint64_t count = device->leak_count;
    uint64_t bytes = device->leak_bytes;
    if (device->leak_count == 0)
        return;
    gc_writer_set_style(out, GC_STYLE_ALERT);
    gc_writer_print(out, "   never freed: %lu allocation%s, %s", count, count == 1 ? "" : "s",
                    GC_TEXT_SIZE(bytes));
    gc_writer_set_style(out, GC_STYLE_PLAIN);
    if (leaks->group_count > 0)
        gc_emitter_titles(out, &gc_report_leak_figures);
    gc_writer_char(out, '\n');
    for (uint32_t i = 0; i < leaks->group_count && i < TEXT_GROUPS; i++) {
        const struct gc_leak_group *group = &leaks->groups[i];
        print_group(out, report, group);
        count -= gc_min_u64(count, group->count);
        bytes -= gc_min_u64(bytes, group->bytes);
    }
    if (count > 0)
        gc_writer_print(out, "     ... and %lu more allocation%s, %s\n", count,
                        count == 1 ? "" : "s", GC_TEXT_SIZE(bytes));
}
