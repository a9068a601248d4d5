/* The options: the input is an environment, one NUL-closed entry after the other, and at the same
 * time a configuration file. Whatever it holds: no line is broken, and each refused value is
 * logged.
 */
#include "core/config/options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRIES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_environment(char *text, size_t bytes, struct gc_log *log,
                             struct gc_options *options)
{
    char *environment[ENTRIES_MAX + 1];
    size_t count = 0;
    for (char *p = text; p < text + bytes && count < ENTRIES_MAX; p += strlen(p) + 1) {
        if (strncmp(p, "GPUCACHE_CONFIG=", 16) != 0) /* no files of this machine */
            environment[count++] = p;
    }
    environment[count] = NULL;
    const struct gc_options_source source = {.environment = environment};
    gc_options_read(&source, log, options);
    if (options->refused && options->warning_count == 0)
        abort();
}

static void read_file(const uint8_t *data, size_t bytes, struct gc_log *log,
                      struct gc_options *options)
{
    static int fd = -1;
    static char path[] = "/tmp/gpucache-fuzz.XXXXXX";
    if (fd < 0)
        fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes)
        return;
    const struct gc_options_source source = {.default_config = path};
    gc_options_read(&source, log, options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct gc_options options;
    struct gc_log log = {.level = GC_LOG_ERROR, .fd = -1};
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    read_environment(text, bytes, &log, &options);
    read_file(data, bytes, &log, &options);
    free(text);
    return 0;
}
