#include "core/report/model_module.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool gc_model_module_matches(const struct gc_model_module *module)
{
    static const struct gc_model_module_key own = GC_MODEL_MODULE_KEY;
    return memcmp(&module->key, &own, sizeof(own)) == 0;
}

bool gc_model_module_find(const char *library, char path[PATH_MAX])
{
    static const char *const names[] = {GC_MODEL_MODULE_FILE, "gpucache/" GC_MODEL_MODULE_FILE};
    const char *slash = strrchr(library, '/');
    int error = ENOENT;
    if (slash == NULL)
        return false;
    const size_t folder = (size_t)(slash + 1 - library);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(names[i]);
        if (folder + length >= PATH_MAX)
            continue;
        memcpy(path, library, folder);
        memcpy(path + folder, names[i], length + 1);
        if (access(path, F_OK) == 0)
            return true;
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
    }
    errno = error;
    return false;
}

/* Whether the file has all bytes that its program headers map. True if it is no 64-bit ELF file. */
static bool has_all_segments(int fd, uint64_t file_bytes)
{
    Elf64_Ehdr head;
    Elf64_Phdr segment;
    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64)
        return true;
    for (unsigned i = 0; i < head.e_phnum; i++) {
        const off_t offset = (off_t)(head.e_phoff + i * sizeof(segment));
        if (pread(fd, &segment, sizeof(segment), offset) != (ssize_t)sizeof(segment))
            return false;
        if (segment.p_type == PT_LOAD &&
            (segment.p_offset > file_bytes || segment.p_filesz > file_bytes - segment.p_offset))
            return false;
    }
    return true;
}

bool gc_model_module_is_whole(const char *path, const char **why)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *why = NULL;
    if (fd < 0)
        return true;
    const off_t bytes = lseek(fd, 0, SEEK_END);
    if (bytes < 0)
        *why = "it is not a regular file";
    else if (!has_all_segments(fd, (uint64_t)bytes))
        *why = "the file is cut off";
    (void)close(fd);
    return *why == NULL;
}
