/* Preloaded: from the N-th mapping on mmap fails, N being SCARCE_AT; SCARCE_FOR: for so many times,
 * then there is memory again. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long mapping_count;

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtol(text, NULL, 10);
}

/* Anonymous ones of the process's own alone: the simulated device's memory is a file's. */
__attribute__((visibility("default"))) void *mmap(void *address, size_t bytes, int protection,
                                                  int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) != 0 && (flags & MAP_FIXED) == 0) {
        const long number = atomic_fetch_add(&mapping_count, 1);
        const long at = setting("SCARCE_AT", 0);
        if (number >= at && number < at + setting("SCARCE_FOR", 1L << 40)) {
            errno = ENOMEM;
            return MAP_FAILED;
        }
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}
