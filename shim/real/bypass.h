/* Libraries whose calls pass this library by: see bypass.c. */
#ifndef GC_BYPASS_H
#define GC_BYPASS_H

/* The program is about to load `path` with these flags of dlopen. */
void gc_bypass_load(const char *path, int flags);
/* The calling thread makes another call: checks the loads that it announced. Cheap where there are
 * none. Call outside wrappers. */
void gc_bypass_check(void);
/* Checks the loads of all threads: before the report. */
void gc_bypass_check_all(void);

#endif
