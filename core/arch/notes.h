/* Short remarks for people, collected during an estimate: unknown values and assumptions. A fixed
 * number; further ones are only counted. */
#ifndef GC_NOTES_H
#define GC_NOTES_H

#include "core/report/estimate_record.h"

#include <stdint.h>

/* Adds the parts, joined, up to a NULL; cut to fit. A duplicate is not added. */
void gc_notes_add(struct gc_notes *notes, ...) __attribute__((sentinel));

/* The number in decimal, for a part. */
#define GC_NOTE_NUMBER_BYTES 24
const char *gc_note_number(uint64_t value, char text[GC_NOTE_NUMBER_BYTES]);

#endif
