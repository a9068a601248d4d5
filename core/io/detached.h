/* Starts the library's own threads. */
#ifndef GC_DETACHED_H
#define GC_DETACHED_H

#include <pthread.h>
#include <stdbool.h>

/* The type of pthread_create, which is not linked: its symbol has another version in newer C
 * libraries. */
typedef int gc_detached_create(pthread_t *thread, const pthread_attr_t *attributes,
                               void *(*work)(void *), void *argument);

/* Starts a detached thread that blocks all signals: the program's handlers run in its own threads.
 * False: it could not be started, or `create`, the C library's, is NULL. */
bool gc_detached_start(gc_detached_create *create, void *(*work)(void *), void *argument);

#endif
