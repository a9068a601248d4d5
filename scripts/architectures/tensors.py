"""A type's tensors as rows of expressions: name, number of such tensors, dimensions; with the values that the class
gives where a configuration has none, and the values that the rows were measured with alone (guards)."""

import re
import time

import transformers

from explore import LAYERS, Exploration, elements, other_names
from expressions import Budget, atoms_of, columns_of, find, is_word, parts_of

NUMBER = re.compile(r"(?<=[._])\d+(?=[._]|$)|^\d+(?=\.)")
NAME = re.compile(r"#?[A-Za-z_][A-Za-z0-9_.]*(?:\[[^\]]*\]|=[A-Za-z0-9_.-]+)?")


def plain_pattern(name):
    return NUMBER.sub("{}", name)


class Patterns:
    """From a name to its pattern. A pattern whose tensors differ in shape is split: by the word of a list for its
    layer, or by its first numbers."""

    def __init__(self, probes):
        self.probes, self.splits = probes, {}
        uneven = {q for p in probes for q, rows in p.by(plain_pattern).items() if len(rows) > 1}
        self.total = set()
        for pattern in sorted(uneven):
            split = next((s for s in self._splits(pattern) if self._is_even(pattern, s)), None)
            if split is None:
                self.total.add(pattern)
            else:
                self.splits[pattern] = split

    def _splits(self, pattern):
        for key, value in self.probes[0].flat.items():
            if isinstance(value, (list, tuple)) and value and all(isinstance(x, (str, int)) for x in value):
                yield ("list", key)
        yield ("last", 1)
        yield ("numbers", 1)
        yield ("numbers", 2)

    def _apply(self, probe, name, pattern, split):
        kind, value = split
        indexes = [int(x) for x in NUMBER.findall(name)]
        if kind == "list":
            words = probe.flat.get(value)
            if not isinstance(words, (list, tuple)) or not indexes or indexes[0] >= len(words):
                return None
            return f"{pattern}@{value}@{words[indexes[0]]}"
        if kind == "last":
            at = pattern.rfind("{}")
            return f"{pattern[:at]}{indexes[-1]}{pattern[at + 2:]}" if len(indexes) > 1 else None
        rest = iter(indexes)
        return re.sub(r"\{\}", lambda m, n=[0]: (n.__setitem__(0, n[0] + 1), next(rest), "{}")[2] if n[0] >= value else (
            n.__setitem__(0, n[0] + 1), str(next(rest)))[1], pattern)

    def _is_even(self, pattern, split):
        all_names = set()
        for probe in self.probes:
            shapes = {}
            for name, shape, dtype in probe.tensors:
                if plain_pattern(name) == pattern:
                    q = self._apply(probe, name, pattern, split)
                    if q is None or shapes.setdefault(q, (shape, dtype)) != (shape, dtype):
                        return False
            if all_names and shapes and split[0] == "numbers" and all_names != set(shapes):
                return False  # the numbers are of layers, of which there may be more
            all_names.update(shapes)
        return len(all_names) <= 48

    def by(self, probe):
        """{pattern: {(shape, type): count}}"""
        if "split" not in probe.patterns:
            out = {}
            for name, shape, dtype in probe.tensors:
                q = plain_pattern(name)
                if q in self.splits:
                    q = self._apply(probe, name, q, self.splits[q])
                row = out.setdefault(q, {})
                row[(shape, dtype)] = row.get((shape, dtype), 0) + 1
            probe.patterns["split"] = out
        return probe.patterns["split"]


def is_switch(values):
    return any(isinstance(v, (bool, str)) or not v for v in values) and len({str(v) for v in values}) > 1


