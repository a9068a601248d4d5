#include "tools/report/report_stacks.h"
#include "core/report/tables.h"
#include "tools/base/symbols.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_at(const void *frames, size_t i)
{
    return json_string_value(json_array_get((const json_t *)frames, i));
}

/* The frame of a JSON array as it is written. */
static bool written_frame(const void *source, uint32_t site, uint32_t index,
                          char text[GC_STACK_TEXT_BYTES])
{
    const char *frame = text_at(source, index);
    (void)site;
    if (frame != NULL)
        snprintf(text, GC_STACK_TEXT_BYTES, "%s", frame);
    return frame != NULL;
}

static uint32_t find_own(const void *frames, const char *own)
{
    const size_t count = json_array_size((const json_t *)frames);
    for (size_t i = 0; own != NULL && i < count; i++) {
        if (strcmp(text_at(frames, i), own) == 0)
            return (uint32_t)i;
    }
    return gc_report_find_own(written_frame, frames, 1);
}

bool report_stacks_add(struct report_stacks *stacks, const void *object, uint32_t *site,
                       const char **why)
{
    const json_t *list = json_object_get((const json_t *)object, "stack");
    const char *own = json_string_value(json_object_get((const json_t *)object, "frame"));
    const json_t *text;
    size_t i;
    *site = 0;
    *why = "a stack is not a list of strings";
    if (list == NULL)
        return true;
    if (!json_is_array(list))
        return false;
    json_array_foreach(list, i, text)
    {
        if (!json_is_string(text))
            return false;
    }
    if (i == 0)
        return true;
    struct report_stack *more = realloc(stacks->lists, (stacks->count + 1) * sizeof(*more));
    *why = "out of memory";
    if (more == NULL)
        return false;
    stacks->lists = more;
    stacks->lists[stacks->count++] = (struct report_stack){list, find_own(list, own)};
    *site = stacks->count;
    return true;
}

bool report_stacks_name(struct report_stacks *stacks)
{
    stacks->symbols = symbols_open();
    return stacks->symbols != NULL;
}

void report_stacks_fini(struct report_stacks *stacks)
{
    symbols_close(stacks->symbols);
    free(stacks->lists);
    *stacks = (struct report_stacks){.lists = NULL};
}

bool report_stacks_frame(const void *source, uint32_t site, uint32_t index,
                         char text[GC_STACK_TEXT_BYTES])
{
    const struct report_stacks *stacks = source;
    if (site == 0 || site > stacks->count)
        return false;
    const json_t *frame = json_array_get(stacks->lists[site - 1].frames, index);
    if (frame == NULL)
        return false;
    if (stacks->symbols == NULL ||
        !symbols_name(stacks->symbols, json_string_value(frame), text, GC_STACK_TEXT_BYTES))
        snprintf(text, GC_STACK_TEXT_BYTES, "%s", json_string_value(frame));
    return true;
}

uint32_t report_stacks_own(const void *source, uint32_t site)
{
    const struct report_stacks *stacks = source;
    return site == 0 || site > stacks->count ? 0 : stacks->lists[site - 1].own;
}
