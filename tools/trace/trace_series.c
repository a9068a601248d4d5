#include "tools/trace/trace_series.h"

#include <stdlib.h>
#include <string.h>

enum gc_status trace_series_init(struct trace_series *series, uint64_t events, uint64_t duration_ns)
{
    const bool is_exact = events <= TRACE_SERIES_POINTS;
    *series = (struct trace_series){
        .room = is_exact ? (size_t)events : TRACE_SERIES_POINTS,
        .duration_ns = duration_ns > 0 ? duration_ns : 1,
        .is_exact = is_exact,
        .now[TRACE_LIMIT] = UINT64_MAX,
    };
    series->points = calloc(series->room + 1, sizeof(*series->points));
    series->layers = calloc(series->room + 1, sizeof(*series->layers));
    series->layers_ns = calloc(series->room + 1, sizeof(*series->layers_ns));
    return series->points != NULL && series->layers != NULL && series->layers_ns != NULL
               ? GC_OK
               : GC_NO_HOST_MEMORY;
}

/* The interval of the time, of TRACE_SERIES_POINTS equally long ones. */
static uint64_t stretch_of(const struct trace_series *series, uint64_t time_ns)
{
    const uint64_t at = time_ns < series->duration_ns ? time_ns : series->duration_ns - 1;
    return (uint64_t)((unsigned __int128)at * TRACE_SERIES_POINTS / series->duration_ns);
}

/* The point of the event's interval: the last one, or a new one after it. */
static struct trace_point *point_at(struct trace_series *series, uint64_t time_ns)
{
    struct trace_point *last = series->count > 0 ? &series->points[series->count - 1] : NULL;
    const bool is_full = series->count == series->room;
    const bool is_new = last == NULL || series->is_exact ||
                        stretch_of(series, time_ns) > stretch_of(series, last->time_ns);
    if (series->points == NULL || is_full || !is_new)
        return last;
    memcpy(series->layers[series->count], series->before_layers, sizeof(*series->layers));
    series->layers_ns[series->count] = time_ns;
    struct trace_point *point = &series->points[series->count++];
    /* An interval begins with the current levels. */
    *point = (struct trace_point){.time_ns = time_ns};
    memcpy(point->last, series->now, sizeof(point->last));
    if (!series->is_exact) {
        memcpy(point->least, series->now, sizeof(point->least));
        memcpy(point->most, series->now, sizeof(point->most));
    }
    return point;
}

void trace_series_add(struct trace_series *series, uint64_t time_ns, enum trace_level level,
                      uint64_t value)
{
    struct trace_point *point = point_at(series, time_ns);
    series->now[level] = value;
    if (level == TRACE_LIVE)
        memcpy(series->before_layers, series->now_layers, sizeof(series->before_layers));
    if (point == NULL)
        return;
    if (level == TRACE_LIVE && (series->is_exact || value > point->most[level])) {
        memcpy(series->layers[point - series->points], series->now_layers, sizeof(*series->layers));
        series->layers_ns[point - series->points] = time_ns;
    }
    point->events++;
    point->last[level] = value;
    if (value < point->least[level])
        point->least[level] = value;
    if (value > point->most[level])
        point->most[level] = value;
}

static void write_numbers(const struct trace_series *series, struct gc_json *json, const char *key,
                          size_t offset, uint64_t none)
{
    gc_json_open_array(json, key, GC_JSON_LINE);
    for (size_t i = 0; i < series->count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&series->points[i] + offset, sizeof(value));
        if (value == none)
            gc_json_null(json);
        else
            gc_json_uint(json, value);
    }
    gc_json_end_array(json);
}

/* For each layer the points where it changes, and its bytes from there on: [i, bytes, i, bytes, …].
 */
static void write_layers(const struct trace_series *series, struct gc_json *json)
{
    if (!series->is_exact) {
        gc_json_open_array(json, "layers_ns", GC_JSON_LINE);
        for (size_t i = 0; i < series->count; i++)
            gc_json_uint(json, series->layers_ns[i]);
        gc_json_end_array(json);
    }
    gc_json_open_array(json, "layers", GC_JSON_LINES);
    for (size_t layer = 0; layer < TRACE_SERIES_LAYERS; layer++) {
        uint64_t before = 0;
        gc_json_begin_array(json, GC_JSON_LINE);
        for (size_t i = 0; i < series->count; i++) {
            if (series->layers[i][layer] == before)
                continue;
            before = series->layers[i][layer];
            gc_json_uint(json, i);
            gc_json_uint(json, before);
        }
        gc_json_end_array(json);
    }
    gc_json_end_array(json);
}

#define POINT(member) offsetof(struct trace_point, member)

void trace_series_write(const struct trace_series *series, struct gc_json *json)
{
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_bool(json, "exact", series->is_exact);
    gc_json_write_uint(json, "stretches", TRACE_SERIES_POINTS);
    gc_json_write_uint(json, "stretch_ns", series->duration_ns / TRACE_SERIES_POINTS);
    write_numbers(series, json, "time_ns", POINT(time_ns), UINT64_MAX);
    write_numbers(series, json, "live", POINT(last[TRACE_LIVE]), UINT64_MAX);
    write_numbers(series, json, "reserved", POINT(last[TRACE_RESERVED]), UINT64_MAX);
    write_numbers(series, json, "pending", POINT(last[TRACE_PENDING]), UINT64_MAX);
    write_numbers(series, json, "limit", POINT(last[TRACE_LIMIT]), UINT64_MAX);
    if (!series->is_exact) {
        write_numbers(series, json, "events", POINT(events), UINT64_MAX);
        write_numbers(series, json, "live_least", POINT(least[TRACE_LIVE]), UINT64_MAX);
        write_numbers(series, json, "live_most", POINT(most[TRACE_LIVE]), UINT64_MAX);
        write_numbers(series, json, "reserved_least", POINT(least[TRACE_RESERVED]), UINT64_MAX);
        write_numbers(series, json, "reserved_most", POINT(most[TRACE_RESERVED]), UINT64_MAX);
        write_numbers(series, json, "pending_most", POINT(most[TRACE_PENDING]), UINT64_MAX);
    }
    write_layers(series, json);
    gc_json_end_object(json);
}

void trace_series_fini(struct trace_series *series)
{
    free(series->points);
    free(series->layers);
    free(series->layers_ns);
    series->points = NULL;
    series->layers = NULL;
    series->layers_ns = NULL;
}
