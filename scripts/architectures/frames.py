"""The memory of a forward pass, place by place, as expressions of a model's configuration.

Runs a type of transformers (frames_run.py) with configurations changed in one value at a time and in many. For each place of
its code that is the peak of some run, the sizes of what lives there, beside parameters, buffers and the cache of keys and
values, are written as products of configuration values, B (sequences) and S (tokens of each) that hold in all runs
(frames_find.py). Rows without which the estimates are as good are dropped; the others are held against further configurations.

    frames.py OUT KIND[.TYPE]...      KIND: a key of MAPS; writes OUT/KIND.TYPE.json, skips those that exist
    frames.py -v OUT KIND.TYPE        shows the rows

D is the size of the type of activations."""
import collections, gc, itertools, json, math, os, random, re, signal, sys, time
import torch, transformers

from expressions import compiled, evaluate
from frames_find import ELEMENT, Finder, row_of
from frames_run import LAYERS, Type, alarm, explore, has_groups, others, types
from frames_table import LEAST


def condition(probes, keys, reached):
    """What is 1 for the probes that reach a place and 0 for the others; None where all do, or it is not found."""
    if 0. not in reached:
        return None
    f = Finder(probes, [k for k in keys if isinstance(probes[0].flat.get(k), (bool, int, str, type(None)))])
    layers = [k for k in f.atoms if k[0] not in '!?' and re.search('layer|dense', k)]
    more = {'min(1,max(0,%s-%s))' % x: f.atoms[x[0]] > f.atoms[x[1]] for x in itertools.permutations(layers, 2)}
    return next((k for k, v in {**f.atoms, **more}.items() if (v == reached).all()), None)


def solve(T, probes, owner, good, dtype, others=()):
    """The values, and a row of each place that is the peak of one of these runs or of others."""
    keys = sorted({q for k in good for q in (k if isinstance(k, tuple) else (k,))})
    places = collections.Counter(p.peak_place for p in [*probes, *others])
    elsewhere = {p.peak_place for p in others}
    looks = [p.look(set(places)) for p in probes]
    groups = {}
    for place in places:
        share = {}
        for lk in looks:
            if place in lk:
                total, live, _ = lk[place]
                for x in live:
                    share[x[:3]] = max(share.get(x[:3], 0), x[4] / total)
        for i, lk in enumerate(looks):
            if place not in lk:
                continue
            total, live, early = lk[place]
            live = [x for x in live if share[x[:3]] >= .003]
            sig = (tuple(sorted({x[:3] for x in live})), early)
            groups.setdefault((place, sig), {})[i] = live
    rows = []
    for (place, sig), sets in groups.items():
        idx = tuple(sets)
        peaks = [i for i in idx if probes[i].peak_place == place]
        if not peaks and place not in elsewhere or len(idx) < 4:
            continue
        expr, unknown = row_of(probes, sets, idx, owner, keys, dtype)
        if unknown > .25 and len(idx) < 8:
            continue
        when = condition(probes, keys, [float(place in lk) for lk in looks])
        if when is not None:
            expr = '%s*(%s)' % (when, expr)
        errors = []
        for i in idx:
            real = looks[i][place][0]
            errors.append(evaluate(expr, probes[i].flat, ELEMENT[dtype]) / real if real else 1)
        rows.append(dict(module=place[0], line='%s:%d' % place[1:], early=sig[1], expr=expr, runs=len(idx), peaks=len(peaks),
                         off=round(unknown, 3), worst=[round(min(errors), 3), round(max(errors), 3)]))
    return keys, rows


def quality(rows, probes, dtype):
    """Estimated over measured, of each probe."""
    out = []
    for p in probes:
        got = max((evaluate(r['expr'], p.flat, ELEMENT[dtype]) - (p.cache_bytes if r['early'] else 0) for r in rows), default=0)
        out.append(got / p.peak if p.peak > 0 else 1)
    return out


def cost(ratios):
    """Too little is worse than too much, and the base configuration counts for more."""
    return sum(min(3, abs(math.log(max(r, .05)))) * (3 if r < LEAST else 1) * (3 if n == 0 else 1) for n, r in enumerate(ratios))