def find_cases(wanted, probes, keys, depth=2):
    """(expression, keys it holds for at their first values alone) by cases of one value; (None, …) if there is none."""
    first = probes[0].flat
    if Budget.is_spent():
        return None, set(keys)
    halves = []
    for key in sorted(keys):
        values = [p.flat.get(key) for p in probes]
        kind = first.get(key)
        on = [bool(v) if not isinstance(kind, str) else v == kind for v in values]
        if not is_switch(values) or isinstance(kind, str) and not is_word(kind):
            on = [v == kind for v in values]
            halves.append((key, on, False))
        else:
            halves.append((key, on, True))
    for key, on, is_case in sorted(halves, key=lambda h: not h[2]):
        sides = []
        for side in (True, False):
            at = [i for i, x in enumerate(on) if x == side]
            if not at:
                sides.append(None)
                continue
            sub, column = [probes[i] for i in at], [wanted[i] for i in at]
            constant = len(set(column)) == 1
            enough = len(at) >= (3 if constant else 6)
            rest = {k for k in keys if k != key or not is_case}
            text = find(column, atoms_of(sub, rest), 3, 1.0) if enough else None
            if text is None and depth > 1 and enough:
                text, more = find_cases(column, sub, rest - {key}, depth - 1)
                text = text if not more else None
            sides.append(text)
        text_on, text_off = sides
        if is_case and text_on is not None and text_off is not None:
            mark = (f"({key}={first[key]})", f"!({key}={first[key]})") if isinstance(first[key], str) else (
                (f"?#{key}", f"!#{key}") if isinstance(first[key], (list, tuple)) else (f"?{key}", f"!{key}"))
            return f"{mark[0]}*({text_on})+{mark[1]}*({text_off})", set()
    for key, on, _ in halves:
        at = [i for i, x in enumerate(on) if x == on[0]]
        if 6 <= len(at) < len(probes):
            text = find([wanted[i] for i in at], atoms_of([probes[i] for i in at], keys - {key}), 3, 1.0)
            if text is not None:
                return text, {key}
    return None, set(keys)


