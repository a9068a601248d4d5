#!/usr/bin/env python3
"""NVIDIA's own driver, NVML and runtimes, without a device: beside the simulated device, and below the library.

usage: run.py --build DIR [--seed N] [--write]

1. Every function of the driver's headers, before cuInit and after it failed, with null and odd arguments; each name of
   cuGetProcAddress at each version and flag; errors' names and texts; the functions of NVML: NVIDIA's and the simulated
   ones. The calls are the systematic ones, from which the simulated driver's table is learnt (early.py), and random ones of
   a seed, which it has not seen; the seed is printed. A call that ends the process in NVIDIA's driver is undefined: it is
   counted and not compared. differences.txt lists where they differ, and why; a difference that it lacks fails, and so does
   a line of it that no longer holds. --write prints its lines anew, without reasons.
2. NVIDIA's driver answers the random calls and all the rest alike with and without the library.
3. Each row of shim/api.def is in NVIDIA's driver, as a symbol and as the ABI of its version.
4. Programs on runtimes 11.8 and 12.2, and the tool.

Prints TAP and a line with the counts. Skips, with a line that says so, where the packages cannot be fetched.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "tests/nvidia/differences.txt"
SIM_SETTINGS = {"SIMCUDA_DEVICES": "0", "SIMCUDA_DRIVER_VERSION": "12020"}
NEWEST = 12020  # the driver's
STATES = ("new", "failed")
MODES = ("off", "track", "cache")  # of the library
RANDOM_CALLS = 6  # of each function
EXPORTS = r"(?:cu|nvml)\w+"  # the libraries' symbols
passed = failed = 0


def check(name, problems):
    global passed, failed
    problems = list(problems)
    passed, failed = passed + (not problems), failed + bool(problems)
    print(f"{'not ok' if problems else 'ok'} {passed + failed} - {name}", flush=True)
    for problem in problems[:40]:
        print(f"# {problem}")
    if len(problems) > 40:
        print(f"# and {len(problems) - 40} more")


class Side:
    """All answers of one driver: {(kind, function, question): answer}. `skip` tells which calls are not made."""

    def __init__(self, where, caller, inputs, skip=lambda state, call: False, **environment):
        self.where, self.inputs = where, inputs
        self.environment = {**os.environ, **environment}
        self.answers, self.counts = {}, collections.Counter()
        self.ended = set()  # calls, of those that end their process in some state
        for state in STATES:
            # By look-up the random ones alone.
            for route, calls in (("symbol", inputs["calls"]), ("proc", inputs["random"])):
                calls = [call for call in calls if call not in self.ended and not skip(state, call)]
                for call, code in functions.run_caller(caller, where / "libcuda.so.1", state, calls, route,
                                                       **environment).items():
                    if code.startswith("signal"):
                        self.ended.add(call)
                    self._add("call", call[0], f"{state} {route} {call[1]}", code)
        for line in self._ask([inputs["look_ups"], str(where / "libcuda.so.1")], inputs["bases"]):
            name, rest = line.split(" ", 1)
            if name == "calls":
                self.counts["look-ups"] = int(rest)
            else:
                self._add("look-up", name, rest.split(" ", 1)[0], rest.split(" ", 1)[1])
        for index, line in enumerate(self._probe("errors", "libcuda", [])):
            self._add("error", line.split(" ", 1)[0], f"{'name' if index < 1101 else 'text'}", line.split(" ", 1)[1])
        for line in self._probe("nvml", "libnvidia-ml", inputs["nvml"], str(inputs["seed"])):
            state, name, codes = line.split(" ", 2)
            for index, code in enumerate(codes.split() if state in STATES else [codes]):
                self._add("nvml", name, f"{state} {index}", code)
        for library in ("libcuda", "libnvidia-ml"):
            for name in functions.exports(where / f"{library}.so.1", EXPORTS) & inputs["unknown"]:
                self._add("export", name, library, "there")

    def _add(self, kind, name, question, answer):
        self.answers[kind, name, question] = answer
        self.counts[kind] += 1

    def _probe(self, what, library, names, *more):
        library = str(self.where / f"{library}.so.1")
        return self._ask([sys.executable, str(ROOT / "tests/nvidia/probe.py"), what, library, *more], names)

    def _ask(self, command, names):
        run = subprocess.run([*functions.NO_DEVICE_FILES, *command], input="\n".join(names), capture_output=True, text=True,
                             check=True, env=self.environment)
        return run.stdout.splitlines()


def differences(real, simulated):
    """{(class, function)}: the class says how they differ."""
    found = collections.defaultdict(list)
    for key in real.answers.keys() | simulated.answers.keys():
        ours, theirs = simulated.answers.get(key), real.answers.get(key)
        kind, name, question = key
        if ours == theirs or (kind in ("call", "nvml") and (theirs or "").startswith("signal")):
            continue
        if kind == "call" and ours is None:
            continue  # not asked, since it ends the process in NVIDIA's
        if kind in ("call", "nvml") and (ours == "absent" or (kind == "nvml" and ours is None)):
            kind += "-absent"
        elif kind == "export":
            kind = "export-absent"
        elif kind == "look-up" and ours == "0:0,1,None,500,78":
            kind = "look-up-absent"
        elif kind in ("look-up", "error", "nvml") and (theirs or "").endswith("absent"):
            kind = f"{kind}-new"
        elif kind == "error" and theirs == "1 None":
            kind = "error-new"
        found[kind, name].append(f"{question}: {theirs}, simulated {ours}")
    return found


def read_differences():
    """{(class, function)}, from lines `class: function …` under comments with the reason."""
    listed, problems, has_reason = set(), [], False
    for line in DIFFERENCES.read_text().splitlines():
        if line.startswith("#"):
            has_reason = True
        elif not line.strip():
            has_reason = False
        else:
            kind, names = line.split(":", 1)
            if not has_reason:
                problems.append(f"{line[:60]}: no reason above it")
            for name in names.split():
                if (kind, name) in listed:
                    problems.append(f"{kind} {name} is listed twice")
                listed.add((kind, name))
    return listed, problems


def write_differences(found):
    by_kind = collections.defaultdict(list)
    for kind, name in sorted(found):
        by_kind[kind].append(name)
    for kind, names in by_kind.items():
        line = f"{kind}:"
        for name in names:
            if len(line) + len(name) > 118:
                print(line)
                line = f"{kind}:"
            line += f" {name}"
        print(line + "\n")


def compare(real, simulated):
    found = differences(real, simulated)
    listed, problems = read_differences()
    # Of some functions only few calls differ, which a random sample may lack.
    sometimes = {name for kind, name in listed if kind == "call-sometimes"}
    listed = {(kind, name) for kind, name in listed if kind != "call-sometimes"}
    rare = {key for key in found if key[0] == "call" and key[1] in sometimes}
    check("each listed difference has a reason and stands once", problems)
    check("simulated and NVIDIA's answers differ in nothing that is not listed",
          [f"{k[0]} {k[1]}: {found[k][0]}" for k in sorted(found.keys() - listed - rare)])
    check("each listed difference is one", [" ".join(k) for k in sorted(listed - found.keys())])
    return found


def is_wild(kinds, letters):
    """Whether an initialised driver would follow wild pointers of a structure, or read past an array."""
    return any((kind == "P" and letter in "fabcdn") or (kind == "N" and "P" in kinds and letter in "xmf")
               for kind, letter in zip(kinds, letters))


def below_the_library(real, caller, mode, options):
    """The random calls of NVIDIA's driver with the library, but for those that end the process."""
    return Side(real.where, caller, {**real.inputs, "calls": real.inputs["random"]}, lambda state, call: call in real.ended,
                LD_PRELOAD=str(options.build / "libgpucache.so"), GPUCACHE_MODE=mode, GPUCACHE_LEDGER="")


