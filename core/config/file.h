/* The configuration file: lines of KEY=value. */
#ifndef GC_CONFIG_FILE_H
#define GC_CONFIG_FILE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct gc_config {
    char *text;
    size_t mapped_bytes;
    bool is_missing; /* there is no such file */
};

struct gc_config_visitor {
    void *argument;
    void (*entry)(void *argument, const char *key, const char *value);
    void (*bad)(void *argument, unsigned line);
};

/* Maps the file and calls `entry` for each KEY=value line. The texts end with NUL, without the
 * blanks around key and value; a line that begins with '#' is a comment. Calls `bad` for any other
 * line that is not blank. GC_IO if the file is not regular, cannot be read or is larger than 64
 * KiB. The texts live until gc_config_close. */
enum gc_status gc_config_read(const char *path, const struct gc_config_visitor *visitor,
                              struct gc_config *config) GC_CHECKED;
void gc_config_close(struct gc_config *config);

#endif
