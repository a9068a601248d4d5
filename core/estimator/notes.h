/* Short remarks for people, kept while something is worked out: what is not known, what was taken
 * instead. A fixed number; those beyond it are counted. */
#ifndef GC_NOTES_H
#define GC_NOTES_H

#include <stdint.h>

#define GC_NOTES_MAX 24
#define GC_NOTE_BYTES 192

struct gc_notes {
    uint32_t count; /* of texts */
    uint32_t lost;  /* remarks that had no room */
    char texts[GC_NOTES_MAX][GC_NOTE_BYTES];
};

/* The parts one after another, up to a NULL; cut to fit. What is there already is not added again.
 */
void gc_notes_add(struct gc_notes *notes, ...) __attribute__((sentinel));

/* The number in decimal, for a part. */
#define GC_NOTE_NUMBER_BYTES 24
const char *gc_note_number(uint64_t value, char text[GC_NOTE_NUMBER_BYTES]);

#endif