class Solver:
    def __init__(self, exploration):
        self.e = exploration
        self.probes = exploration.probes
        self.patterns = Patterns(self.probes)
        self.names = []
        for probe in self.probes:
            for q in self.patterns.by(probe):
                if q not in self.names:
                    self.names.append(q)
        self.counts = {q: tuple(self._count(p, q) for p in self.probes) for q in self.names}
        self.found = {}  # from the numbers in all probes to an expression
        self.guards = set()
        self.unsolved = 0
        self.layer_keys = {
            k for k, v in self.probes[0].flat.items() if LAYERS.search(k) and k.count(".") < 2 and isinstance(v, int)
        }

    def _count(self, probe, q):
        return sum(self.patterns.by(probe).get(q, {}).values())

    def _word_atoms(self):
        out = {}
        for key, value in self.probes[0].flat.items():
            if isinstance(value, (list, tuple)) and value and all(isinstance(x, (str, bool, int)) for x in value):
                values = [p.flat.get(key) for p in self.probes]
                if all(isinstance(v, (list, tuple)) for v in values):
                    out.update({k: v for k, v in columns_of(key, values).items() if not re.search(r"\[\d+\]$", k)})
        return out

    def solve_counts(self):
        for q in sorted(self.names, key=lambda q: (len(set(self.counts[q])), self.names.index(q))):
            wanted = self.counts[q]
            if wanted in self.found:
                continue
            keys = self.e.owners(lambda p, q=q: self._count(p, q))
            text = find(wanted, atoms_of(self.probes, keys))
            if text is None:
                atoms = atoms_of(self.probes, keys | self.layer_keys)
                words = self._word_atoms()
                if len(words) < 14:
                    atoms.update(words)
                text = find(wanted, atoms, 2)
            if text is None:
                atoms = atoms_of(self.probes, keys | self.layer_keys)
                atoms.update(parts_of(atoms, self.layer_keys))
                text = find(wanted, atoms, 2)
            if text is None:  # by the numbers known already, and conditions
                atoms = {f"({t})": list(c) for c, t in self.found.items() if t and len(set(c)) > 1}
                atoms.update({k: c for k, c in atoms_of(self.probes, keys).items() if max(c) <= 1})
                text = find(wanted, atoms, 2)
            if text is None and keys:
                text, guarded = find_cases(wanted, self.probes, keys | self.layer_keys)
                self.guards |= guarded if text else set()
            if text is None:
                self._give_up(keys)
            self.found[wanted] = text

    def _give_up(self, keys):
        self.unsolved += 1
        self.guards |= keys

    def solve_row(self, q, full):
        count = self.found[self.counts[q]]
        if count is None:
            count = str(sum(full.get(q, {}).values()))
        indexes = [i for i, p in enumerate(self.probes) if q in self.patterns.by(p)]
        probes = [self.probes[i] for i in indexes]
        rows = [self.patterns.by(p)[q] for p in probes]
        types = {dtype for row in rows for _, dtype in row}
        out = {"name": re.sub(r"@.*", "", q), "count": count, "where": self._where(q)}
        if len(types) == 1 and None not in types:
            out["type"] = types.pop()
        if q in self.patterns.total:
            totals = [sum(c * elements(s) for (s, _), c in self.patterns.by(p).get(q, {}).items()) for p in self.probes]
            by_probe = dict(zip(map(id, self.probes), totals))
            keys = self.e.owners(lambda p: by_probe[id(p)])
            text = find(totals, atoms_of(self.probes, keys | set(self.e.quiet)), 4)
            if text is None:
                self._give_up(keys)
                text = str(sum(c * elements(s) for (s, _), c in full.get(q, {}).items()))
            out["total"] = text
            return out
        shapes = [next(iter(row))[0] for row in rows]
        out["dims"] = [self._dimension(q, d, shapes, indexes, probes, full) for d in range(len(shapes[0]))]
        return out

    def _dimension(self, q, d, shapes, indexes, probes, full):
        values = [shape[d] if d < len(shape) else 1 for shape in shapes]
        if indexes[0] == 0:
            keys = set()
            for i, v in zip(indexes, values):
                if 0 < i < self.e.singles and v != values[0]:
                    keys.update(self.e.owner[i])
        else:
            keys = self._changes(values, probes) or set(self.e.keys())
        text = self._cached(values, indexes, keys, probes)
        if text is None:
            self._give_up(keys)
            shape = next(iter(full.get(q, {})), ((),))[0]
            text = str(shape[d] if d < len(shape) else values[0])
        return text

    @staticmethod
    def _changes(values, probes):
        """The keys that alone change a value of a row that the first probe lacks."""
        keys, first = set(), probes[0].over
        for probe, value in zip(probes, values):
            changed = {k for k in {**probe.over, **first} if probe.over.get(k) != first.get(k)}
            if value != values[0] and len(changed) == 1:
                keys |= changed
        return keys

    def _cached(self, values, indexes, keys, probes):
        key = (tuple(values), tuple(indexes))
        if not hasattr(self, "cache"):
            self.cache = {}
        if key not in self.cache:
            text = find(values, atoms_of(probes, keys))
            more = set(self.e.quiet) | self.layer_keys
            if text is None and more - keys:
                text = find(values, atoms_of(probes, keys | more))
            if text is None:
                text, guarded = find_cases(values, probes, keys | set(self.e.quiet))
                self.guards |= guarded if text else set()
            self.cache[key] = text
        return self.cache[key]

    def _where(self, q):
        """In which layers of the first probe: "first", "last", "all" or "some"."""
        pattern = re.sub(r"@.*", "", q)
        found = set()
        for name, _, _ in self.probes[0].tensors:
            if plain_pattern(name) == pattern:
                found.add(int((NUMBER.findall(name) or [0])[0]))
        if not found:
            return "some"
        span = max(found) - min(found) + 1 == len(found)
        return "some" if not span else "first" if min(found) == 0 else "last"

    # ---- values of the class ----

    def default(self, atom):
        """(expression where the key is absent, expression where it is null or None)"""
        key = re.sub(r"^#|\[.*|=.*", "", atom)
        absent = self._value_of(atom, key, [p for p in self.probes if key not in p.over or (key in self.e.over and self.e.over[key] == p.over[key])])
        if key in self.e.over:  # shortened
            flat = self.full.flat
            column = columns_of(key, [flat.get(key)])
            absent = str(column.get(atom, [0])[0])
        null = None
        probes, values = self.e.null_values(key)
        if probes and values[0] == self.probes[0].flat.get(key):
            null = absent
        elif probes and values[0] is not None:
            null = self._value_of(atom, key, probes, spare=True)
        return absent, null

    def _value_of(self, atom, key, probes, spare=False):
        values = [p.flat.get(key) for p in probes]
        wanted = columns_of(key, values).get(atom)
        if wanted is None:
            return "0"
        if len(set(map(str, wanted))) == 1:
            return find(wanted, {})
        first = probes[0]
        keys = set()
        for p, w in zip(probes, wanted):
            if w != wanted[0]:
                changed = {k for k in p.over if p.over[k] != first.over.get(k, first.flat.get(k)) and k != key}
                if len(changed) == 1 or not keys:
                    keys |= changed
        atoms = atoms_of(probes, keys)
        text = find(wanted, atoms)
        if text is None:
            quiet = set(self.e.quiet) - {key}
            text = find(wanted, atoms_of(probes, keys | quiet)) if quiet else None
        if text is None:
            layers = self.layer_keys | {k for k in keys if LAYERS.search(k)}
            atoms.update(parts_of(atoms_of(probes, layers), layers))
            text = find(wanted, atoms, 2)
        if text is None and not spare:
            text, guarded = find_cases(wanted, probes, keys | self.layer_keys)
            self.guards |= guarded if text else {key}
        return text


