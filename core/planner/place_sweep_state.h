/* What the parts of the sweep share. */
#ifndef GC_PLANNER_PLACE_SWEEP_STATE_H
#define GC_PLANNER_PLACE_SWEEP_STATE_H

#include "core/planner/place_brim.h"
#include "core/planner/place_fill.h"
#include "core/planner/place_sweep.h"
#include "core/planner/place_tree.h"

#define GC_PLACE_SWEEP_NONE GC_PLACE_TREE_NONE

enum gc_place_sweep_leaf_state {
    GC_PLACE_SWEEP_WAITING,
    GC_PLACE_SWEEP_ALIVE,
    GC_PLACE_SWEEP_ENDED
};

/* Which gaps are filled at once by which items; sets as gc_place_fill has them. */
struct gc_place_sweep_way {
    uint64_t gaps;
    uint64_t items;
    uint32_t hole; /* that moves from one place to another, or NONE */
};

/* Neighbours that end at one time, and who begins in their place; a step of the search. */
struct gc_place_sweep_group {
    struct gc_place_tree_mark mark;
    uint32_t moment;
    uint32_t ended_begin; /* of `ended` and `begun`, up to the next group's */
    uint32_t begun_begin;
    uint32_t beside; /* a leaf that lies beside them, or NONE: either way round will do */
    bool is_above;
    uint32_t way_begin; /* of `ways`: those that were to be tried */
    uint32_t way;
    uint32_t way_end;
    bool may_move_holes; /* if none of these is one */
};

struct gc_place_sweep {
    struct gc_region region; /* holds it all */
    struct gc_place_run *run;
    struct gc_place_brim brim;
    struct gc_place_tree tree;
    struct gc_place_fill fill;
    uint8_t *states;    /* of each leaf */
    uint32_t *group_of; /* with which it began; NONE: with the first moment */
    struct gc_place_sweep_group *groups;
    bool *is_suspect; /* groups to which a failure may be due */
    uint32_t depth;
    uint32_t *ended;
    uint32_t *begun;
    uint32_t ended_count;
    uint32_t begun_count;
    struct gc_place_sweep_way *ways;
    uint32_t way_room;
    uint32_t way_count;
    uint32_t *open_ends; /* of the moment at hand: who is still to be in a group, */
    uint32_t open_end_count;
    uint32_t *gaps; /* and the subtrees they make up, the largest first */
    uint32_t *open_starts;
    uint32_t open_start_count;
    uint32_t deepest;
    uint32_t reach;
    uint32_t failures; /* since it last went back further */
    uint32_t trial;    /* how often it began anew; every second one runs backwards in time */
    uint64_t patience; /* steps until it does again */
    uint64_t steps;    /* in all trials */
    uint64_t *offsets;
    enum gc_place_verdict verdict;
};

/* ---- place_sweep_ways.c ---- */

/* Who ends before a moment and who begins with it, as far as they are in no group yet; false:
 * nobody. */
bool gc_place_sweep_find_open(struct gc_place_sweep *sweep, uint32_t moment);
/* The gaps which those leave, the largest first. */
void gc_place_sweep_find_gaps(struct gc_place_sweep *sweep);
/* The ways to fill the largest gap become those of the group. */
void gc_place_sweep_find_ways(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group);
/* Where none of them went: a hole may leave its place for another, with all that end then. */
void gc_place_sweep_move_holes(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group);

/* ---- place_sweep_group.c ---- */

/* Makes the next group. False: those who end cannot lie next to each other; the tree is to be
 * undone. */
bool gc_place_sweep_take(struct gc_place_sweep *sweep, struct gc_place_sweep_group *group,
                         const struct gc_place_sweep_way *way);
/* Takes the last group back. False: it was made too long ago. */
bool gc_place_sweep_take_back(struct gc_place_sweep *sweep);
/* After the last group: from it to the first, all get their offsets. */
void gc_place_sweep_settle(struct gc_place_sweep *sweep);

#endif
