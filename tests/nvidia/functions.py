"""The driver's and NVML's functions, from headers, as C for caller.c, and the calls that it makes of them."""
import functools
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/preload/routes"))
import check_coverage as coverage  # noqa: E402

# What cudaGL.h, cudaEGL.h and cudaVDPAU.h need of headers that the machine may lack.
FOREIGN = """
typedef unsigned int GLuint; typedef unsigned int GLenum; typedef int EGLint;
typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR;
typedef unsigned int VdpDevice; typedef void VdpGetProcAddress(void);
typedef unsigned int VdpVideoSurface; typedef unsigned int VdpOutputSurface;
"""
FOREIGN_HEADERS = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
# cudaProfiler.h, which the packages lack; cudaProfilerTypedefs.h has the types.
PROFILER = """
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, int outputMode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
"""
DRIVER_HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")


NVIDIA = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build")) / "nvidia"
INCLUDE = NVIDIA / "runtime-12.2/include"
DRIVER = NVIDIA / "driver/libcuda.so.1"
NVML = NVIDIA / "driver/libnvidia-ml.so.1"


def prelude():
    return "".join([FOREIGN, "#define __CUDA_API_VERSION_INTERNAL\n", *[f"#include <{h}>\n" for h in DRIVER_HEADERS], PROFILER])


def includes(work):
    """The folders of the headers, with empty ones in place of those that the machine may lack."""
    for name in FOREIGN_HEADERS:
        path = pathlib.Path(work, "foreign", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return [str(pathlib.Path(work, "foreign")), str(INCLUDE)]


def declarations():
    """The preprocessed headers of the driver, every ABI visible."""
    with tempfile.TemporaryDirectory() as work:
        return coverage.preprocess(prelude(), includes(work))


class Function:
    """A prototype: its name and its parameters' types."""

    def __init__(self, name, parameters, text):
        self.name = name
        self.types = [self._type(p) for p in coverage.split_fields(" ".join(parameters.split()))
                      if p not in ("", "void")]
        self.kinds = "".join(self._kind(t, text) for t in self.types)

    @staticmethod
    def _type(parameter):
        """Without the parameter's name; an array is a pointer."""
        array = re.fullmatch(r"(.*?)(\w+)\s*\[\w*\]", parameter)
        if array:
            return array[1].strip() + " *"
        named = re.fullmatch(r"(.*[\s*])(\w+)", parameter)
        if named and named[2] not in ("int", "char", "long", "short") and re.sub(r"\b(const|struct|enum)\b|\s", "", named[1]):
            return named[1].strip()
        return parameter

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def _kind(kind, text):
        if "*" in kind:
            return "P"
        name = kind.replace("const", "").split()[-1]
        typedef = re.search(rf"\btypedef\s+([^;{{}}]*?)\b{name}\s*;", text)
        if re.search(rf"\btypedef\b[^;{{}}]*\(\s*\*\s*{name}\s*\)", text):
            return "P"  # a function
        if typedef and typedef[1].rstrip().endswith("*"):
            return "H"
        if re.search(rf"}}\s*(__attribute__\S*\s*)?{name}\s*;", text) and not re.search(
                rf"\benum\b[^;}}]*}}\s*{name}\s*;", text):
            return "S"
        if typedef and re.match(r"struct\b", typedef[1]):
            return "S"
        if typedef and re.fullmatch(r"\w+\s*", typedef[1]) and typedef[1].strip() not in ("int", "unsigned", "long"):
            return Function._kind(typedef[1].strip(), text)
        return "N"


def driver_functions(text):
    found = {}
    for name, parameters in re.findall(r"\bCUresult\s+(cu\w+)\s*\(([^;{}]*)\)\s*;", text):
        found.setdefault(name, Function(name, parameters, text))
    return found


def exports(library, pattern):
    """The names of the symbols that a library defines."""
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True).stdout
    return {name for name in re.findall(r" [A-Z] (\w+)", listed) if re.fullmatch(pattern, name)}


