"""Measured peaks of configurations beyond those of the rows: recorded for tests, or held against the tool's estimates.

    frames_check.py TOOL KIND[.TYPE]...           prints estimated over measured of each type, worst first in a line
    frames_check.py --tell TABLE TOOL FOLDER      holds TOOL's estimates against all that frames.py measured in FOLDER; sections
                                                  of TABLE that are less somewhere get conditions that tell it there
    frames_check.py --record FILE KIND.TYPE...    adds to FILE: tests/model/activations.jsonl.xz
    frames_check.py --far FILE KIND.TYPE...       likewise: one value far beyond the others, for each place that is the peak then
    frames_check.py --random N --seed S TABLE TOOL [KIND[.TYPE]...]
                                                  random values, by quarters to eightfold, of N random types of the table, or of
                                                  each of these; and the percentiles of those that are not told

KIND: a key of frames_run.MAPS. Each type runs in a process of its own."""
import gc, glob, json, lzma, os, random, signal, subprocess, sys, tempfile
import torch, transformers

import frames_range, frames_table
from frames import FAR, FAR_LOADS, drawn, other_names
from frames_run import LAYERS, MAPS, POSITIONS, Type, alarm, auto, explore, first_run, flatten, has_groups, types

LEAST, MOST = frames_table.LEAST, frames_table.MOST  # estimated over measured


def case(T, over, B, S, dtype, is_whole=False):
    """One configuration's peak beside weights and cache; None where it does not run."""
    try:
        p = T.run(over, B, S, getattr(torch, dtype), seconds=6)
        c, _ = T.build(over)
    except Exception:
        return None
    if not has_groups(p.flat):
        return None
    config = dict(c.to_dict() if is_whole else c.to_diff_dict(), architectures=[T.arch], dtype=dtype, model_type=T.t)
    config = json.loads(json.dumps(config, default=str))
    return dict(name='%s.%s' % (T.kind, T.t), config=config, batch=B, tokens=S, peak=p.peak)


PROMPT = 128  # tokens of a step from which on a type's own configuration is not to be told


def further(T, flat, rnd, count, *how):
    """Cases of `count` configurations with other values."""
    found = []
    for one in drawn(T, flat, rnd, *how):
        c = case(T, *one)
        if c:
            found.append(c)
        if len(found) == count:
            break
    return found


def recorded(kind, t):
    """Cases of a type's own configuration, with few layers, and of one with other values."""
    T, rnd = Type(kind, t), random.Random('%s.%s' % (kind, t))
    first_run(T, False)
    flat = T.run(T.few, 1, 256).flat
    own = [case(T, T.few, 1, 1000, 'bfloat16'), case(T, T.few, 2, 500, 'float32')]
    return [c for c in own if c] + further(T, flat, rnd, 1)


def far(kind, t):
    """Cases of one value far beyond the others, and of one token: one for each place of the code that is the peak of some."""
    T, found = Type(kind, t), []
    probes, _, _, _, info = explore(T)
    first, count = info['far']
    places = {probes[0].peak_place}
    for p in probes[first:first + count]:
        if p.peak_place not in places:
            places.add(p.peak_place)
            c = case(T, p.over, p.flat['B'], p.flat['S'], 'bfloat16')
            found += [dict(c, name='far %s.%s' % (kind, t))] if c else []
    return found


def record(path, words, measured, prefix=''):
    """Adds these types to what was recorded, or measures them again."""
    old = []
    if os.path.exists(path):
        with lzma.open(path, 'rt') as f:
            old = [json.loads(x) for x in f]
    for kind, t in types(words):
        rows = apart(lambda: measured(kind, t))
        print(kind, t, len(rows or []), flush=True)
        if rows:
            old = [x for x in old if x['name'] != '%s%s.%s' % (prefix, kind, t)] + rows
            with lzma.open(path, 'wt') as f:
                f.writelines(json.dumps(x, sort_keys=True) + '\n' for x in old)


def estimated(tool, case):
    """(estimated over measured, told as a lower bound or approximate)"""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'config.json'), 'w') as f:
            json.dump(case['config'], f)
        load = '--batch', str(case['batch']), '--seq-len', str(case['tokens'])
        run = subprocess.run([tool, 'estimate', folder, '--json', *load], capture_output=True, text=True)
    if run.returncode:
        return 0, run.stderr.strip()
    answer = json.loads(run.stdout)
    return answer['activation_bytes'] / max(1, case['peak']), 'activation_bytes' in answer['lower_bounds']


def checked(tool, kind, t):
    """Each case's batch, tokens, estimated over measured, whether told."""
    T, rnd = Type(kind, t), random.Random('check %s.%s' % (kind, t))
    first_run(T, False)
    cases = [case(T, T.few, B, S, 'bfloat16', True) for B, S in ((2, 256), (1, 1024), (2, 6000))]
    cases = [c for c in cases if c] + further(T, T.run(T.few, 1, 64).flat, rnd, 2)
    return [(c['batch'], c['tokens']) + estimated(tool, c) for c in cases]


def check(tool, words):
    for kind, t in types(words):
        rows = apart(lambda: checked(tool, kind, t))
        if rows is None:
            print('%s.%s: not measured' % (kind, t), flush=True)
            continue
        outside = [r for r in rows if not LEAST <= r[2] <= MOST]
        word = 'outside' if any(not r[3] for r in outside) else 'told' if any(r[3] for r in rows) else 'good'
        shown = ('%dx%d %.3f%s' % (b, s, r, ' told' if told is True else told or '') for b, s, r, told in rows)
        print('%s.%s: %s' % (kind, t, word), *shown, sep=', ', flush=True)


