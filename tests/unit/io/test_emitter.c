/* Figures of a table in JSON, text and Prometheus' format; and gc_writer_print. */
#include "core/io/emitter.h"
#include "core/observe/stats.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <stdlib.h>
#include <unistd.h>

struct record {
    uint64_t count;
    uint64_t bytes;
    uint64_t limit;
    struct gc_gauge live;
    uint64_t ns;
    int number;
    bool flag;
    char name[8];
    char group[8];
};

static void put_twice(struct gc_json *json, const void *record, const void *argument)
{
    const struct record *of = record;
    assert_string_equal(argument, "argument");
    gc_json_uint(json, 2 * of->count);
}

#define ROW(key, type, ...) GC_FIGURE(key, type, struct record, __VA_ARGS__)
static const struct gc_figure array[] = {
    ROW("count", COUNT, count, GC_CELL(20, "count"), GC_METRIC(3, "seen_count", "Seen.")),
    ROW("bytes", BYTES, bytes, GC_CELL(10, "bytes")),
    ROW("limit", LIMIT, limit, GC_CELL(30, "limit"), GC_METRIC(1, "limit_bytes", "Limit.")),
    {.key = "inside", .type = GC_FIGURE_OPEN},
    ROW("live", GAUGE, live, GC_METRIC(2, "live_bytes", "Now."), GC_PEAK_CELL(40, "peak"),
        GC_PEAK_METRIC(2, "live_peak_bytes", "Most.")),
    {.type = GC_FIGURE_CLOSE},
    ROW(NULL, NS, ns, GC_CELL(50, "time"), GC_METRIC(0, "span_seconds", "Time.")),
    ROW("number", INT, number),
    ROW("flag", BOOL, flag),
    ROW("name", NAME, name),
    ROW("group", GROUP, group),
    GC_FIGURE_WRITTEN("twice", put_twice),
};
static const struct gc_figures figures = GC_FIGURES(array);

static const struct record records[] = {
    {.count = 3,
     .bytes = 1536,
     .limit = UINT64_MAX,
     .live = {1, 2048},
     .ns = 1500,
     .number = -4,
     .flag = true,
     .name = "a\"b"},
    {.limit = 5, .ns = 1, .group = "g"},
};

static struct gc_writer out;
static char *written;

static void begin(void)
{
    gc_writer_init(&out, scratch_fd());
}

static const char *end(void)
{
    assert_int_equal(gc_writer_flush(&out), GC_OK);
    free(written);
    written = scratch_read(out.fd, NULL);
    close(out.fd);
    return written;
}

static void json_has_the_order_of_the_table(void **state)
{
    struct gc_json json;
    (void)state;
    begin();
    gc_json_init(&json, &out);
    gc_json_begin_object(&json, GC_JSON_LINE);
    gc_emitter_members(&json, &figures, &records[0], "argument");
    gc_json_end_object(&json);
    assert_string_equal(end(), "{\"count\": 3, \"bytes\": 1536, \"limit\": null, "
                               "\"inside\": {\"live\": {\"current\": 1, \"peak\": 2048}}, "
                               "\"number\": -4, \"flag\": true, \"name\": \"a\\\"b\", "
                               "\"group\": null, \"twice\": 6}\n");
}

static void text_has_the_order_of_the_columns(void **state)
{
    (void)state;
    begin();
    gc_emitter_titles(&out, &figures);
    gc_writer_char(&out, '\n');
    gc_emitter_cells(&out, &figures, &records[0]);
    gc_writer_char(&out, '\n');
    gc_emitter_cells(&out, &figures, &records[1]);
    assert_string_equal(end(), "     bytes     count     limit      peak      time\n"
                               "   1.5 KiB         3      none   2.0 KiB    1.5 us\n"
                               "       0 B         0       5 B       0 B      1 ns");
}

static const void *next_record(struct gc_samples *samples)
{
    samples->labels[0] = (struct gc_label){.name = "name", .text = "a\"\\\n\xff"};
    samples->labels[1] = (struct gc_label){.name = "index", .number = samples->outer};
    return samples->outer < 2 ? &records[samples->outer++] : NULL;
}

static const void *next_none(struct gc_samples *samples)
{
    (void)samples;
    return NULL;
}

static void metrics_have_the_order_of_their_ranks(void **state)
{
#define LABELS(index) "{name=\"a\\\"\\\\\\n\xef\xbf\xbd\",index=\"" index "\"} "
    (void)state;
    begin();
    gc_emitter_metrics(&out, &figures, &(struct gc_samples){.next = next_record});
    assert_string_equal(
        end(),
        "# HELP gpucache_span_seconds Time.\n"
        "# TYPE gpucache_span_seconds gauge\n"
        "gpucache_span_seconds" LABELS(
            "0") "0.000001500\n"
                 "gpucache_span_seconds" LABELS(
                     "1") "0.000000001\n"
                          "# HELP gpucache_limit_bytes Limit.\n"
                          "# TYPE gpucache_limit_bytes gauge\n"
                          "gpucache_limit_bytes" LABELS(
                              "1") "5\n"
                                   "# HELP gpucache_live_bytes Now.\n"
                                   "# TYPE gpucache_live_bytes gauge\n"
                                   "gpucache_live_bytes" LABELS(
                                       "0") "1\n"
                                            "gpucache_live_bytes" LABELS(
                                                "1") "0\n"
                                                     "# HELP gpucache_live_peak_bytes Most.\n"
                                                     "# TYPE gpucache_live_peak_bytes gauge\n"
                                                     "gpucache_live_peak_bytes" LABELS(
                                                         "0") "2048\n"
                                                              "gpucache_live_peak_bytes" LABELS(
                                                                  "1") "0\n"
                                                                       "# HELP gpucache_seen_total Seen.\n"
                                                                       "# TYPE gpucache_seen_total counter\n"
                                                                       "gpucache_seen_total" LABELS(
                                                                           "0") "3\n"
                                                                                "gpucache_seen_total" LABELS(
                                                                                    "1") "0\n");
}

static void a_metric_without_samples_is_left_out(void **state)
{
    const struct gc_figures first = {array, 1};
    (void)state;
    begin();
    gc_emitter_metrics(&out, &first, &(struct gc_samples){.next = next_none});
    assert_string_equal(end(), "");
    begin();
    gc_emitter_metrics(&out, &first, &(struct gc_samples){.next = next_none, .is_always = true});
    assert_string_equal(end(), "# HELP gpucache_seen_total Seen.\n"
                               "# TYPE gpucache_seen_total counter\n");
}

static void print_writes_each_directive(void **state)
{
    (void)state;
    begin();
    gc_writer_print(&out, "%s|%d|%ld|%u|%lu|%%|%d\n", "text", -12, INT64_MIN, UINT32_MAX,
                    UINT64_MAX, INT32_MIN);
    gc_writer_char(&out, 'a');
    gc_writer_right(&out, 5, "b");
    gc_writer_right_uint(&out, 10, 7);
    gc_writer_right_uint(&out, 11, 12345678);
    gc_writer_text(&out, ".\n");
    assert_string_equal(end(), "text|-12|-9223372036854775808|4294967295|18446744073709551615|%|"
                               "-2147483648\n"
                               "a   b    7 12345678.\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_the_order_of_the_table),
        cmocka_unit_test(text_has_the_order_of_the_columns),
        cmocka_unit_test(metrics_have_the_order_of_their_ranks),
        cmocka_unit_test(a_metric_without_samples_is_left_out),
        cmocka_unit_test(print_writes_each_directive),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(written);
    return failed;
}
