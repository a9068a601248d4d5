#include "tests/unit/reader_bench.h"

#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <string.h>
#include <unistd.h>

static struct gc_model model;
static const char *warnings[GC_READER_WARNINGS_MAX];

void reader_bench_begin(struct reader_bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->reader.limits = (struct gc_model_limits){
        .memory_bytes = 64 << 20, .header_bytes = 1 << 30, .tensors = 100000, .files = 16};
    bench->reader.error = &bench->error;
    bench->reader.model = &model;
    model = (struct gc_model){.path = "bench"};
    bench->reader.warnings = warnings;
    gc_region_init(&bench->reader.region, bench->reader.limits.memory_bytes);
    gc_strmap_init(&bench->reader.tensor_names);
    gc_strmap_init(&bench->reader.meta_names);
}

void reader_bench_end(struct reader_bench *bench)
{
    gc_reader_end(&bench->reader);
    gc_region_fini(&bench->reader.region);
    assert_int_equal(gc_region_bytes(&bench->reader.region), 0);
}

void reader_bench_source(struct reader_bench *bench, const void *data, size_t bytes,
                         struct gc_source *source)
{
    const int fd = scratch_fd();
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(gc_source_open_fd(&bench->reader, "bench", fd, source), GC_OK);
}

void reader_bench_forget(struct reader_bench *bench)
{
    bench->reader.failed = false;
    bench->error.text[0] = '\0';
}