def through_the_library(real, sides, known):
    """A call that ends the process may end it in a wrapper too that reads what is wild before the driver refuses the call for
    its state; how many do is returned."""
    wild = 0
    for mode, below in sides.items():
        # Addresses of wrappers differ, and with them which of them are equal: found or not is what counts.
        plain = {k: re.sub(r"p\d+", "found", v) for k, v in real.answers.items() if k in below.answers or k[0] != "call"}
        differ = [k for k in plain if re.sub(r"p\d+", "found", below.answers.get(k, "none")) != plain[k]
                  and not plain[k].startswith("signal")]
        ended = {k for k in differ if k[0] == "call" and below.answers[k].startswith("signal")
                 and is_wild(known[k[1]].kinds, k[2].split()[-1])}
        wild += len(ended)
        problems = [f"{' '.join(k)}: {plain[k]}, with the library {below.answers.get(k)}" for k in differ if k not in ended]
        check(f"NVIDIA's driver and NVML answer alike with the library, mode {mode}", problems)
    return wild


def abi_of_rows(real, coverage):
    wrapped, used, _ = coverage.read_rows()
    rows = [r for r in [*wrapped.values(), *used.values()] if r and r.version <= NEWEST]
    symbols = subprocess.run(["nm", "-D", "--defined-only", str(functions.DRIVER)], capture_output=True, text=True,
                             check=True).stdout.split()
    problems = [f"{r.symbol}: no such symbol" for r in rows if r.symbol not in symbols]
    check(f"each of {len(rows)} rows up to CUDA 12.2 is a symbol of NVIDIA's driver", problems)
    problems = []
    for row in rows:
        answer = real.answers.get(("look-up", row.base, "2" if row.per_thread else "0"), "")
        begins = [int(v.split(":")[0]) for v in answer.split() if ":0,0,p" in v]
        # A per-thread flavour cannot be had before CUDA 7.
        version = max(row.version, 7000) if row.per_thread else row.version
        if version not in begins:
            problems.append(f"{row.symbol}: the table says {row.version}, the driver's ABIs begin at {begins}")
    check("each begins, in NVIDIA's cuGetProcAddress, at the version of the table", problems)
    return len(rows)


