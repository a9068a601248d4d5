/* Runs work that needs much stack on a stack of its own: the start, the estimate, the report. A
 * program's thread may have as little as PTHREAD_STACK_MIN, and may make the first call or the
 * last. */
#ifndef GC_SHIM_DEEP_H
#define GC_SHIM_DEEP_H

/* Calls run(argument) on 256 KiB of fresh stack below which nothing is mapped. Uses the caller's
 * stack where none can be mapped, and under a sanitizer, which assumes one stack per thread. */
void gc_deep_run(void (*run)(void *argument), void *argument);

#endif
