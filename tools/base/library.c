#include "tools/base/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REASON_BYTES (PATH_MAX + 128)

/* Candidates, relative to the folder of this program. */
static const char *const places[] = {
    "libgpucache.so",
    "../lib/libgpucache.so",
    "../lib64/libgpucache.so",
#if defined(__x86_64__)
    "../lib/x86_64-linux-gnu/libgpucache.so",
#elif defined(__aarch64__)
    "../lib/aarch64-linux-gnu/libgpucache.so",
#endif
};

bool library_find(char path[PATH_MAX], char *reason)
{
    char folder[PATH_MAX];
    char candidate[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    if (length <= 0) {
        snprintf(reason, REASON_BYTES, "/proc/self/exe: %s", strerror(errno));
        return false;
    }
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(candidate, sizeof(candidate), "%s/%s", folder, places[i]);
        if (access(candidate, R_OK) == 0 && realpath(candidate, path) != NULL)
            return true;
    }
    snprintf(reason, REASON_BYTES, "libgpucache.so is neither beside %s/gpucache nor in ../lib",
             folder);
    return false;
}
