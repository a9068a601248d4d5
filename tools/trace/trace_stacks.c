/* Texts are assembled from their parts in any order. A place is found by its entry point and stack
 * in a hash table, and the first time by the text of its frames. */
#include "tools/trace/trace_stacks.h"

#include "core/base/bits.h"
#include "core/observe/stacks.h"
#include "core/observe/trace_format.h"
#include "core/report/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION_BYTES_MAX (UINT64_C(1) << 30)
#define TEXT_ROOM (GC_STACK_TEXT_BYTES + GC_TRACE_PAYLOAD_BYTES)
#define SEEN_MIN 1024
#define OWN_UNKNOWN UINT32_MAX

struct trace_stack {
    uint32_t own;
    uint32_t texts[GC_STACK_FRAMES_MAX + 1]; /* up to a 0 */
};

/* ---- reading ---- */

static void payload_of(const struct gc_trace_event *event,
                       unsigned char bytes[GC_TRACE_PAYLOAD_BYTES])
{
    memcpy(bytes, &event->address, 8);
    memcpy(bytes + 8, &event->bytes, 8);
    memcpy(bytes + 16, &event->stream, 8);
}

static enum gc_status add_text(struct trace_stacks *stacks, const struct gc_trace_event *event)
{
    unsigned char bytes[GC_TRACE_PAYLOAD_BYTES];
    char **text = &stacks->texts[event->thread];
    if (*text == NULL)
        *text = gc_region_alloc(&stacks->region, TEXT_ROOM + 1);
    if (*text == NULL)
        return GC_NO_HOST_MEMORY;
    payload_of(event, bytes);
    memcpy(*text + event->api, bytes, sizeof(bytes));
    return GC_OK;
}

static enum gc_status add_frames(struct trace_stacks *stacks, const struct gc_trace_event *event)
{
    unsigned char bytes[GC_TRACE_PAYLOAD_BYTES];
    uint32_t numbers[GC_TRACE_PAYLOAD_FRAMES];
    struct trace_stack **stack = &stacks->stacks[event->thread];
    if (*stack == NULL)
        *stack = gc_region_alloc(&stacks->region, sizeof(**stack));
    if (*stack == NULL)
        return GC_NO_HOST_MEMORY;
    (*stack)->own = OWN_UNKNOWN;
    payload_of(event, bytes);
    memcpy(numbers, bytes, sizeof(numbers));
    for (uint32_t i = 0; i < GC_TRACE_PAYLOAD_FRAMES && event->api + i < GC_STACK_FRAMES_MAX; i++)
        (*stack)->texts[event->api + i] = numbers[i] < GC_TRACE_NUMBERS_MAX ? numbers[i] : 0;
    return GC_OK;
}

enum gc_status trace_stacks_read(struct trace_stacks *stacks, struct gc_trace_reader reader)
{
    struct gc_trace_event event;
    enum gc_status status = GC_OK;
    *stacks = (struct trace_stacks){.texts = NULL};
    gc_region_init(&stacks->region, REGION_BYTES_MAX);
    if (reader.version < GC_TRACE_VERSION_STACKS)
        return GC_OK;
    stacks->texts = calloc(GC_TRACE_NUMBERS_MAX, sizeof(*stacks->texts));
    stacks->stacks = calloc(GC_TRACE_NUMBERS_MAX, sizeof(*stacks->stacks));
    if (stacks->texts == NULL || stacks->stacks == NULL)
        return GC_NO_HOST_MEMORY;
    while (status == GC_OK && gc_trace_reader_next_any(&reader, &event)) {
        if (event.op == GC_TRACE_TEXT)
            status = add_text(stacks, &event);
        else if (event.op == GC_TRACE_FRAMES)
            status = add_frames(stacks, &event);
    }
    return status;
}

void trace_stacks_fini(struct trace_stacks *stacks)
{
    gc_region_fini(&stacks->region);
    free(stacks->texts);
    free(stacks->stacks);
    *stacks = (struct trace_stacks){.texts = NULL};
}

static struct trace_stack *stack_of(const struct trace_stacks *stacks, uint32_t stack)
{
    return stacks->stacks != NULL && stack < GC_TRACE_NUMBERS_MAX ? stacks->stacks[stack] : NULL;
}

