"""The simplest expression of configuration values that has given values, in the language of core/classes/expression.h.

Atoms are columns: one number for each probe. An expression is a product of up to three atoms times a fraction, or a sum
of two or three such products; fewer and simpler ones are tried first (a search through all, with the last product looked
up in a table)."""

import functools
import itertools
import math
import re
import time
from fractions import Fraction


def number(value):
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value == int(value) else Fraction(value).limit_denominator(1000)
    return value


def is_number(value):
    return value is None or (isinstance(value, (bool, int, float)) and not (isinstance(value, float) and not math.isfinite(value)))


def is_word(text):
    return bool(text) and all(c.isalnum() or c in "_.-" for c in text)


def columns_of(key, values):
    """The atoms of one key: its numbers, conditions on them, items and lengths of lists, words."""
    out = {}
    if all(isinstance(v, (list, tuple)) or v is None for v in values) and any(isinstance(v, (list, tuple)) for v in values):
        lists = [list(v or ()) for v in values]
        out["#" + key] = [len(v) for v in lists]
        items = {x for v in lists for x in v if not isinstance(x, (list, tuple, dict))}
        if all(isinstance(x, str) for x in items) and len(items) <= 8:
            for word in sorted(items):
                if is_word(word):
                    out[f"{key}[{word}]"] = [v.count(word) for v in lists]
        elif all(is_number(x) for x in items):
            if all(isinstance(y, (int, float)) or y is None for v in lists for y in v):
                out[f"{key}[sum]"] = [sum(number(x) for x in v) for v in lists]
                for i in range(min(6, min(len(v) for v in lists))):
                    out[f"{key}[{i}]"] = [number(v[i]) for v in lists]
        return out
    if any(isinstance(v, str) for v in values):
        for word in sorted({v for v in values if isinstance(v, str)}):
            if is_word(word):
                out[f"{key}={word}"] = [int(v == word) for v in values]
        return out
    if not all(is_number(v) for v in values) or all(v is None for v in values):
        return out
    out[key] = [number(v) for v in values]
    if any(isinstance(v, bool) or not v for v in values):
        out["!" + key] = [int(not v) for v in values]
        if not all(isinstance(v, bool) for v in values):
            out["?" + key] = [int(bool(v)) for v in values]
    return out


