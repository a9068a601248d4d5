#!/usr/bin/env python3
"""Every function of the toolkit's headers is classified, and every row agrees with the headers.

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

ROOT = pathlib.Path(__file__).resolve().parents[3]
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
            if len(",".join(field[2:]).strip('" ')) < 10:
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


NEWEST = 13020  # whose names the tables have


def header_version(include):
    return int(re.search(r"#define CUDA_VERSION (\d+)", pathlib.Path(include, "cuda.h").read_text())[1])


def header_rows(include):
    """Exported symbols of cuda.h, each with its Row or None where cudaTypedefs.h lacks it."""
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
    newest = header_version(include)
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


# ---- what a function's parameters can name ----

NO_ARGUMENT = {"NULL", "0"}


def split_fields(text):
    """At the commas that are in no parentheses."""
    fields, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and depth == 0:
            fields.append(text[start:i].strip())
            start = i + 1
    return fields + [text[start:].strip()]


class Types:
    """Which types can name device memory: by CUdeviceptr, or by a pointer to anything, in themselves or a member."""

    def __init__(self, include):
        text = preprocess('#include "shim/cuda_compat.h"\n', [ROOT, include])
        self.text = re.sub(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)", "", text)
        self.bodies, self.known = {}, {}
        for found in re.finditer(r"\b(typedef )?(?:struct|union)(?: (\w+))?\s*\{", self.text):
            end, depth = found.end(), 1
            while depth:
                depth += {"{": 1, "}": -1}.get(self.text[end], 0)
                end += 1
            name = re.match(r"\s*(\w+)", self.text[end:]) if found[1] else None
            for each in (found[2], name and name[1]):
                if each:
                    self.bodies[each] = self.text[found.end():end - 1]
        for old, new in re.findall(r"\btypedef (?:struct )?(\w+)\s+(\w+);", self.text):
            self.bodies.setdefault(new, old + " x;")

    def names(self, text, any_pointer=True):
        """Whether a declaration has a type that can."""
        if any_pointer and re.search(r"\bvoid\b(?!\s*\))[^;(]*\*", text):
            return True
        return any(self._type_names(word, any_pointer) for word in set(re.findall(r"\b[A-Za-z_]\w+\b", text)))

    def _type_names(self, name, any_pointer):
        if name.startswith("CUdeviceptr"):
            return True
        key = name, any_pointer
        if key not in self.known:
            self.known[key] = False  # of a type within itself
            self.known[key] = name in self.bodies and self.names(self.bodies[name], any_pointer)
        return self.known[key]


def is_context_given(parameter):
    return re.search(r"\bCU(context|greenCtx)\s*\*", parameter, re.IGNORECASE)


def check_reach(types):
    """Problems of the rows that name the memory work may reach (shim/wrap/reach.h)."""
    problems, words = [], collections.Counter()
    defines = "".join(f"#define {m}(...) @{m}, __VA_ARGS__ @@\n" for m in ("SUBMIT", "NODE"))
    text = " ".join(preprocess(defines + '#include "shim/api.def"\n', [ROOT]).split())
    for macro, row in re.findall(r"@(\w+), (.*?) @@", text):
        fields = split_fields(row)
        if macro == "SUBMIT":
            symbol, base, _, _, stream, wait, word, operands, parameters, _ = fields
            if (wait == "SYNC") != (stream == "NULL" and base.startswith("cuMem")):
                problems.append(f"{symbol}: {wait}, of stream {stream}")
        else:
            symbol, _, _, where, word, operands, parameters, _ = fields
        parameters = split_fields(parameters[1:-1])
        arguments = operands[1:-1]
        words[word] += 1
        names = {re.search(r"(\w+)$", p)[1]: p for p in parameters if types.names(p)}
        if word == "KERNEL":
            wrong = [p for p in names.values()
                     if not re.match(r"void \*\*|CUDA_LAUNCH_PARAMS \*|const CUlaunchConfig \*", p)]
            if not any("CUfunction" in p or "CUDA_LAUNCH_PARAMS" in p for p in parameters):
                wrong.append("no kernel")
        elif word == "NOTHING":
            callbacks = any(re.match(r"CUhostFn|CUstreamCallback", p) for p in parameters)
            wrong = [p for p in names.values() if not (callbacks and p.startswith("void *"))]
        elif word == "ANY":
            wrong = []
        else:
            named = set(re.findall(r"\w+", arguments or "")) - NO_ARGUMENT
            wrong = [p for n, p in names.items() if n not in named]
        if macro == "NODE" and any("CUcontext context" == p for p in parameters) and where != "context":
            wrong.append("its context")
        problems += [f"{symbol}: {word}{operands} leaves out {p}" for p in wrong]
    if not words["ANY"] or not words["PAIR"] or not words["KERNEL"]:
        problems.append(f"no rows were read: {words}")
    return problems


def prototypes(include, types):
    """The driver's functions, their parameters as text."""
    texts = [types.text]
    for header in ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"):
        path = pathlib.Path(include, header)
        if path.exists():
            texts.append(path.read_text(errors="replace").replace("CUDAAPI", ""))
    return {symbol: [" ".join(p.split()) for p in parameters.split(",")]
            for text in texts for symbol, parameters in re.findall(r"\bCUresult\s+(cu\w+)\s*\(([^;{]*)\)\s*;", text)}


