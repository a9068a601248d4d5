/* Calls before cuInit has succeeded: the table's checks of arguments, in their order, then
 * CUDA_ERROR_NOT_INITIALIZED (early.def). The order of checks inside the bodies does not matter
 * until then. */
#include "tests/simcuda/driver/early.h"

#include <string.h>

enum { NEW = 1 << SIM_START_NEW, TRIED = 1 << SIM_START_TRIED, BOTH = NEW | TRIED };

/* Arguments in one word, counted from 1: three conditions with 16 bits each. */
#define ZERO(n) (UINT64_C(1) << (n))
#define GIVEN(n) (UINT64_C(1) << (16 + (n)))
#define FULL(n) (UINT64_C(1) << (32 + (n)))
#define ALWAYS UINT64_MAX

static const struct early_row {
    const char *name;
    int when;
    CUresult result; /* CUDA_SUCCESS: the body answers */
    uint64_t arguments;
} rows[] = {
#define ANYTIME(name) {#name, BOTH, CUDA_SUCCESS, ALWAYS},
#define EARLY(name, when, result, arguments) {#name, when, result, arguments},
#include "tests/simcuda/driver/early.def"
};

/* The conditions that hold for the arguments. */
static uint64_t conditions_of(const struct sim_argument *arguments)
{
    uint64_t found = 0;

    for (int n = 1; arguments->address; n++, arguments++) {
        const unsigned char *bytes = arguments->address;
        bool is_zero = true, is_full = true;
        for (size_t i = 0; i < arguments->bytes; i++) {
            is_zero = is_zero && bytes[i] == 0;
            is_full = is_full && bytes[i] == 0xff;
        }
        found |= is_zero ? ZERO(n) : GIVEN(n);
        found |= is_full ? FULL(n) : 0;
    }
    return found;
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
    uint64_t conditions = conditions_of(arguments);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct early_row *row = &rows[i];
        if ((row->when & 1 << start) && is_row_of(row, entry) &&
            (row->arguments == ALWAYS || (row->arguments & conditions))) {
            *result = row->result;
            return row->result == CUDA_SUCCESS;
        }
    }
    *result = CUDA_ERROR_NOT_INITIALIZED;
    return false;
}
