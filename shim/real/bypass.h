/* Libraries whose calls pass this library by: see bypass.c. */
#ifndef GC_BYPASS_H
#define GC_BYPASS_H

/* The program is about to load `path` with these flags of dlopen. */
void gc_bypass_load(const char *path, int flags);
/* Checks the libraries whose load was announced. Cheap where there are none. Call outside wrappers;
 * any thread. */
void gc_bypass_check(void);
/* For the report: the first such library and its consequence; NULL: none is known. */
const char *gc_bypass_text(void);

#endif