def judge_neutral(word, types, parameters):
    """What the word of its reason does not allow a function."""
    named = [p for p in parameters if types.names(p)]
    given = [p for p in parameters if is_context_given(p)]
    streams = [p for p in parameters if "CUstream " in p]
    graphs = [p for p in parameters if re.search(r"\bCUgraph(Node|Exec)?\b", p)]
    if word == "KNOWN":
        return named
    if word == "PLAIN":
        return named + given
    if word == "HOST":
        return given + (streams + graphs if named else [])
    if word == "LAUNCHED":
        by_address = [p for p in named if types.names(p, False)]
        is_asked = all("*" in p and "const" not in p for p in by_address)
        return given + streams + ([] if is_asked else by_address)
    if word == "FOREIGN":
        return given + streams
    if word == "STATE":
        return given + [p for p in named if types.names(p, False)]
    return [f"the unknown word {word}"]


def check_neutral(include, types):
    problems, words, seen = [], {}, 0
    known = prototypes(include, types)
    for macro, field in read_table("shim/neutral.def", ["REASON", "NEUTRAL"]):
        if macro == "REASON":
            words[field[0]] = field[1]
        elif words[field[0]] != "RUNTIME":
            for symbol in set(field[1:]) & set(known):
                seen += 1
                wrong = judge_neutral(words[field[0]], types, known[symbol])
                problems += [f"{symbol} is {words[field[0]]}, with {p}" for p in wrong]
    return problems if seen > 200 else [*problems, f"only {seen} functions were seen"]


def out_of_memory(include):
    """The driver's functions whose documentation has CUDA_ERROR_OUT_OF_MEMORY among what they return."""
    found = set()
    for header in ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"):
        path = pathlib.Path(include, header)
        text = path.read_text(errors="replace") if path.exists() else ""
        # Each comment with the declaration behind it.
        for comment, symbol in re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*(?:extern\s+|__CUDA_DEPRECATED\s+)*CUresult\s+CUDAAPI\s+(cu\w+)\s*\(",
                                          text, re.DOTALL):
            if "CUDA_ERROR_OUT_OF_MEMORY" in comment.partition("\\return")[2]:
                found.add(symbol)
    return found


def check_relief(include, neutral):
    """A neutral function that can run out of memory has a reason why the cache gives nothing back for it."""
    problems, excepted = [], set()
    for _, field in read_table("shim/neutral.def", ["UNRELIEVED"]):
        symbols = [name for name in field if re.fullmatch(r"cu[A-Z]\w+", name)]
        excepted.update(symbols)
        problems += [f"{name} is not in neutral.def" for name in symbols if name not in neutral]
        if len(",".join(field[:-len(symbols)]).strip('" ')) < 10:
            problems.append(f"UNRELIEVED gives no reason for {symbols}")
    documented = out_of_memory(include)
    bases = {split(name)[0] for name in documented}
    problems += [f"{name} can run out of memory, and is neither relieved nor excepted"
                 for name in sorted(neutral) if split(name)[0] in bases and name not in excepted]
    return problems if len(documented) > 40 else [*problems, f"only {len(documented)} were read"]


