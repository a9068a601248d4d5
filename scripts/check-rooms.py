#!/usr/bin/env python3
"""The rooms of core/, shim/ and tools/: which room may include and call which, how large a room may be, and that the
files of a room do not call each other in a circle, and that a function is found by its name.

    check-rooms.py [--objects DIR] [TREE…]

TREE/ROOMS has a line for each room, lower rooms first: `room: rooms it may use`. The room `.` is the files of TREE/
itself; where it has no line, those files are the face of the tree: all rooms may use them, and they may use all. A line
`halves: room/a.c room/b.c  # reason` names files which are one module.

What a file exports is named for it: gc_FILE_…, where FILE may be cut at an underscore and singular or plural, or
gc_ROOM_…, each also as gc_TREE_FILE_…. A line `names: room/a_*.c word…  # reason` adds words for the files of a pattern.

Includes are read from the sources, calls from the symbol tables of the objects (BUILD_DIR/obj/TREE), so a finished
build is needed. References from one tree to another are scripts/check-layers.sh's.

Circles are the strongly connected components (Tarjan 1972) of two graphs: the symbols of a room's sources, and all
includes of a tree."""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

TREES = ("core", "shim", "tools")
FILES_MAX = 25
# A room with more files has a README.md.
PLAIN_FILES_MAX = {"core": 0, "shim": 3, "tools": 3}
SOURCES = (".c", ".S")
SUFFIXES = (*SOURCES, ".h", ".def")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def read_rules(tree):
    """Allowed rooms by room, for each file that is one half of a module the name of the module, and for each file with
    further words for its names those words."""
    allowed, halves, words_of, path = {}, {}, {}, pathlib.Path(tree, "ROOMS")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text, _, reason = (part.strip() for part in line.partition("#"))
        if not text:
            continue
        name, colon, rest = text.partition(":")
        words = rest.split()
        if colon and name == "halves":
            missing = [word for word in words if not pathlib.Path(tree, word).is_file()]
            if len(words) < 2 or missing or not reason:
                sys.exit(f"{path}:{number}: halves: two or more files of {tree}/, then # and the reason")
            for word in words:
                halves[f"{tree}/{word}"] = f"{tree}/{words[0]}"
        elif colon and name == "names":
            matches = sorted(pathlib.Path(tree).glob(words[0])) if words else []
            if len(words) < 2 or not matches or not reason:
                sys.exit(f"{path}:{number}: names: files of {tree}/, one word or more, then # and the reason")
            words_of.update((str(match), words[1:]) for match in matches)
        elif not colon or any(word not in allowed for word in words):
            sys.exit(f"{path}:{number}: a room may name only rooms of the lines above")
        else:
            allowed[name] = set(words)
    return allowed, halves, words_of


def room_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else "."


def may_use(room, other, allowed):
    """The root's files are free where the table has no line for them."""
    return room == other or other in allowed.get(room, ()) or ("." in (room, other) and "." not in allowed)


def read_symbols(objects, sources):
    """For each source the symbols it needs, and for each symbol the source that has it."""
    paths = {str(objects / pathlib.Path(source).with_suffix(".o")): source for source in sources}
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
    """The strongly connected components of more than one node."""
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


def check_includes(tree, files, allowed):
    edges = {path: {other for other in INCLUDE.findall(pathlib.Path(path).read_text()) if other.startswith(f"{tree}/")}
             for path in files}
    for path, included in edges.items():
        room = room_of(path)
        if room not in allowed and room != ".":
            yield f"{path}: room {room} is not in {tree}/ROOMS"
            continue
        for other in sorted(included):
            if not may_use(room, room_of(other), allowed):
                yield f"{path} includes {other}: {room} may not use {room_of(other)}"
    for circle in components(edges):
        yield f"include each other: {' '.join(circle)}"


def check_symbols(tree, needs, owner, allowed, halves):
    inside = collections.defaultdict(lambda: collections.defaultdict(set))
    for source, names in sorted(needs.items()):
        room = room_of(source)
        for name in sorted(names):
            other = owner.get(name, source)
            if room_of(other) == room:
                ends = halves.get(source, source), halves.get(other, other)
                if ends[0] != ends[1]:
                    inside[room][ends[0]].add(ends[1])
            elif not may_use(room, room_of(other), allowed):
                yield f"{source} uses {name} of {other}: {room} may not use {room_of(other)}"
    for room, edges in sorted(inside.items()):
        for circle in components(edges):
            yield (f"call each other in {os.path.normpath(f'{tree}/{room}')}: "
                   f"{' '.join(os.path.basename(path) for path in circle)}")


def check_names(tree, owner, words_of):
    for name, source in sorted(owner.items(), key=lambda item: item[::-1]):
        parts = pathlib.Path(source).stem.split("_")
        stems = {"_".join(parts[:count]) for count in range(1, len(parts) + 1)} | {room_of(source)}
        stems |= {f"{tree}_{stem}" for stem in stems} | ({tree} if room_of(source) == "." else set())
        stems |= {stem.removesuffix("s") for stem in stems} | {f"{stem}s" for stem in stems}
        stems.update(words_of.get(source, ()))
        if name.startswith("gc_") and not any(f"{name}_".startswith(f"gc_{stem}_") for stem in stems):
            yield f"{source} exports {name}: a name begins with gc_ and its file or room"


def check_sizes(tree, files):
    counts = collections.Counter(room_of(path) for path in files)
    for room, count in sorted(counts.items()):
        folder = pathlib.Path(tree, room)
        if count > FILES_MAX:
            yield f"{folder}: {count} files, at most {FILES_MAX}"
        if count > PLAIN_FILES_MAX[tree] and not (folder / "README.md").is_file():
            yield f"{folder}: {count} files and no README.md"


def check_tree(tree, objects):
    allowed, halves, words_of = read_rules(tree)
    files = sorted(str(path) for path in pathlib.Path(tree).rglob("*") if path.suffix in SUFFIXES)
    needs, owner = read_symbols(objects, [path for path in files if path.endswith(SOURCES)])
    yield from check_includes(tree, files, allowed)
    yield from check_symbols(tree, needs, owner, allowed, halves)
    yield from check_names(tree, owner, words_of)
    yield from check_sizes(tree, files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--objects", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("BUILD_DIR", "build")) / "obj")
    parser.add_argument("trees", nargs="*", metavar="TREE", default=TREES)
    arguments = parser.parse_args()
    findings = [finding for tree in arguments.trees for finding in check_tree(tree, arguments.objects)]
    print(*findings, sep="\n", end="\n"[:len(findings)])
    return 1 if findings else 0


sys.setrecursionlimit(10000)
sys.exit(main())
