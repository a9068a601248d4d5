#define _GNU_SOURCE
#include "tools/node/host_process.h"

#include "core/io/text.h"
#include "core/ledger/process.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES 4096
#define CONTAINER_ID_LENGTH 64 /* hexadecimal digits */

struct host_entry {
    uint64_t pid_namespace;
    int inner_pid; /* in that namespace */
    int pid;       /* in ours */
};

/* The owner of a slot: a slot's generation rises with each. */
struct host_known {
    uint64_t device_number; /* of the ledger's file */
    uint64_t file_number;
    uint32_t slot;
    uint32_t generation;
    struct host_process process;
};

/* ---- files of /proc ---- */

/* The first bytes of /proc/PID/NAME, closed by NUL; -1: it cannot be read. */
static ssize_t read_file(int pid, const char *name, char text[FILE_BYTES])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const ssize_t bytes = read(fd, text, FILE_BYTES - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes;
}

/* The link reads "pid:[4026531836]". */
static uint64_t read_namespace(int pid)
{
    char path[64], text[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    const ssize_t bytes = readlink(path, text, sizeof(text) - 1);
    if (bytes <= 0)
        return 0;
    text[bytes] = '\0';
    const char *number = strchr(text, '[');
    return number != NULL ? strtoull(number + 1, NULL, 10) : 0;
}

/* The last number of the line "NSpid:": the PID in the process's own namespace. */
static int read_inner_pid(int pid)
{
    char text[FILE_BYTES];
    if (read_file(pid, "status", text) <= 0)
        return 0;
    const char *line = strstr(text, "\nNSpid:");
    int inner = 0;
    for (const char *at = line != NULL ? line + 7 : ""; *at != '\n' && *at != '\0';) {
        char *end;
        const long number = strtol(at, &end, 10);
        inner = end != at ? (int)number : inner;
        at = end != at ? end : at + 1;
    }
    return inner;
}

/* ---- the table ---- */

static int compare(const void *left, const void *right)
{
    const struct host_entry *a = left, *b = right;
    if (a->pid_namespace != b->pid_namespace)
        return a->pid_namespace < b->pid_namespace ? -1 : 1;
    return (a->inner_pid > b->inner_pid) - (a->inner_pid < b->inner_pid);
}

static void add_entry(struct host_table *table, int pid, uint64_t own_namespace)
{
    const uint64_t pid_namespace = read_namespace(pid);
    if (pid_namespace == 0 || pid_namespace == own_namespace)
        return;
    struct host_entry *entries = reallocarray(table->entries, table->count + 1, sizeof(*entries));
    if (entries == NULL)
        return;
    table->entries = entries;
    entries[table->count++] = (struct host_entry){pid_namespace, read_inner_pid(pid), pid};
}

static void read_table(struct host_table *table)
{
    DIR *entries = opendir("/proc");
    const struct dirent *entry;
    table->is_read = true;
    while (entries != NULL && (entry = readdir(entries)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            add_entry(table, atoi(entry->d_name), table->pid_namespace);
    if (entries != NULL)
        closedir(entries);
    if (table->count > 0)
        qsort(table->entries, table->count, sizeof(*table->entries), compare);
}

static int compare_known(const void *left, const void *right)
{
    const struct host_known *a = left, *b = right;
    if (a->file_number != b->file_number)
        return a->file_number < b->file_number ? -1 : 1;
    if (a->device_number != b->device_number)
        return a->device_number < b->device_number ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

void host_table_init(struct host_table *table)
{
    *table = (struct host_table){.pid_namespace = gc_ledger_pid_namespace()};
}

void host_table_fini(struct host_table *table)
{
    free(table->entries);
    free(table->known);
    free(table->seen);
    *table = (struct host_table){.count = 0};
}

void host_table_begin(struct host_table *table)
{
    free(table->entries);
    free(table->known);
    table->entries = NULL;
    table->count = 0;
    table->is_read = false;
    table->known = table->seen;
    table->known_count = table->seen_count;
    table->seen = NULL;
    table->seen_count = 0;
    if (table->known_count > 0)
        qsort(table->known, table->known_count, sizeof(*table->known), compare_known);
}

/* Without memory it is looked for again next time. */
static void remember(struct host_table *table, const struct host_known *known)
{
    const size_t count = table->seen_count;
    if ((count & (count - 1)) == 0) { /* a power of two, or none */
        struct host_known *seen =
            reallocarray(table->seen, count == 0 ? 1 : 2 * count, sizeof(*seen));
        if (seen == NULL)
            return;
        table->seen = seen;
    }
    table->seen[table->seen_count++] = *known;
}

static int find_pid(struct host_table *table, uint64_t pid_namespace, int inner_pid)
{
    const struct host_entry wanted = {.pid_namespace = pid_namespace, .inner_pid = inner_pid};
    if (pid_namespace == table->pid_namespace)
        return inner_pid;
    if (!table->is_read)
        read_table(table);
    const struct host_entry *found =
        table->count == 0 ? NULL
                          : bsearch(&wanted, table->entries, table->count, sizeof(wanted), compare);
    return found != NULL ? found->pid : 0;
}

/* ---- containers and jobs ---- */

/* The longest run of hexadecimal digits that is a container's id: docker-ID.scope,
 * cri-containerd-ID.scope, libpod-ID, ID. */
static bool find_container(const char *name, size_t length, char container[HOST_CONTAINER_BYTES])
{
    for (size_t i = 0; i + CONTAINER_ID_LENGTH <= length; i++) {
        const size_t run = strspn(name + i, "0123456789abcdef");
        if (run == CONTAINER_ID_LENGTH) {
            snprintf(container, HOST_CONTAINER_BYTES, "%.*s", CONTAINER_ID_LENGTH, name + i);
            return true;
        }
        i += run;
    }
    return false;
}

/* The parts of the paths of /proc/PID/cgroup, which the kernel writes. Root makes the groups, but
 * for those below a user's own, "user@UID.service". */
static void read_groups(int pid, struct host_process *found)
{
    char text[FILE_BYTES];
    if (read_file(pid, "cgroup", text) <= 0)
        return;
    for (const char *at = text; *at != '\0';) {
        const size_t length = strcspn(at, "/\n");
        if (strncmp(at, "user@", 5) == 0) {
            at += strcspn(at, "\n");
            continue;
        }
        unsigned long job;
        int end = 0;
        (void)find_container(at, length, found->container);
        if (sscanf(at, "job_%9lu%n", &job, &end) == 1 && (size_t)end == length)
            snprintf(found->job, sizeof(found->job), "%lu", job);
        at += length + (at[length] != '\0' ? 1 : 0);
    }
}

static void read_command(int pid, struct host_process *found)
{
    char text[FILE_BYTES];
    const ssize_t bytes = read_file(pid, "cmdline", text);
    size_t length = bytes > 0 ? (size_t)bytes : 0;
    while (length > 0 && text[length - 1] == '\0')
        length--;
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] == '\0' ? ' ' : text[i];
    (void)gc_text_printable(text, length, found->command, sizeof(found->command));
}

static void look(struct host_table *table, const struct gc_ledger *ledger,
                 const struct gc_ledger_process *process, uint32_t uid, struct host_process *found)
{
    const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, process->slot);
    const int pid = find_pid(table, gc_ledger_load(&slot->pid_namespace), process->pid);
    char path[64];
    struct stat facts;
    *found = (struct host_process){.pid = 0};
    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (pid <= 0 || stat(path, &facts) != 0 || facts.st_uid != uid ||
        gc_ledger_start_ticks((uint32_t)pid) != gc_ledger_load(&slot->start_ticks))
        return;
    found->pid = pid;
    read_command(pid, found);
    read_groups(pid, found);
}

void host_process_find(struct host_table *table, const struct gc_ledger *ledger,
                       const struct gc_ledger_process *process, uint32_t uid,
                       struct host_process *found)
{
    struct host_known known = {.device_number = ledger->device_number,
                               .file_number = ledger->file_number,
                               .slot = process->slot,
                               .generation = process->generation};
    const struct host_known *before =
        table->known_count == 0
            ? NULL
            : bsearch(&known, table->known, table->known_count, sizeof(known), compare_known);
    if (before != NULL && before->generation == process->generation && before->process.pid != 0)
        known.process = before->process;
    else
        look(table, ledger, process, uid, &known.process);
    *found = known.process;
    remember(table, &known);
}
