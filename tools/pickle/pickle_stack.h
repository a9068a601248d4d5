/* The stack machine of a pickle: a stack with marks, a memo, and containers, within a budget of
 * host memory. */
#ifndef GC_PICKLE_STACK_H
#define GC_PICKLE_STACK_H

#include "tools/pickle/pickle.h"

struct pickle_array {
    struct pickle_value *values;
    size_t count;
    size_t room;
};

struct pickle_machine {
    struct pickle *pickle;
    size_t budget; /* remaining bytes */
    struct pickle_array stack;
    struct pickle_array memo; /* kind PICKLE_UNSET in unset entries */
    size_t memo_count;        /* entries that are set: the next number of MEMOIZE */
    size_t *marks;            /* heights of the stack */
    size_t mark_count;
    size_t mark_room;
};

#define PICKLE_UNSET UINT8_MAX

void pickle_machine_init(struct pickle_machine *machine, struct pickle *pickle, size_t bytes);
void pickle_machine_fini(struct pickle_machine *machine);

/* Below, GC_FORMAT: a missing operand on the stack, or the budget is spent. */
enum gc_status pickle_push(struct pickle_machine *machine,
                           const struct pickle_value *value) GC_CHECKED;
/* The number of values above the last mark. */
size_t pickle_height(const struct pickle_machine *machine);
/* The topmost value, above the last mark; NULL if there is none. */
struct pickle_value *pickle_top(struct pickle_machine *machine);
enum gc_status pickle_pop(struct pickle_machine *machine, struct pickle_value *value) GC_CHECKED;
enum gc_status pickle_mark(struct pickle_machine *machine) GC_CHECKED;
/* Pops the last mark and the values above it; *values stays readable until the next push. */
enum gc_status pickle_pop_mark(struct pickle_machine *machine, const struct pickle_value **values,
                               size_t *count) GC_CHECKED;
/* Pushes a container of that kind. */
enum gc_status pickle_make(struct pickle_machine *machine, enum pickle_kind kind,
                           const struct pickle_value *values, size_t count) GC_CHECKED;
enum gc_status pickle_append(struct pickle_machine *machine, struct pickle_items *items,
                             const struct pickle_value *values, size_t count) GC_CHECKED;
/* Stores the topmost value in the memo under a number below `limit`. */
enum gc_status pickle_put(struct pickle_machine *machine, uint64_t number, size_t limit) GC_CHECKED;
enum gc_status pickle_get(struct pickle_machine *machine, uint64_t number) GC_CHECKED;

#endif