def prune(rows, runs):
    """Drops rows without which the estimates of runs {dtype: probes} are as good: a place that a configuration lacks makes them
    too large."""
    def total(rows):
        return sum(cost(quality(rows, probes, dtype)) for dtype, probes in runs.items())

    best = total(rows)
    for r in sorted(rows, key=lambda r: r['peaks']):
        less = [x for x in rows if x is not r]
        c = total(less) if less else 1e9
        if c <= best + .01:
            rows, best = less, c
    return rows


# Rows are held against HELD other configurations, and as many far from the type's own; those outside of LEAST to MOST are added
# to the probes, in ROUNDS at most.
HELD, MOST, ROUNDS = 8, 1.1, 5


NEAR, FAR = (2, 4, .5, 3), (.25, .5, 2, 3, 4, 8)  # other values over a type's own
FAR_LOADS = (1, 32), (1, 700), (2, 1500), (8, 200), (1, 4096)


def drawn(T, flat, rnd, factors=NEAR, loads=((1, 700), (2, 1500), (3, 512), (4, 2048))):
    """Random values in place of these: (values, batch, tokens, type), of a dozen configurations."""
    for _ in range(12):
        o = dict(T.few)
        for k, v in flat.items():
            if type(v) is int and v > 3 and k not in 'BS' and not LAYERS.search(k) and rnd.random() < .4:
                o[k] = int(v * rnd.choice(factors))
        yield o, *rnd.choice(loads), rnd.choice(['bfloat16', 'bfloat16', 'float32'])


def beyond(T, rnd):
    """Runs of values far from the type's own."""
    found, start = [], time.process_time()
    flat = T.run(T.few, 1, 64).flat
    for over, B, S, _ in drawn(T, flat, rnd, FAR, FAR_LOADS):
        if len(found) == HELD or time.process_time() - start > 10:
            break
        try:
            p = T.run(over, B, S, seconds=6)
        except Exception:
            continue
        if has_groups(p.flat):
            found.append(p)
    return found


def in_32_bits(T, probes, owner, far=(0, 0)):
    """The same in 32 bits, where casts to them make no copy: the base, the far ones, and of the others as many as time allows."""
    wide, wide_owner = [], []
    start = time.process_time()
    first = [0, *range(far[0], sum(far))]
    for n in first + sorted(set(range(len(probes))) - set(first)):
        p = probes[n]
        if n not in first and time.process_time() - start > 5:
            break
        try:
            wide.append(T.run(p.over, p.flat['B'], p.flat['S'], torch.float32))
            wide_owner.append(owner[n])
        except Exception:
            if n == 0:
                break
    return wide, wide_owner


