/* Tools beside the library that must see the program's calls: see tools.c. */
#ifndef GC_TOOLS_H
#define GC_TOOLS_H

/* Once the options are read. */
void gc_tools_start(void);
/* The program loads `path`; NULL: nothing. */
void gc_tools_load(const char *path);

#endif
