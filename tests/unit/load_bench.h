/* For tests of what reads models: a reading without a model, and sources of given bytes. */
#ifndef GC_TEST_LOAD_BENCH_H
#define GC_TEST_LOAD_BENCH_H

#include "core/formats/source.h"

struct load_bench {
    struct gc_load load;
    struct gc_model_error error;
};

void load_bench_begin(struct load_bench *bench);
/* Checks that all memory is given back. */
void load_bench_end(struct load_bench *bench);
/* A source "bench" of these bytes; gc_source_close it. */
void load_bench_source(struct load_bench *bench, const void *data, size_t bytes,
                       struct gc_source *source);
/* Forgets the error, so that the next can be seen. */
void load_bench_forget(struct load_bench *bench);

#endif
