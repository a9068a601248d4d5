#!/usr/bin/env python3
"""The rooms of core/, shim/ and tools/: which room may include, call and name the structs of which, how large a room and
its README may be, that the files of a room do not call each other in a circle, that a function is found by its name, and a room in the
tree's README.

    check-rooms.py [--objects DIR] [TREE…]

TREE/ROOMS has a line for each room, lower rooms first: `room: rooms it may use`. The room `.` is the files of TREE/
itself; where it has no line, those files are headers, the face of the tree: they may include all rooms, and a file that
includes one of them includes all that it includes. A line `halves: room/a.c room/b.c  # reason` names files which are
one module. A line `opaque: room/a.h struct…  # reason` names structs of higher rooms to which the files of a pattern
hold pointers without knowing their members.

What a file exports is named for it: gc_FILE_…, where FILE may be cut at an underscore and singular or plural, or
gc_ROOM_…, each also as gc_TREE_FILE_…. A line `names: room/a_*.c word…  # reason` adds words for the files of a pattern.

The folders of tools/engines/ are left out: they are programs of their own.

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
# Each folder in it is a room, built only where its engine's headers are: its symbols are read if it was.
ENGINES = "engines"
# A room with more files has a README.md.
PLAIN_FILES_MAX = {"core": 0, "shim": 3, "tools": 3}
README_LINES_MAX = 40
SOURCES = (".c", ".S")
SUFFIXES = (*SOURCES, ".h", ".def")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRUCT_DEFINED = re.compile(r"^(?:struct|union) (gc_\w+) \{", re.M)
STRUCT_NAMED = re.compile(r"\b(?:struct|union) (gc_\w+)")


def read_rules(tree):
    """Allowed rooms by room, for each file that is one half of a module the name of the module, and for each file the
    further words for its names (`names`) and the structs of higher rooms that it may name (`opaque`)."""
    allowed, halves, path = {}, {}, pathlib.Path(tree, "ROOMS")
    words_of = {"names": {}, "opaque": {}}
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
        elif colon and name in words_of:
            matches = sorted(pathlib.Path(tree).glob(words[0])) if words else []
            if len(words) < 2 or not matches or not reason:
                sys.exit(f"{path}:{number}: {name}: files of {tree}/, one word or more, then # and the reason")
            for match in matches:
                words_of[name].setdefault(str(match), []).extend(words[1:])
        elif not colon or any(word not in allowed for word in words):
            sys.exit(f"{path}:{number}: a room may name only rooms of the lines above")
        else:
            allowed[name] = set(words)
    return allowed, halves, words_of


def room_of(path):
    parts = path.split("/")
    if len(parts) > 3 and parts[1] == ENGINES:
        return f"{ENGINES}/{parts[2]}"
    return parts[1] if len(parts) > 2 else "."


def may_use(room, other, allowed):
    """Where the table has no line for the root, its headers are free: see resolve()."""
    return room == other or other in allowed.get(room, ()) or ("." in (room, other) and "." not in allowed)


def read_symbols(objects, sources):
    """For each source the symbols it needs, and for each symbol the source that has it."""
    paths = {str(objects / pathlib.Path(source).with_suffix(".o")): source for source in sources}
    for path in [path for path, source in paths.items() if room_of(source).startswith(f"{ENGINES}/")]:
        if not os.path.exists(path):
            del paths[path]
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


def resolve(path, edges, allowed, through=()):
    """What a file includes, each with the headers of the face through which it does."""
    for other in sorted(edges.get(path, ())):
        yield other, through
        if room_of(other) == "." and "." not in allowed and other not in through:
            yield from resolve(other, edges, allowed, (*through, other))


def check_includes(tree, texts, allowed):
    edges = {path: {other for other in INCLUDE.findall(text) if other.startswith(f"{tree}/")}
             for path, text in texts.items()}
    for path in edges:
        room = room_of(path)
        if room not in allowed and (room != "." or path.endswith(SOURCES)):
            yield f"{path}: room {room} is not in {tree}/ROOMS"
        elif room in allowed:
            for other, through in resolve(path, edges, allowed):
                if not may_use(room, room_of(other), allowed):
                    yield (f"{path} includes {' and so '.join((*through, other))}: "
                           f"{room} may not use {room_of(other)}")
    for circle in components(edges):
        yield f"include each other: {' '.join(circle)}"


def check_structs(texts, allowed, opaque):
    """A pointer to a struct needs no include: the names are read from the text."""
    codes = {path: COMMENT.sub("", text) for path, text in texts.items()}
    owners = collections.defaultdict(set)
    for path, code in codes.items():
        for name in STRUCT_DEFINED.findall(code):
            owners[name].add(path)
    for path, code in codes.items():
        room = room_of(path)
        for name in sorted(set(STRUCT_NAMED.findall(code)) - set(opaque.get(path, ()))):
            others = sorted(owners[name])
            if others and not any(may_use(room, room_of(other), allowed) for other in others):
                yield f"{path} names struct {name} of {others[0]}: {room} may not use {room_of(others[0])}"


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
    overview = pathlib.Path(tree, "README.md")
    if overview.is_file():
        named = set(re.findall(r"`(\w+)/?`", overview.read_text()))
        yield from (f"{overview} does not name the room {room}" for room in sorted(counts) if room != "." and room not in named)
    for readme in sorted((*pathlib.Path(tree).glob("*/README.md"), *pathlib.Path(tree).glob(f"{ENGINES}/*/README.md"))):
        lines = len(readme.read_text().splitlines())
        if lines > README_LINES_MAX:
            yield f"{readme}: {lines} lines, at most {README_LINES_MAX}"


def check_tree(tree, objects):
    allowed, halves, words_of = read_rules(tree)
    files = sorted(str(path) for path in pathlib.Path(tree).rglob("*") if path.suffix in SUFFIXES and "engines" not in path.parts)
    needs, owner = read_symbols(objects, [path for path in files if path.endswith(SOURCES)])
    texts = {path: pathlib.Path(path).read_text() for path in files}
    yield from check_includes(tree, texts, allowed)
    yield from check_structs(texts, allowed, words_of["opaque"])
    yield from check_symbols(tree, needs, owner, allowed, halves)
    yield from check_names(tree, owner, words_of["names"])
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
