/* Asserts for builds with GC_CHECK. A failed GC_ASSERT ends the process, so release builds do not
 * contain it. Code that must survive a broken condition in release builds, too, checks it and
 * returns a status. */
#ifndef GC_ASSERT_H
#define GC_ASSERT_H

#ifdef GC_CHECK
/* Writes one line to stderr and aborts. */
__attribute__((noreturn, cold)) void gc_assert_fail(const char *condition, const char *file,
                                                    int line);
#define GC_ASSERT(condition)                                                                       \
    ((condition) ? (void)0 : gc_assert_fail(#condition, __FILE__, __LINE__))
#else
#define GC_ASSERT(condition) ((void)sizeof(condition))
#endif

#endif
