/* Names for addresses in files: what the process itself could not tell, since only exported
 * functions have names there. */
#ifndef GC_TOOL_SYMBOLS_H
#define GC_TOOL_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

struct symbols;

/* NULL: no memory. */
struct symbols *symbols_open(void);
void symbols_close(struct symbols *symbols);

/* A frame as the report has it, "/path/object+0x345" or "function+0x12 (/path/object+0x345)", as
 * "function (file.c:12)" or, where lines are not known, "function (/path/object+0x345)". False, and
 * `text` untouched, if the file says no more or is not there. */
bool symbols_name(struct symbols *symbols, const char *frame, char *text, size_t size);

#endif
