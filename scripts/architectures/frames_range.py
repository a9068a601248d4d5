"""Ranges in which rows were measured as right: quotients of a configuration's values, and of the tokens of a sequence, that
separate configurations for which they are less than was measured from the others."""
import collections, itertools

Point = collections.namedtuple('Point', 'values is_short is_own')  # {name: size or None}; by the type's own configuration
Range = collections.namedtuple('Range', 'text keys told')  # text: 0 beyond it; told: indexes of points that are
FEW = 2  # points that are right, yet may be beyond a range; or all but those of the type's own configuration
MOST_RANGES = 6


def quotients(points):
    """All (names above, names below), without tokens on both sides."""
    names = sorted({k for p in points for k in p.values if k != 'S'})
    names = [k for k in names if len({p.values.get(k) for p in points}) > 1 and not is_switch(k, points)]
    above = [(k,) for k in names] + [('S',)] + [('S', k) for k in names]
    below = [(k,) for k in names] + [('S',)] + [('S', k) for k in names]
    for a, b in itertools.product(above, below):
        if not set(a) & set(b):
            yield a, b


def is_switch(name, points):
    return all(type(p.values.get(name)) is bool for p in points)


def product(values, names):
    total = 1
    for k in names:
        total *= values.get(k) or 0
    return total


def number(x):
    return '%.0f' % x if x >= 1000 else ('%.3f' % x).rstrip('0').rstrip('.')


def switches(points):
    """Those that are another than by the type's own configuration."""
    for k in sorted({k for p in points for k in p.values}):
        own = {p.values.get(k) for p in points if p.is_own}
        if is_switch(k, points) and len(own) == 1:
            beyond = frozenset(i for i, p in enumerate(points) if p.values[k] not in own)
            yield Range(('?' if True in own else '!') + k, {k}, beyond), -1


def candidates(points):
    for a, b in quotients(points):
        at = [product(p.values, a) / product(p.values, b) if product(p.values, b) else None for p in points]
        if None in at:
            continue
        least = max((x for x, p in zip(at, points) if p.is_own and not p.is_short), default=0)
        right = sorted({x for x, p in zip(at, points) if not p.is_short and x >= least}, reverse=True)
        for limit in {*right[:FEW + 1], *right[-1:]}:
            beyond = [i for i, x in enumerate(at) if x > limit]
            if not limit or not beyond:
                continue
            gap = min(at[i] for i in beyond) / limit
            if gap < 1.01:
                continue
            edge = limit * 1.001
            text = ('(%s*%s)//max(1,%s)' % (number(edge), '*'.join(b), '*'.join(a)) if edge >= 1 else
                    '%s//max(1,%s*%s)' % ('*'.join(b), number(1 / edge), '*'.join(a)))
            yield Range(text, set(a) | set(b), frozenset(beyond)), min(gap, 4) - len(a) - len(b)


def ranges(points, most_right=None):
    """The fewest found; None: there are none that tell all that is short, and no more of those that are right than this."""
    left, found = {i for i, p in enumerate(points) if p.is_short}, []
    options = [*candidates(points), *switches(points)] if left else []
    if most_right is not None:
        options = [x for x in options if sum(not points[i].is_short for i in x[0].told) <= most_right]
    while left:
        def worth(option):
            told = option[0].told
            return 2 * len(told & left) - sum(not points[i].is_short for i in told), option[1]
        best = max((x for x in options if x[0].told & left), key=worth, default=None)
        if best is None or len(found) == MOST_RANGES:
            return None
        found.append(best[0])
        left -= best[0].told
    return found
