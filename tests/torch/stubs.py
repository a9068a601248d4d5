"""Stand-ins for the libraries that PyTorch links against beside the runtime: cuBLAS, cuDNN, NCCL and their like.

Reads which symbols PyTorch's libraries want of each library of NVIDIA's that none of them is, with their versions, and makes
a shared object of that name: functions that tests/torch/stubs/NAME.c defines, and for the rest functions that return 0. The
versioned name tells the library; for a symbol without version, its prefix does.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Taken from the simulated device.
GIVEN = {"libcudart.so.13", "libcuda.so.1"}
NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so")


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def _symbols(library):
    """(section, name with its version) of each dynamic symbol."""
    rows = (line.split() for line in readelf("--dyn-syms", library).splitlines())
    return [(row[6], row[7]) for row in rows if len(row) > 7]


def undefined(library):
    """The symbols that a library wants of others: name@version."""
    return {name for section, name in _symbols(library) if section == "UND"}


def exported(library):
    """The symbols that a library has for others: name@version."""
    return {name.replace("@@", "@") for section, name in _symbols(library) if section not in ("UND", "Ndx")}


def _stem(soname):
    """libcusparseLt.so.0 -> cusparseLt, libnvshmem_host.so.3 -> nvshmem"""
    return re.sub(r"_host$", "", soname.split(".so")[0].removeprefix("lib"))


def _wanted(libraries):
    """soname -> version node, "" for none -> names that the libraries want from it."""
    sonames, names = set(), set()
    for library in libraries:
        sonames.update(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library)))
        names |= undefined(library)
    sonames = {soname for soname in sonames if NVIDIA.match(soname)} - GIVEN
    found = {soname: collections.defaultdict(set) for soname in sorted(sonames)}
    by_prefix = sorted(sonames, key=lambda soname: -len(_stem(soname)))
    for name in names:
        base, _, version = name.partition("@")
        prefixed = (soname for soname in by_prefix if base.lower().startswith(_stem(soname).lower()))
        soname = version if version in sonames else next(prefixed, None)
        if soname and version not in GIVEN:
            found[soname][version].add(base)
    for versions in found.values():  # where a library has a version node, names without one are the wanting library's own
        if len(versions) > 1:
            versions.pop("", None)
    return found


def make(soname, versions, out, compiler, archive, parts_in=HERE):
    """One shared object. A hand-written part, from the folder's `stubs`, calls the runtime, which it carries inside, as
    NVIDIA's libraries do."""
    flags = ["-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    linked = ["-shared", f"-Wl,-soname,{soname}", "-Wl,-z,defs"]
    parts = []
    defined = set()
    stem = _stem(soname)
    written = parts_in / "stubs" / f"{stem}.c"
    if written.exists():
        whole = out / f"{stem}.o"
        subprocess.run([compiler, *flags, "-std=gnu11", "-c", str(written), "-o", str(whole)], check=True)
        symbols = subprocess.run(["nm", "--defined-only", "-g", str(whole)], check=True, capture_output=True, text=True)
        defined = {line.split()[2] for line in symbols.stdout.splitlines()}
        parts = [str(whole), str(archive), "-ldl", "-lpthread"]
    source = out / f"{stem}_rest.c"
    source.write_text("".join(f"long {name}(void);\nlong {name}(void)\n{{\n    return 0;\n}}\n"
                              for name in sorted(set().union(*versions.values()) - defined)), encoding="utf-8")
    if versions:
        script = out / f"{stem}.map"
        script.write_text("".join(f"{version} {{\nglobal:\n    {'; '.join(sorted(names))};\nlocal:\n    *;\n}};\n"
                                  for version, names in versions.items()), encoding="utf-8")
        linked.append(f"-Wl,--version-script,{script}")
    subprocess.run([compiler, *flags, *linked, "-o", str(out / soname), str(source), *parts], check=True)


def build(out, compiler, archive, libraries):
    """All of them into the folder `out`, unless it has them; `archive` is the stand-in runtime to link in."""
    complete = out / "complete"
    sources = [pathlib.Path(__file__), archive, *libraries, *HERE.glob("stubs/*")]
    if complete.exists() and all(os.path.getmtime(source) < os.path.getmtime(complete) for source in sources):
        return
    # Apart, and then in one step: another run may be using the old ones.
    work = pathlib.Path(tempfile.mkdtemp(dir=out.parent, prefix="stubs."))
    old = out.with_name(work.name + ".old")
    for soname, versions in _wanted(libraries).items():
        make(soname, versions, work, compiler, archive)
    (work / "complete").touch()
    if out.exists():
        out.rename(old)
    work.rename(out)
    shutil.rmtree(old, ignore_errors=True)
