#define _GNU_SOURCE
#include "tools/node/node.h"

#include "core/io/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABELS_BYTES 4096

/* ---- files that are cut short ---- */

/* The mapped files; NULL: free. Read by the signal handler. */
static _Atomic(struct gc_ledger_file *) mapped[NODE_LEDGERS_MAX];

static bool is_mapped(uintptr_t address)
{
    for (size_t i = 0; i < NODE_LEDGERS_MAX; i++) {
        const uintptr_t begin = (uintptr_t)atomic_load(&mapped[i]);
        if (begin != 0 && address >= begin && address - begin < sizeof(struct gc_ledger_file))
            return true;
    }
    return false;
}

/* A page behind the end of its file gets a page of zeroes, and the access is made again. */
static void serve_bus_error(int signal_number, siginfo_t *info, void *context)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t address = (uintptr_t)info->si_addr & ~(page - 1);
    (void)context;
    if (!is_mapped(address) || mmap((void *)address, page, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
}

/* False: there are NODE_LEDGERS_MAX. */
static bool guard(struct gc_ledger_file *file)
{
    static bool is_installed;
    struct sigaction action = {.sa_sigaction = serve_bus_error, .sa_flags = SA_SIGINFO};
    if (!is_installed)
        is_installed = sigaction(SIGBUS, &action, NULL) == 0;
    for (size_t i = 0; i < NODE_LEDGERS_MAX; i++) {
        struct gc_ledger_file *none = NULL;
        if (atomic_compare_exchange_strong(&mapped[i], &none, file))
            return is_installed;
    }
    return false;
}

static void unguard(struct gc_ledger_file *file)
{
    for (size_t i = 0; i < NODE_LEDGERS_MAX; i++)
        if (atomic_load(&mapped[i]) == file)
            atomic_store(&mapped[i], NULL);
}

/* ---- labels ---- */

static void set_label(struct node_labels *labels, const char *key, size_t length, const char *value,
                      size_t value_length)
{
#define LABEL(name)                                                                                \
    if (length == sizeof(#name) - 1 && memcmp(key, #name, length) == 0)                            \
        (void)gc_text_printable(value, value_length, labels->name, sizeof(labels->name));
    NODE_LABELS(LABEL)
#undef LABEL
}

static void parse_labels(const char *text, size_t bytes, struct node_labels *labels)
{
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', bytes - at);
        const size_t length = end != NULL ? (size_t)(end - line) : bytes - at;
        const char *equals = memchr(line, '=', length);
        if (equals != NULL)
            set_label(labels, line, (size_t)(equals - line), equals + 1,
                      length - (size_t)(equals - line) - 1);
        at += length + 1;
    }
}

/* The file must be of root, or of this user, and only its owner may write it. */
static void read_labels(const char *scope, struct node_labels *labels)
{
    char path[GC_LEDGER_PATH_BYTES + 16], text[LABELS_BYTES];
    struct stat facts;
    snprintf(path, sizeof(path), "%s.labels", scope);
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & 022) == 0 &&
        (facts.st_uid == 0 || facts.st_uid == geteuid())) {
        const ssize_t bytes = read(fd, text, sizeof(text));
        if (bytes > 0)
            parse_labels(text, (size_t)bytes, labels);
    }
    close(fd);
}

/* ---- ledgers ---- */

static void name_user(struct node_ledger *ledger)
{
    const struct passwd *user = getpwuid(ledger->uid);
    if (user != NULL)
        snprintf(ledger->user, sizeof(ledger->user), "%s", user->pw_name);
    else
        snprintf(ledger->user, sizeof(ledger->user), "%u", ledger->uid);
}

static struct node_ledger *add_ledger(struct node *node)
{
    struct node_ledger *ledgers = reallocarray(node->ledgers, node->count + 1, sizeof(*ledgers));
    if (ledgers == NULL)
        return NULL;
    node->ledgers = ledgers;
    memset(&ledgers[node->count], 0, sizeof(*ledgers));
    return &ledgers[node->count];
}

static void close_ledger(struct node_ledger *ledger)
{
    unguard(ledger->ledger.file);
    gc_ledger_close(&ledger->ledger);
}

enum gc_status node_open_own(struct node *node, const char *folder,
                             char reason[GC_LEDGER_REASON_BYTES])
{
    struct node_ledger *ledger = add_ledger(node);
    if (ledger == NULL)
        return GC_NO_HOST_MEMORY;
    const enum gc_status status = gc_ledger_open(folder, false, &ledger->ledger, reason);
    if (status != GC_OK)
        return status;
    ledger->uid = geteuid();
    name_user(ledger);
    node->count++;
    return GC_OK;
}

/* One reading of the folders: the ledgers found so far, and those of the reading before. */
struct scan {
    struct node *found;
    struct node *before;
    enum gc_status status;
};

