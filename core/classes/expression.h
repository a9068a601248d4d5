/* Expressions over a configuration's values, as in the generated tables of architectures: a size or
 * a number of tensors, "2*(num_attention_heads*head_dim)+vocab_size".
 *
 *   sum      product { ("+" | "-") product }
 *   product  factor { ("*" | "/" | "//" | "%") factor }      "//" and "%" round down
 *   factor   NUMBER | "-" factor | "(" sum ")"
 *            | "!" factor                                    1 if it is 0 or unknown, else 0
 *            | "?" factor                                    1 if it is known and not 0, else 0
 *            | "#" NAME                                      the length of a list
 *            | ("min" | "max" | "or") "(" sum "," sum ")"    "or": the second if the first is 0 or
 *                                                            unknown
 *            | NAME                                          a value; true is 1, false is 0
 *            | NAME "[" ITEM "]"                             a list: item ITEM if it is a number,
 * else the number of items equal to it | NAME "=" WORD                                 1 if the
 * text is WORD NAME     letters, digits, "_" and "."; WORD and ITEM also "-"
 *
 * No blanks. Left to right; values are doubles, exact for whole numbers to 2^53. A
 * recursive-descent parser that evaluates as it reads. Pure, thread-safe, allocates nothing. */
#ifndef GC_EXPRESSION_H
#define GC_EXPRESSION_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_expression_part {
    GC_EXPRESSION_VALUE,  /* of the name itself */
    GC_EXPRESSION_LENGTH, /* #name */
    GC_EXPRESSION_ITEM,   /* name[item] */
    GC_EXPRESSION_EQUAL,  /* name=item */
};

/* A name as an expression uses it; the texts are not NUL-terminated. */
struct gc_expression_name {
    enum gc_expression_part part;
    const char *name;
    size_t length;
    const char *item; /* of ITEM and EQUAL */
    size_t item_length;
};

/* The values behind the names, given by the caller. */
struct gc_expression_names {
    /* False: unknown. */
    bool (*find)(const struct gc_expression_names *names, const struct gc_expression_name *name,
                 double *value);
};

/* GC_NOT_SUPPORTED: a name is unknown, or a division is by zero; GC_FORMAT: the text is no
 * expression; GC_OVERFLOW: beyond 2^53. */
enum gc_status gc_expression_evaluate(const char *text, size_t length,
                                      const struct gc_expression_names *names,
                                      double *value) GC_CHECKED;

/* The value as a size: rounded down. GC_NOT_SUPPORTED, too, if it is negative; else as above. */
enum gc_status gc_expression_size(const char *text, size_t length,
                                  const struct gc_expression_names *names,
                                  uint64_t *value) GC_CHECKED;

#endif