const char *trace_stacks_frame(const struct trace_stacks *stacks, uint32_t stack, uint32_t index)
{
    const struct trace_stack *of = stack_of(stacks, stack);
    if (of == NULL || index >= GC_STACK_FRAMES_MAX || of->texts[index] == 0)
        return NULL;
    const char *text = stacks->texts[of->texts[index]];
    return text != NULL ? text : "?"; /* the recording was cut off */
}

static bool frame_of(const void *source, uint32_t stack, uint32_t index,
                     char text[GC_STACK_TEXT_BYTES])
{
    const char *frame = trace_stacks_frame(source, stack, index);
    if (frame != NULL)
        snprintf(text, GC_STACK_TEXT_BYTES, "%s", frame);
    return frame != NULL;
}

uint32_t trace_stacks_own(const struct trace_stacks *stacks, uint32_t stack)
{
    struct trace_stack *of = stack_of(stacks, stack);
    if (of == NULL)
        return 0;
    if (of->own == OWN_UNKNOWN)
        of->own = gc_report_find_own(frame_of, stacks, stack);
    return of->own;
}

/* The own frames are found first: a name has no object. */
enum gc_status trace_stacks_name(struct trace_stacks *stacks, struct symbols *symbols)
{
    char text[GC_STACK_TEXT_BYTES];
    for (uint32_t i = 0; stacks->stacks != NULL && i < GC_TRACE_NUMBERS_MAX; i++)
        (void)trace_stacks_own(stacks, i);
    for (uint32_t i = 0; stacks->texts != NULL && i < GC_TRACE_NUMBERS_MAX; i++) {
        if (stacks->texts[i] == NULL ||
            !symbols_name(symbols, stacks->texts[i], text, sizeof(text)))
            continue;
        stacks->texts[i] = (char *)gc_region_text(&stacks->region, text, strlen(text));
        if (stacks->texts[i] == NULL)
            return GC_NO_HOST_MEMORY;
    }
    return GC_OK;
}

/* ---- places ---- */

void trace_places_init(struct trace_places *places, const struct trace_stacks *stacks)
{
    *places = (struct trace_places){.stacks = stacks};
    gc_strmap_init(&places->by_text);
    gc_region_init(&places->region, REGION_BYTES_MAX);
}

void trace_places_fini(struct trace_places *places)
{
    gc_region_fini(&places->region);
    free(places->list);
    free(places->seen);
    *places = (struct trace_places){.stacks = NULL};
}

/* "api\nframe\nframe…" from the program's own frame on; the length. */
static size_t name_of(const struct trace_places *places, uint16_t api, uint32_t stack, char *name,
                      size_t size)
{
    const char *frame;
    const uint32_t own = trace_stacks_own(places->stacks, stack);
    size_t used = (size_t)snprintf(name, size, "%u\n", (unsigned)api);
    for (uint32_t i = own; (frame = trace_stacks_frame(places->stacks, stack, i)) != NULL; i++)
        used += (size_t)snprintf(name + used, size - used, "%s\n", frame);
    return used;
}

static enum gc_status add_place(struct trace_places *places, uint16_t api, uint32_t stack,
                                uint32_t *number)
{
    static char name[GC_STACK_FRAMES_MAX * (TEXT_ROOM + 2) + 16];
    bool added;
    const size_t length = name_of(places, api, stack, name, sizeof(name));
    struct gc_strmap_entry *entry =
        gc_strmap_find_or_add(&places->by_text, &places->region, name, length, &added);
    if (entry == NULL)
        return GC_NO_HOST_MEMORY;
    *number = entry->value;
    if (!added)
        return GC_OK;
    if (places->count == places->room) {
        const size_t room = places->room > 0 ? places->room * 2 : 64;
        struct trace_place *list = realloc(places->list, room * sizeof(*list));
        if (list == NULL)
            return GC_NO_HOST_MEMORY;
        places->list = list;
        places->room = room;
    }
    entry->text = gc_region_text(&places->region, name, length);
    if (entry->text == NULL)
        return GC_NO_HOST_MEMORY;
    entry->value = (uint32_t)places->count;
    *number = entry->value;
    places->list[places->count++] = (struct trace_place){stack, api};
    return GC_OK;
}

