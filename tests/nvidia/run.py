#!/usr/bin/env python3
"""NVIDIA's own driver, NVML and runtimes, without a device: beside the simulated device, and below the library.

usage: run.py --build DIR [--write]

1. Every function of the driver's headers, before cuInit and after it failed, with null and odd arguments; each name of
   cuGetProcAddress at each version and flag; errors' names and texts; NVML's codes: NVIDIA's and the simulated ones.
   differences.txt lists where they differ, and why; a difference that it lacks fails, and so does a line of it that no
   longer holds. --write prints its lines anew, without reasons.
2. NVIDIA's driver answers all of it alike with and without the library.
3. Each row of shim/api.def is in NVIDIA's driver, as a symbol and as the ABI of its version.
4. Programs on runtimes 11.8 and 12.2, and the tool.

Prints TAP and a line with the counts. Skips, with a line that says so, where the packages cannot be fetched.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "tests/nvidia/differences.txt"
SIM_SETTINGS = {"SIMCUDA_DEVICES": "0", "SIMCUDA_DRIVER_VERSION": "12020"}
NEWEST = 12020  # the driver's
STATES = ("new", "failed")
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
    """All answers of one driver: {(kind, function, question): answer}."""

    def __init__(self, where, caller, inputs, **environment):
        self.where, self.inputs = where, inputs
        self.environment = {**os.environ, **environment}
        self.answers, self.counts = {}, collections.Counter()
        for state in STATES:
            for route in ("symbol", "proc"):
                for (name, call), code in functions.run_caller(caller, where / "libcuda.so.1", state, route,
                                                               **environment).items():
                    self._add("call", name, f"{state} {route} {call}", code)
        for line in self._probe("look-ups", "libcuda", inputs["bases"]):
            name, rest = line.split(" ", 1)
            if name == "calls":
                self.counts["look-ups"] = int(rest)
            else:
                self._add("look-up", name, rest.split(" ", 1)[0], rest.split(" ", 1)[1])
        for index, line in enumerate(self._probe("errors", "libcuda", [])):
            self._add("error", line.split(" ", 1)[0], f"{'name' if index < 1101 else 'text'}", line.split(" ", 1)[1])
        for line in self._probe("nvml", "libnvidia-ml", inputs["nvml"]):
            state, name, code = line.split(" ", 2)
            self._add("nvml", name, state, code)

    def _add(self, kind, name, question, answer):
        self.answers[kind, name, question] = answer
        self.counts[kind] += 1

    def _probe(self, what, library, names):
        run = subprocess.run([*functions.NO_DEVICE_FILES, sys.executable, str(ROOT / "tests/nvidia/probe.py"), what,
                              str(self.where / f"{library}.so.1")], input="\n".join(names), capture_output=True,
                             text=True, check=True, env=self.environment)
        return run.stdout.splitlines()


def differences(real, simulated):
    """{(class, function)}: the class says how they differ."""
    found = collections.defaultdict(list)
    for key in real.answers.keys() | simulated.answers.keys():
        ours, theirs = simulated.answers.get(key), real.answers.get(key)
        kind, name, question = key
        if ours == theirs:
            continue
        if kind == "call" and theirs is not None and theirs.startswith("signal"):
            kind = "crash" if ours != "absent" else "call-absent"
        elif kind == "call" and ours == "absent":
            kind = "call-absent"
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
    check("each listed difference has a reason and stands once", problems)
    check("simulated and NVIDIA's answers differ in nothing that is not listed",
          [f"{k[0]} {k[1]}: {found[k][0]}" for k in sorted(found.keys() - listed)])
    check("each listed difference is one", [" ".join(k) for k in sorted(listed - found.keys())])
    return found


def through_the_library(real, caller, options):
    """A program that reads through a null pointer ends either way: such calls are left out."""
    for mode in ("off", "track", "cache"):
        below = Side(real.where, caller, real.inputs, LD_PRELOAD=str(options.build / "libgpucache.so"),
                     GPUCACHE_MODE=mode, GPUCACHE_LEDGER="")
        # Addresses of wrappers differ, and with them which of them are equal: found or not is what counts.
        plain = {k: re.sub(r"p\d+", "found", v) for k, v in real.answers.items()}
        problems = [f"{' '.join(k)}: {plain[k]}, with the library {below.answers.get(k)}" for k in plain
                    if re.sub(r"p\d+", "found", below.answers.get(k, "none")) != plain[k]
                    and not plain[k].startswith("signal")]
        check(f"NVIDIA's driver and NVML answer alike with the library, mode {mode}", problems)


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
        for mode in ("off", "track", "cache"):
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
        exported = subprocess.run(["nm", "-D", "--defined-only", str(simulated / "libnvidia-ml.so.1")],
                                  capture_output=True, text=True, check=True).stdout
        inputs = {"bases": sorted({coverage.split(n)[0] for n in known}),
                  "nvml": sorted(n for n in re.findall(r" T (nvml\w+)", exported)
                                 if not re.match("nvml(Init|Shutdown|ErrorString)", n))}
        real = Side(functions.DRIVER.parent, caller, inputs)
        sides = differences(real, Side(simulated, caller, inputs, **SIM_SETTINGS)) if options.write else None
        if options.write:
            write_differences(sides)
            return 0
        found = compare(real, Side(simulated, caller, inputs, **SIM_SETTINGS))
        through_the_library(real, caller, options)
        row_count = abi_of_rows(real, coverage)
        programs(work, options)
    kinds = collections.Counter(kind for kind, _ in found)
    print(f"\n{len(known)} functions, {real.counts['call']} calls; {len(inputs['bases'])} names, "
          f"{real.counts['look-ups']} look-ups; {real.counts['error']} names and texts of errors; "
          f"{real.counts['nvml']} answers of NVML; {row_count} rows of the table")
    print("differences that are listed: " + (", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items())) or "none"))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
