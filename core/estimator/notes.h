/* Short remarks for people, kept while something is worked out: what is not known, what was taken
 * instead. A fixed number; those beyond it are counted. */
#ifndef GC_NOTES_H
#define GC_NOTES_H

#include "core/report/estimate_record.h"

#include <stdint.h>

/* The parts one after another, up to a NULL; cut to fit. What is there already is not added again.
 */
void gc_notes_add(struct gc_notes *notes, ...) __attribute__((sentinel));

/* The number in decimal, for a part. */
#define GC_NOTE_NUMBER_BYTES 24
const char *gc_note_number(uint64_t value, char text[GC_NOTE_NUMBER_BYTES]);

#endif
