#define _GNU_SOURCE
#include "tools/live/top_view.h"

#include <stdlib.h>
#include <string.h>

void top_view_init(struct top_view *view)
{
    *view = (struct top_view){.device_count = 0};
}

void top_view_fini(struct top_view *view)
{
    free(view->subjects);
    free(view->accounts);
    top_view_init(view);
}

/* Makes `items` hold one more element of `bytes`; false if memory runs out. */
static bool make_room(void **items, size_t *room, size_t count, size_t bytes)
{
    if (count < *room)
        return true;
    const size_t wanted = *room == 0 ? 64 : *room * 2;
    void *grown = reallocarray(*items, wanted, bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *room = wanted;
    return true;
}

size_t top_view_add(struct top_view *view, const struct top_subject *subject)
{
    void *subjects = view->subjects;
    if (!make_room(&subjects, &view->subject_room, view->subject_count, sizeof(*subject))) {
        view->failed = true;
        return TOP_NONE;
    }
    view->subjects = subjects;
    view->subjects[view->subject_count] = *subject;
    view->process_count += subject->kind == TOP_PROCESS;
    view->group_count += subject->kind == TOP_GROUP;
    return view->subject_count++;
}

size_t top_view_add_device(struct top_view *view, const struct top_device *device)
{
    if (view->device_count == TOP_DEVICES_MAX)
        return TOP_NONE;
    view->devices[view->device_count] = *device;
    return view->device_count++;
}

void top_view_add_account(struct top_view *view, size_t subject, size_t device,
                          const struct gc_ledger_figures *figures)
{
    void *accounts = view->accounts;
    if (subject == TOP_NONE ||
        !make_room(&accounts, &view->account_room, view->account_count, sizeof(*view->accounts))) {
        view->failed = true;
        return;
    }
    view->accounts = accounts;
    view->accounts[view->account_count] = (struct top_account){
        .subject = subject, .device = device, .anchor = view->account_count, .figures = *figures};
    view->account_count++;
}

/* ---- sums ---- */

static void add_saturating(uint64_t *sum, uint64_t value)
{
    if (__builtin_add_overflow(*sum, value, sum))
        *sum = UINT64_MAX;
}

/* The sum keeps its own limit. */
static void add_figures(struct gc_ledger_figures *sum, const struct gc_ledger_figures *figures)
{
    const uint64_t limit = sum->limit;
#define GC_LEDGER_FIGURE(field) add_saturating(&sum->field, figures->field);
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
    sum->limit = limit;
    sum->peak = 0; /* the peaks were at different times */
}

/* Index of the accounts of groups and devices by (subject, device), while sums are made. */
struct sums {
    size_t *accounts; /* [subject of a group][device], TOP_NONE: none yet */
    size_t *rows;     /* [subject] → row in accounts; TOP_NONE: no group */
    size_t devices[TOP_DEVICES_MAX];
};

static void add_device_subjects(struct top_view *view, struct sums *sums)
{
    for (size_t i = 0; i < view->device_count; i++) {
        const uint64_t total = view->devices[i].total_bytes;
        const struct gc_ledger_figures none = {.limit = total > 0 ? total : TOP_NO_LIMIT};
        struct top_subject subject = {.kind = TOP_DEVICE, .key = UINT64_C(2) << 62 | i};
        memcpy(subject.name,
               view->devices[i].name[0] != '\0' ? view->devices[i].name : view->devices[i].uuid,
               sizeof(view->devices[i].uuid));
        subject.name[sizeof(view->devices[i].uuid) - 1] = '\0';
        const size_t index = top_view_add(view, &subject);
        sums->devices[i] = view->account_count;
        top_view_add_account(view, index, i, &none);
    }
}

/* The group's account on that device, created if there is none. */
static size_t group_account(struct top_view *view, struct sums *sums, size_t group, size_t device)
{
    size_t *slot = &sums->accounts[sums->rows[group] * TOP_DEVICES_MAX + device];
    if (*slot == TOP_NONE) {
        const struct gc_ledger_figures none = {.limit = TOP_NO_LIMIT};
        const size_t account = view->account_count;
        top_view_add_account(view, group, device, &none);
        if (view->failed)
            return TOP_NONE;
        *slot = account;
    }
    return *slot;
}

static int compare_group(const struct top_subject *group, size_t ledger, const char *name)
{
    if (group->ledger != ledger)
        return group->ledger < ledger ? -1 : 1;
    return strcmp(group->name, name);
}

static int compare_names(const void *a, const void *b, void *context)
{
    const struct top_subject *subjects = context;
    const struct top_subject *other = &subjects[*(const size_t *)b];
    return compare_group(&subjects[*(const size_t *)a], other->ledger, other->name);
}

static bool open_sums(struct top_view *view, struct sums *sums, size_t **groups)
{
    const size_t group_room = view->group_count + 1;
    sums->accounts = malloc(group_room * TOP_DEVICES_MAX * sizeof(size_t));
    sums->rows = malloc((view->subject_count + 1) * sizeof(size_t));
    *groups = malloc(group_room * sizeof(size_t));
    if (sums->accounts == NULL || sums->rows == NULL || *groups == NULL)
        return false;
    memset(sums->accounts, 0xff, group_room * TOP_DEVICES_MAX * sizeof(size_t));
    size_t count = 0;
    for (size_t i = 0; i < view->subject_count; i++) {
        sums->rows[i] = TOP_NONE;
        if (view->subjects[i].kind == TOP_GROUP) {
            sums->rows[i] = count;
            (*groups)[count++] = i;
        }
    }
    qsort_r(*groups, count, sizeof(size_t), compare_names, view->subjects);
    for (size_t i = 0; i < view->account_count; i++) {
        const size_t row = sums->rows[view->accounts[i].subject];
        if (row != TOP_NONE && view->accounts[i].device < TOP_DEVICES_MAX)
            sums->accounts[row * TOP_DEVICES_MAX + view->accounts[i].device] = i;
    }
    return true;
}

static size_t find_group(const struct top_view *view, const size_t *groups,
                         const struct top_subject *process)
{
    size_t low = 0, high = view->group_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order =
            compare_group(&view->subjects[groups[middle]], process->ledger, process->group);
        if (order == 0)
            return groups[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return TOP_NONE;
}

/* Adds a process's account to those of its device and its group. */
static void sum_up(struct top_view *view, struct sums *sums, const size_t *groups, size_t index)
{
    const size_t device = view->accounts[index].device;
    const size_t subject = view->accounts[index].subject;
    const struct gc_ledger_figures figures = view->accounts[index].figures;
    if (view->subjects[subject].kind != TOP_PROCESS || device >= view->device_count)
        return;
    struct top_account *total = &view->accounts[sums->devices[device]];
    add_figures(&total->figures, &figures);
    view->subjects[total->subject].process_count++;
    const struct top_subject *process = &view->subjects[subject];
    const size_t group = process->group[0] != '\0' ? find_group(view, groups, process) : TOP_NONE;
    if (group == TOP_NONE)
        return;
    const size_t account = group_account(view, sums, group, device);
    if (account != TOP_NONE)
        add_figures(&view->accounts[account].figures, &figures);
}

/* Links tenants to their process's account on the same device. */
static bool set_anchors(struct top_view *view)
{
    size_t *first = malloc((view->subject_count + 1) * sizeof(size_t));
    if (first == NULL)
        return false;
    memset(first, 0xff, (view->subject_count + 1) * sizeof(size_t));
    for (size_t i = 0; i < view->account_count; i++) {
        if (first[view->accounts[i].subject] == TOP_NONE)
            first[view->accounts[i].subject] = i;
    }
    for (size_t i = 0; i < view->account_count; i++) {
        struct top_account *account = &view->accounts[i];
        const struct top_subject *subject = &view->subjects[account->subject];
        if (subject->kind != TOP_TENANT || subject->parent >= view->subject_count)
            continue;
        if (first[subject->parent] != TOP_NONE)
            account->anchor = first[subject->parent];
        for (size_t j = first[subject->parent];
             j < view->account_count && view->accounts[j].subject == subject->parent; j++) {
            if (view->accounts[j].device == account->device)
                account->anchor = j;
        }
    }
    free(first);
    return true;
}

enum gc_status top_view_close(struct top_view *view)
{
    struct sums sums = {.accounts = NULL};
    size_t *groups = NULL;
    const size_t given = view->account_count;
    bool done = !view->failed && open_sums(view, &sums, &groups);
    if (done) {
        for (size_t i = 0; i < view->subject_count; i++) {
            const struct top_subject *subject = &view->subjects[i];
            const size_t group = subject->kind == TOP_PROCESS && subject->group[0] != '\0'
                                     ? find_group(view, groups, subject)
                                     : TOP_NONE;
            if (group != TOP_NONE)
                view->subjects[group].process_count++;
        }
        add_device_subjects(view, &sums);
        for (size_t i = 0; i < given && !view->failed; i++)
            sum_up(view, &sums, groups, i);
        done = !view->failed && set_anchors(view);
    }
    free(sums.accounts);
    free(sums.rows);
    free(groups);
    return done ? GC_OK : GC_NO_HOST_MEMORY;
}

bool top_view_has_turns(const struct top_view *view)
{
    for (size_t i = 0; i < view->subject_count; i++)
        if (view->subjects[i].takes_turns)
            return true;
    for (size_t i = 0; i < view->account_count; i++)
        if (view->accounts[i].figures.swapped != 0)
            return true;
    return false;
}

struct top_places top_view_places(const struct top_view *view)
{
    struct top_places places = {.has_pod = false};
    for (size_t i = 0; i < view->subject_count; i++) {
        places.has_pod |= view->subjects[i].labels.pod[0] != '\0';
        places.has_container |= view->subjects[i].labels.container[0] != '\0';
        places.has_job |= view->subjects[i].labels.job[0] != '\0';
    }
    return places;
}

unsigned top_resident_percent(const struct gc_ledger_figures *figures)
{
    const double all =
        (double)figures->reserved + (double)figures->swapped + (double)figures->spilled;
    return all > 0 ? (unsigned)((double)figures->reserved * 100 / all) : 100;
}

int top_hit_permille(const struct gc_ledger_figures *figures)
{
    const double all = (double)figures->hit_count + (double)figures->miss_count;
    return all > 0 ? (int)((double)figures->hit_count * 1000.0 / all) : -1;
}

/* ---- the order ---- */

static const struct {
    const char *word;
    char key;
} sorts[] = {
#define TOP_SORT(name, text, letter) {text, letter},
#include "tools/live/top_sort.def"
#undef TOP_SORT
};

const char *top_sort_word(enum top_sort sort)
{
    return sorts[sort].word;
}

char top_sort_key(enum top_sort sort)
{
    return sorts[sort].key;
}

bool top_sort_find(const char *word, enum top_sort *sort)
{
    for (int i = 0; i < TOP_SORT_COUNT; i++) {
        if (strcmp(sorts[i].word, word) == 0) {
            *sort = (enum top_sort)i;
            return true;
        }
    }
    return false;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Larger limits first, accounts without a limit last. */
static uint64_t limit_rank(uint64_t limit)
{
    return limit == TOP_NO_LIMIT ? 0 : limit;
}

static int compare_figures(const struct gc_ledger_figures *a, const struct gc_ledger_figures *b,
                           enum top_sort sort)
{
    switch (sort) {
    case TOP_SORT_LIVE:
        return compare_numbers(b->requested, a->requested);
    case TOP_SORT_IDLE:
        return compare_numbers(b->idle, a->idle);
    case TOP_SORT_LIMIT:
        return compare_numbers(limit_rank(b->limit), limit_rank(a->limit));
    case TOP_SORT_REFUSED:
        return compare_numbers(b->oom_count, a->oom_count);
    case TOP_SORT_PEAK:
        return compare_numbers(b->peak, a->peak);
    case TOP_SORT_HITS:
        return top_hit_permille(b) - top_hit_permille(a);
    default:
        return compare_numbers(b->reserved, a->reserved);
    }
}

struct sorting {
    const struct top_view *view;
    const struct top_order *order;
};

static int compare_by(const struct sorting *sorting, const struct top_account *a,
                      const struct top_account *b)
{
    const struct top_subject *x = &sorting->view->subjects[a->subject];
    const struct top_subject *y = &sorting->view->subjects[b->subject];
    switch (sorting->order->sort) {
    case TOP_SORT_PID:
        return compare_numbers((uint64_t)(unsigned)x->pid, (uint64_t)(unsigned)y->pid);
    case TOP_SORT_NAME:
        return strcmp(x->name, y->name);
    case TOP_SORT_USER:
        return strcmp(x->user, y->user);
    case TOP_SORT_GROUP:
        return x->kind == TOP_GROUP ? strcmp(x->name, y->name) : strcmp(x->group, y->group);
    case TOP_SORT_DEVICE:
        return compare_numbers(a->device, b->device);
    default:
        return compare_figures(&a->figures, &b->figures, sorting->order->sort);
    }
}

/* Devices before groups before processes; a tenant follows its process. */
static int compare_accounts(const void *left, const void *right, void *context)
{
    const struct sorting *sorting = context;
    const struct top_view *view = sorting->view;
    const size_t i = *(const size_t *)left, j = *(const size_t *)right;
    const struct top_account *a = &view->accounts[i], *b = &view->accounts[j];
    const struct top_account *c = &view->accounts[a->anchor], *d = &view->accounts[b->anchor];
    const enum top_kind p = view->subjects[c->subject].kind, q = view->subjects[d->subject].kind;
    int result = (p == TOP_TENANT ? (int)TOP_PROCESS : (int)p) -
                 (q == TOP_TENANT ? (int)TOP_PROCESS : (int)q);
    if (result != 0)
        return result;
    if (p == TOP_DEVICE)
        return compare_numbers(i, j);
    if (a->anchor != b->anchor) {
        result = compare_by(sorting, c, d);
        if (result == 0)
            return compare_numbers(a->anchor, b->anchor);
        return sorting->order->reverse ? -result : result;
    }
    if ((a->anchor == i) != (b->anchor == j))
        return a->anchor == i ? -1 : 1;
    result = compare_by(sorting, a, b);
    if (result == 0)
        return compare_numbers(i, j);
    return sorting->order->reverse ? -result : result;
}

static bool is_shown(const struct top_view *view, const struct top_order *order,
                     const struct top_account *account)
{
    const struct top_subject *subject = &view->subjects[account->subject];
    if (order->device != TOP_NONE && account->device != order->device)
        return false;
    if (subject->kind == TOP_TENANT && order->hide_tenants)
        return false;
    if (subject->kind == TOP_DEVICE)
        return true;
    if (order->user != NULL && strcmp(subject->user, order->user) != 0)
        return false;
    if (order->group == NULL)
        return true;
    return strcmp(subject->kind == TOP_GROUP ? subject->name : subject->group, order->group) == 0;
}

size_t *top_view_sort(const struct top_view *view, const struct top_order *order, size_t *count)
{
    size_t *rows = malloc((view->account_count + 1) * sizeof(size_t));
    *count = 0;
    if (rows == NULL)
        return NULL;
    for (size_t i = 0; i < view->account_count; i++) {
        if (is_shown(view, order, &view->accounts[i]))
            rows[(*count)++] = i;
    }
    struct sorting sorting = {.view = view, .order = order};
    qsort_r(rows, *count, sizeof(size_t), compare_accounts, &sorting);
    return rows;
}
