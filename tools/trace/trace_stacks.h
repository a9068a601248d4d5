/* The call stacks of a trace, by the numbers that its records have, and the places that allocations
 * come from: an entry point and the frames of a stack from the program's own one on. Stacks that
 * differ only below that frame are one place. */
#ifndef GC_TRACE_STACKS_READ_H
#define GC_TRACE_STACKS_READ_H

#include "core/base/region.h"
#include "core/base/status.h"
#include "core/base/strmap.h"
#include "core/io/json.h"
#include "core/observe/trace_reader.h"
#include "tools/base/symbols.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_stack;

struct trace_stacks {
    struct gc_region region;
    char **texts;
    struct trace_stack **stacks;
};

/* Reads all stacks of a trace; `reader` is not moved. GC_NO_HOST_MEMORY; call fini then, too. */
enum gc_status trace_stacks_read(struct trace_stacks *stacks,
                                 struct gc_trace_reader reader) GC_CHECKED;
void trace_stacks_fini(struct trace_stacks *stacks);
/* Gives the frames the names and lines that the programs' files have. GC_NO_HOST_MEMORY. */
enum gc_status trace_stacks_name(struct trace_stacks *stacks, struct symbols *symbols) GC_CHECKED;
/* Frame `index` of the stack, innermost first; NULL behind the last, or if it is not known. */
const char *trace_stacks_frame(const struct trace_stacks *stacks, uint32_t stack, uint32_t index);
/* Index of the program's own frame. */
uint32_t trace_stacks_own(const struct trace_stacks *stacks, uint32_t stack);

struct trace_place {
    uint32_t stack; /* one of its stacks; 0: unknown */
    uint16_t api;
};

struct trace_places {
    const struct trace_stacks *stacks;
    struct trace_place *list;
    size_t count;
    size_t room;
    struct gc_strmap by_text; /* names of places */
    struct gc_region region;
    uint64_t *seen; /* slots: place + 1, entry point, stack */
    size_t seen_room;
    size_t seen_count;
};

void trace_places_init(struct trace_places *places, const struct trace_stacks *stacks);
void trace_places_fini(struct trace_places *places);
/* The number of the place, the same at each call. GC_NO_HOST_MEMORY. */
enum gc_status trace_places_find(struct trace_places *places, uint16_t api, uint32_t stack,
                                 uint32_t *number) GC_CHECKED;

/* Writes "sites", each with its entry point, the numbers of its frames' texts, innermost first, and
 * the index of the program's own one ("api", "stack", "own"); and "frames", the texts. */
enum gc_status trace_places_write(const struct trace_stacks *stacks,
                                  const struct trace_place *sites, size_t count,
                                  struct gc_json *json) GC_CHECKED;

#endif
