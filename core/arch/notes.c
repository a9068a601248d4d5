#include "core/arch/notes.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

void gc_notes_add(struct gc_notes *notes, ...)
{
    char text[GC_NOTE_BYTES];
    size_t used = 0;
    va_list parts;
    va_start(parts, notes);
    for (const char *part = va_arg(parts, const char *); part != NULL;
         part = va_arg(parts, const char *)) {
        const size_t length = strnlen(part, sizeof(text) - 1 - used);
        memcpy(text + used, part, length);
        used += length;
    }
    va_end(parts);
    text[used] = '\0';
    for (uint32_t i = 0; i < notes->count; i++) {
        if (strcmp(notes->texts[i], text) == 0)
            return;
    }
    if (notes->count == GC_NOTES_MAX)
        notes->lost++;
    else
        memcpy(notes->texts[notes->count++], text, used + 1);
}

const char *gc_note_number(uint64_t value, char text[GC_NOTE_NUMBER_BYTES])
{
    size_t at = GC_NOTE_NUMBER_BYTES - 1;
    text[at] = '\0';
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return text + at;
}
