#!/usr/bin/env python3
"""PyTorch's allocations with its own cache, and without it on the library: ns beside each other, on the simulated device.

usage: speed.py --build DIR [--rounds N] [NAME...]

Requests and their frees of sizes from 512 bytes to 1 GiB, by the allocator itself and as tensors (torch.empty), and the
traces of tests/bench/handles.py (the recorded ones are skipped with a line where they are not) event by event. Nothing is
submitted, so no free waits. Times are the thread's, on the processor; each is the least of some rounds, in which the two take turns. NAMEs choose traces, or
`pairs`. Prints a table; exit status 1 if the library is the slower one by more than NOISE anywhere, or holds too much.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import run

sys.path.insert(0, str(run.ROOT / "tests/bench"))
import handles  # pylint: disable=wrong-import-position

NOISE = 1.1
RESERVED_MOST = 1.05
RESERVED_OF = "pytorch_gpt_train_14steps"  # PyTorch's real traffic below 1 GiB, which that bound is for
ALLOCATORS = ("native", "nocache")
MEMORY = "512GiB"  # so that PyTorch's cache fits as well


class Speed:
    """The processes with PyTorch, one for each allocator, and the comparisons that fail."""

    def __init__(self, options, folder):
        self.folder, self.rounds, self.slower = folder, options.rounds, []
        self.pairs_library = self._build_pairs(options)
        self.zygotes = {allocator: run.Zygote(options, allocator, allocator == "nocache", folder) for allocator in ALLOCATORS}

    def _build_pairs(self, options):
        """pairs.cc, against PyTorch's headers."""
        [package] = {library.parents[1] for library in options.libraries if library.parent.name == "lib"}
        output = options.build / "torch/libpairs.so"
        subprocess.run([os.environ.get("CXX", "g++"), "-O2", "-std=c++17", "-shared", "-fPIC", "-isystem", str(package / "include"),
                        "-isystem", os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include", "-o", str(output),
                        str(run.HERE / "pairs.cc"), f"-L{package / 'lib'}", "-lc10", "-lc10_cuda"], check=True)
        return str(output)

    def measure(self, name, area, **variables):
        """One item by each allocator in turn: {allocator: figures}."""
        seen = {}
        for allocator in ALLOCATORS:
            base = pathlib.Path(self.folder, allocator)
            output, errors, report = (base.with_suffix(ending) for ending in (".out", ".err", ".json"))
            output.unlink(missing_ok=True)
            environment = {**variables, "TORCH_PAIRS": self.pairs_library, "SIMCUDA_MEMORY": MEMORY, "GPUCACHE_REPORT": str(report)}
            status = self.zygotes[allocator].run({"area": area, "allocator": allocator, "environment": environment, "seconds": run.SECONDS,
                                                  "output": str(output), "errors": str(errors)})
            result = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
            if status != 0 or "seen" not in result:
                sys.exit(f"speed: {name}, {allocator}: status {status}: {result.get('error', '')}\n"
                         f"{errors.read_text(encoding='utf-8', errors='replace')}")
            seen[allocator] = result["seen"]
        if area == "speed_trace":
            device = json.loads(report.read_text(encoding="utf-8"))["devices"][0]
            context = device["by_api"]["cuDevicePrimaryCtxRetain"]["peak_bytes"]
            seen["nocache"]["reserved"] = device["reserved_bytes"]["peak"] - context
        return seen

    def print_times(self, name, native, ours, rest=""):
        print(f"| {name} | {native:.0f} | {ours:.0f} | {ours / native:.2f} |{rest}", flush=True)
        if ours > native * NOISE:
            self.slower.append(f"{name}: {ours / native:.2f} times the time of PyTorch's cache")

    def pairs(self):
        """Requests and their frees, by size."""
        print("| pair | PyTorch's cache, ns | the library, ns | ratio |\n|---|---|---|---|")
        rounds = [self.measure("pairs", "speed_pairs") for _ in range(self.rounds)]
        for figure in rounds[0]["native"]:
            self.print_times(figure, least(rounds, "native", figure), least(rounds, "nocache", figure))

    def traces(self, found):
        """Traces, event by event, and the memory that they hold."""
        print("\n| trace, an event | PyTorch's cache, ns | the library, ns | ratio | first pass: PyTorch's cache, ns | the library, ns "
              "| reserved/live: PyTorch's cache | the library |\n" + "|---" * 8 + "|")
        for name, path in found.items():
            rounds = [self.measure(name, "speed_trace", TORCH_TRACE=path) for _ in range(self.rounds)]
            first = [least(rounds, allocator, "first") for allocator in ALLOCATORS]
            held = [max(one[allocator]["reserved"] for one in rounds) / rounds[0]["native"]["peak"] for allocator in ALLOCATORS]
            self.print_times(name, least(rounds, "native", "later"), least(rounds, "nocache", "later"),
                             f" {first[0]:.0f} | {first[1]:.0f} | {held[0]:.4f} | {held[1]:.4f} |")
            if name == RESERVED_OF and held[1] > RESERVED_MOST:
                self.slower.append(f"{name}: reserved/live {held[1]:.4f}, at most {RESERVED_MOST} wanted")

    def end(self):
        for zygote in self.zygotes.values():
            zygote.end()


def least(rounds, allocator, figure):
    return min(one[allocator][figure] for one in rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=run.ROOT / "build", help="the build folder")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.build, options.short = options.build.resolve(), True
    reason = run.set_up(options)
    if reason:
        sys.exit(f"speed: PyTorch's wheels are not in the user's cache, `make test-torch` fetches them: {reason}")
    names = [name for name in options.names if name != "pairs"]
    with tempfile.TemporaryDirectory(prefix="gpucache-torch.") as folder:
        found = handles.traces(folder, names) if names or not options.names else {}
        if set(names) - set(found):
            parser.error(f"no such trace: {' '.join(sorted(set(names) - set(found)))}; there are: pairs {' '.join(handles.traces(folder))}")
        speed = Speed(options, folder)
        if "pairs" in options.names or not options.names:
            speed.pairs()
        if found:
            speed.traces(found)
        speed.end()
    print("\n" + "".join(f"not reached: {line}\n" for line in speed.slower) + f"{len(speed.slower)} not reached")
    return 1 if speed.slower else 0


if __name__ == "__main__":
    sys.exit(main())
