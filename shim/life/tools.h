/* Tools and libraries beside this one that change what may be served: see tools.c. */
#ifndef GC_TOOLS_H
#define GC_TOOLS_H

/* Once the options are read. */
void gc_tools_start(void);
/* The program loads `path`; NULL: nothing. */
void gc_tools_load(const char *path);
/* The program looks `name` up. */
void gc_tools_look_up(const char *name);

#endif