/* A slot is 0 or 1 + place (24 bits), stack (17 bits), entry point (16 bits). */
#define SEEN_KEY_BITS 33U

static uint64_t *slot_of(uint64_t *slots, size_t room, uint64_t key)
{
    size_t at = (size_t)gc_mix_u64(key) & (room - 1);
    while (slots[at] != 0 && (slots[at] & ((UINT64_C(1) << SEEN_KEY_BITS) - 1)) != key)
        at = (at + 1) & (room - 1);
    return &slots[at];
}

static enum gc_status grow_seen(struct trace_places *places)
{
    const size_t room = places->seen_room > 0 ? places->seen_room * 2 : SEEN_MIN;
    uint64_t *larger = calloc(room, sizeof(*larger));
    if (larger == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < places->seen_room; i++) {
        const uint64_t slot = places->seen[i];
        if (slot != 0)
            *slot_of(larger, room, slot & ((UINT64_C(1) << SEEN_KEY_BITS) - 1)) = slot;
    }
    free(places->seen);
    places->seen = larger;
    places->seen_room = room;
    return GC_OK;
}

enum gc_status trace_places_find(struct trace_places *places, uint16_t api, uint32_t stack,
                                 uint32_t *number)
{
    const uint64_t key = (uint64_t)(stack % GC_TRACE_NUMBERS_MAX) << 16 | api;
    if (places->seen_count * 2 >= places->seen_room) {
        const enum gc_status status = grow_seen(places);
        if (status != GC_OK)
            return status;
    }
    uint64_t *slot = slot_of(places->seen, places->seen_room, key);
    if (*slot != 0) {
        *number = (uint32_t)(*slot >> SEEN_KEY_BITS) - 1;
        return GC_OK;
    }
    const enum gc_status status = add_place(places, api, stack, number);
    if (status == GC_OK) {
        *slot = (uint64_t)(*number + 1) << SEEN_KEY_BITS | key;
        places->seen_count++;
    }
    return status;
}

/* ---- writing ---- */

/* A place, with the numbers that the page gives to the texts of its frames. */
static void write_site(const struct trace_stacks *stacks, const struct trace_place *site,
                       struct gc_strmap *texts, struct gc_region *region, struct gc_json *json)
{
    const char *frame;
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_uint(json, "api", site->api);
    gc_json_write_uint(json, "own", trace_stacks_own(stacks, site->stack));
    gc_json_open_array(json, "stack", GC_JSON_LINE);
    for (uint32_t i = 0; (frame = trace_stacks_frame(stacks, site->stack, i)) != NULL; i++) {
        bool added;
        struct gc_strmap_entry *entry =
            gc_strmap_find_or_add(texts, region, frame, strlen(frame), &added);
        if (entry == NULL)
            break;
        if (added) {
            entry->text = frame;
            entry->value = texts->used - 1;
        }
        gc_json_uint(json, entry->value);
    }
    gc_json_end_array(json);
    gc_json_end_object(json);
}

static enum gc_status write_texts(const struct gc_strmap *texts, struct gc_json *json)
{
    const char **list = calloc((size_t)texts->used + 1, sizeof(*list));
    if (list == NULL)
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < texts->slot_count; i++) {
        if (texts->slots[i].text != NULL)
            list[texts->slots[i].value] = texts->slots[i].text;
    }
    gc_json_open_array(json, "frames", GC_JSON_LINES);
    for (uint32_t i = 0; i < texts->used; i++)
        gc_json_string(json, list[i]);
    gc_json_end_array(json);
    free(list);
    return GC_OK;
}

enum gc_status trace_places_write(const struct trace_stacks *stacks,
                                  const struct trace_place *sites, size_t count,
                                  struct gc_json *json)
{
    struct gc_strmap texts;
    struct gc_region region;
    gc_strmap_init(&texts);
    gc_region_init(&region, REGION_BYTES_MAX);
    gc_json_open_array(json, "sites", GC_JSON_LINES);
    for (size_t i = 0; i < count; i++)
        write_site(stacks, &sites[i], &texts, &region, json);
    gc_json_end_array(json);
    const enum gc_status status = write_texts(&texts, json);
    gc_region_fini(&region);
    return status;
}
