/* Tools and libraries beside this one that change what may be served: see tools.c. */
#ifndef GC_TOOLS_H
#define GC_TOOLS_H

/* Once the options are read. */
void gc_tools_start(void);
/* The program's code at `caller` looks `name` up. */
void gc_tools_look_up(const char *name, const void *caller);

#endif
