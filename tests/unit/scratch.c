#include "tests/unit/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(bool done, const char *what)
{
    if (!done) {
        perror(what);
        abort();
    }
}

int scratch_fd(void)
{
    char path[] = "/tmp/gpucache-unit.XXXXXX";
    const int fd = mkstemp(path);
    must(fd >= 0, "mkstemp");
    unlink(path);
    return fd;
}

char *scratch_read(int fd, size_t *bytes)
{
    struct stat info;
    must(fstat(fd, &info) == 0, "fstat");
    char *text = malloc((size_t)info.st_size + 1);
    must(text != NULL, "malloc");
    must(pread(fd, text, (size_t)info.st_size, 0) == (ssize_t)info.st_size, "pread");
    text[info.st_size] = '\0';
    if (bytes != NULL)
        *bytes = (size_t)info.st_size;
    return text;
}

void scratch_reset(int fd)
{
    must(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "ftruncate");
}

void scratch_folder(char *path, size_t size)
{
    must((size_t)snprintf(path, size, "/tmp/gpucache-unit.XXXXXX") < size && mkdtemp(path) != NULL,
         "mkdtemp");
}

/* A folder with all that is in it, or a file. */
static void remove_at(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0)
        return;
    DIR *dir = fdopendir(openat(parent, name, O_RDONLY | O_DIRECTORY));
    const struct dirent *entry;
    must(dir != NULL, name);
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_at(dirfd(dir), entry->d_name);
    }
    closedir(dir);
    must(unlinkat(parent, name, AT_REMOVEDIR) == 0, name);
}

void scratch_remove(const char *folder)
{
    remove_at(AT_FDCWD, folder);
}

void scratch_path(char *path, size_t size, const char *folder, const char *name)
{
    must((size_t)snprintf(path, size, "%s/%s", folder, name) < size, "path");
}

void scratch_write(const char *path, const void *data, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes, path);
    close(fd);
}

char *scratch_file(const char *path, size_t *bytes)
{
    const int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    char *text = scratch_read(fd, bytes);
    close(fd);
    return text;
}

bool scratch_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

unsigned long long scratch_next(struct scratch_random *random)
{
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return random->state;
}
