/* Treaps of ranges and the best-fit range allocator: see memory_tree.h. */
#include "memory_tree.h"

#include <stdlib.h>

struct range {
    struct sim_node by_start; /* [start, end) of the range */
    struct sim_node by_size;  /* key (bytes, start) */
};

static bool is_below(const struct sim_node *node, uint64_t start, uint64_t end)
{
    return node->start < start || (node->start == start && node->end < end);
}

/* xorshift: priorities need to be spread, not secret. Callers hold their tree's lock, but trees
 * have different locks, so the state is per thread. */
static uint32_t next_priority(void)
{
    static _Thread_local uint32_t state = 2463534242u;

    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* Splits into the nodes below the key and the rest. */
static void split(struct sim_node *node, uint64_t start, uint64_t end, struct sim_node **below,
                  struct sim_node **rest)
{
    if (node == NULL) {
        *below = NULL;
        *rest = NULL;
    } else if (is_below(node, start, end)) {
        *below = node;
        split(node->right, start, end, &node->right, rest);
    } else {
        *rest = node;
        split(node->left, start, end, below, &node->left);
    }
}

/* Joins two trees, every key of `low` being below every key of `high`. */
static struct sim_node *join(struct sim_node *low, struct sim_node *high)
{
    if (low == NULL)
        return high;
    if (high == NULL)
        return low;
    if (low->priority > high->priority) {
        low->right = join(low->right, high);
        return low;
    }
    high->left = join(low, high->left);
    return high;
}

void sim_tree_insert(struct sim_tree *tree, struct sim_node *node)
{
    struct sim_node **link = &tree->root;

    node->priority = next_priority();
    while (*link != NULL && (*link)->priority >= node->priority)
        link = is_below(*link, node->start, node->end) ? &(*link)->right : &(*link)->left;
    split(*link, node->start, node->end, &node->left, &node->right);
    *link = node;
    tree->count++;
}

void sim_tree_remove(struct sim_tree *tree, struct sim_node *node)
{
    struct sim_node **link = &tree->root;

    while (*link != NULL && *link != node)
        link = is_below(*link, node->start, node->end) ? &(*link)->right : &(*link)->left;
    if (*link == NULL)
        return;
    *link = join(node->left, node->right);
    node->left = NULL;
    node->right = NULL;
    tree->count--;
}

struct sim_node *sim_tree_floor(const struct sim_tree *tree, uint64_t address)
{
    struct sim_node *node = tree->root;
    struct sim_node *best = NULL;

    while (node != NULL) {
        if (node->start <= address) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

struct sim_node *sim_tree_find(const struct sim_tree *tree, uint64_t address)
{
    struct sim_node *node = sim_tree_floor(tree, address);

    return node != NULL && address < node->end ? node : NULL;
}

struct sim_node *sim_tree_lower_bound(const struct sim_tree *tree, uint64_t start, uint64_t end)
{
    struct sim_node *node = tree->root;
    struct sim_node *best = NULL;

    while (node != NULL) {
        if (is_below(node, start, end)) {
            node = node->right;
        } else {
            best = node;
            node = node->left;
        }
    }
    return best;
}

struct sim_node *sim_tree_overlap(const struct sim_tree *tree, uint64_t start, uint64_t end)
{
    struct sim_node *node = sim_tree_find(tree, start);

    if (node != NULL)
        return node;
    node = sim_tree_lower_bound(tree, start, 0);
    return node != NULL && node->start < end ? node : NULL;
}

static void add_range(struct sim_ranges *ranges, struct range *range, uint64_t start, uint64_t end)
{
    range->by_start.start = start;
    range->by_start.end = end;
    range->by_size.start = end - start;
    range->by_size.end = start;
    sim_tree_insert(&ranges->by_start, &range->by_start);
    sim_tree_insert(&ranges->by_size, &range->by_size);
    ranges->free_bytes += end - start;
}

static void remove_range(struct sim_ranges *ranges, struct range *range)
{
    sim_tree_remove(&ranges->by_start, &range->by_start);
    sim_tree_remove(&ranges->by_size, &range->by_size);
    ranges->free_bytes -= range->by_start.end - range->by_start.start;
}

static bool may_merge_at(const struct sim_ranges *ranges, uint64_t address)
{
    return ranges->boundary == 0 || address % ranges->boundary != 0;
}

bool sim_ranges_give(struct sim_ranges *ranges, uint64_t *start, uint64_t *bytes)
{
    uint64_t low = *start;
    uint64_t high = *start + *bytes;
    struct sim_node *before = low == 0 ? NULL : sim_tree_find(&ranges->by_start, low - 1);
    struct sim_node *after = sim_tree_find(&ranges->by_start, high);
    struct range *range = NULL;

    if (before != NULL && may_merge_at(ranges, low)) {
        range = SIM_CONTAINER(before, struct range, by_start);
        low = before->start;
        remove_range(ranges, range);
    }
    if (after != NULL && may_merge_at(ranges, high)) {
        struct range *other = SIM_CONTAINER(after, struct range, by_start);

        high = after->end;
        remove_range(ranges, other);
        if (range == NULL)
            range = other;
        else
            free(other);
    }
    if (range == NULL)
        range = calloc(1, sizeof *range);
    if (range == NULL)
        return false;
    add_range(ranges, range, low, high);
    *start = low;
    *bytes = high - low;
    return true;
}

/* Cuts [start, end) out of a range that contains it. */
static bool cut_out(struct sim_ranges *ranges, struct range *range, uint64_t start, uint64_t end)
{
    uint64_t low = range->by_start.start;
    uint64_t high = range->by_start.end;
    struct range *second = NULL;

    if (low < start && end < high) {
        second = calloc(1, sizeof *second);
        if (second == NULL)
            return false;
    }
    remove_range(ranges, range);
    if (low < start) {
        add_range(ranges, range, low, start);
        range = second;
    }
    if (end < high)
        add_range(ranges, range, end, high);
    else
        free(range);
    return true;
}

bool sim_ranges_take(struct sim_ranges *ranges, uint64_t bytes, uint64_t alignment, uint64_t *start)
{
    struct sim_node *node = sim_tree_lower_bound(&ranges->by_size, bytes, 0);

    while (node != NULL) {
        struct range *range = SIM_CONTAINER(node, struct range, by_size);
        uint64_t low = (range->by_start.start + alignment - 1) & ~(alignment - 1);

        if (low >= range->by_start.start && low <= range->by_start.end &&
            range->by_start.end - low >= bytes) {
            *start = low;
            return cut_out(ranges, range, low, low + bytes);
        }
        node = sim_tree_lower_bound(&ranges->by_size, node->start, node->end + 1);
    }
    return false;
}

bool sim_ranges_take_at(struct sim_ranges *ranges, uint64_t start, uint64_t bytes)
{
    struct sim_node *node = sim_tree_find(&ranges->by_start, start);

    if (node == NULL || node->end - start < bytes)
        return false;
    return cut_out(ranges, SIM_CONTAINER(node, struct range, by_start), start, start + bytes);
}

bool sim_ranges_next(const struct sim_ranges *ranges, uint64_t from, uint64_t *start,
                     uint64_t *bytes)
{
    struct sim_node *node = sim_tree_lower_bound(&ranges->by_start, from, 0);

    if (node == NULL)
        return false;
    *start = node->start;
    *bytes = node->end - node->start;
    return true;
}

void sim_ranges_fini(struct sim_ranges *ranges)
{
    while (ranges->by_start.root != NULL) {
        struct range *range = SIM_CONTAINER(ranges->by_start.root, struct range, by_start);

        remove_range(ranges, range);
        free(range);
    }
}
