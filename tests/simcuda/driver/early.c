/* Calls before cuInit has succeeded: the table's checks of arguments, in their order, then
 * CUDA_ERROR_NOT_INITIALIZED (early.def). The order of checks inside the bodies does not matter
 * until then. */
#include "tests/simcuda/driver/early.h"

#include <string.h>

enum { NEW = 1 << SIM_START_NEW, TRIED = 1 << SIM_START_TRIED, BOTH = NEW | TRIED };
enum { CONDITIONS_MAX = 6, HANDLES_KNOWN = 2 };

enum kind {
    NONE,
    ANY,
    IS_ZERO,
    ARE_ZERO,
    IS_GIVEN,
    IS_FULL,
    IS_WILD,
    HAS_BITS,
    LACKS_BITS,
    IS_NOT_IN
};
/* Where the number is: the argument, a word of it, or a word behind the pointer that it is. */
enum place { ARGUMENT, FIELD, WORD };

struct condition {
    enum kind kind;
    enum place place;
    int argument; /* counted from 1 */
    int offset;   /* of a word; of ARE_ZERO the second argument */
    uint64_t mask;
};

#define ALWAYS                                                                                     \
    {                                                                                              \
        ANY, ARGUMENT, 0, 0, 0                                                                     \
    }
#define ZERO(n)                                                                                    \
    {                                                                                              \
        IS_ZERO, ARGUMENT, n, 0, 0                                                                 \
    }
#define ZEROES(n, m)                                                                               \
    {                                                                                              \
        ARE_ZERO, ARGUMENT, n, m, 0                                                                \
    }
#define GIVEN(n)                                                                                   \
    {                                                                                              \
        IS_GIVEN, ARGUMENT, n, 0, 0                                                                \
    }
#define FULL(n)                                                                                    \
    {                                                                                              \
        IS_FULL, ARGUMENT, n, 0, 0                                                                 \
    }
#define WILD(n)                                                                                    \
    {                                                                                              \
        IS_WILD, ARGUMENT, n, 0, 0                                                                 \
    }
#define BITS(n, mask)                                                                              \
    {                                                                                              \
        HAS_BITS, ARGUMENT, n, 0, mask                                                             \
    }
#define NEEDS(n, mask)                                                                             \
    {                                                                                              \
        LACKS_BITS, ARGUMENT, n, 0, mask                                                           \
    }
#define EXCEPT(n, set)                                                                             \
    {                                                                                              \
        IS_NOT_IN, ARGUMENT, n, 0, set                                                             \
    }
#define FIELD_BITS(n, offset, mask)                                                                \
    {                                                                                              \
        HAS_BITS, FIELD, n, offset, mask                                                           \
    }
#define FIELD_EXCEPT(n, offset, set)                                                               \
    {                                                                                              \
        IS_NOT_IN, FIELD, n, offset, (uint64_t)(set)                                               \
    }
#define WORD_BITS(n, offset, mask)                                                                 \
    {                                                                                              \
        HAS_BITS, WORD, n, offset, mask                                                            \
    }
#define WORD_EXCEPT(n, offset, set)                                                                \
    {                                                                                              \
        IS_NOT_IN, WORD, n, offset, (uint64_t)(set)                                                \
    }

static const struct early_row {
    const char *name;
    int when;
    CUresult result; /* CUDA_SUCCESS: the body answers */
    struct condition conditions[CONDITIONS_MAX];
} rows[] = {
#define ANYTIME(name) {#name, BOTH, CUDA_SUCCESS, {ALWAYS}},
#define EARLY(name, when, result, ...) {#name, when, result, {__VA_ARGS__}},
#include "tests/simcuda/driver/early.def"
};

static bool all_bytes_are(const struct sim_argument *argument, unsigned char byte)
{
    const unsigned char *bytes = argument->address;

    for (size_t i = 0; i < argument->bytes; i++)
        if (bytes[i] != byte)
            return false;
    return true;
}

/* False: nothing is there. */
static bool number_at(const struct sim_argument *argument, const struct condition *condition,
                      uint64_t *number)
{
    const unsigned char *from = argument->address;
    size_t bytes = argument->bytes < sizeof *number ? argument->bytes : sizeof *number;

    if (condition->place == WORD)
        from = *(const unsigned char *const *)argument->address;
    if (condition->place != ARGUMENT)
        bytes = sizeof(uint32_t);
    if (!from || (condition->place == FIELD && (size_t)condition->offset + bytes > argument->bytes))
        return false;
    *number = 0;
    memcpy(number, from + condition->offset, bytes);
    return true;
}

static bool holds(const struct condition *condition, const struct sim_argument *arguments)
{
    const struct sim_argument *argument = &arguments[condition->argument - 1];
    uint64_t number = 0, mask = condition->mask;

    switch (condition->kind) {
    case NONE:
        return false;
    case ANY:
        return true;
    case IS_ZERO:
        return all_bytes_are(argument, 0);
    case ARE_ZERO:
        return all_bytes_are(argument, 0) && all_bytes_are(&arguments[condition->offset - 1], 0);
    case IS_GIVEN:
        return !all_bytes_are(argument, 0);
    case IS_FULL:
        return all_bytes_are(argument, 0xff);
    case IS_WILD:
        return number_at(argument, condition, &number) && number > HANDLES_KNOWN;
    case HAS_BITS:
        return number_at(argument, condition, &number) && (number & ~mask);
    case LACKS_BITS:
        return number_at(argument, condition, &number) && (number & mask) != mask;
    case IS_NOT_IN:
        return number_at(argument, condition, &number) &&
               !(mask >> (number < 63 ? number : 63) & 1);
    }
    return false;
}

/* The per-thread name of an entry shares the rows of the plain one. */
static bool is_row_of(const struct early_row *row, const char *entry)
{
    size_t length = strlen(row->name);

    return strncmp(row->name, entry, length) == 0 &&
           (entry[length] == '\0' || strcmp(entry + length, "_ptsz") == 0 ||
            strcmp(entry + length, "_ptds") == 0);
}

bool sim_early_goes_on(const char *entry, enum sim_start start,
                       const struct sim_argument *arguments, CUresult *result)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct early_row *row = &rows[i];
        if (!(row->when & 1 << start) || !is_row_of(row, entry))
            continue;
        for (int n = 0; n < CONDITIONS_MAX; n++)
            if (holds(&row->conditions[n], arguments)) {
                *result = row->result;
                return row->result == CUDA_SUCCESS;
            }
    }
    *result = CUDA_ERROR_NOT_INITIALIZED;
    return false;
}