def write_calls(path, functions, initialise, rows=None):
    """calls.h: each function and a typed call of it. `rows`: name → (base, version, per thread) for cuGetProcAddress."""
    lines = [f'#define INITIALISE "{initialise}"']
    table = []
    for f in functions:
        types = ", ".join(f.types) or "void"
        values = ", ".join(f"VALUE({i}, {t})" for i, t in enumerate(f.types))
        lines.append(f"static int call_{f.name}(void *function) {{ return (int)((int (*)({types}))function)({values}); }}")
        base, version, per_thread = (rows or {}).get(f.name) or (f.name, 0, False)
        table.append(f'{{"{f.name}", "{base}", {version}, {2 if per_thread else 0}, "{f.kinds}", call_{f.name}}},')
    pathlib.Path(path).write_text("\n".join([*lines, "static const struct function functions[] = {", *table, "};", ""]))


def build(work, text, functions, initialise, rows=None):
    """Compiles the caller of these functions; the path of the program."""
    folder = pathlib.Path(work)
    folder.mkdir(exist_ok=True)
    write_calls(folder / "calls.h", functions, initialise, rows)
    (folder / "types.h").write_text(prelude())
    subprocess.run(["gcc", "-O0", "-w", "-D_GNU_SOURCE", "-include", str(folder / "types.h"), f"-I{folder}",
                    *[f"-I{i}" for i in includes(work)], "-o", str(folder / "caller"),
                    str(ROOT / "tests/nvidia/caller.c"), "-ldl"], check=True)
    return str(folder / "caller")


# The letters of caller.c by the kind of an argument.
LETTERS = {"P": "0zfabcdn", "H": "012h", "N": "0123456789xmf", "S": "0fabcd"}
NUMBERS = {**{str(n): n for n in range(10)}, "x": 0x80, "m": 0x7fffffff, "f": 2 ** 64 - 1}


def word_behind(letter, index):
    """The word at that index behind a pointer, as in caller.c."""
    if letter in "abcd":
        return ((ord(letter) - ord("a") + 1) * (1 + index % 4) + index) % 5
    filled = b"cuMemAlloc".ljust(512, b"\0") if letter == "n" else bytes([0xff if letter == "f" else 0]) * 512
    return int.from_bytes(filled[4 * index:4 * index + 4], "little")


def systematic_calls(functions):
    """[(function, letters)]: all null or zero; pointers to zeroes, with handles null and numbers 0 or 1, or handles to zeroes
    with those, or with the rest all bits set. From three of these each argument takes each value in turn; and
    a pointer to a name goes with one or all of the others null."""
    bases = [{"P": "0", "H": "0", "N": "0", "S": "0"}, {"P": "z", "H": "0", "N": "0", "S": "0"},
             {"P": "z", "H": "0", "N": "1", "S": "a"}, {"P": "z", "H": "h", "N": "1", "S": "a"},
             {"P": "z", "H": "h", "N": "0", "S": "a"}, {"P": "z", "H": "h", "N": "f", "S": "f"}]
    calls = {}
    for f in functions:
        for index, base in enumerate(bases):
            letters = "".join(base[k] for k in f.kinds)
            calls[f.name, letters or "-"] = None
            for i, kind in enumerate(f.kinds):
                for letter in LETTERS[kind] if index in (2, 3, 4) else "":
                    calls[f.name, letters[:i] + letter + letters[i + 1:]] = None
                if index in (2, 3) and kind == "P":
                    named = letters[:i] + "n" + letters[i + 1:]
                    others = [j for j, k in enumerate(f.kinds) if k == "P" and j != i]
                    for nulls in [*([j] for j in others), others]:
                        calls[f.name, "".join("0" if j in nulls else v for j, v in enumerate(named))] = None
    return list(calls)


def random_calls(functions, seed, count):
    """`count` calls of each function, each argument chosen at random, likelier a pointer and a number that are in use."""
    generator, calls = random.Random(seed), {}
    for f in functions:
        for _ in range(count if f.kinds else 1):
            letters = "".join(generator.choice(LETTERS[k] + {"P": "zzz", "H": "hh", "N": "0011", "S": ""}[k]) for k in f.kinds)
            calls[f.name, letters or "-"] = None
    return list(calls)


# NVIDIA's driver makes device files where it may; no test leaves any.
NO_DEVICE_FILES = ["setpriv", "--bounding-set=-mknod"] if os.geteuid() == 0 else []


def run_caller(caller, library, state, calls, route="symbol", **environment):
    """{(function, letters): result}"""
    run = subprocess.run([*NO_DEVICE_FILES, caller, str(library), state, route], input="".join(f"{f} {v}\n" for f, v in calls),
                         capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return dict(zip(calls, run.stdout.split(), strict=True))