def output_of(command, **environment):
    run = subprocess.run([*functions.NO_DEVICE_FILES, *map(str, command)], capture_output=True, text=True, timeout=60,
                         check=False, env={**os.environ, **environment})
    return f"{run.stdout}exit status {run.returncode}\n"


def programs(work, options):
    nvidia, library = functions.NVIDIA, options.build / "libgpucache.so"
    cupti = nvidia / "cupti-12.2"
    for name, version, soname, added in (
            ("runtime 11.8", "11.8", "libcudart.so.11.0", []), ("runtime 12.2", "12.2", "libcudart.so.12", []),
            ("runtime 12.2 and CUPTI", "12.2", "libcudart.so.12", ["-DCUPTI", f"-I{cupti}/include", cupti / "lib/libcupti.so.12"])):
        runtime, program = nvidia / f"runtime-{version}", pathlib.Path(work, name.replace(" ", "-"))
        subprocess.run(["gcc", "-w", f"-I{runtime}/include", "-o", str(program), str(ROOT / "tests/nvidia/program.c"),
                        str(runtime / "lib" / soname), str(nvidia / "driver/libcuda.so.1"),
                        str(nvidia / "driver/libnvidia-ml.so.1"), *map(str, added)], check=True)
        path = {"LD_LIBRARY_PATH": f"{nvidia}/driver:{runtime}/lib:{cupti}/lib", "GPUCACHE_LEDGER": str(pathlib.Path(work, "ledger"))}
        plain = output_of([program], **path)
        check(f"{name}: cudaErrorNoDevice", [] if "cudaMalloc(&pointer, 1 << 20): 100\n" in plain
              and plain.endswith("exit status 0\n") else plain.splitlines())
        for mode in MODES:
            below = output_of([program], **path, LD_PRELOAD=str(library), GPUCACHE_MODE=mode)
            check(f"{name}: alike with the library, mode {mode}",
                  [f"{a} | {b}" for a, b in zip(plain.splitlines(), below.splitlines()) if a != b]
                  or ([] if plain == below else [below]))
        below = output_of([options.build / "gpucache", "run", "--", program], **path)
        check(f"{name}: alike under gpucache run", [] if plain == below else below.splitlines())
        text = output_of([options.build / "gpucache", "doctor", program], **path)
        flat = " ".join(text.split())
        check(f"{name}: doctor reads the driver's version and why it does not start",
              [] if "supports CUDA 12.2" in flat and "CUDA_ERROR_NO_DEVICE" in flat and
              text.endswith("exit status 1\n") else text.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder")
    parser.add_argument("--seed", type=int, default=random.randrange(1000, 1000000), help="of the random calls")
    parser.add_argument("--write", action="store_true", help="print the lines of differences.txt")
    options = parser.parse_args()
    options.build = options.build.resolve()
    fetched = subprocess.run([str(ROOT / "scripts/nvidia-packages.sh"), str(options.build / "nvidia")],
                             capture_output=True, text=True, check=False)
    if fetched.returncode:
        reason = fetched.stderr.strip().splitlines() or ["no reason given"]
        print(f"0 passed, 0 failed, 1 skipped: NVIDIA's libraries cannot be had: {reason[-1]}")
        return 0

    global functions
    os.environ["BUILD_DIR"] = str(options.build)
    import functions  # needs BUILD_DIR
    coverage = functions.coverage
    with tempfile.TemporaryDirectory() as work:
        text = functions.declarations()
        known = functions.driver_functions(text)
        # By cuGetProcAddress: at the version at which the headers say that the ABI came.
        headers, _ = coverage.header_rows(str(functions.INCLUDE))
        rows = {name: (row.base, row.version, row.per_thread) for name, row in headers.items() if row}
        caller = functions.build(pathlib.Path(work, "caller"), text, [known[n] for n in sorted(known)], "cuInit", rows)
        simulated = options.build / "simcuda"
        listed = [known[name] for name in sorted(known)]
        chosen = functions.random_calls(listed, options.seed, RANDOM_CALLS)
        exported = functions.exports(functions.DRIVER, EXPORTS)
        nvml = functions.exports(functions.NVML, EXPORTS)
        asked = {n for n in nvml | functions.exports(simulated / "libnvidia-ml.so.1", EXPORTS)
                 if not re.match("nvml(Init|ErrorString|InternalGet)", n)}
        look_ups = pathlib.Path(work, "look_ups")
        subprocess.run(["gcc", "-O2", "-o", str(look_ups), str(ROOT / "tests/nvidia/look_ups.c"), "-ldl"], check=True)
        inputs = {"seed": options.seed, "random": chosen, "look_ups": str(look_ups),
                  "calls": sorted({*functions.systematic_calls(listed), *chosen}),
                  "bases": sorted({coverage.split(n)[0] for n in {*known, *exported}}), "nvml": sorted(asked),
                  # Of no header, and not asked otherwise: there or not.
                  "unknown": (exported | nvml) - {*known, *asked} - {n for n in nvml if re.match("nvml(Init|ErrorString)", n)}}
        print(f"seed {options.seed}", flush=True)
        real = Side(functions.DRIVER.parent, caller, inputs)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # a side is a row of processes
            side = pool.submit(Side, simulated, caller, inputs, lambda state, call: call in real.ended, **SIM_SETTINGS)
            if options.write:
                write_differences(differences(real, side.result()))
                return 0
            below = {mode: pool.submit(below_the_library, real, caller, mode, options) for mode in MODES}
            found = compare(real, side.result())
            wild = through_the_library(real, {mode: future.result() for mode, future in below.items()}, known)
        row_count = abi_of_rows(real, coverage)
        programs(work, options)
    kinds = collections.Counter(kind for kind, _ in found)
    print(f"\nseed {options.seed}: {len(known)} functions, {real.counts['call']} calls, {len(real.ended)} of them undefined; {len(inputs['bases'])} names, "
          f"{real.counts['look-ups']} look-ups; {real.counts['error']} names and texts of errors; "
          f"{real.counts['nvml']} answers of NVML; {row_count} rows of the table")
    print(f"of wild pointers and counts, {wild} calls end in a wrapper and not in the driver")
    print("differences that are listed: " + (", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items())) or "none"))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