def conditions_of(tool, data):
    """A section's lines that tell where its rows are less than what frames.py measured, more where a range has all of that, and
    where a value that it had no time to change is another: [line]."""
    T = Type(data['kind'], data['type'])
    base = {k: v for k, v in flatten(T.base).items() if type(v) in (int, bool)}
    short, over_much = [], []
    for over, B, S, dtype, peak in data['measured']:
        c = transformers.AutoConfig.for_model(T.t, **T.nest(over))
        config = dict(c.to_diff_dict(), architectures=[T.arch], dtype=dtype, model_type=T.t)
        config = json.loads(json.dumps(config, default=str))
        ratio, told = estimated(tool, dict(config=config, batch=B, tokens=S, peak=peak))
        if type(told) is not bool:
            continue
        flat = flatten(c.to_dict())
        values = {k: flat.get(k) for k in base if not LAYERS.search(k) and not POSITIONS.search(k)}
        own = all(v == base[k] for k, v in values.items()) or over == data['measured'][0][0]
        for points, is_off in (short, ratio < LEAST), (over_much, ratio > MOST):
            points.append(frames_range.Point(dict(values, S=S), is_off, own and S >= PROMPT))
    ranges = frames_range.ranges(short)
    if ranges is None:
        return ['?']
    ranges += [r for r in frames_range.ranges(over_much, frames_range.FEW) or () if r.text not in {x.text for x in ranges}]
    late = [k for k in data['info'].get('late', ()) if type(base.get(k)) is int and base[k] > 0 and not LAYERS.search(k)]
    keys = {k for r in ranges for k in r.keys} - {'S'} | {*late}
    return (['=%s %d' % (k, base[k]) for k in sorted(keys)] + ['~%s %s' % x for x in other_names(T, keys)] +
            [':' + r.text for r in ranges] + [':(%s//%d)*(%d//max(1,%s))' % (k, base[k], base[k], k) for k in late])


def tell(table, tool, folder):
    """Marks the sections whose rows are less than what was measured, where they are."""
    for path in sorted(glob.glob(os.path.join(folder, '*.json'))):
        with open(path) as f:
            data = json.load(f)
        sections = frames_table.sections_of(table)
        if 'measured' not in data or (head := frames_table.head_of(data)) not in sections:
            continue
        lines = apart(lambda: conditions_of(tool, data))
        if lines is None:
            lines = ['?']
        print(head, *lines, flush=True)
        sections[head] = frames_table.with_conditions(sections[head], lines)
        with open(table, 'w', encoding='utf-8') as f:
            frames_table.write(sections, f)


def at_random(tool, kind, t, seed):
    """[(estimated over measured, whether told, the case)] of one random configuration."""
    T, rnd = Type(kind, t), random.Random('%s %s.%s' % (seed, kind, t))
    first_run(T, False)
    own = T.run(T.few, 1, 64).flat
    cases = further(T, own, rnd, 1, FAR, FAR_LOADS)
    return [estimated(tool, c) + (c,) for c in cases]


def check_random(count, seed, table, tool, words):
    rnd, ratios, told, missed = random.Random(seed), [], 0, 0
    heads = [h.split() for h in sorted(frames_table.sections_of(table))]
    all_types = [(k, t) for _, t, k in heads if k in MAPS and t in getattr(auto, MAPS[k])]
    chosen = list(types(words)) or [rnd.choice(all_types) for _ in range(count)]
    for n, (kind, t) in enumerate(chosen):
        rows = apart(lambda: at_random(tool, kind, t, '%s %d' % (seed, n)))
        missed += not rows
        for ratio, is_told, c in rows or ():
            if is_told is True:
                told += 1
                continue
            ratios.append(ratio)
            if not LEAST <= ratio <= MOST:
                print('%s.%s: %dx%d %.3f' % (kind, t, c['batch'], c['tokens'], ratio), is_told or '', json.dumps(c['config']),
                      flush=True)
    ratios.sort()
    print(len(ratios), 'not told:', *('%.3f' % ratios[(len(ratios) - 1) * n // 100] for n in (0, 1, 5, 10, 50, 90, 95, 99, 100)),
          '(least, p1, p5, p10, median, p90, p95, p99, most);', told, 'told,', missed, 'not measured')


def apart(child):
    """What a function returns, run in a process of its own; None if it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        torch.set_num_threads(1)
        with os.fdopen(write, 'w') as f:
            try:
                json.dump(child(), f)
            except BaseException as e:
                print(type(e).__name__, str(e)[:150].replace('\n', ' '), flush=True)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


def main(args):
    signal.signal(signal.SIGPROF, alarm)
    gc.collect()
    gc.freeze()  # the children need not look through what was imported
    if args[0] == '--record':
        record(args[1], args[2:], recorded)
    elif args[0] == '--far':
        record(args[1], args[2:], far, 'far ')
    elif args[0] == '--random':
        check_random(int(args[1]), args[3], args[4], args[5], args[6:])
    elif args[0] == '--tell':
        tell(*args[1:])
    else:
        check(args[0], args[1:])


if __name__ == '__main__':
    main(sys.argv[1:])
