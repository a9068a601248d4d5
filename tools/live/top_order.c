/* The order of `gpucache top`'s rows: devices, groups, processes with their tenants. */
#define _GNU_SOURCE
#include "tools/live/top_view.h"

#include <stdlib.h>
#include <string.h>

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

/* Larger first. No limit is the largest, yet it limits nothing: last. */
static uint64_t limit_rank(uint64_t limit)
{
    return limit == TOP_NO_LIMIT ? 0 : limit;
}

static int compare_figures(const struct top_figures *a, const struct top_figures *b,
                           enum top_sort sort)
{
    switch (sort) {
    case TOP_SORT_LIVE:
        return compare_numbers(b->requested, a->requested);
    case TOP_SORT_IDLE:
        return compare_numbers(b->idle, a->idle);
    case TOP_SORT_LIMIT:
        return compare_numbers(limit_rank(b->limit), limit_rank(a->limit));
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
    case TOP_SORT_GROUP:
        return x->kind == TOP_GROUP ? strcmp(x->name, y->name) : strcmp(x->group, y->group);
    case TOP_SORT_DEVICE:
        return compare_numbers(a->device, b->device);
    default:
        return compare_figures(&a->figures, &b->figures, sorting->order->sort);
    }
}

/* Devices before groups before processes; a tenant stands where its process does, behind it. */
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
    if (order->group == NULL || subject->kind == TOP_DEVICE)
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
