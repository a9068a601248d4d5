"""Stand-ins for the libraries that PyTorch links against beside the runtime: cuBLAS, cuDNN, NCCL and their like.

usage: stubs.py OUT CC RUNTIME_ARCHIVE LIBRARY...

Reads which symbols the LIBRARIES want of each library that none of them is and that the machine lacks, with their
versions, and makes a shared object of that name in OUT: functions that tests/torch/stubs/NAME.c defines, and for the
rest functions that return 0. The versioned name tells the library; for a symbol without version, its prefix does.
"""
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Taken from the simulated device.
GIVEN = {"libcudart.so.13", "libcuda.so.1"}
NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so")


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def stem(soname):
    """libcusparseLt.so.0 -> cusparseLt, libnvshmem_host.so.3 -> nvshmem"""
    return re.sub(r"_host$", "", soname.split(".so")[0].removeprefix("lib"))


def wanted(libraries):
    """soname -> version node, "" for none -> names that the libraries want from it."""
    sonames, names = set(), set()
    for library in libraries:
        sonames.update(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library)))
        for line in readelf("--dyn-syms", library).splitlines():
            fields = line.split()
            if len(fields) > 7 and fields[6] == "UND":
                names.add(fields[7])
    sonames = {soname for soname in sonames if NVIDIA.match(soname)} - GIVEN
    found = {soname: collections.defaultdict(set) for soname in sorted(sonames)}
    by_prefix = sorted(sonames, key=lambda soname: -len(stem(soname)))
    for name in names:
        base, _, version = name.partition("@")
        prefixed = (soname for soname in by_prefix if base.lower().startswith(stem(soname).lower()))
        soname = version if version in sonames else next(prefixed, None)
        if soname and version not in GIVEN:
            found[soname][version].add(base)
    for versions in found.values():  # where a library has a version node, names without one are the wanting library's own
        if len(versions) > 1:
            versions.pop("", None)
    return found


def make(soname, versions, out, compiler, archive):
    """One shared object. A hand-written part calls the runtime, which it carries inside, as NVIDIA's libraries do."""
    flags = ["-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{soname}", "-Wl,-z,defs"]
    parts = []
    defined = set()
    written = os.path.join(HERE, "stubs", stem(soname) + ".c")
    if os.path.exists(written):
        whole = os.path.join(out, stem(soname) + ".o")
        subprocess.run([compiler, *flags[1:6], "-std=gnu11", "-c", written, "-o", whole], check=True)
        symbols = subprocess.run(["nm", "--defined-only", "-g", whole], check=True, capture_output=True, text=True)
        defined = {line.split()[2] for line in symbols.stdout.splitlines()}
        parts = [whole, archive, "-ldl", "-lpthread"]
    source = os.path.join(out, stem(soname) + "_rest.c")
    with open(source, "w", encoding="utf-8") as text:
        for name in sorted(set().union(*versions.values()) - defined):
            text.write(f"long {name}(void);\nlong {name}(void)\n{{\n    return 0;\n}}\n")
    script = os.path.join(out, stem(soname) + ".map")
    if versions:
        flags.append(f"-Wl,--version-script,{script}")
    with open(script, "w", encoding="utf-8") as text:
        for version, names in versions.items():
            exported = "".join(f"    {name};\n" for name in sorted(names))
            text.write(f"{version} {{\nglobal:\n{exported}local:\n    *;\n}};\n")
    subprocess.run([compiler, *flags, "-o", os.path.join(out, soname), source, *parts], check=True)


def main():
    out, compiler, archive, *libraries = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    for soname, versions in wanted(libraries).items():
        make(soname, versions, out, compiler, archive)


if __name__ == "__main__":
    main()
