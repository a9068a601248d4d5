/* For tests: descriptors to write to and read back, files and folders that are gone afterwards. */
#ifndef GC_TEST_SCRATCH_H
#define GC_TEST_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* A descriptor of an anonymous file. */
int scratch_fd(void);
/* Everything written to it so far, closed by NUL; free() it. */
char *scratch_read(int fd, size_t *bytes);
/* Empties it. */
void scratch_reset(int fd);

/* A fresh folder; scratch_remove takes it and all that is in it away. */
void scratch_folder(char *path, size_t size);
void scratch_remove(const char *folder);
void scratch_path(char *path, size_t size, const char *folder, const char *name);
void scratch_write(const char *path, const void *data, size_t bytes);
char *scratch_file(const char *path, size_t *bytes); /* NULL if it cannot be read */
bool scratch_exists(const char *path);

/* A fixed sequence of numbers for a seed. */
struct scratch_random {
    unsigned long long state;
};
unsigned long long scratch_next(struct scratch_random *random);

#endif
