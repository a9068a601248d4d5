#!/usr/bin/env python3
"""Packs build/python, which make filled, into a wheel (PEP 427). The same input gives the same bytes.

usage: wheel.py --package DIR --output FILE.whl

Refused: an ELF file that needs a library or a symbol version beyond the platform tag manylinux_2_31 (PEP 600): glibc 2.31, and
libstdc++ of GCC 10. The licences of the static libraries in the tool come from their Debian packages, if there are any.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NEWEST = {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12), "GCC": (10, 0, 0)}
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
STATIC = ("libjansson-dev", "libdw-dev", "libelf-dev", "libncurses-dev", "zlib1g-dev", "libbz2-dev", "liblzma-dev", "libzstd-dev")
METADATA = """Metadata-Version: 2.1
Name: gpucache
Version: {version}
Summary: Cached, limited and accounted device memory for unmodified CUDA programs; PyTorch's allocator; Ray's plugin
License: MIT
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

{text}"""


def faults_of(path):
    """Where an ELF file goes beyond the platform tag."""
    def readelf(option):
        return subprocess.run(["readelf", "-W", option, str(path)], check=True, capture_output=True, text=True).stdout

    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d")):
        if library not in LIBRARIES:
            yield f"{path.name}: needs {library}"
    for line in readelf("--dyn-syms").splitlines():
        match = re.search(r" UND (\S+)@(\w+?)_([\d.]+)", line)
        if match and match.group(2) in NEWEST and tuple(map(int, match.group(3).split("."))) > NEWEST[match.group(2)]:
            yield f"{path.name}: needs {match.group(1)} of {match.group(2)} {match.group(3)}"


def members(package, version):
    """(name, content, mode) of each file, dist-info last."""
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = str(path.relative_to(package))
            yield name, path.read_bytes(), 0o755 if name.endswith("bin/gpucache") or path.suffix == ".so" else 0o644
    info = f"gpucache-{version}.dist-info"
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    yield f"{info}/METADATA", METADATA.format(version=version, text=text).encode(), 0o644
    yield f"{info}/WHEEL", ("Wheel-Version: 1.0\nGenerator: gpucache\nRoot-Is-Purelib: false\n"
                            "Tag: py3-none-manylinux_2_31_x86_64\n").encode(), 0o644
    yield f"{info}/entry_points.txt", b"[console_scripts]\ngpucache = gpucache.__main__:main\n", 0o644
    yield f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644
    for name in STATIC:
        copyright_file = pathlib.Path("/usr/share/doc", name, "copyright")
        if copyright_file.is_file():
            yield f"{info}/licenses/{name.removesuffix('-dev')}", copyright_file.read_bytes(), 0o644


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    faults = [fault for path in [*options.package.rglob("*.so"), options.package / "gpucache/bin/gpucache"] for fault in faults_of(path)]
    if faults:
        sys.exit("beyond manylinux_2_31_x86_64:\n" + "\n".join(sorted(set(faults))))
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    record = []
    with zipfile.ZipFile(options.output, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)

        for name, content, mode in members(options.package, version):
            add(name, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
        info = f"gpucache-{version}.dist-info/RECORD"
        add(info, "\n".join([*record, f"{info},,", ""]).encode(), 0o644)
    print(f"{options.output}: {options.output.stat().st_size / 2**20:.1f} MiB")


main()
