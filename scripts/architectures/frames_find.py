"""Sizes in a set of probes as sums of products of configuration values.

Finder searches all products of few values, and sums of two or three of them with the last looked up in a table; row_of()
writes the expression of a place: the terms of the tensors that live there, by their width in bytes."""
import collections, itertools, math, re
import numpy as np

from frames_run import LATER

class Finder:
    """Finds sums of products of configuration values that equal given numbers in a set of probes."""

    def __init__(self, probes, keys):
        self.n = len(probes)
        atoms = {}
        for k in keys:
            vs = [p.flat.get(k) for p in probes]
            if any(isinstance(v, str) for v in vs):
                for w in sorted({v for v in vs if isinstance(v, str)}):
                    atoms['%s=%s' % (k, w)] = [float(v == w) for v in vs]
                    atoms['!%s=%s' % (k, w)] = [float(v != w) for v in vs]
                continue
            if not all(v is None or isinstance(v, (int, float)) for v in vs) or all(v is None for v in vs):
                continue
            if any(v for v in vs):
                atoms[k] = [float(v or 0) for v in vs]
            if any(isinstance(v, bool) or not v for v in vs):
                atoms['!' + k] = [float(not v) for v in vs]
                if not all(isinstance(v, bool) for v in vs):
                    atoms['?' + k] = [float(bool(v)) for v in vs]
        if 'B' in atoms:  # some copies are made of several sequences alone
            atoms['min(1,B-1)'] = [float(b > 1) for b in atoms['B']]
            atoms['(1-min(1,B-1))'] = [float(b == 1) for b in atoms['B']]
        self.atoms = {k: np.array(v) for k, v in atoms.items() if len(set(v)) > 1}
        # values that never change are numbers, which the probes cannot tell from others
        ints = [k for k in self.atoms if k[0] not in '!?' and min(self.atoms[k]) >= 1]
        quot = {}
        for a in ints:
            for b in ints:
                if a != b and a not in 'BS' and b not in 'BS':
                    q = self.atoms[a] / self.atoms[b]
                    few = len(ints) <= 8 or ('patch' in b and 'image' in a)
                    if few and q.max() > (1 if (q == np.floor(q)).all() else 4):
                        quot['(%s//%s)' % (a, b)] = np.floor(q)
        base = [('1', np.ones(self.n))]
        load = [x for x in ('B', 'S') if x in self.atoms]
        base += [(x, self.atoms[x]) for x in load]
        if len(load) == 2:
            base.append(('B*S', self.atoms['B'] * self.atoms['S']))
        if 'S' in self.atoms:
            base += self.padded(probes, keys)
        rest = {**{k: v for k, v in self.atoms.items() if k not in ('B', 'S')}, **quot}
        mono = [('', np.ones(self.n))] + list(rest.items())
        pairs = list(itertools.combinations_with_replacement(rest, 2)) if len(rest) <= 40 else []
        mono += [('%s*%s' % p, rest[p[0]] * rest[p[1]]) for p in pairs]
        if len(rest) <= 9:
            mono += [('*'.join(p), rest[p[0]] * rest[p[1]] * rest[p[2]]) for p in itertools.combinations(rest, 3)]
        names, rows, seen = [], [], {}
        for mn, mv in mono:
            for bn, bv in base:
                v = bv * mv
                key = v.tobytes()
                if key in seen or not v.any():
                    continue
                seen[key] = len(names)
                names.append(mn if bn == '1' and mn else bn if not mn else bn + '*' + mn)
                rows.append(v)
        self.names, self.rows, self.index = names, np.array(rows).reshape(len(rows), self.n), seen
        order = sorted(range(len(names)), key=lambda i: (names[i].count('*') + names[i].count('/'), len(names[i])))
        self.order = order
        self.cache = {}

    def padded(self, probes, keys):
        """Tokens filled up to whole chunks, and their numbers."""
        chunks = [(k, [p.flat.get(k) for p in probes]) for k in keys if re.search(r'chunk_?(size|len)', k)]
        if not chunks and any(re.search(r'(^|\.)(linear|ssm|mamba|gla|delta)_', k) for k in probes[0].flat):
            chunks = [('64', [64] * self.n)]
        found = []
        for name, sizes in chunks:
            if not all(type(x) is int and x > 1 for x in sizes):
                continue
            count = np.ceil(self.atoms['S'] / np.array(sizes, dtype=float))
            text = '((S+%s-1)//%s)' % (name, name)
            both = [(text, count), ('%s*%s' % (text, name), count * sizes)]
            found += both + [('B*' + t, self.atoms['B'] * v) for t, v in both if 'B' in self.atoms]
        return found

    def find(self, y):
        y = np.array(y, dtype=float)
        key = y.tobytes()
        if key not in self.cache:
            self.cache[key] = self._find(y)
        return self.cache[key]

    def nearest(self, y):
        """The single product that is nearest, times a number, and by how much it is off."""
        y, best = np.array(y, dtype=float), None
        for i in self.order:
            if (self.rows[i] <= 0).any():
                continue
            q = np.log(y / self.rows[i])
            off = np.abs(q - np.median(q)).max()
            if best is None or off < best[0] - 1e-9:
                best = off, float(np.exp(np.median(q))), self.names[i]
        return term(best[1], best[2]), best[0]

    def _lookup(self, y):
        return self.index.get((y + 0.0).tobytes())

    def _find(self, y):
        if (y == y[0]).all():
            return '%g' % y[0] if y[0] == int(y[0]) and abs(y[0]) < 1e6 else '%d' % y[0]
        i = self._lookup(y)
        if i is not None:
            return self.names[i]
        with np.errstate(divide='ignore', invalid='ignore'):
            q = np.where(self.rows != 0, y / self.rows, np.where(y == 0, np.nan, np.inf))
        lo, hi = np.nanmin(q, axis=1), np.nanmax(q, axis=1)
        hits = [i for i in self.order if lo[i] == hi[i] and lo[i] != 0 and np.isfinite(lo[i]) and
                ((lo[i] * 8) == int(lo[i] * 8) or (1 / lo[i]) == int(1 / lo[i]))]
        if hits:
            return term(lo[hits[0]], self.names[hits[0]])
        for c in (1., 2., .5, 3., 4., -1.):
            d = y - c * self.rows
            for i in self.order:
                for c2 in (1., 2., 3., 4., .5, -1., -2.):
                    j = self._lookup(d[i] / c2)
                    if j is not None:
                        return '(%s%s%s)' % (term(c, self.names[i]), '+' if c2 > 0 else '', term(c2, self.names[j]))
        small = [i for i in self.order if self.names[i].count('*') <= 1][:60]
        for (i, j), ci, cj in itertools.product(itertools.combinations(small, 2), (1., 2.), (1., 2.)):
            d = y - ci * self.rows[i] - cj * self.rows[j]
            for c in (1., 2., -1.):
                k = self._lookup(d / c)
                if k is not None:
                    both = term(ci, self.names[i]), term(cj, self.names[j])
                    return '(%s+%s%s%s)' % (*both, '+' if c > 0 else '', term(c, self.names[k]))
        return None


