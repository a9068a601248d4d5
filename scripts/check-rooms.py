#!/usr/bin/env python3
"""The rooms of core/ (core/ROOMS): which may include and call which, how large one may be, and that no files inside a
room call each other in a circle.

    check-rooms.py [--objects DIR] [--known FILE]

Includes are read from the sources, calls from the symbol tables of the objects (BUILD_DIR/obj), so a finished build is
needed. FILE lists findings that are known, one a line: they are printed, and do not fail; one that is gone fails, so
that the list only shrinks.

Circles are Tarjan's strongly connected components of the graph of a room's .c files, and of all headers' includes."""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

FILES_MAX = 25
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(core/[^"]+)"', re.M)


def read_rules(path):
    """Allowed rooms by room, and for each file that is one half of a module the name of the module."""
    allowed, halves = {}, {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text, _, reason = (part.strip() for part in line.partition("#"))
        if not text:
            continue
        name, colon, rest = text.partition(":")
        words = rest.split()
        if colon and name == "halves":
            missing = [word for word in words if not (path.parent / word).is_file()]
            if len(words) < 2 or missing or not reason:
                sys.exit(f"{path}:{number}: halves: two or more files of core/, then # and the reason")
            for word in words:
                halves["core/" + word] = "core/" + words[0]
        elif not colon or any(word not in allowed for word in words):
            sys.exit(f"{path}:{number}: a room may name only rooms of the lines above")
        else:
            allowed[name] = set(words)
    return allowed, halves


def room_of(path):
    """None for the files in core/ itself: they are the face of all rooms."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else None


def read_symbols(objects, sources):
    """For each source the symbols it needs, and for each symbol the source that has it."""
    paths = {str(objects / source.removesuffix(".c")) + ".o": source for source in sources}
    missing = [source for path, source in paths.items() if not os.path.exists(path)]
    if missing:
        sys.exit(f"{missing[0]} has no object in {objects}: build first")
    needs, owner, source = collections.defaultdict(set), {}, None
    listing = subprocess.run(["nm", "-P", "-A", *paths], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        path, name, kind = line.split()[:3]
        source = paths[path.removesuffix(":")]
        if kind in "Uw":
            needs[source].add(name)
        elif kind.isupper():
            owner[name] = source
    return needs, owner


def components(edges):
    """The strongly connected components of more than one node (Tarjan 1972)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on_stack.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def check_includes(files, allowed):
    edges = {path: set(INCLUDE.findall(pathlib.Path(path).read_text())) for path in files}
    for path, included in edges.items():
        room = room_of(path)
        if room is None:
            continue
        if room not in allowed:
            yield f"{path}: room {room} is not in core/ROOMS"
            continue
        for other in sorted(included):
            if room_of(other) not in allowed[room] | {room, None}:
                yield f"{path} includes {other}: {room} may not use {room_of(other)}"
    for circle in components(edges):
        yield f"include each other: {' '.join(circle)}"


def check_symbols(needs, owner, allowed, halves):
    inside = collections.defaultdict(lambda: collections.defaultdict(set))
    for source, names in sorted(needs.items()):
        room = room_of(source)
        for name in sorted(names):
            other = owner.get(name, source)
            if room_of(other) == room:
                ends = halves.get(source, source), halves.get(other, other)
                if ends[0] != ends[1]:
                    inside[room][ends[0]].add(ends[1])
            elif room_of(other) not in allowed.get(room, ()):
                yield f"{source} uses {name} of {other}: {room} may not use {room_of(other)}"
    for room, edges in sorted(inside.items()):
        for circle in components(edges):
            yield f"call each other in room {room}: {' '.join(os.path.basename(path) for path in circle)}"


def check_sizes(files):
    counts = collections.Counter(room_of(path) for path in files if room_of(path))
    for room, count in sorted(counts.items()):
        if count > FILES_MAX:
            yield f"core/{room}: {count} files, at most {FILES_MAX}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("BUILD_DIR", "build")) / "obj")
    parser.add_argument("--known", type=pathlib.Path)
    arguments = parser.parse_args()
    allowed, halves = read_rules(pathlib.Path("core/ROOMS"))
    files = sorted(str(path) for pattern in ("*.[ch]", "*.def") for path in pathlib.Path("core").rglob(pattern))
    needs, owner = read_symbols(arguments.objects, [path for path in files if path.endswith(".c")])
    findings = [*check_includes(files, allowed), *check_symbols(needs, owner, allowed, halves), *check_sizes(files)]
    known = set(arguments.known.read_text().splitlines()) if arguments.known else set()
    print(*(("known: " if finding in known else "") + finding for finding in findings), sep="\n", end="\n"[:len(findings)])
    gone = sorted(known - set(findings))
    if gone:
        print(*("no longer so, take it off the list: " + finding for finding in gone), sep="\n")
    return 1 if gone or set(findings) - known else 0


sys.setrecursionlimit(10000)
sys.exit(main())
