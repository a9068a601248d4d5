/* Untrusted text in the columns of a terminal. */
#define _GNU_SOURCE
#include "tools/base/columns.h"

#include <langinfo.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

bool columns_is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* Reads one character of well-formed UTF-8 and returns its length in bytes, 0 if it is
 * malformed: overlong forms, surrogates and code points above U+10FFFF. */
static size_t decode(const char *from, uint32_t *character)
{
    const unsigned char *bytes = (const unsigned char *)from;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = 1;
    if (bytes[0] < 0x80) {
        *character = bytes[0];
        return 1;
    }
    if (bytes[0] >= 0xc2 && bytes[0] < 0xe0)
        length = 2;
    else if (bytes[0] >= 0xe0 && bytes[0] < 0xf0)
        length = 3;
    else if (bytes[0] >= 0xf0 && bytes[0] < 0xf5)
        length = 4;
    else
        return 0;
    uint32_t value = bytes[0] & (0xffU >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3f);
    }
    if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *character = value;
    return length;
}

/* True for characters that change their surroundings: control characters, marks of direction,
 * separators. */
static bool is_harmful(uint32_t character)
{
    return character < ' ' || (character >= 0x7f && character < 0xa0) || character == 0xad ||
           (character >= 0x200b && character < 0x2010) ||
           (character >= 0x2028 && character < 0x2030) ||
           (character >= 0x2060 && character < 0x2070) || character == 0xfeff ||
           character == 0x061c || character >= 0xe0000;
}

/* Reads the next character of `name` into the bytes that are shown and their width; returns the
 * bytes read. */
static size_t next_character(const char *name, bool utf8, const char **shown, size_t *length,
                             unsigned *width)
{
    uint32_t character = 0;
    const size_t read = decode(name, &character);
    const int columns = read == 0 ? -1 : read == 1 ? 1 : utf8 ? wcwidth((wchar_t)character) : -1;
    if (columns < 0 || is_harmful(character)) {
        *shown = "?";
        *length = 1;
        *width = 1;
    } else {
        *shown = name;
        *length = read;
        *width = (unsigned)columns;
    }
    return read == 0 ? 1 : read;
}

unsigned columns_fit(const char *name, unsigned columns, bool utf8, char *to, size_t size)
{
    const char *mark = utf8 ? "\u2026" : "~";
    const char *shown;
    size_t length, used = 0;
    unsigned taken = 0, width;
    /* The length so far, with one column kept for the mark of a cut name. */
    size_t cut_used = 0;
    unsigned cut_taken = 0;
    while (*name != '\0') {
        const size_t read = next_character(name, utf8, &shown, &length, &width);
        if (taken + width > columns || used + length + 4 >= size)
            break;
        memcpy(to + used, shown, length);
        used += length;
        taken += width;
        name += read;
        if (taken < columns) {
            cut_used = used;
            cut_taken = taken;
        }
    }
    if (*name != '\0' && columns > 0) {
        memcpy(to + cut_used, mark, strlen(mark));
        used = cut_used + strlen(mark);
        taken = cut_taken + 1;
    }
    to[used] = '\0';
    return taken;
}
