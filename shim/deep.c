#include "shim/deep.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#define STACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)64 << 10) /* at least a page, on every system */

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(__SANITIZE_ADDRESS__) &&             \
    !defined(__SANITIZE_THREAD__)
#define CAN_SWITCH true
void gc_deep_switch(void (*run)(void *argument), void *argument, void *top);
#else
#define CAN_SWITCH false
#define gc_deep_switch(run, argument, top) (void)(top)
#endif

/* Only pages that are written cost memory. */
static char *map_stack(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    const int saved_errno = errno;
    char *memory = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);

    if (memory != MAP_FAILED && mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
        munmap(memory, GUARD_BYTES + STACK_BYTES);
        memory = MAP_FAILED;
    }
    errno = saved_errno;
    return memory == MAP_FAILED ? NULL : memory;
}

void gc_deep_run(void (*run)(void *argument), void *argument)
{
    char *memory = CAN_SWITCH ? map_stack() : NULL;

    if (memory == NULL) {
        run(argument);
        return;
    }
    gc_deep_switch(run, argument, memory + GUARD_BYTES + STACK_BYTES);
    munmap(memory, GUARD_BYTES + STACK_BYTES);
}
