#include "tools/pickle/pickle_stack.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_FACTOR 16
#define BUDGET_BASE ((size_t)64 << 20)

void pickle_machine_init(struct pickle_machine *machine, struct pickle *pickle, size_t bytes)
{
    *machine = (struct pickle_machine){.pickle = pickle};
    machine->budget = bytes < (SIZE_MAX - BUDGET_BASE) / BUDGET_FACTOR
                          ? bytes * BUDGET_FACTOR + BUDGET_BASE
                          : SIZE_MAX;
}

void pickle_machine_fini(struct pickle_machine *machine)
{
    free(machine->stack.values);
    free(machine->memo.values);
    free(machine->marks);
}

static enum gc_status spend(struct pickle_machine *machine, size_t bytes)
{
    if (bytes > machine->budget)
        return GC_FORMAT;
    machine->budget -= bytes;
    return GC_OK;
}

/* Grows to `count` elements of `size` bytes. The old array returns to the budget. */
static enum gc_status resize(struct pickle_machine *machine, void **elements, size_t *room,
                             size_t count, size_t size)
{
    size_t bytes;
    if (count <= *room)
        return GC_OK;
    if (__builtin_mul_overflow(count, size, &bytes))
        return GC_FORMAT;
    const enum gc_status status = spend(machine, bytes);
    if (status != GC_OK)
        return status;
    void *larger = realloc(*elements, bytes);
    if (larger == NULL)
        return GC_NO_HOST_MEMORY;
    machine->budget += *room * size;
    *elements = larger;
    *room = count;
    return GC_OK;
}

static size_t doubled(size_t room, size_t wanted)
{
    return wanted > room && wanted < room * 2 ? room * 2 : wanted;
}

static enum gc_status grow_array(struct pickle_machine *machine, struct pickle_array *array,
                                 size_t wanted)
{
    void *values = array->values;
    const enum gc_status status = resize(machine, &values, &array->room,
                                         doubled(array->room, wanted), sizeof(*array->values));
    array->values = values;
    return status;
}

enum gc_status pickle_push(struct pickle_machine *machine, const struct pickle_value *value)
{
    const struct pickle_value copy = *value; /* the value may lie in the stack */
    const enum gc_status status = grow_array(machine, &machine->stack, machine->stack.count + 1);
    if (status == GC_OK)
        machine->stack.values[machine->stack.count++] = copy;
    return status;
}

size_t pickle_height(const struct pickle_machine *machine)
{
    const size_t floor = machine->mark_count > 0 ? machine->marks[machine->mark_count - 1] : 0;
    return machine->stack.count - floor;
}

struct pickle_value *pickle_top(struct pickle_machine *machine)
{
    return pickle_height(machine) > 0 ? &machine->stack.values[machine->stack.count - 1] : NULL;
}

enum gc_status pickle_pop(struct pickle_machine *machine, struct pickle_value *value)
{
    const struct pickle_value *top = pickle_top(machine);
    if (top == NULL)
        return GC_FORMAT;
    *value = *top;
    machine->stack.count--;
    return GC_OK;
}

enum gc_status pickle_mark(struct pickle_machine *machine)
{
    void *marks = machine->marks;
    const enum gc_status status =
        resize(machine, &marks, &machine->mark_room,
               doubled(machine->mark_room, machine->mark_count + 1), sizeof(*machine->marks));
    machine->marks = marks;
    if (status == GC_OK)
        machine->marks[machine->mark_count++] = machine->stack.count;
    return status;
}

enum gc_status pickle_pop_mark(struct pickle_machine *machine, const struct pickle_value **values,
                               size_t *count)
{
    if (machine->mark_count == 0)
        return GC_FORMAT;
    const size_t floor = machine->marks[--machine->mark_count];
    *count = machine->stack.count - floor;
    *values = *count > 0 ? &machine->stack.values[floor] : NULL;
    machine->stack.count = floor;
    return GC_OK;
}

enum gc_status pickle_append(struct pickle_machine *machine, struct pickle_items *items,
                             const struct pickle_value *values, size_t count)
{
    void *kept = items->values;
    if (count == 0)
        return GC_OK;
    const enum gc_status status =
        resize(machine, &kept, &items->room, doubled(items->room, items->count + count),
               sizeof(*items->values));
    items->values = kept;
    if (status != GC_OK)
        return status;
    memcpy(&items->values[items->count], values, count * sizeof(*values));
    items->count += count;
    return GC_OK;
}

enum gc_status pickle_make(struct pickle_machine *machine, enum pickle_kind kind,
                           const struct pickle_value *values, size_t count)
{
    enum gc_status status = spend(machine, sizeof(struct pickle_items));
    if (status != GC_OK)
        return status;
    struct pickle_items *items = calloc(1, sizeof(*items));
    if (items == NULL)
        return GC_NO_HOST_MEMORY;
    items->next_of_all = machine->pickle->all;
    machine->pickle->all = items;
    status = pickle_append(machine, items, values, count);
    if (status != GC_OK)
        return status;
    const struct pickle_value value = {.kind = (uint8_t)kind, .items = items};
    return pickle_push(machine, &value);
}

enum gc_status pickle_put(struct pickle_machine *machine, uint64_t number, size_t limit)
{
    struct pickle_array *memo = &machine->memo;
    const struct pickle_value *top = pickle_top(machine);
    if (top == NULL || number >= limit)
        return GC_FORMAT;
    const struct pickle_value value = *top;
    const enum gc_status status = grow_array(machine, memo, (size_t)number + 1);
    if (status != GC_OK)
        return status;
    while (memo->count <= number)
        memo->values[memo->count++].kind = PICKLE_UNSET;
    machine->memo_count += memo->values[number].kind == PICKLE_UNSET;
    memo->values[number] = value;
    return GC_OK;
}

enum gc_status pickle_get(struct pickle_machine *machine, uint64_t number)
{
    const struct pickle_array *memo = &machine->memo;
    if (number >= memo->count || memo->values[number].kind == PICKLE_UNSET)
        return GC_FORMAT;
    return pickle_push(machine, &memo->values[number]);
}
