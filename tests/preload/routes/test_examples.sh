#!/bin/bash
# The examples of gpucache.h work as described, on the simulated device.
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=2GiB SIMCUDA_WORK_US=100 GPUCACHE_REPORT=none
examples=$BUILD_DIR/examples

is "statistics: runs without the library" "$(simulated "$examples/statistics")" "without libgpucache"
output=$(preloaded "$examples/statistics")
is "statistics: ends well under the library" $? 0
like "statistics: shows the first phase" "$output" '^after the first phase: requested 0 MiB \(peak 100\), reserved [0-9]+ MiB'
like "statistics: an answer before an allocation" "$output" '^200 MiB would fit$'
like "statistics: an empty cache holds nothing" "$output" '^with the cache empty: requested 0 MiB \(peak 0\), reserved 0 MiB'
like "statistics: the limit holds" "$output" '^200 MiB under the limit: CUDA error 2$'

for way in simulated preloaded; do
    output=$($way "$examples/stream_memory")
    is "stream_memory, $way: ends well" $? 0
    like "stream_memory, $way: all is freed" "$output" '^100 allocations, 0 MiB live, at most [0-9]+ MiB reserved$'
    output=$($way "$examples/kv_cache")
    status=$?
    if [ $status -eq 77 ]; then
        skip "kv_cache, $way" "$output"
    else
        is "kv_cache, $way: ends well" $status 0
        like "kv_cache, $way: memory for what is there only" "$output" '^capacity 1024 MiB, peak [0-9]{2} MiB;'
        like "kv_cache, $way: compaction" "$output" '^compaction gave back [1-9][0-9]* MiB'
    fi
    if [ -x "$examples/tenants" ]; then
        is "tenants, $way: one is full, the other goes on" "$($way "$examples/tenants")" \
            "small: 6 blocks, 60 of 60 MiB, refused 1"$'\n'"large: 20 blocks, 200 of 200 MiB, refused 0"
    else
        skip "tenants, $way" "there is no C++ compiler here"
    fi
    is "allocators, $way: no memory is NULL" "$($way "$examples/allocators")" \
        "CUDA calls of the program come by"$'\n'"more than there is: NULL"
    if [ -x "$examples/rmm_resource" ]; then
        is "rmm_resource, $way: no memory is an exception" "$($way "$examples/rmm_resource")" "more than there is: bad_alloc"
    else
        skip "rmm_resource, $way" "there is no C++ compiler here"
    fi
done
for script in torch_allocator cupy_allocator; do
    ok "$script.py is Python" python3 -c "import ast, sys; ast.parse(open(sys.argv[1]).read())" "$ROOT/examples/$script.py"
done
done_testing
