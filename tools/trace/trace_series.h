/* Levels over time, for drawing, with a bounded number of points. If the trace has more events than
 * points, a point stands for an interval, with its least and greatest levels. */
#ifndef GC_TRACE_SERIES_H
#define GC_TRACE_SERIES_H

#include "core/base/status.h"
#include "core/io/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_SERIES_POINTS 4096

enum trace_level { TRACE_LIVE, TRACE_RESERVED, TRACE_PENDING, TRACE_LIMIT, TRACE_LEVEL_COUNT };

struct trace_point {
    uint64_t time_ns; /* of the first event in it */
    uint64_t events;
    uint64_t least[TRACE_LEVEL_COUNT];
    uint64_t most[TRACE_LEVEL_COUNT];
    uint64_t last[TRACE_LEVEL_COUNT];
};

/* Parts of TRACE_LIVE whose sums are drawn one on the other; the rest of it has no part. */
#define TRACE_SERIES_LAYERS 8

struct trace_series {
    struct trace_point *points;
    size_t count;
    size_t room;
    uint64_t duration_ns;
    bool is_exact; /* a point for each event */
    uint64_t now[TRACE_LEVEL_COUNT];
    /* Of each point: the layers when live bytes were the most, and that time. */
    uint64_t (*layers)[TRACE_SERIES_LAYERS];
    uint64_t *layers_ns;
    uint64_t before_layers[TRACE_SERIES_LAYERS];
    uint64_t now_layers[TRACE_SERIES_LAYERS]; /* the caller sets them before it adds TRACE_LIVE */
};

/* `events`: the number of updates that follow, over `duration_ns`. */
enum gc_status trace_series_init(struct trace_series *series, uint64_t events,
                                 uint64_t duration_ns) GC_CHECKED;
/* Sets the level from then on; times decrease only by the jitter between threads. */
void trace_series_add(struct trace_series *series, uint64_t time_ns, enum trace_level level,
                      uint64_t value);
/* Writes an object with an array of times and one for each level. */
void trace_series_write(const struct trace_series *series, struct gc_json *json);
void trace_series_fini(struct trace_series *series);

#endif
