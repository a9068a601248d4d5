/* The container's processes own what lies in a scope and may have made anything there, so the
 * removal goes by descriptors, follows no link and descends a bounded number of levels. */
#include "tools/cdi/cdi_scope.h"

#include "tools/cdi/cdi.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES_MAX 200
#define DEPTH_MAX 64

static int fail(const char *path, const char *what)
{
    return tool_fail(&cdi_command, "%s: %s", path, what);
}

bool scope_is_name(const char *name)
{
    static const char accepted[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+";
    static const char labels[] = ".labels";
    const size_t length = strlen(name);
    const size_t end = sizeof(labels) - 1;
    if (length == 0 || length > NAME_BYTES_MAX || name[0] == '.' ||
        strspn(name, accepted) != length)
        return false;
    return length < end || strcmp(name + length - end, labels) != 0;
}

/* An existing folder must be one that only this user can change. */
static int make_folder(const char *path)
{
    struct stat facts;
    if (mkdir(path, 0755) == 0)
        return TOOL_DONE;
    if (errno != EEXIST || lstat(path, &facts) != 0)
        return fail(path, strerror(errno));
    if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 022) != 0)
        return fail(path, "a folder of this user that no other can write to is accepted");
    return TOOL_DONE;
}

static int remove_entries(int folder, unsigned depth);

static int remove_entry(int folder, const char *name, unsigned depth)
{
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (depth == DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    const int inner =
        openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (inner < 0 || remove_entries(inner, depth + 1) != 0)
        return -1;
    return unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

/* Closes the descriptor. The first error stops it. */
static int remove_entries(int folder, unsigned depth)
{
    DIR *entries = fdopendir(folder);
    if (entries == NULL) {
        close(folder);
        return -1;
    }
    int status = 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = remove_entry(folder, entry->d_name, depth);
    }
    const int saved_errno = errno;
    closedir(entries);
    errno = saved_errno;
    return status;
}

/* Without a name the folder of all scopes: a slash at its end would follow a link. */
static bool join_path(const char *node, const char *name, const char *ending, char *path)
{
    const int length =
        snprintf(path, PATH_MAX, "%s/pods%s%s%s", node, name[0] == '\0' ? "" : "/", name, ending);
    return length > 0 && length < PATH_MAX;
}

int scope_remove(const char *node, const char *name)
{
    char path[PATH_MAX];
    if (!join_path(node, name, "", path))
        return fail(node, "the path is too long");
    if (remove_entry(AT_FDCWD, path, 0) != 0)
        return fail(path, strerror(errno));
    if (!join_path(node, name, ".labels", path))
        return fail(node, "the path is too long");
    if (unlink(path) != 0 && errno != ENOENT)
        return fail(path, strerror(errno));
    return TOOL_DONE;
}

static void write_label(struct gc_writer *out, const struct scope_label *label)
{
    gc_writer_text(out, label->key);
    gc_writer_char(out, '=');
    for (const char *p = label->value; *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        gc_writer_char(out, c < ' ' || c == 0x7f ? '?' : *p);
    }
    gc_writer_char(out, '\n');
}

static int write_labels(const char *path, const struct scope_label *labels, size_t count)
{
    struct gc_writer out;
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || fchmod(fd, 0644) != 0) {
        const int status = fail(path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    gc_writer_init(&out, fd);
    for (size_t i = 0; i < count; i++)
        write_label(&out, &labels[i]);
    const bool is_written = gc_writer_flush(&out) == GC_OK;
    close(fd);
    return is_written ? TOOL_DONE : fail(path, strerror(out.error));
}

int scope_make(const char *node, const char *name, const struct scope_label *labels, size_t count,
               char *path)
{
    char beside[PATH_MAX];
    if (!join_path(node, "", "", path) || !join_path(node, name, ".labels", beside))
        return fail(node, "the path is too long");
    int status = make_folder(node);
    if (status == TOOL_DONE)
        status = make_folder(path);
    if (status == TOOL_DONE)
        status = scope_remove(node, name);
    if (status != TOOL_DONE)
        return status;
    (void)join_path(node, name, "", path);
    /* The mask of the process does not apply to chmod. */
    if (mkdir(path, 0700) != 0 || chmod(path, 01777) != 0)
        status = fail(path, strerror(errno));
    if (status == TOOL_DONE)
        status = write_labels(beside, labels, count);
    if (status != TOOL_DONE)
        (void)!scope_remove(node, name);
    return status;
}