def measure(kind, t, out, verbose=False):
    T = Type(kind, t)
    probes, owner, good, loads, info = explore(T)
    start = time.process_time()
    wide, wide_owner = in_32_bits(T, probes, owner, info['far'])
    rnd = random.Random(2)
    for left in reversed(range(ROUNDS)):
        keys, rows = solve(T, probes, owner, good, 'bfloat16', wide)
        found = len(rows)
        rows = prune(rows, dict(bfloat16=probes, float32=wide))
        held = others(T, probes[0], good, rnd, HELD, loads) + beyond(T, rnd)
        ratios = quality(rows, held, 'bfloat16')
        wrong = [p for p, r in zip(held, ratios) if not LEAST <= r <= MOST]
        if not wrong or not left or time.process_time() - start > 20:
            break
        probes += wrong
        owner += [None] * len(wrong)
    info['held'] = sorted(round(r, 3) for r in ratios)
    info['wrong'] = [({k: v for k, v in p.over.items() if v != probes[0].over.get(k)}, p.flat['B'], p.flat['S'], round(r, 3))
                     for p, r in zip(held, ratios) if not LEAST <= r <= MOST]
    q = quality(rows, probes, 'bfloat16')
    rows32 = []
    if wide:
        for left in reversed(range(ROUNDS)):
            _, rows32 = solve(T, wide, wide_owner, good, 'float32')
            rows32 = prune(rows32, dict(float32=wide))
            if cost(quality(rows, wide, 'float32')) <= cost(quality(rows32, wide, 'float32')) + .01:
                rows32 = []  # those of 16 bits are as good
            held32, _ = in_32_bits(T, held, [None] * len(held))
            ratios = quality(rows32 or rows, held32, 'float32')
            wrong = [p for p, r in zip(held32, ratios) if not LEAST <= r <= MOST]
            if not wrong or not left or time.process_time() - start > 40:
                break
            wide += wrong
            wide_owner += [None] * len(wrong)
            held = others(T, probes[0], good, rnd, HELD, loads) + beyond(T, rnd)
        q32 = sorted(quality(rows32 or rows, wide, 'float32'))
        info['quality32'] = [round(q32[n * (len(q32) - 1) // 10], 3) for n in (0, 1, 5, 9, 10)]
        info['held32'] = sorted(round(r, 3) for r in ratios)
        wide += held32
    s = sorted(q)
    info.update(solve=round(time.process_time() - start, 1), places=found, base=round(q[0], 3),
                quality=[round(s[min(len(s) * n // 10, len(s) - 1)], 3) for n in (0, 1, 5, 9, 10)])
    nested = {k: v['model_type'] for k, v in T.base.items() if isinstance(v, dict) and v.get('model_type')}
    names = other_names(T, {q for r in rows + rows32 for q in used(r['expr'])})
    measured = [(p.over, p.flat['B'], p.flat['S'], dtype, p.peak) for dtype, run in
                (('bfloat16', probes + held), ('float32', wide)) for p in run]
    result = dict(names=names, nested=nested, type=t, kind=kind, arch=T.arch, info=info, keys=keys,
                  absent=absent(T, probes, rows + rows32, keys), rows=rows, rows32=rows32, measured=measured)
    with open('%s/%s.%s.json' % (out, kind, t), 'w') as f:
        json.dump(result, f)
    if verbose:
        for r in rows + rows32:
            print(r)
    print(kind, t, T.arch, 'rows', len(rows), info, flush=True)


def used(expr):
    """The names in an expression."""
    return {k for k, _ in compiled(expr)[1]} - {'B', 'S', 'D'}


def absent(T, probes, rows, keys):
    """What the class gives the keys of the rows where the configuration has none: {key: expression}."""
    out, left = {}, {k for r in rows for k in used(r['expr'])}
    while left:
        k = left.pop()
        sub = [p for p in probes if k not in p.over]
        values = [p.flat.get(k) for p in sub]
        if values and isinstance(values[0], str):
            out[k] = values[0]
            continue
        if any(v is not None and not isinstance(v, (int, float)) for v in values):
            continue
        values = [float(v or 0) for v in values]
        if sub and len(set(values)) == 1 and k not in probes[0].over:
            e = '%.6f' % values[0]
            e = e.rstrip('0').rstrip('.')
        else:
            first, names = T.base, k.split('.')
            for n in names:
                n, _, item = n.partition('[')
                first = (first or {}).get(n)
                first = first[int(item[:-1])] if item and first else first
            e = None
            if sub:
                e = Finder(sub, [q for q in keys if q != k and q.rpartition('.')[0] == k.rpartition('.')[0]]).find(values)
            if e is None and isinstance(first, (int, float)):
                e = '%g' % first
        if e is None:
            continue
        out[k] = e
        left |= used(e) - set(out)
    return out


def other_names(T, keys):
    """Pairs of a key of the rows and a name that the configuration may have for it."""
    found = []

    def look(c, prefix):
        found.extend((prefix + own, prefix + other) for other, own in (getattr(type(c), 'attribute_map', None) or {}).items())
        for k, v in vars(c).items():
            if isinstance(v, transformers.PretrainedConfig):
                look(v, prefix + k + '.')

    look(transformers.AutoConfig.for_model(T.t), '')
    return sorted(x for x in found if x[0] in keys)


def main(args):
    verbose = '-v' in args
    out, *words = [a for a in args if a != '-v']
    os.makedirs(out, exist_ok=True)
    gc.collect()
    gc.freeze()  # the children need not look through what was imported
    for kind, t in types(words):
        path = '%s/%s.%s.json' % (out, kind, t)
        if os.path.exists(path) and not verbose:
            continue
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)
            signal.signal(signal.SIGPROF, alarm)
            try:
                measure(kind, t, out, verbose)
            except BaseException as e:
                if verbose:
                    raise
                with open(path, 'w') as f:
                    json.dump(dict(type=t, kind=kind, error='%s: %s' % (type(e).__name__, str(e)[:300])), f)
                print(kind, t, type(e).__name__, str(e)[:150].replace('\n', ' '), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == '__main__':
    main(sys.argv[1:])
