/* Two walks: the first counts the events of each device, finds its peak and ranks the places that
 * its allocations come from; the second collects the data. The places with the highest peaks are
 * call sites of their own, the others share the site of their entry point. Each device's picture is
 * written when the second walk passes its peak, so the pictures are separate from the devices, in
 * the order of the peaks. */
#include "tools/trace/trace_page.h"

#include "core/report/html.h"
#include "tools/trace/trace_blocks.h"
#include "tools/trace/trace_export.h"
#include "tools/trace/trace_picture.h"
#include "tools/trace/trace_series.h"
#include "tools/trace/trace_stacks.h"

#include "core/base/bits.h"

#include <stdlib.h>
#include <string.h>

#define LEAKS_MAX 200
#define FAILURE_STRETCHES 512 /* failed requests are merged into at most this many */
#define POWERS 64
#define SITES_MAX 200 /* of a device */
#define NO_LAYER 255

/* What a place has live, and had at most. */
struct rank {
    uint64_t live_bytes;
    uint64_t peak_bytes;
};

struct site {
    uint8_t layer; /* of the device's series; NO_LAYER: none */
    uint64_t count;
    uint64_t bytes;
    uint64_t live_bytes;
    uint64_t live_count;
    uint64_t peak_bytes;
    uint64_t at_peak_bytes; /* when the device's live bytes peaked */
};

struct bucket {
    uint64_t count;
    uint64_t bytes;
};

/* The failures in one interval of time. */
struct failure {
    uint64_t time_ns; /* of the first */
    uint64_t count;
    uint64_t most_bytes;
};

struct device {
    bool is_seen;
    uint64_t events; /* events that change a level */
    uint64_t live_bytes;
    uint64_t live_count;
    uint64_t peak_bytes;
    uint64_t peak_count;
    uint64_t peak_event; /* index of the event that reached the peak */
    uint64_t peak_ns;
    struct trace_series series;
    struct rank *ranks; /* one for each place */
    size_t rank_count;
    struct site *sites; /* one for each call site of the page */
    struct trace_blocks blocks;
    struct bucket sizes[POWERS];     /* [i]: 2^i bytes up to twice that */
    struct bucket lifetimes[POWERS]; /* [i]: 2^i ns up to twice that */
    struct failure *failures;
    uint64_t failure_count;
};

struct page {
    struct device devices[TRACE_DEVICES];
    uint64_t event; /* index of the current event */
    struct trace_stacks stacks;
    struct trace_places places;
    uint32_t *numbers;         /* of each place: its call site */
    struct trace_place *sites; /* call sites, each by one of its places */
    size_t site_count;
    struct gc_json *json;
};

static unsigned power_of(uint64_t value)
{
    return 63U - (unsigned)__builtin_clzll(value | 1);
}

/* ---- the first walk ---- */

static struct device *device_of(struct page *page, const struct trace_step *step)
{
    struct device *device =
        &page->devices[step->allocation != NULL ? step->allocation->device : step->event->device];
    device->is_seen = true;
    return device;
}

/* The record of the allocation's place; NULL: no memory. */
static struct rank *rank_of(struct page *page, struct device *device,
                            const struct trace_allocation *allocation)
{
    uint32_t place;
    if (trace_places_find(&page->places, allocation->api, allocation->stack, &place) != GC_OK)
        return NULL;
    if (place >= device->rank_count) {
        const size_t count = page->places.room;
        struct rank *ranks = realloc(device->ranks, count * sizeof(*ranks));
        if (ranks == NULL)
            return NULL;
        memset(ranks + device->rank_count, 0, (count - device->rank_count) * sizeof(*ranks));
        device->ranks = ranks;
        device->rank_count = count;
    }
    return &device->ranks[place];
}

static enum gc_status count_step(void *self, const struct trace_state *state,
                                 const struct trace_step *step)
{
    struct page *page = self;
    struct device *device = device_of(page, step);
    (void)state;
    page->event++;
    device->events += step->op == GC_TRACE_LEVELS ? 3 : step->allocation != NULL;
    if (step->allocation == NULL)
        return GC_OK;
    struct rank *rank = rank_of(page, device, step->allocation);
    if (rank == NULL)
        return GC_NO_HOST_MEMORY;
    if (step->op == GC_TRACE_FREE) {
        device->live_bytes -= step->allocation->bytes;
        rank->live_bytes -= step->allocation->bytes;
    } else if (step->op == GC_TRACE_ALLOC) {
        device->live_bytes += step->allocation->bytes;
        rank->live_bytes += step->allocation->bytes;
        rank->peak_bytes = gc_max_u64(rank->peak_bytes, rank->live_bytes);
        if (device->live_bytes > device->peak_bytes) {
            device->peak_bytes = device->live_bytes;
            device->peak_event = page->event;
            device->peak_ns = step->time_ns;
        }
    }
    return GC_OK;
}