/* Whether the ledger is open already, from the reading before: then it moves over. */
static bool take_over(struct scan *scan, const struct gc_ledger *opened, struct node_ledger *to)
{
    for (size_t i = 0; i < scan->before->count; i++) {
        struct node_ledger *known = &scan->before->ledgers[i];
        if (known->ledger.file == NULL || known->ledger.file_number != opened->file_number ||
            known->ledger.device_number != opened->device_number)
            continue;
        *to = *known;
        known->ledger.file = NULL;
        known->ledger.fd = -1;
        return true;
    }
    return false;
}

static void open_ledger(struct scan *scan, const char *folder, const char *scope, uint32_t uid)
{
    struct gc_ledger opened;
    struct node_ledger *ledger = add_ledger(scan->found);
    if (ledger == NULL) {
        scan->status = GC_NO_HOST_MEMORY;
        return;
    }
    const enum gc_status status = gc_ledger_open_of(folder, uid, &opened, scan->found->reason);
    if (status != GC_OK) {
        scan->found->skipped += status != GC_NOT_OURS;
        return;
    }
    if (take_over(scan, &opened, ledger)) {
        gc_ledger_close(&opened);
    } else if (guard(opened.file)) {
        ledger->ledger = opened;
    } else {
        gc_ledger_close(&opened);
        scan->found->skipped++;
        snprintf(scan->found->reason, sizeof(scan->found->reason), "more than %d ledgers",
                 NODE_LEDGERS_MAX);
        return;
    }
    ledger->uid = uid;
    name_user(ledger);
    ledger->labels = (struct node_labels){.job = ""};
    if (scope != NULL)
        read_labels(scope, &ledger->labels);
    scan->found->count++;
}

/* A folder's name is its user's number, behind `prefix`. */
static bool read_uid(const char *name, const char *prefix, uint32_t *uid)
{
    const size_t length = strlen(prefix);
    uint64_t number;
    if (strncmp(name, prefix, length) != 0 ||
        !gc_text_uint(name + length, strlen(name + length), &number) || number >= UINT32_MAX)
        return false;
    *uid = (uint32_t)number;
    return true;
}

typedef void visit_entry(struct scan *scan, const char *path, const char *name, const char *given);

/* Calls `visit` for each entry of the folder; a symbolic link is no folder. */
static void visit_folder(struct scan *scan, const char *folder, visit_entry *visit,
                         const char *given)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (entries == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL && scan->status == GC_OK) {
        char path[GC_LEDGER_PATH_BYTES];
        if (entry->d_name[0] != '.' &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < sizeof(path))
            visit(scan, path, entry->d_name, given);
    }
    closedir(entries);
}

/* `given`: the scope's folder; NULL: none. */
static void visit_user(struct scan *scan, const char *path, const char *name, const char *given)
{
    uint32_t uid;
    if (read_uid(name, "", &uid))
        open_ledger(scan, path, given, uid);
}

static void visit_scope(struct scan *scan, const char *path, const char *name, const char *given)
{
    (void)given;
    if (!gc_text_has_ending(name, strlen(name), ".labels"))
        visit_folder(scan, path, visit_user, path);
}

static void visit_shm(struct scan *scan, const char *path, const char *name, const char *given)
{
    uint32_t uid;
    (void)given;
    if (read_uid(name, "gpucache-", &uid))
        open_ledger(scan, path, NULL, uid);
}

/* Root's first: where two say different things of a device, the first holds. */
static int compare_users(const void *left, const void *right)
{
    const struct node_ledger *a = left, *b = right;
    return (a->uid > b->uid) - (a->uid < b->uid);
}

enum gc_status node_open_all(struct node *node, const char *root)
{
    static const struct {
        const char *name;
        visit_entry *visit;
    } folders[] = {{"users", visit_user}, {"jobs", visit_scope}, {"pods", visit_scope}};
    struct node before = *node;
    struct scan scan = {.found = node, .before = &before, .status = GC_OK};
    char path[GC_LEDGER_PATH_BYTES];
    *node = (struct node){.count = 0};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%.4080s/%s", root, folders[i].name);
        visit_folder(&scan, path, folders[i].visit, NULL);
    }
    visit_folder(&scan, "/dev/shm", visit_shm, NULL);
    for (size_t i = 0; i < before.count; i++)
        if (before.ledgers[i].ledger.file != NULL)
            close_ledger(&before.ledgers[i]);
    free(before.ledgers);
    if (node->count > 0)
        qsort(node->ledgers, node->count, sizeof(*node->ledgers), compare_users);
    return scan.status;
}

void node_close(struct node *node)
{
    for (size_t i = 0; i < node->count; i++)
        close_ledger(&node->ledgers[i]);
    free(node->ledgers);
    *node = (struct node){.count = 0};
}
