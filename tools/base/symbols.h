/* Names for addresses in files. A process itself knows only the names of exported functions. */
#ifndef GC_TOOL_SYMBOLS_H
#define GC_TOOL_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

struct symbols;

/* NULL if memory runs out. */
struct symbols *symbols_open(void);
void symbols_close(struct symbols *symbols);

/* Rewrites a frame of the report, "/path/object+0x345" or "function+0x12 (/path/object+0x345)", as
 * "function (file.c:12)" or, without line numbers, "function (/path/object+0x345)". False, and
 * `text` unchanged, if the file is missing or has no symbol there. */
bool symbols_name(struct symbols *symbols, const char *frame, char *text, size_t size);

#endif
