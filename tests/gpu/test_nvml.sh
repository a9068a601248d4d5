#!/bin/bash
# On an NVIDIA GPU: nvidia-smi, a client of the real NVML, sees the limit under the library and nothing else changed.
. "$(dirname "$0")/../lib.sh"
if ! command -v nvidia-smi > /dev/null; then
    skip "nvidia-smi" "it is not there"
    done_testing
fi
query() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits; }
whole=$(query memory.total)
ok "nvidia-smi works without the library" test -n "$whole"
under=$(LD_PRELOAD=$LIB query memory.total 2>&1)
is "no limit: the same total, nothing logged" "$under" "$whole"
limited=$(LD_PRELOAD=$LIB GPUCACHE_LIMIT=4GiB query memory.total 2>&1 | sort -u)
is "a limit is the total" "$limited" 4096
free=$(LD_PRELOAD=$LIB GPUCACHE_LIMIT=4GiB query memory.free 2>&1 | sort -n | tail -n 1)
ok "no more is free" test "$free" -le 4096
is "mode off: the same total" "$(LD_PRELOAD=$LIB GPUCACHE_MODE=off GPUCACHE_LIMIT=4GiB query memory.total 2>&1)" "$whole"
is "names and UUIDs are as usual" "$(LD_PRELOAD=$LIB GPUCACHE_LIMIT=4GiB query name,uuid,pci.bus_id 2>&1)" "$(query name,uuid,pci.bus_id)"
done_testing
