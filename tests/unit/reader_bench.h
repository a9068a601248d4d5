/* For tests of what reads models: a reading without a model, and sources of given bytes. */
#ifndef GC_TEST_READER_BENCH_H
#define GC_TEST_READER_BENCH_H

#include "core/reader/source.h"

struct reader_bench {
    struct gc_reader reader;
    struct gc_model_error error;
};

void reader_bench_begin(struct reader_bench *bench);
/* Checks that all memory is freed. */
void reader_bench_end(struct reader_bench *bench);
/* A source "bench" of these bytes; gc_source_close it. */
void reader_bench_source(struct reader_bench *bench, const void *data, size_t bytes,
                         struct gc_source *source);
/* Forgets the error, so that the next can be seen. */
void reader_bench_forget(struct reader_bench *bench);

#endif
