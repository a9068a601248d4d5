/* What the parts of an exact search share. */
#ifndef GC_PLANNER_PLACE_SEARCH_STATE_H
#define GC_PLANNER_PLACE_SEARCH_STATE_H

#include "core/planner/place_search.h"

#define GC_PLACE_SEARCH_NONE UINT32_MAX

/* Items that meet each other and nobody else who is not placed: those from `head` on, in the list
 * of what is not placed, that begin before `end`. */
struct gc_place_component {
    uint64_t level; /* nothing goes below any more */
    uint32_t head;
    uint32_t end;    /* section */
    uint32_t parent; /* the frame whose choice it depends on */
    uint32_t next;   /* the component to be searched after it */
    uint32_t rank;   /* nor at the level, of those that rank lower */
    bool is_new;     /* not all that its parent had: ranks are to be looked at again */
};

struct gc_place_frame {
    struct gc_place_component component;
    struct gc_place_key key;
    uint32_t item; /* placed by this frame, or NONE */
    uint32_t candidate;
    uint32_t candidate_end;
    uint32_t candidate_begin;
    uint32_t trail_mark;
    uint32_t pool_mark;
    uint32_t rerank_mark;
    bool is_forced; /* the candidates exclude each other: none is passed by */
    bool is_cut;    /* candidates were left out: no verdict */
};

/* The least and the second least end in a section, of one placed next; whose the first is. */
struct gc_place_ends {
    uint64_t first;
    uint64_t second;
    uint32_t item;
    uint64_t round;
};

struct gc_place_change {
    uint64_t level;
    uint32_t item;
};

struct gc_place_rerank {
    uint32_t item;
    uint32_t rank; /* before */
};

struct gc_place_search {
    const struct gc_place_model *model;
    struct gc_place_memo *memo;
    uint32_t *blame;   /* of each item: how often it was left without a place */
    uint64_t limit;    /* no end above it */
    uint64_t capacity; /* the same in whole grains */
    uint64_t salt;
    struct gc_place_preference preference;
    uint32_t *ranks; /* of what is in one component */
    struct gc_place_sorter *sorter;
    uint32_t *order; /* what is sorted */
    bool is_cut;     /* a frame gave up its claim */
    enum gc_place_verdict verdict;

    uint64_t *levels; /* where each item would rest now */
    uint64_t *offsets;
    uint32_t *next; /* what is not placed, by first section; the last is the list's end */
    uint32_t *previous;
    uint64_t *latest; /* of each section: where the next must begin for all that is left to fit */

    uint64_t
        *bounds; /* of each item at this node: its offset is no less; of placed ones: the most */
    uint64_t *least;            /* of `latest` over ranges of powers of two */
    struct gc_place_ends *ends; /* of sections */
    uint64_t round;             /* of inference */
    uint32_t *witness; /* of each section: one that may be next, when it was last looked for */

    struct gc_place_frame *frames;
    uint32_t depth;
    struct gc_place_component *pool;
    uint32_t pool_used;
    uint32_t pending; /* the first component that waits */
    struct gc_place_change *trail;
    uint32_t trail_used;
    struct gc_place_rerank *reranks;
    uint32_t rerank_room;
    uint32_t rerank_used;
    uint32_t *candidates;
    uint32_t candidate_room;
    uint32_t candidate_used;
};

static inline bool gc_place_search_is_in(const struct gc_place_search *search,
                                         const struct gc_place_component *component, uint32_t item)
{
    return item < search->model->count && search->model->items[item].first < component->end;
}

/* Its level will not be its offset: it is to rest on another that is still to come. */
static inline bool gc_place_search_is_passed(const struct gc_place_search *search,
                                             const struct gc_place_component *component,
                                             uint32_t item)
{
    const uint64_t level = search->levels[item];
    return level < component->level ||
           (level == component->level && search->ranks[item] < component->rank);
}

/* ---- place_infer.c ---- */

/* The bounds of all items of a component; false if they show that there is no way on. */
bool gc_place_search_infer(struct gc_place_search *search,
                           const struct gc_place_component *component);

/* ---- place_choose.c ---- */

/* Ranks the items of a component by what is left in their fullest section, then by preference. */
void gc_place_search_rank(struct gc_place_search *search,
                          const struct gc_place_component *component);
/* As they were before the frame. */
void gc_place_search_rank_back(struct gc_place_search *search, const struct gc_place_frame *frame);
/* Who may be placed next by the frame: at its level, with nothing that would fit wholly below. */
void gc_place_search_gather(struct gc_place_search *search, struct gc_place_frame *frame);

#endif
