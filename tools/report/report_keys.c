/* Only the first error is reported: later ones are often its consequence. */
#include "tools/report/report_keys.h"

#include "core/io/text.h"
#include "tools/report/report_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void report_fail(struct report_loader *loader, const char *format, ...)
{
    va_list arguments;
    if (loader->failed)
        return;
    loader->failed = true;
    va_start(arguments, format);
    (void)vsnprintf(loader->why, loader->why_bytes, format, arguments);
    va_end(arguments);
}

json_t *report_get(struct report_loader *loader, const json_t *object, const char *key,
                   json_type type)
{
    json_t *value = json_object_get(object, key);
    if (value == NULL)
        report_fail(loader, "\"%s\" is missing", key);
    else if (json_typeof(value) != type)
        report_fail(loader, "\"%s\" has the wrong type", key);
    else
        return value;
    return NULL;
}

uint64_t report_get_uint(struct report_loader *loader, const json_t *object, const char *key)
{
    const json_t *value = report_get(loader, object, key, JSON_INTEGER);
    if (value == NULL)
        return 0;
    if (json_integer_value(value) < 0)
        report_fail(loader, "\"%s\" is negative", key);
    return (uint64_t)json_integer_value(value);
}

int report_get_int(struct report_loader *loader, const json_t *object, const char *key)
{
    const uint64_t value = report_get_uint(loader, object, key);
    if (value > INT32_MAX)
        report_fail(loader, "\"%s\" is out of range", key);
    return (int)(value & INT32_MAX);
}

const char *report_get_string(struct report_loader *loader, const json_t *object, const char *key)
{
    const json_t *value = report_get(loader, object, key, JSON_STRING);
    return value != NULL ? json_string_value(value) : "";
}

void report_copy_string(struct report_loader *loader, const json_t *object, const char *key,
                        char *to, size_t size)
{
    const char *text = report_get_string(loader, object, key);
    gc_text_printable(text, strlen(text), to, size);
}

/* ---- keys that were added after the schema's first version ---- */

static bool is_noted(const char *list, const char *key)
{
    const size_t length = strlen(key);
    for (const char *at = list; (at = strstr(at, key)) != NULL; at += length) {
        const bool begins = at == list || at[-1] == ' ';
        if (begins && (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

static void set_absent(struct report_loader *loader, const char *key)
{
    char *list = loader->loaded->absent;
    const size_t used = strlen(list);
    if (!is_noted(list, key))
        (void)snprintf(list + used, sizeof(loader->loaded->absent) - used, "%s%s",
                       used > 0 ? ", " : "", key);
}

uint64_t report_find_uint(struct report_loader *loader, const json_t *object, const char *key)
{
    if (json_object_get(object, key) != NULL)
        return report_get_uint(loader, object, key);
    set_absent(loader, key);
    return 0;
}

/* ---- latencies ---- */

/* Beyond the schema: [upper bound in ns, count]. */
static void load_histogram(struct report_loader *loader, const json_t *json,
                           struct gc_latency *latency)
{
    const json_t *rows = json_object_get(json, "histogram");
    const json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const json_int_t below = json_integer_value(json_array_get(row, 0));
        const json_int_t count = json_integer_value(json_array_get(row, 1));
        if (below < 2 || count < 0)
            report_fail(loader, "\"histogram\" is malformed");
        else
            latency->powers[62 - __builtin_clzll((uint64_t)below)] = (uint64_t)count;
    }
}

struct gc_latency report_get_latency(struct report_loader *loader, const json_t *object,
                                     const char *key)
{
    const json_t *latency = report_get(loader, object, key, JSON_OBJECT);
    if (latency == NULL)
        return (struct gc_latency){.count = 0};
    struct gc_latency found = {
        .p50 = report_get_uint(loader, latency, "p50"),
        .p99 = report_get_uint(loader, latency, "p99"),
        .max = report_get_uint(loader, latency, "max"),
        .count = json_object_get(latency, "count") != NULL
                     ? report_get_uint(loader, latency, "count")
                     : 1,
    };
    load_histogram(loader, latency, &found);
    return found;
}

/* ---- tables ---- */

static bool is_required(const char *const *required, const char *key)
{
    if (required == NULL)
        return true;
    while (*required != NULL && strcmp(*required, key) != 0)
        required++;
    return *required != NULL;
}

static bool get_flag(struct report_loader *loader, const json_t *object, const char *key)
{
    const json_t *flag = json_object_get(object, key);
    if (!json_is_boolean(flag))
        report_fail(loader, "\"%s\" is neither true nor false", key);
    return json_is_true(flag);
}

static struct gc_gauge get_gauge(struct report_loader *loader, const json_t *object,
                                 const char *key)
{
    const json_t *gauge = report_get(loader, object, key, JSON_OBJECT);
    if (gauge == NULL)
        return (struct gc_gauge){0, 0};
    return (struct gc_gauge){report_get_uint(loader, gauge, "current"),
                             report_get_uint(loader, gauge, "peak")};
}

static void get_figure(struct report_loader *loader, const json_t *object,
                       const struct gc_figure *figure, void *at)
{
    const char *key = figure->key;
    const bool is_null = json_is_null(json_object_get(object, key));
    switch (figure->type) {
    case GC_FIGURE_COUNT:
    case GC_FIGURE_BYTES:
    case GC_FIGURE_NS:
        *(uint64_t *)at = report_get_uint(loader, object, key);
        break;
    case GC_FIGURE_LIMIT:
        *(uint64_t *)at = is_null ? UINT64_MAX : report_get_uint(loader, object, key);
        break;
    case GC_FIGURE_GAUGE:
        *(struct gc_gauge *)at = get_gauge(loader, object, key);
        break;
    case GC_FIGURE_INT:
        *(int *)at = report_get_int(loader, object, key);
        break;
    case GC_FIGURE_BOOL:
        *(bool *)at = get_flag(loader, object, key);
        break;
    case GC_FIGURE_GROUP:
        if (is_null)
            break;
        /* fall through */
    case GC_FIGURE_NAME:
        report_copy_string(loader, object, key, at, figure->bytes);
        break;
    case GC_FIGURE_PART:
    case GC_FIGURE_OPEN:
    case GC_FIGURE_CLOSE:
        break;
    }
}

/* `inner` is the object that holds the next members; NULL where that object is absent. */
void report_get_figures(struct report_loader *loader, const json_t *object,
                        const struct gc_figures *figures, void *record, const char *const *required)
{
    const json_t *inner = object;
    for (size_t i = 0; i < figures->count; i++) {
        const struct gc_figure *figure = &figures->figures[i];
        void *at = (char *)record + figure->offset;
        if (figure->type == GC_FIGURE_CLOSE) {
            inner = object;
        } else if (inner == NULL || figure->type == GC_FIGURE_PART) {
            continue;
        } else if (json_object_get(inner, figure->key) == NULL &&
                   !is_required(required, figure->key)) {
            set_absent(loader, figure->key);
            if (figure->type == GC_FIGURE_LIMIT)
                *(uint64_t *)at = UINT64_MAX;
            else if (figure->type == GC_FIGURE_OPEN)
                inner = NULL;
        } else if (figure->type == GC_FIGURE_OPEN) {
            inner = report_get(loader, object, figure->key, JSON_OBJECT);
        } else {
            get_figure(loader, inner, figure, at);
        }
    }
}