def check_contexts(include, types):
    """A function that gives a context makes it, unless neutral.def excepts it."""
    known, problems, seen = prototypes(include, types), [], 0
    for _, field in read_table("shim/api.def", ["API"]):
        if any(is_context_given(p) for p in known.get(field[0], [])):
            seen += 1
            if field[4] != "CONTEXT":
                problems.append(f"{field[0]} gives a context and is of kind {field[4]}")
    return problems if seen > 5 else ["no function gives a context"]


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
    is_other = re.compile(r"cu(GL|EGL|VDPAU|EventCreateFromEGLSync)")
    check(f"{label}: base, version and variant agree with cudaTypedefs.h",
          [f"{row} but the headers have {rows[s]}" for table in (wrapped, used) for s, row in table.items()
           if rows.get(s) and rows[s] != row])
    # The headers of 13.2 date these to 13.1, whose own headers lack them.
    late = re.compile(r"cuLaunchHostFunc_v2|cuStream(Begin|End)CaptureToCig") if newest == 13010 else re.compile(r"(?!)")
    check(f"{label}: rows newer than the header, and only those, are missing from it",
          [f"{s} is of CUDA {row.version}" for table in (wrapped, used) for s, row in table.items()
           if row and s not in rows and row.version <= newest and not is_other.match(s) and not late.match(s)])
    types = Types(include)
    check(f"{label}: a row's reach names every parameter that can name device memory", check_reach(types))
    check(f"{label}: the entry of a function in neutral.def fits its parameters", check_neutral(include, types))
    check(f"{label}: the cache gives memory back for whatever can run out of it, or there is a reason", check_relief(include, neutral))
    check(f"{label}: whatever gives a context makes one, or one is known", check_contexts(include, types))
    check(f"{label}: the table was checked against this version",
          [f"GC_API_TABLE_VERSION is {table_version()}"] if newest > table_version() else [])
    return set(rows) | functions | others


def check_sections():
    """Each wrapper written by hand stands in a file that the comment above its rows names."""
    sources = {path.name: path.read_text() for path in (ROOT / "shim").rglob("*.c")}
    files, misplaced = [], []
    for line in (ROOT / "shim/api.def").read_text().split("*/", 1)[1].splitlines():
        row = re.match(r"API\((\w+),", line)
        if line.startswith("/* "):
            files = re.findall(r"\w+\.c\b", line)
        elif row:
            wrapper = re.compile(rf"^(CUresult |[A-Z_]+\(){row[1]}\b", re.M)
            places = [name for name, text in sources.items() if wrapper.search(text)]
            if not set(places) & set(files):
                misplaced.append(f"{row[1]}: in {places}, not in {files}")
    return misplaced


def main():
    wrapped, used, runtime = read_rows()
    neutral, problems = read_neutral()
    seen = set()

    print(f"1..{3 + 10 * len(sys.argv[1:]) + 1}")
    check("no symbol stands in the tables twice",
          problems + [s for s in [*wrapped, *used] if "twice" in s] +
          sorted(f"{s} is wrapped and neutral" for s in (set(wrapped) | runtime) & neutral))
    check("tables are not empty", [] if len(wrapped) > 250 and len(neutral) > 400 else ["they are"])
    check("each section of the table names the files of its wrappers", check_sections())
    for include in sys.argv[1:]:
        seen |= check_headers(include, wrapped, used, runtime, neutral)
    # Older functions are in older headers alone, the newest in new ones: this can be checked only where all are there.
    has_all = len(sys.argv) > 3 and max(map(header_version, sys.argv[1:])) >= NEWEST
    unknown = sorted((set(wrapped) | set(used) | runtime | neutral) - seen) if has_all else []
    check("every symbol of the tables is in one of the headers", unknown)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