def term(c, name):
    text = ('%.6f' % c).rstrip('0').rstrip('.') if abs(c) < 100 else '%.0f' % c
    if name == '1':
        return text
    return name if c == 1 else '-' + name if c == -1 else '%s*%s' % (text, name)


ELEMENT = dict(bfloat16=2, float32=4)
SIZES = dict(bfloat16='2', float16='2', float32='4', float64='8', int64='8', int32='4', int16='2', int8='1', uint8='1',
             bool='1', complex64='8')


def row_of(probes, sets, idx, owner, keys, dtype, finders=None):
    """One place's expression from the live sets of the probes idx; tensors that some lack have a number that is 0 there."""
    sub = [probes[i] for i in idx]
    slots = {}
    counts = {i: collections.Counter(x[:3] for x in sets[i]) for i in idx}
    for k in sorted(set().union(*counts.values())):
        made = {i: [x for x in sets[i] if x[:3] == k] for i in idx if k in counts[i]}
        if len(made) == len(idx) and len({len(v) for v in made.values()}) == 1:
            for n in range(len(made[idx[0]])):
                slots[k, n] = {i: v[n][3:] + (1,) for i, v in made.items()}
        elif all(len({x[3] for x in v}) == 1 for v in made.values()):  # a number of equal ones
            slots[k, 0] = {i: v[0][3:] + (len(v),) for i, v in made.items()}
        else:
            slots[k, 0] = {i: ((sum(math.prod(x[3]) for x in v),), sum(x[4] for x in v), 1) for i, v in made.items()}
    terms, unknown = {}, 0.
    finders = {} if finders is None else finders
    for (k, _), have in sorted(slots.items(), key=lambda s: s[0][1]):
        where = tuple(i for i in idx if i in have)
        sizes = np.array([have[i][1] for i in where], dtype=float)

        def expression(values, over=idx):
            if len(set(values)) == 1 and over != idx and values[0] > 16:  # few runs: rather a value of theirs than a number
                same = [k for k in keys if all(probes[i].flat.get(k) == values[0] for i in over)]
                if same:
                    return min(same, key=lambda k: (len(k), k))
            if len(set(values)) == 1:
                return Finder.find(finders.setdefault(('', over), Finder([probes[i] for i in over], ())), values)
            depends = {'B', 'S'}
            if 0 in over:
                first = values[over.index(0)]
                for n, i in enumerate(over):
                    if owner[i] and values[n] != first:
                        depends |= owner[i]
            endings = tuple(x.rpartition('.')[2] for x in depends - {'B', 'S'}) or ('\0',)
            tries = [depends, depends | {q for q in keys if q.endswith(endings)}, set(keys) | {'B', 'S'}]
            for d in tries:
                d = tuple(sorted(d))
                f = finders.get((d, over))
                if f is None:
                    f = finders[d, over] = Finder([probes[i] for i in over], d)
                e = f.find(values)
                if e is not None:
                    return e
            return None

        numbers = [have[i][2] if i in have else 0 for i in idx]
        count = expression(numbers)
        if count is None and k[2] != LATER:
            count, off = Finder(sub, ('B', 'S')).nearest(numbers) if 0 not in numbers else ('%d' % max(numbers), 1.)
            unknown = max(unknown, off)
        is_later = k[2] == LATER
        if is_later and count is None:
            continue
        ranks = {len(have[i][0]) for i in where}
        dims = None
        elements = [math.prod(have[i][0]) for i in where]
        if len(ranks) == 1:
            dims = [expression([have[i][0][d] for i in where], where) for d in range(ranks.pop())]
        if dims is None or None in dims:
            e = expression(elements, where)
            if e is None and is_later:
                continue  # too much rather than too little
            if e is None:
                near = [f.nearest(elements) for (d, over), f in finders.items() if d and over == where]
                near = near or [Finder(sub, ('B', 'S')).nearest(elements)]
                e, off = min(near, key=lambda x: x[1])
                unknown = max(unknown, off)
            dims = [e]
        parts = [d for d in dims if d != '1']
        text = '*'.join(sorted(parts, key=lambda x: (x not in ('B', 'S'), x)))
        if count != '1':
            text = (text + '*' if text else '') + count
        width = 'D' if k[0] == dtype else SIZES.get(k[0], '4')
        if sizes.max() > 0:
            unit = ELEMENT[dtype] if width == 'D' else int(width)
            exact = width if all(have[i][1] == math.prod(have[i][0]) * unit for i in where) else None
            if exact is None and is_later:
                continue
            if exact is None:  # a part of a larger storage
                ratio = np.median([have[i][1] / max(1, math.prod(have[i][0])) / unit for i in where])
                text = term(float(ratio), text or '1')
            terms[(width, text)] = terms.get((width, text), 0) + (-1 if is_later else 1)
    by = {}
    for (width, text), n in sorted(terms.items(), key=lambda x: x[1] < 0):
        if n:
            by.setdefault(width, []).append(term(n, text or '1'))
    sums = sorted(by.items(), reverse=True)
    sums = '+'.join('%s*(%s)' % (w, '+'.join(ts)) if len(ts) > 1 or ts[0][0] == '-' else '%s*%s' % (w, ts[0]) for w, ts in sums)
    return sums.replace('+-', '-'), unknown