def closure(solver, rows):
    """The values that the rows need, and those that these need in turn."""
    defaults, nulls = {}, {}
    queue = [t for r in rows for t in [r["count"], r.get("total")] + r.get("dims", []) if t]
    while queue:
        for atom in NAME.findall(queue.pop()):
            if atom in ("min", "max", "or") or atom in defaults:
                continue
            absent, null = solver.default(atom)
            if absent is None:
                key = re.sub(r"^#|\[.*|=.*", "", atom)
                absent = str(columns_of(key, [solver.full.flat.get(key)]).get(atom, [0])[0])
            defaults[atom] = absent
            queue.append(absent)
            if null is not None and null != "0":
                nulls[atom] = null
                queue.append(null)
    return defaults, nulls


def attribute_names(type_, nested):
    out = {}
    for prefix, name in [("", type_)] + [(k + ".", v) for k, v in nested.items()]:
        try:
            config = type(transformers.AutoConfig.for_model(name))
        except Exception:
            continue
        for other, key in (getattr(config, "attribute_map", None) or {}).items():
            out[prefix + other] = prefix + key
    return out


def describe(kind, name, seconds):
    e = Exploration(kind, name, seconds)
    Budget.end, Budget.more = time.process_time() + seconds / 2, seconds / 2
    solver = Solver(e)
    solver.full = e.type.look({}) if e.over else e.probes[0]
    full = solver.patterns.by(solver.full)
    solver.solve_counts()
    rows = [solver.solve_row(q, full) for q in solver.names]
    defaults, nulls = closure(solver, rows)
    guards = solver.guards | set(e.untested)
    others = other_names(name, e.probes[0].flat)
    aliases = {**attribute_names(name, e.type.nested), **{a: k for a, k in others.items() if k}}
    used = {re.sub(r"^#|\[.*|=.*", "", a) for a in defaults} | guards
    return {
        "type": name,
        "plain": seconds == 0,
        "reads": e.type.reads,
        "kind": kind,
        "architecture": e.type.architecture,
        "prefix": getattr(e.type.model_class, "base_model_prefix", ""),
        "nested": e.type.nested,
        "included": e.type.included,
        "rows": rows,
        "defaults": defaults,
        "nulls": nulls,
        "aliases": {a: k for a, k in aliases.items() if k in used},
        "guards": {k: solver.full.flat.get(k) for k in sorted(guards | {a for a, k in others.items() if not k})},
        "unsolved": solver.unsolved,
        "probes": len(e.probes),
        "seconds": round(seconds - e.left(), 1),
    }
