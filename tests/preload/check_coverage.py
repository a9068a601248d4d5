#!/usr/bin/env python3
"""Every function of the toolkit's headers is classified, and every row says what the headers say.

usage: check_coverage.py INCLUDE_DIR [INCLUDE_DIR ...]
Prints TAP, a block of tests per folder. cuda.h and cuda_runtime_api.h are run through the C preprocessor
with every ABI visible; versions come from cudaTypedefs.h, where the ABIs of one name, in the order of their
versions, are the symbols name, name_v2, name_v3, ….
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
Row = collections.namedtuple("Row", "symbol base version per_thread")
failed = number = 0


def check(name, problems):
    global failed, number
    number += 1
    failed += bool(problems)
    print(f"{'not ok' if problems else 'ok'} {number} - {name}")
    for problem in problems:
        print(f"# {problem}")


def preprocess(text, includes):
    command = ["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", *[f"-I{i}" for i in includes], "-xc", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def read_table(path, macros, **kinds):
    """The rows of a .def file, through the preprocessor, so that comments and line breaks do not matter."""
    defines = "".join(f"#define {m}(...) @{m}, __VA_ARGS__ @@\n" for m in macros)
    text = " ".join(preprocess(defines + f'#include "{path}"\n', [ROOT]).split())
    for entry in re.findall(r"@(\w+), (.*?) @@", text):
        yield entry[0], [field.strip() for field in entry[1].split(",")]


def read_rows():
    wrapped, used, runtime = {}, {}, set()
    for macro, field in read_table("shim/api.def", ["API", "USE", "RUNTIME"]):
        if macro == "RUNTIME":
            runtime.add(field[0])
            continue
        rows = wrapped if macro == "API" else used
        if field[0] in wrapped or field[0] in used:
            rows[f"{field[0]} (twice)"] = None
        rows[field[0]] = Row(field[0], field[1], int(field[2]), macro == "API" and field[3] == "PTSZ")
    return wrapped, used, runtime


def read_neutral():
    neutral, problems, reasons = collections.Counter(), [], set()
    for macro, field in read_table("shim/neutral.def", ["REASON", "NEUTRAL"]):
        if macro == "REASON":
            reasons.add(field[0])
            if len(",".join(field[1:]).strip('" ')) < 10:
                problems.append(f"REASON {field[0]} gives none")
        else:
            if field[0] not in reasons:
                problems.append(f"NEUTRAL names the unknown reason {field[0]}")
            neutral.update(field[1:])
    problems += [f"{name} stands in neutral.def {n} times" for name, n in neutral.items() if n > 1]
    return set(neutral), problems


def split(symbol):
    """cuX_v2_ptsz → ("cuX", 2, True)"""
    found = re.fullmatch(r"(.*?)(?:_v(\d+))?(_pt[ds][sz])?", symbol)
    return found[1], int(found[2] or 1), found[3] is not None


def header_rows(include):
    """Exported symbols of cuda.h, each with its Row or None where cudaTypedefs.h says nothing of it."""
    text = preprocess("#include <cuda.h>\n", [include])
    versions, symbols = collections.defaultdict(set), collections.defaultdict(list)
    typedefs = pathlib.Path(include, "cudaTypedefs.h").read_text()
    for base, version, per_thread in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", typedefs):
        versions[base, bool(per_thread)].add(int(version))
    for symbol in set(re.findall(r"\bCUresult\s+(cu\w+)\s*\(", text)):
        base, order, per_thread = split(symbol)
        symbols[base, per_thread].append((order, symbol))
    rows = {}
    for key, found in symbols.items():
        known = sorted(versions[key])
        for index, (_, symbol) in enumerate(sorted(found)):
            exact = len(known) == len(found)
            rows[symbol] = Row(symbol, key[0], known[index], key[1]) if exact else None
    newest = int(re.search(r"#define CUDA_VERSION (\d+)", pathlib.Path(include, "cuda.h").read_text())[1])
    return rows, newest


def other_apis(include):
    """What the headers beside cuda.h name: they need headers of other APIs, so their text is read as it is."""
    names = set()
    for header in ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"):
        path = pathlib.Path(include, header)
        text = path.read_text(errors="replace") if path.exists() else ""
        names |= set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w+)\s*\(", text))
        names |= set(re.findall(r"#\s*define\s+cu[A-Z]\w+\s+(cu\w+)", text))
        for kind, name in re.findall(r"#\s*define\s+cu[A-Z]\w+\s+__CUDA_API_PT(DS|SZ)\((cu\w+)\)", text):
            names |= {name, f"{name}_pt{kind.lower()}"}
    return names - {"cuWGLGetDevice"}  # of another system


def table_version():
    return int(re.search(r"GC_API_TABLE_VERSION (\d+)", (ROOT / "shim/shim.h").read_text())[1])


def check_headers(include, wrapped, used, runtime, neutral):
    rows, newest = header_rows(include)
    text = preprocess("#include <cuda_runtime_api.h>\n", [include])
    functions = set(re.findall(r"\b(cuda[A-Z]\w+)\s*\(", text))
    label = f"CUDA {newest // 1000}.{newest % 1000 // 10}"

    check(f"{label}: every driver function is classified",
          sorted(f"{s}: no row in api.def, no line in neutral.def" for s in rows if s not in wrapped and s not in neutral))
    check(f"{label}: every runtime function is classified",
          sorted(f"{s}: no row in api.def, no line in neutral.def" for s in functions
                 if s not in runtime and s not in neutral))
    others = other_apis(include)
    check(f"{label}: every driver function beside cuda.h is classified",
          sorted(f"{s}: no row in api.def, no line in neutral.def" for s in others
                 if s not in wrapped and s not in neutral))
    is_other = re.compile(r"cu(GL|EGL)")
    check(f"{label}: base, version and variant agree with cudaTypedefs.h",
          [f"{row} but the headers say {rows[s]}" for table in (wrapped, used) for s, row in table.items()
           if rows.get(s) and rows[s] != row])
    check(f"{label}: rows newer than the header, and only those, are missing from it",
          [f"{s} is of CUDA {row.version}" for table in (wrapped, used) for s, row in table.items()
           if row and s not in rows and row.version <= newest and not is_other.match(s)])
    check(f"{label}: the table was checked against this version",
          [f"GC_API_TABLE_VERSION is {table_version()}"] if newest > table_version() else [])
    return set(rows) | functions | others


def main():
    wrapped, used, runtime = read_rows()
    neutral, problems = read_neutral()
    seen = set()

    print(f"1..{2 + 6 * len(sys.argv[1:]) + 1}")
    check("no symbol stands in the tables twice",
          problems + [s for s in [*wrapped, *used] if "twice" in s] +
          sorted(f"{s} is wrapped and neutral" for s in (set(wrapped) | runtime) & neutral))
    check("tables are not empty", [] if len(wrapped) > 250 and len(neutral) > 400 else ["they are"])
    for include in sys.argv[1:]:
        seen |= check_headers(include, wrapped, used, runtime, neutral)
    # Older functions live in older headers only, so this can be told only where all are at hand.
    unknown = sorted((set(wrapped) | set(used) | runtime | neutral) - seen) if len(sys.argv) > 3 else []
    check("every symbol of the tables is in one of the headers", unknown)
    return failed != 0


sys.exit(main())
