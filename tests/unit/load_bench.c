#include "tests/unit/load_bench.h"

#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <string.h>
#include <unistd.h>

static struct gc_model model;
static const char *warnings[GC_LOAD_WARNINGS_MAX];

void load_bench_begin(struct load_bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->load.limits = (struct gc_model_limits){
        .memory_bytes = 64 << 20, .header_bytes = 1 << 30, .tensors = 100000, .files = 16};
    bench->load.error = &bench->error;
    bench->load.model = &model;
    model = (struct gc_model){.path = "bench"};
    bench->load.warnings = warnings;
    gc_region_init(&bench->load.region, bench->load.limits.memory_bytes);
    gc_names_init(&bench->load.tensor_names);
    gc_names_init(&bench->load.meta_names);
}

void load_bench_end(struct load_bench *bench)
{
    gc_source_end(&bench->load);
    gc_region_fini(&bench->load.region);
    assert_int_equal(gc_region_bytes(&bench->load.region), 0);
}

void load_bench_source(struct load_bench *bench, const void *data, size_t bytes,
                       struct gc_source *source)
{
    const int fd = scratch_fd();
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(gc_source_take(&bench->load, "bench", fd, source), GC_OK);
}

void load_bench_forget(struct load_bench *bench)
{
    bench->load.failed = false;
    bench->error.text[0] = '\0';
}
