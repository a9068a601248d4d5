/* Files that the commands write. */
#include "tools/base/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOOL_OUTPUTS_MAX 16

static bool is_input(const struct stat *info, const struct tool_file *input)
{
    return input != NULL && input->path != NULL &&
           (unsigned long long)info->st_dev == input->device &&
           (unsigned long long)info->st_ino == input->inode;
}

static int refuse_input(const struct tool_command *command, const char *path)
{
    return tool_fail(command, "%s: is what is read", path);
}

int tool_output_check(const struct tool_command *command, const char *path,
                      const struct tool_file *input)
{
    struct stat info;
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !is_input(&info, input))
        return TOOL_DONE;
    return refuse_input(command, path);
}

/* Notes a file that is written; false if it was before: the second content would lie in the first.
 */
static bool note_output(const struct stat *info)
{
    static struct {
        dev_t device;
        ino_t inode;
    } written[TOOL_OUTPUTS_MAX];
    static size_t count;
    if (!S_ISREG(info->st_mode))
        return true;
    for (size_t i = 0; i < count; i++) {
        if (written[i].device == info->st_dev && written[i].inode == info->st_ino)
            return false;
    }
    if (count < TOOL_OUTPUTS_MAX) {
        written[count].device = info->st_dev;
        written[count++].inode = info->st_ino;
    }
    return true;
}

static int output_flags(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY;
    return strncmp(path, "/dev/", 5) == 0 ? flags : flags | O_NOFOLLOW;
}

static const char *output_error(int error)
{
    return error == ELOOP ? "is a symbolic link, not followed" : strerror(error);
}

int tool_output_open(const struct tool_command *command, const char *path,
                     const struct tool_file *input, struct gc_out *out)
{
    struct stat info;
    int fd = STDOUT_FILENO;
    if (strcmp(path, "-") == 0)
        goto opened;
    fd = open(path, output_flags(path), 0666);
    if (fd < 0)
        return tool_fail(command, "%s: %s", path, output_error(errno));
    if (fstat(fd, &info) != 0)
        goto fail;
    if (is_input(&info, input)) {
        close(fd);
        return refuse_input(command, path);
    }
    if (!note_output(&info)) {
        close(fd);
        return tool_fail(command, "%s: is what another option wrote", path);
    }
    if (S_ISREG(info.st_mode) && ftruncate(fd, 0) != 0)
        goto fail;
opened:
    gc_out_init(out, fd);
    return TOOL_DONE;
fail:;
    const int error = errno;
    close(fd);
    return tool_fail(command, "%s: %s", path, strerror(error));
}

int tool_output_close(const struct tool_command *command, const char *path, struct gc_out *out)
{
    const bool is_flushed = gc_out_flush(out) == GC_OK;
    const bool is_ours = out->fd != STDOUT_FILENO;
    int error = errno;
    if (is_ours && close(out->fd) != 0 && is_flushed) {
        error = errno;
        return tool_fail(command, "%s: %s", path, strerror(error));
    }
    if (is_flushed)
        return TOOL_DONE;
    if (error == EPIPE)
        raise(SIGPIPE);
    return tool_fail(command, "%s: %s", is_ours ? path : "standard output", strerror(error));
}