/* The number of the call site, a new one if `own` or if the entry point has none yet. */
static uint32_t site_number(struct page *page, uint32_t place, bool own)
{
    const struct trace_place *of = &page->places.list[place];
    const struct trace_place shared = {.api = of->api};
    if (!own) {
        for (uint32_t i = 0; i < page->site_count; i++) {
            if (page->sites[i].stack == 0 && page->sites[i].api == of->api)
                return i;
        }
    }
    page->sites[page->site_count] = own ? *of : shared;
    return (uint32_t)page->site_count++;
}

struct ranked {
    uint32_t place;
    uint64_t peak_bytes;
};

static int by_peak_down(const void *a, const void *b)
{
    const struct ranked *left = a;
    const struct ranked *right = b;
    if (left->peak_bytes != right->peak_bytes)
        return left->peak_bytes < right->peak_bytes ? 1 : -1;
    return (left->place > right->place) - (left->place < right->place);
}

/* The device's places, those of the highest peaks first. */
static size_t rank_places(const struct device *device, struct ranked *ranked)
{
    size_t count = 0;
    for (uint32_t i = 0; i < device->rank_count; i++) {
        if (device->ranks[i].peak_bytes > 0)
            ranked[count++] = (struct ranked){i, device->ranks[i].peak_bytes};
    }
    qsort(ranked, count, sizeof(*ranked), by_peak_down);
    return count;
}