def atoms_of(probes, keys):
    out = {}
    for key in sorted(keys):
        out.update(columns_of(key, [p.flat.get(key) for p in probes]))
    plain = [k for k in out if k[0] not in "!?#" and "=" not in k and max(out[k]) > 1 and min(out[k]) > 0]
    if len(plain) <= 8:
        for a, b in itertools.permutations(plain, 2):
            if any(x % y for x, y in zip(out[a], out[b])) or DIVISOR.search(b):
                out[f"({a}//{b})"] = [x // y for x, y in zip(out[a], out[b])]
            if a < b and any(x < y for x, y in zip(out[a], out[b])) and any(x > y for x, y in zip(out[a], out[b])):
                if LAYERS.search(a) or LAYERS.search(b):
                    out[f"min({a},{b})"] = [min(x, y) for x, y in zip(out[a], out[b])]
    return out


def parts_of(atoms, layer_keys):
    """Numbers of layers divided by small numbers, rounded down and up."""
    out = {}
    for key in layer_keys:
        for by in range(2, 9):
            if key in atoms:
                out[f"({key}//{by})"] = [x // by for x in atoms[key]]
                out[f"-(-{key}//{by})"] = [-(-x // by) for x in atoms[key]]
    return out


DIVISOR = re.compile(r"(head|group|ratio|patch|stride|step|reduction|factor)")
LAYERS = re.compile(r"layers?$|^first_k")


class Products:
    """The products of up to `depth` atoms, and a table from column to product."""

    def __init__(self, atoms, count, depth=3):
        names = list(atoms)
        if len(names) > 14:
            depth = min(depth, 2)
        if len(names) > 60:
            depth = 1
        self.rows, self.table = [], {}
        self._add("1", (1,) * count)
        for size in range(1, depth + 1):
            for combination in itertools.combinations(names, size):
                column = tuple(atoms[combination[0]])
                for name in combination[1:]:
                    column = tuple(x * y for x, y in zip(column, atoms[name]))
                self._add("*".join(combination), column)
        for name in names:
            if name[0] not in "!?#-" and not name.startswith("min") and "=" not in name:
                self._add(f"{name}*{name}", tuple(x * x for x in atoms[name]))

    def _add(self, name, column):
        if column not in self.table and any(column):
            self.table[column] = name
            self.rows.append((name, column))


def term(coefficient, name):
    """A product with its coefficient, "3*h/2"; a sign before it."""
    coefficient = Fraction(coefficient)
    sign, size = ("-" if coefficient < 0 else "+"), abs(coefficient)
    if name == "1":
        text = str(size.numerator)
    else:
        text = name if size.numerator == 1 else f"{size.numerator}*{name}"
    return sign + (text if size.denominator == 1 else f"{text}/{size.denominator}")


def joined(*terms):
    text = "".join(term(c, n) for c, n in sorted(terms, key=lambda t: t[0] < 0))
    return text.removeprefix("+")


def proportional(wanted, column):
    i = next((i for i, x in enumerate(column) if x), None)
    if i is None or not wanted[i]:
        return None
    if all(w * column[i] == c * wanted[i] for w, c in zip(wanted, column)):
        return Fraction(wanted[i]) / Fraction(column[i])
    return None


class Budget:
    """Seconds of the processor for all searches of a process; then only the quick ones are made."""

    end = float("inf")
    more = 0.0

    @classmethod
    def is_spent(cls):
        return time.process_time() > cls.end

    @classmethod
    def is_overdrawn(cls):
        return time.process_time() > cls.end + cls.more


def find(wanted, atoms, depth=3, seconds=2.0):
    """The text of an expression with the column `wanted`, or None."""
    wanted = tuple(number(w) for w in wanted)
    if len(set(wanted)) == 1:
        return str(wanted[0]) if isinstance(wanted[0], int) else f"{wanted[0].numerator}/{wanted[0].denominator}"
    if Budget.is_overdrawn():
        return None
    products = Products(atoms, len(wanted), depth)
    for name, column in products.rows:
        coefficient = proportional(wanted, column)
        if coefficient and coefficient.denominator < 1000 and abs(coefficient.numerator) < 10000:
            return joined((coefficient, name)) if coefficient > 0 else None
    rounded = _rounded_up(wanted, atoms)
    if rounded:
        return rounded
    end = time.process_time() + (0.3 if Budget.is_spent() else seconds)
    for first in (1, 2, 3, 4, -1, -2, Fraction(1, 2)):
        for name, column in products.rows:
            rest = [w - first * c for w, c in zip(wanted, column)]
            for second in (1, 2, 3, 4, 6, -1, -2, -3):
                key = tuple(r / second if r % second else r // second for r in rest) if second != 1 else tuple(rest)
                if key in products.table:
                    return joined((first, name), (second, products.table[key]))
            constant = _constant(rest)
            if constant is not None:
                return joined((first, name), (constant, "1"))
            if time.process_time() > end:
                return None
    for first, (name, column) in itertools.product((1, 2, -1), products.rows[:150]):
        rest = tuple(w - first * c for w, c in zip(wanted, column))
        for second, (other, more) in itertools.product((1, 2, -1), products.rows[:150]):
            key = tuple(r - second * c for r, c in zip(rest, more))
            if key in products.table:
                return joined((first, name), (second, other), (1, products.table[key]))
        if time.process_time() > end:
            return None
    return None


def _constant(rest):
    return rest[0] if len(set(rest)) == 1 and isinstance(rest[0], int) else None


def _rounded_up(wanted, atoms):
    """A quotient by a constant, rounded up: hidden_size/16; or a multiple of a constant: vocab_size to 64."""
    for name, column in atoms.items():
        if name[0] in "!?#(-" or "(" in name or "=" in name or not all(isinstance(c, int) for c in column) or not all(column):
            continue
        for by in (8, 16, 32, 64, 128, 256, 512):
            if all(w == -(-c // by) for w, c in zip(wanted, column)):
                return f"-(-{name}//{by})"
            if all(w == -(-c // by) * by for w, c in zip(wanted, column)):
                return f"-(-{name}//{by}*{by})"
    return None


@functools.cache
def compiled(expr):
    """An expression of the language as code over a dictionary v, of numbers or of arrays, and its names."""
    def name(m):
        value = f"v['{m['k']}{'=' + m['w'] if m['w'] else ''}']"
        return f"({value} {'=' if m['f'] == '!' else '!'}= 0)" if m["f"] else value

    pattern = r"(?<![\w.])(?P<f>[!?]?)(?P<k>(?!(?:min|max)\()[A-Za-z_][\w.]*(\[\d+\])?)(=(?P<w>[\w.-]+))?"
    keys = {(m["k"], m["w"]) for m in re.finditer(pattern, expr)}
    return compile(re.sub(pattern, name, expr), expr, "eval"), tuple(sorted(keys, key=str))


def number_of(flat, key, word):
    return float(flat.get(key) == word) if word else float(flat.get(key) or 0)


def evaluate(expr, flat, D):
    """The value of an expression with the names of a configuration."""
    flat = dict(flat, D=D)
    code, keys = compiled(expr)
    return eval(code, {}, {"v": {k + ("=" + w if w else ""): number_of(flat, k, w) for k, w in keys}})
