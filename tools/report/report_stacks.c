#include "tools/report/report_stacks.h"
#include "tools/report/symbols.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

bool report_stacks_add(struct report_stacks *stacks, const void *list, uint32_t *site,
                       const char **why)
{
    const json_t *text;
    size_t i;
    *site = 0;
    *why = "a stack is not a list of strings";
    if (list == NULL)
        return true;
    if (!json_is_array((const json_t *)list))
        return false;
    json_array_foreach((const json_t *)list, i, text)
    {
        if (!json_is_string(text))
            return false;
    }
    if (i == 0)
        return true;
    const void **more = realloc(stacks->lists, (stacks->count + 1) * sizeof(*more));
    *why = "out of memory";
    if (more == NULL)
        return false;
    stacks->lists = more;
    stacks->lists[stacks->count++] = list;
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
    const json_t *frame = json_array_get(stacks->lists[site - 1], index);
    if (frame == NULL)
        return false;
    if (stacks->symbols == NULL ||
        !symbols_name(stacks->symbols, json_string_value(frame), text, GC_STACK_TEXT_BYTES))
        snprintf(text, GC_STACK_TEXT_BYTES, "%s", json_string_value(frame));
    return true;
}