/* Sites of their own for the first places of each device, then shared ones for the others. */
static enum gc_status choose_sites(struct page *page)
{
    const size_t count = page->places.count;
    struct ranked *ranked = calloc(count + 1, sizeof(*ranked));
    page->numbers = malloc((count + 1) * sizeof(*page->numbers));
    page->sites = calloc(2 * count + 1, sizeof(*page->sites));
    if (ranked == NULL || page->numbers == NULL || page->sites == NULL) {
        free(ranked);
        return GC_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        page->numbers[i] = UINT32_MAX;
    for (unsigned i = 0; i < TRACE_DEVICES; i++) {
        const size_t used = rank_places(&page->devices[i], ranked);
        for (size_t j = 0; j < used && j < SITES_MAX; j++) {
            if (page->numbers[ranked[j].place] == UINT32_MAX)
                page->numbers[ranked[j].place] = site_number(page, ranked[j].place, true);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (page->numbers[i] == UINT32_MAX)
            page->numbers[i] = site_number(page, i, false);
    }
    free(ranked);
    return GC_OK;
}

/* The first sites have the device's layers. */
static enum gc_status choose_layers(struct page *page, struct device *device)
{
    struct ranked *ranked = calloc(device->rank_count + 1, sizeof(*ranked));
    uint8_t layers = 0;
    if (ranked == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < page->site_count; i++)
        device->sites[i].layer = NO_LAYER;
    const size_t used = rank_places(device, ranked);
    for (size_t i = 0; i < used && layers < TRACE_SERIES_LAYERS; i++) {
        struct site *site = &device->sites[page->numbers[ranked[i].place]];
        if (site->layer == NO_LAYER)
            site->layer = layers++;
    }
    free(ranked);
    return GC_OK;
}

static enum gc_status prepare(struct page *page, uint64_t duration_ns)
{
    page->event = 0;
    enum gc_status status = choose_sites(page);
    for (unsigned i = 0; status == GC_OK && i < TRACE_DEVICES; i++) {
        struct device *device = &page->devices[i];
        if (!device->is_seen)
            continue;
        device->live_bytes = 0;
        device->sites = calloc(page->site_count + 1, sizeof(*device->sites));
        device->failures = calloc(FAILURE_STRETCHES, sizeof(*device->failures));
        if (device->sites == NULL || device->failures == NULL)
            return GC_NO_HOST_MEMORY;
        status = choose_layers(page, device);
        if (status == GC_OK)
            status = trace_blocks_init(&device->blocks);
        if (status == GC_OK)
            status = trace_series_init(&device->series, device->events, duration_ns);
    }
    return status;
}

/* ---- the second walk ---- */

/* The call site of an allocation, which the first walk has seen. */
static uint32_t site_of(void *self, const struct trace_allocation *allocation)
{
    struct page *page = self;
    uint32_t place;
    if (trace_places_find(&page->places, allocation->api, allocation->stack, &place) != GC_OK)
        place = 0;
    return page->numbers[place];
}

static enum gc_status draw(struct page *page, struct device *device,
                           const struct trace_state *state)
{
    const unsigned ordinal = (unsigned)(device - page->devices);
    device->peak_count = device->live_count;
    for (size_t i = 0; i < page->site_count; i++)
        device->sites[i].at_peak_bytes = device->sites[i].live_bytes;
    gc_json_begin_object(page->json, GC_JSON_LINES);
    gc_json_write_uint(page->json, "ordinal", ordinal);
    gc_json_write_uint(page->json, "time_ns", device->peak_ns);
    const enum gc_status status = trace_picture_write(state, ordinal, site_of, page, page->json);
    gc_json_end_object(page->json);
    return status;
}

static void set_layer(struct device *device, const struct site *site)
{
    if (site->layer != NO_LAYER)
        device->series.now_layers[site->layer] = site->live_bytes;
}

static void record_alloc(struct device *device, struct site *site, const struct trace_step *step)
{
    const uint64_t bytes = step->allocation->bytes;
    struct bucket *size = &device->sizes[power_of(bytes)];
    device->live_bytes += bytes;
    device->live_count++;
    site->count++;
    site->bytes += bytes;
    site->live_count++;
    site->live_bytes += bytes;
    if (site->live_bytes > site->peak_bytes)
        site->peak_bytes = site->live_bytes;
    size->count++;
    size->bytes += bytes;
    set_layer(device, site);
}

static void record_free(struct device *device, struct site *site, const struct trace_step *step)
{
    const struct trace_allocation *allocation = step->allocation;
    const uint64_t life_ns =
        step->time_ns > allocation->begin_ns ? step->time_ns - allocation->begin_ns : 0;
    struct bucket *lifetime = &device->lifetimes[power_of(life_ns)];
    device->live_bytes -= allocation->bytes;
    device->live_count--;
    site->live_count--;
    site->live_bytes -= allocation->bytes;
    lifetime->count++;
    lifetime->bytes += allocation->bytes;
    set_layer(device, site);
    trace_blocks_add(&device->blocks, allocation, (uint32_t)(site - device->sites), step->time_ns,
                     true);
}

static void record_failure(struct device *device, const struct trace_step *step)
{
    const uint64_t duration_ns = device->series.duration_ns;
    const uint64_t at = step->time_ns < duration_ns ? step->time_ns : duration_ns - 1;
    struct failure *failure =
        &device->failures[(unsigned __int128)at * FAILURE_STRETCHES / duration_ns];
    if (failure->count++ == 0)
        failure->time_ns = step->time_ns;
    if (step->event->bytes > failure->most_bytes)
        failure->most_bytes = step->event->bytes;
    device->failure_count++;
}

static enum gc_status record_step(void *self, const struct trace_state *state,
                                  const struct trace_step *step)
{
    struct page *page = self;
    struct device *device = device_of(page, step);
    struct trace_series *series = &device->series;
    const struct gc_trace_event *event = step->event;
    page->event++;
    if (step->op == GC_TRACE_LEVELS) {
        trace_series_add(series, step->time_ns, TRACE_RESERVED, event->address);
        trace_series_add(series, step->time_ns, TRACE_PENDING, event->bytes);
        trace_series_add(series, step->time_ns, TRACE_LIMIT, event->stream);
    } else if (step->op == GC_TRACE_OOM) {
        record_failure(device, step);
    } else if (step->allocation != NULL) {
        struct site *site = &device->sites[site_of(page, step->allocation)];
        if (step->op == GC_TRACE_ALLOC)
            record_alloc(device, site, step);
        else
            record_free(device, site, step);
        trace_series_add(series, step->time_ns, TRACE_LIVE, device->live_bytes);
    }
    if (page->event == device->peak_event)
        return draw(page, device, state);
    return GC_OK;
}

/* ---- writing ---- */

static void write_buckets(struct gc_json *json, const char *key, const struct bucket *buckets)
{
    gc_json_open_array(json, key, GC_JSON_LINE);
    for (unsigned i = 0; i < POWERS; i++) {
        if (buckets[i].count == 0)
            continue;
        gc_json_begin_array(json, GC_JSON_LINE);
        gc_json_uint(json, i);
        gc_json_uint(json, buckets[i].count);
        gc_json_uint(json, buckets[i].bytes);
        gc_json_end_array(json);
    }
    gc_json_end_array(json);
}

static void write_sites(const struct page *page, const struct device *device, struct gc_json *json)
{
    gc_json_open_array(json, "sites", GC_JSON_LINES);
    for (size_t i = 0; i < page->site_count; i++) {
        const struct site *site = &device->sites[i];
        if (site->count == 0)
            continue;
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_uint(json, "site", i);
        gc_json_write_maybe(json, "layer", site->layer != NO_LAYER, site->layer);
        gc_json_write_uint(json, "count", site->count);
        gc_json_write_uint(json, "bytes", site->bytes);
        gc_json_write_uint(json, "peak_bytes", site->peak_bytes);
        gc_json_write_uint(json, "at_peak_bytes", site->at_peak_bytes);
        gc_json_write_uint(json, "live_bytes", site->live_bytes);
        gc_json_write_uint(json, "live_count", site->live_count);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void write_failures(const struct device *device, struct gc_json *json)
{
    gc_json_write_uint(json, "failure_count", device->failure_count);
    gc_json_open_array(json, "failures", GC_JSON_LINE);
    for (unsigned i = 0; i < FAILURE_STRETCHES; i++) {
        if (device->failures[i].count == 0)
            continue;
        gc_json_begin_array(json, GC_JSON_LINE);
        gc_json_uint(json, device->failures[i].time_ns);
        gc_json_uint(json, device->failures[i].count);
        gc_json_uint(json, device->failures[i].most_bytes);
        gc_json_end_array(json);
    }
    gc_json_end_array(json);
}

static int by_bytes_down(const void *a, const void *b)
{
    const struct trace_allocation *const *left = a;
    const struct trace_allocation *const *right = b;
    if ((*left)->bytes != (*right)->bytes)
        return (*left)->bytes < (*right)->bytes ? 1 : -1;
    return ((*left)->id > (*right)->id) - ((*left)->id < (*right)->id);
}

static enum gc_status write_leaks(struct page *page, const struct trace_state *state,
                                  unsigned number, struct gc_json *json)
{
    struct device *device = &page->devices[number];
    const struct trace_ledger *ledger = state->ledger;
    const struct trace_allocation **live = malloc((ledger->count + 1) * sizeof(*live));
    size_t count = 0;
    if (live == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < ledger->capacity; i++) {
        if (ledger->slots[i].id != 0 && ledger->slots[i].device == number)
            live[count++] = &ledger->slots[i];
    }
    qsort(live, count, sizeof(*live), by_bytes_down);
    gc_json_open_array(json, "leaks", GC_JSON_LINES);
    for (size_t i = 0; i < count; i++)
        trace_blocks_add(&device->blocks, live[i], site_of(page, live[i]),
                         trace_sum_duration_ns(state->sum), false);
    for (size_t i = 0; i < count && i < LEAKS_MAX; i++) {
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_hex(json, "address", live[i]->address);
        gc_json_write_uint(json, "bytes", live[i]->bytes);
        gc_json_write_uint(json, "site", site_of(page, live[i]));
        gc_json_write_uint(json, "time_ns", live[i]->begin_ns);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
    free(live);
    return GC_OK;
}

static enum gc_status write_device(struct page *page, const struct trace_state *state,
                                   unsigned number, struct gc_json *json)
{
    struct device *device = &page->devices[number];
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_uint(json, "ordinal", number);
    gc_json_write_uint(json, "peak_bytes", device->peak_bytes);
    gc_json_write_uint(json, "peak_count", device->peak_count);
    gc_json_write_uint(json, "peak_ns", device->peak_ns);
    gc_json_write_uint(json, "live_bytes", device->live_bytes);
    gc_json_write_uint(json, "live_count", device->live_count);
    gc_json_key(json, "series");
    trace_series_write(&device->series, json);
    write_sites(page, device, json);
    write_buckets(json, "sizes", device->sizes);
    write_buckets(json, "lifetimes", device->lifetimes);
    write_failures(device, json);
    const enum gc_status status = write_leaks(page, state, number, json);
    trace_blocks_write(&device->blocks, json);
    gc_json_end_object(json);
    return status;
}

static enum gc_status end(void *self, const struct trace_state *state)
{
    struct page *page = self;
    struct gc_json *json = page->json;
    const struct trace_sum *sum = state->sum;
    enum gc_status status = GC_OK;
    gc_json_end_array(json); /* of pictures */
    gc_json_write_uint(json, "pid", state->reader->pid);
    gc_json_write_uint(json, "start_unix", state->reader->start_unix);
    gc_json_write_uint(json, "duration_ns", trace_sum_duration_ns(sum));
    gc_json_write_uint(json, "events", sum->events);
    gc_json_write_uint(json, "alloc_count", sum->allocs);
    gc_json_write_uint(json, "free_count", sum->frees);
    gc_json_write_uint(json, "oom_count", sum->ooms);
    gc_json_write_uint(json, "unknown_free_count", sum->unknown_frees);
    gc_json_write_uint(json, "damaged_record_count", state->reader->skipped);
    gc_json_write_bool(json, "torn", state->reader->torn);
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    for (unsigned i = 0; status == GC_OK && i < TRACE_DEVICES; i++) {
        if (page->devices[i].is_seen)
            status = write_device(page, state, i, json);
    }
    gc_json_end_array(json);
    return status;
}

static enum gc_status write_names(const struct gc_trace_reader *reader, struct gc_json *json)
{
    const char **names = trace_api_names(reader);
    if (names == NULL)
        return GC_NO_HOST_MEMORY;
    gc_json_open_array(json, "apis", GC_JSON_LINE);
    for (uint16_t i = 0; i < reader->api_count; i++)
        gc_json_string(json, names[i]);
    gc_json_end_array(json);
    free(names);
    return GC_OK;
}

static enum gc_status export_page(struct gc_trace_reader reader, struct symbols *symbols,
                                  struct gc_writer *out)
{
    struct gc_json json;
    gc_html_begin(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "name", "");
    gc_json_write_null(&json, "report");
    gc_json_key(&json, "trace");
    const enum gc_status status = trace_page_write(reader, symbols, &json);
    gc_json_end_object(&json);
    gc_html_end(&json);
    return status;
}

enum gc_status trace_export_html(struct gc_trace_reader reader, struct gc_writer *out)
{
    return export_page(reader, NULL, out);
}

enum gc_status trace_export_named_html(struct gc_trace_reader reader, struct gc_writer *out)
{
    struct symbols *symbols = symbols_open();
    if (symbols == NULL)
        return GC_NO_HOST_MEMORY;
    const enum gc_status status = export_page(reader, symbols, out);
    symbols_close(symbols);
    return status;
}

static void page_free(struct page *page)
{
    for (unsigned i = 0; i < TRACE_DEVICES; i++) {
        struct device *device = &page->devices[i];
        trace_series_fini(&device->series);
        trace_blocks_fini(&device->blocks);
        free(device->ranks);
        free(device->sites);
        free(device->failures);
    }
    trace_places_fini(&page->places);
    trace_stacks_fini(&page->stacks);
    free(page->numbers);
    free(page->sites);
    free(page);
}

enum gc_status trace_page_write(struct gc_trace_reader reader, struct symbols *symbols,
                                struct gc_json *json)
{
    struct gc_trace_reader again = reader;
    struct page *page = calloc(1, sizeof(*page));
    struct trace_sum sum;
    if (page == NULL)
        return GC_NO_HOST_MEMORY;
    page->json = json;
    trace_places_init(&page->places, &page->stacks);
    gc_json_begin_object(json, GC_JSON_LINES);
    enum gc_status status = write_names(&reader, json);
    if (status == GC_OK)
        status = trace_stacks_read(&page->stacks, reader);
    if (status == GC_OK && symbols != NULL)
        status = trace_stacks_name(&page->stacks, symbols);
    if (status == GC_OK)
        status = trace_walk(&reader, &(struct trace_sink){page, count_step, NULL}, &sum);
    if (status == GC_OK) {
        status = prepare(page, trace_sum_duration_ns(&sum));
        trace_sum_fini(&sum);
    }
    if (status == GC_OK)
        status = trace_places_write(&page->stacks, page->sites, page->site_count, json);
    gc_json_open_array(json, "pictures", GC_JSON_LINES);
    if (status == GC_OK)
        status = trace_walk(&again, &(struct trace_sink){page, record_step, end}, &sum);
    if (status == GC_OK)
        trace_sum_fini(&sum);
    gc_json_end_object(json);
    page_free(page);
    return status;
}
