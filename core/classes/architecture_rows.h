/* The rows of an architecture, evaluated for one configuration: the table's, and those of objects
 * of another type. */
#ifndef GC_ARCHITECTURE_ROWS_H
#define GC_ARCHITECTURE_ROWS_H

#include "core/classes/architecture.h"
#include "core/model/dtype.h"

#define GC_ARCHITECTURE_DIMS_MAX 8

struct gc_architecture_row {
    const char *prefix; /* before the name; NUL-terminated */
    const char *name;   /* with "{}", "{-}" or "{~}" for numbers */
    size_t name_length;
    enum gc_dtype dtype; /* GC_DTYPE_NONE: the model's */
    uint64_t count;
    uint64_t dims[GC_ARCHITECTURE_DIMS_MAX];
    uint32_t dim_count;
    bool is_uneven; /* of `count` tensors of several shapes: dims[0] is all their elements */
    /* The layers that have it: the items of a list that are a word, or that are not. NULL: unknown
     */
    const struct gc_meta_value *kinds;
    const char *kind;
    size_t kind_length;
    bool is_other_kind;
};

struct gc_architecture_visitor {
    enum gc_status (*take)(struct gc_architecture_visitor *visitor,
                           const struct gc_architecture_row *row);
};

/* How many numbers its name has. */
unsigned gc_architecture_row_numbers(const struct gc_architecture_row *row);

/* Whether item `index` of its list is of the row's kind. */
bool gc_architecture_row_is_in(const struct gc_architecture_row *row, uint64_t index);

/* Calls `take` for each row with tensors. Adds a note and raises *known for each reason why the
 * rows are not the whole. The first status that is not GC_OK ends it. */
enum gc_status gc_architecture_visit(const struct gc_architecture_scope *scope,
                                     struct gc_architecture_visitor *visitor,
                                     struct gc_notes *notes,
                                     enum gc_architecture_known *known) GC_CHECKED;

#endif
