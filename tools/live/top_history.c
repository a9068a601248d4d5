#include "tools/live/top_history.h"

#include <stdlib.h>
#include <string.h>

static int compare_rows(const void *left, const void *right)
{
    const struct top_history_row *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->device > b->device) - (a->device < b->device);
}

static struct top_history_row *find(const struct top_history *history,
                                    const struct top_history_row *row)
{
    return history->count == 0
               ? NULL
               : bsearch(row, history->rows, history->count, sizeof(*history->rows), compare_rows);
}

static void add_sample(struct top_samples *samples, uint64_t value)
{
    if (samples->count == TOP_SAMPLES) {
        memmove(samples->values, samples->values + 1,
                (TOP_SAMPLES - 1) * sizeof(samples->values[0]));
        samples->count--;
    }
    samples->values[samples->count++] = value;
}

void top_history_add(struct top_history *history, const struct top_view *view)
{
    struct top_history_row *rows = malloc((view->account_count + 1) * sizeof(*rows));
    if (rows == NULL)
        return;
    for (size_t i = 0; i < view->account_count; i++) {
        const struct top_account *account = &view->accounts[i];
        rows[i] = (struct top_history_row){.key = view->subjects[account->subject].key,
                                           .device = account->device};
        const struct top_history_row *before = find(history, &rows[i]);
        if (before != NULL)
            rows[i].samples = before->samples;
        add_sample(&rows[i].samples, account->figures.reserved);
    }
    qsort(rows, view->account_count, sizeof(*rows), compare_rows);
    free(history->rows);
    history->rows = rows;
    history->count = view->account_count;
}

const struct top_samples *top_history_find(const struct top_history *history,
                                           const struct top_view *view, size_t account)
{
    const struct top_history_row row = {.key = view->subjects[view->accounts[account].subject].key,
                                        .device = view->accounts[account].device};
    const struct top_history_row *found = find(history, &row);
    return found != NULL ? &found->samples : NULL;
}

void top_history_fini(struct top_history *history)
{
    free(history->rows);
    *history = (struct top_history){.count = 0};
}
