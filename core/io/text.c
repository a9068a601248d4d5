#include "core/io/text.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool gc_text_decimal(const char *text, const char **end, struct gc_decimal *decimal)
{
    const uint64_t scale_max = UINT64_C(1000000000000000000);
    struct gc_decimal value = {.scale = 1};
    const char *p = text;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++) {
        if (__builtin_mul_overflow(value.whole, 10U, &value.whole) ||
            __builtin_add_overflow(value.whole, (uint64_t)(*p - '0'), &value.whole))
            return false;
    }
    if (*p == '.') {
        p++;
        if (!is_digit(*p))
            return false;
        for (; is_digit(*p); p++) {
            if (value.scale == scale_max)
                continue;
            value.fraction = value.fraction * 10 + (uint64_t)(*p - '0');
            value.scale *= 10;
        }
    }
    *end = p;
    *decimal = value;
    return true;
}

double gc_text_decimal_value(const struct gc_decimal *decimal)
{
    return (double)decimal->whole + (double)decimal->fraction / (double)decimal->scale;
}

bool gc_text_uint(const char *text, size_t length, uint64_t *value)
{
    uint64_t result = 0;
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i]) || __builtin_mul_overflow(result, 10U, &result) ||
            __builtin_add_overflow(result, (uint64_t)(text[i] - '0'), &result))
            return false;
    }
    *value = result;
    return true;
}

static bool is_between_words(char c)
{
    return c == ',' || c == ' ';
}

int gc_text_find_word(const char *words, const char *word, size_t length)
{
    /* Lists are short: plain loops take less than strcspn(), which makes a table of the set. */
    for (int index = 0; *words != '\0'; index++) {
        const char *start = words;
        while ((unsigned char)*words > ',' || /* most characters, in one comparison */
               (*words != '\0' && !is_between_words(*words)))
            words++;
        if ((size_t)(words - start) == length && memcmp(start, word, length) == 0)
            return index;
        while (is_between_words(*words))
            words++;
    }
    return -1;
}

bool gc_text_ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    const size_t end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

bool gc_text_has_ending(const char *name, size_t length, const char *ending)
{
    const size_t ending_length = strlen(ending);
    return length > ending_length &&
           memcmp(name + length - ending_length, ending, ending_length) == 0;
}

bool gc_text_equal_nocase(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (lower(a[i]) != lower(b[i]))
            return false;
        if (a[i] == '\0')
            return true;
    }
    return true;
}

static unsigned min_unsigned(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Optimal string alignment (Damerau-Levenshtein without overlapping edits), with three rows in
 * memory. */
unsigned gc_text_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned rows[3][GC_TEXT_DISTANCE_MAX + 1];
    if (a_length > GC_TEXT_DISTANCE_MAX)
        a_length = GC_TEXT_DISTANCE_MAX;
    if (b_length > GC_TEXT_DISTANCE_MAX)
        b_length = GC_TEXT_DISTANCE_MAX;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *twice_above = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            const unsigned change = a[i - 1] != b[j - 1];
            unsigned best = min_unsigned(above[j] + 1, row[j - 1] + 1);
            best = min_unsigned(best, above[j - 1] + change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = min_unsigned(best, twice_above[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

/* Writes `value` and returns how many characters that took. */
static size_t write_uint(char *text, uint64_t value)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    for (size_t i = 0; i < count; i++)
        text[i] = digits[count - 1 - i];
    return count;
}

uint64_t gc_text_round_up(uint64_t bytes)
{
    unsigned shift = 0;
    while (shift < 60 && bytes >> shift >> 10 != 0)
        shift += 10;
    const unsigned __int128 tenths =
        ((unsigned __int128)bytes * 10 + ((UINT64_C(1) << shift) - 1)) >> shift;
    const unsigned __int128 rounded = (tenths << shift) / 10;
    return shift == 0 || rounded > UINT64_MAX ? bytes : (uint64_t)rounded;
}

const char *gc_text_size(uint64_t bytes, char text[GC_TEXT_SIZE_BYTES])
{
    static const char units[][4] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        const size_t used = write_uint(text, bytes);
        memcpy(text + used, " B", 3);
        return text;
    }
    unsigned unit = 0;
    while (unit < 5 && bytes >> (10 * (unit + 2)) != 0)
        unit++;
    const unsigned shift = 10 * (unit + 1);
    const uint64_t rest = bytes & ((UINT64_C(1) << shift) - 1);
    uint64_t tenths =
        (uint64_t)(((unsigned __int128)rest * 10 + (UINT64_C(1) << (shift - 1))) >> shift);
    tenths += (bytes >> shift) * 10;
    size_t used = write_uint(text, tenths / 10);
    text[used++] = '.';
    text[used++] = (char)('0' + tenths % 10);
    text[used++] = ' ';
    memcpy(text + used, units[unit], sizeof(units[unit]));
    return text;
}

const char *gc_text_span(uint64_t ns, char text[GC_TEXT_SPAN_BYTES])
{
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{1000000000, " s"}, {1000000, " ms"}, {1000, " us"}, {1, " ns"}};
    size_t unit = 0;
    /* A value that rounds up to the next unit uses it: 999,950 ns are 1.0 ms. */
    while (unit < 3 && ns < units[unit].ns - units[unit].ns / 20000)
        unit++;
    size_t used = 0;
    if (unit == 3) {
        used = write_uint(text, ns);
    } else {
        const uint64_t tenth = units[unit].ns / 10;
        const uint64_t tenths = ns / tenth + (ns % tenth >= tenth / 2);
        used = write_uint(text, tenths / 10);
        text[used++] = '.';
        text[used++] = (char)('0' + tenths % 10);
    }
    memcpy(text + used, units[unit].name, strlen(units[unit].name) + 1);
    return text;
}

const char *gc_text_printable(const char *from, size_t length, char *to, size_t size)
{
    const bool cut = length > size - 1;
    const size_t count = cut ? size - 4 : length;
    for (size_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)from[i];
        to[i] = c < ' ' || c == 0x7f ? '?' : from[i];
    }
    if (cut)
        memcpy(to + count, "...", 4);
    else
        to[count] = '\0';
    return to;
}

bool gc_text_copy(char *to, size_t size, const char *from, size_t length)
{
    if (length >= size) {
        to[0] = '\0';
        return false;
    }
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

const char *gc_text_read_hex(const char *text, uint64_t *number)
{
    static const char digits[] = "0123456789abcdef";
    const char *digit;
    for (*number = 0; *text != '\0' && (digit = strchr(digits, *text)) != NULL; text++)
        *number = *number << 4 | (uint64_t)(digit - digits);
    return text;
}
