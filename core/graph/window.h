/* Windows that slide over the spatial dimensions of convolutions and pools: their attributes,
 * checked, and the sizes that follow. Every attribute is below 2^31, so that products of two and
 * sums of a few fit in 64 bits. */
#ifndef GC_GRAPH_WINDOW_H
#define GC_GRAPH_WINDOW_H

#include "core/graph/infer.h"

#define GC_WINDOW_RANK_MAX (GC_GRAPH_RANK_MAX - 2)

enum gc_window_pads { GC_WINDOW_EXPLICIT, GC_WINDOW_SAME };

struct gc_window {
    uint32_t rank; /* spatial dimensions */
    enum gc_window_pads pads;
    int64_t kernel[GC_WINDOW_RANK_MAX]; /* 0: not known */
    int64_t stride[GC_WINDOW_RANK_MAX];
    int64_t dilation[GC_WINDOW_RANK_MAX];
    int64_t pad_begin[GC_WINDOW_RANK_MAX];
    int64_t pad_end[GC_WINDOW_RANK_MAX];
};

/* Reads kernel_shape, strides, dilations, pads and auto_pad for `rank` spatial dimensions. The
 * kernel is the weight's dims from `first` on where there is no attribute; NULL: no weight.
 * GC_FORMAT: one is out of range or there are not as many as dimensions. */
enum gc_status gc_window_read(struct gc_infer *infer, uint32_t rank, const struct gc_shape *weight,
                              uint32_t first, struct gc_window *window) GC_CHECKED;
/* What dimension `index` of size `in` becomes. GC_FORMAT: the window does not fit into it. */
enum gc_status gc_window_slide(struct gc_infer *infer, const struct gc_window *window,
                               uint32_t index, struct gc_dim in, bool round_up,
                               struct gc_dim *out) GC_CHECKED;
/* The reverse, of a transposed convolution; `more` is its output_padding. */
enum gc_status gc_window_spread(struct gc_infer *infer, const struct gc_window *window,
                                uint32_t index, struct gc_dim in, int64_t more,
                                struct gc_dim *out) GC_CHECKED;

#endif
