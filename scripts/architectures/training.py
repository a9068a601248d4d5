"""The memory of a training step, place by place, as expressions of a model's configuration.

Runs a class of transformers with training_step.py, with configurations changed in one value at a time and in many, in all
variants: precision, attention, checkpoints, LoRA. In each run a window is the forward pass, the backward pass before the
layers, through a stack's last layer, its first layer, and after them; the sizes of what lives at the places where a window's
most is, apart for saved tensors, logits with the loss, gradients of parameters and others, are written as frames.py does.

    training.py [-mPATTERN] OUT KIND.TYPE[+KEY=WORD]...
                                                  KIND: causal, masked, image, s2s, sequence; writes OUT/KIND.TYPE.json, and
                                                  into one that exists the variants that it lacks; PATTERN: of variants;
                                                  KEY=WORD: with this value alone, as for layers of another kind
    training.py -v OUT KIND.TYPE                  shows the rows, too"""

import collections
import itertools
import json
import math
import os
import random
import re
import signal
import sys
import time
import types

import numpy as np
import torch
import transformers

import frames
import frames_run
from expressions import compiled, evaluate, number_of
from training_table import LAYERS, hidden, names, unsound
from frames_find import ELEMENT, Finder, row_of
from frames_run import NAMES, alarm, explore, flatten
from training_step import Step

RANK = 16
RUNS = 12  # with many values changed
LIKE = {"mistral": "causal.llama", "qwen2": "causal.llama"}  # types whose rows may hold: tried before their own are looked for
LEAST_LAYERS = {"t5": 3, "mt5": 3, "resnet": 3}  # two where all are alike
PRESETS = {"mistral": {"sliding_window": None}}  # as published since version 0.2
VARIANTS = ["".join(v)[::-1] for v in itertools.product("fl", "nc", "ae", "mpw")]
PARTS = "SAVED", "LOSS", "WORK", "GRADS"
NUMBER = re.compile(r"(?<![\w.])(\d{3,}|\d+\.\d+)(?![\w.])")  # a size that is no expression
SWITCHES = re.compile(r"(tie_word_embeddings|feed_forward_proj)$")
FIXED = re.compile(r"(^num_channels|^downsample_in|^reorder_and_upcast)")  # values that all published configurations share
WORDS = {"feed_forward_proj": ["gated-gelu"]}
QUOTIENTS = {"head_dim": ("hidden_size", "num_attention_heads")}  # what a class takes for a value that is not given
# Keys of the table's own. Attention without groups makes no copies of keys and values, and in 32 bits has a kernel that
# writes no scores. The tokens of an image are its patches and one more. A first stage as wide as what comes before it has no
# projection beside it.
PLAIN_HEADS, HEADS, GROUPS = "has_plain_heads", "num_attention_heads", "num_key_value_heads"
TOKENS, IMAGE, PATCH = "num_image_tokens", "image_size", "patch_size"
PLAIN_STAGE, STAGE, STEM = "has_plain_stage", "hidden_sizes[0]", "embedding_size"
SPLITS = PLAIN_HEADS, PLAIN_STAGE, "feed_forward_proj"

# Operations in whose place others may stand, with results of the same size.
SAME = {"addmm": "mm", "silu": "act", "gelu": "act", "relu": "act",
        "silu_backward": "act_backward", "gelu_backward": "act_backward", "threshold_backward": "act_backward"}


def switches(config):
    """Values that change what is kept, of those that change no shape. Dropout and activations stay the class's own."""
    return {k: v for k, v in frames_run.every(config) if SWITCHES.search(k) and isinstance(v, (bool, float, str))}


class Layers:
    """The patterns of modules' names: equal neighbours in a list have the same, and the place of each in its stack. Equal parts
    of a layer have their own, so that a place is one moment."""

    def __init__(self, model):
        self.patterns, self.windows = {}, {}
        self._walk(model, "", "", ("", ""))

    def _walk(self, module, name, pattern, window):
        self.patterns[module] = pattern
        self.windows[pattern, module] = window
        groups = collections.OrderedDict()
        for key, child in module.named_children():
            if key.isdigit():
                shape = tuple((n, tuple(p.shape), p.requires_grad) for n, p in child.named_parameters())
                groups.setdefault((type(child), shape), []).append(key)
        for key, child in module.named_children():
            its, inner = key, window
            for group in groups.values():
                if key in group and len(group) > 1 and not window[0]:
                    its = group[0] + "+"
                    end = "first" if key == group[0] else "last" if key == group[-1] else "inner"
                    inner = (pattern + "." + its, end)
            self._walk(child, name + "." + key, pattern + "." + its, inner)


class StepRecorder(frames_run.Recorder):
    """Records what is made and freed in a step, and where: events (+, key, bytes, shape, dtype, op, place, moment)."""

    def __init__(self, known, layers):
        super().__init__(known, None)
        self.layers = layers
        self.is_backward = False
        self.was_in_layers = False
        self.made_at = {}  # a node of autograd: the place and window of its operation
        self.instance = None  # the module whose operation runs
        self.numbers = collections.Counter()  # of equal operations in a module

    def enter(self, module, _):
        pattern = self.layers.patterns.get(module, "")
        self.modules.append((pattern, self.layers.windows.get((pattern, module), ("", "")), id(module)))

    def leave(self, module, *_):
        if self.modules:
            self.modules.pop()

    def place(self):
        if self.is_backward and not self.modules:
            node = torch._C._current_autograd_node()
            number = node._sequence_nr() if node is not None else None
            where, window, self.instance = self.made_at.get(number, (("", "", 0), ("", ""), None))
            phase = "b"
        else:
            module, window, self.instance = self.modules[-1] if self.modules else ("", ("", ""), None)
            where, phase = (module,) + frames_run.line(), "r" if self.is_backward else "f"
            if phase == "f":
                self.made_at.setdefault(torch.autograd._get_sequence_nr() - 1, (where, window, self.instance))
        self.was_in_layers |= self.is_backward and bool(window[0])
        if phase == "f":
            window = "f", "", ""
        else:
            window = "b", window[0] or ("after" if self.was_in_layers else "before"), window[1]
        return (phase,) + where, window

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = len(self.events)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for i in range(before, len(self.events)):
            if self.events[i][0] > 0:
                self.events[i] = self.named(self.events[i])
        return out

    def named(self, e):
        """The event with what tells its operation from others: a name for alike ones, and its number among equal ones."""
        op, place = SAME.get(e[5], e[5]), e[6]
        if op.startswith("act"):
            place = place[:2] + ("", 0)
        key = self.instance, place, op, len(e[3])
        self.numbers[key] += 1
        return e[:5] + (op, place + (self.numbers[key],)) + e[7:]


class Probe:
    """A run's events, its configuration's values, and its windows' largest moments."""

    def __init__(self, over, flat, recorder, grads, saved, head):
        self.over, self.flat, self.events = over, flat, recorder.events
        self.grads, self.saved, self.head = grads, saved, head
        self.cache_bytes = 0
        self.mark = hash(tuple((e[3], e[4], e[6]) if e[0] > 0 else 0 for e in self.events))
        self.best = {}  # window: (bytes, moment)
        self.most = {}  # moment: (bytes, index of its event)
        now, live = 0, {}
        for i, e in enumerate(self.events):
            if e[0] > 0:
                live[e[1]] = e[2]
                now += e[2]
                window = e[7]
                moment = (window, e[6], e[5])
                if now >= self.most.get(moment, (0,))[0]:
                    self.most[moment] = now, i
                if now > self.best.get(window, (0,))[0]:
                    self.best[window] = now, moment
            else:
                now -= live.pop(e[1], 0)
        self.peak = max(b for b, _ in self.best.values())

    def part(self, e):
        key, shape = e[1], e[3]
        if key in self.grads:
            return 3
        if self.head and self.head[0] in shape and shape != self.head:
            return 1
        return 0 if key in self.saved else 2

    def look(self, moments):
        """What lives at these moments: {moment: (bytes, [tensors of each part])}."""
        ends = {self.most[m][1]: m for m in moments if m in self.most}
        live, out = {}, {}
        for i, e in enumerate(self.events):
            if e[0] > 0:
                live[e[1]] = e
            else:
                live.pop(e[1], None)
            if i in ends:
                parts = ([], [], [], [])
                for x in live.values():
                    if x[2]:
                        parts[self.part(x)].append((x[4], x[6] + (len(x[3]),), x[5], x[3], x[2]))
                out[ends[i]] = self.most[ends[i]][0], parts
        return out


class Training(frames_run.Type):
    """A class's runs of a step in a variant."""
    goes_far = False  # a step's largest places are large in the type's own configuration

    def __init__(self, kind, t):
        t, *its = t.split("+")
        super().__init__(kind, t)
        self.fixed = dict(x.split("=") for x in its)
        self.attentions = ("eager",)
        self.variant = "penf"

    def run(self, over, B, S, dtype=None, seconds=60):
        over = dict(over)
        rank = over.pop("R", RANK)
        precision, attention, checkpointing, tuning = self.variant
        signal.alarm(seconds)
        try:
            c = self.config(over)
            step = Step(self.C, c, precision, attention, checkpointing == "c", rank if tuning == "l" else 0)
            m, layers = step.model, Layers(step.model)
            x = step.inputs(B, S)
            r = StepRecorder(list(m.parameters()) + list(m.buffers()) + list(x.values()), layers)
            forward = torch.nn.modules.module
            hooks = [forward.register_module_forward_pre_hook(r.enter),
                     forward.register_module_forward_hook(r.leave, always_call=True)]
            saved = set()

            def between():
                r.is_backward = True
                saved.update(r.live.values())

            step.between = between
            try:
                with step.mode, r:
                    step.run(x)
            finally:
                for h in hooks:
                    h.remove()
            grads = {r.live.get(p.grad.untyped_storage()._cdata) for p in m.parameters() if p.grad is not None}
            head = m.get_output_embeddings() if hasattr(m, "get_output_embeddings") else None
            probe = Probe(over, self.values(c, B, S, rank), r, grads, saved, tuple(head.weight.shape) if head is not None else ())
            return probe
        finally:
            signal.alarm(0)

    def values(self, config, B, S, rank):
        flat = flatten(config.to_dict())
        flat.update(switches(config.to_dict()))
        flat.update((k, v) for k, v in frames_run.every(config.to_dict()) if frames_run.POSITIONS.search(k) and type(v) is int)
        for key, (whole, parts) in QUOTIENTS.items():
            if key in flat and flat[key] is None and flat.get(parts):
                flat[key] = flat[whole] // flat[parts]
        if flat.get(GROUPS):
            flat[PLAIN_HEADS] = flat[HEADS] == flat[GROUPS]
        if type(flat.get(IMAGE)) is type(flat.get(PATCH)) is int:
            flat[TOKENS] = (flat[IMAGE] // flat[PATCH]) ** 2 + 1
        if {STAGE, STEM} <= set(flat):
            flat[PLAIN_STAGE] = flat[STAGE] == flat[STEM]
        for key, value in list(flat.items()):
            if isinstance(value, (list, tuple)):
                del flat[key]
                if all(type(v) in (int, float) for v in value):
                    flat.update({f"{key}[{i}]": v for i, v in enumerate(value)})
        return dict(flat, B=B, S=S, R=rank)

    def nest(self, over):
        """Items of lists, too: KEY[ITEM]."""
        over = dict(over)
        for key, value in list(over.items()):
            name, bracket, item = key.partition("[")
            if bracket:
                del over[key]
                over[name] = list(over.get(name, self.base[name]))
                over[name][int(item[:-1])] = value
        return super().nest(over)

    def enough(self, key, value):
        return 3 if isinstance(value, str) else super().enough(key, value)

    def candidates(self, key, value):
        if FIXED.search(key):
            return []
        if isinstance(value, str):
            words = WORDS.get(key, [])
            return [w for w in words if w != value]
        return super().candidates(key, value)


    def config(self, over):
        return transformers.AutoConfig.for_model(self.t, **self.nest({**PRESETS.get(self.t, {}), **self.fixed, **over}))

    def smallest(self):
        """With two layers of each stack at least: the first and the last."""
        least = LEAST_LAYERS.get(self.t, 2)
        over = super().smallest()
        for key, value in self.values(self.config(over), 1, 1, 1).items():
            if frames_run.LAYERS.search(key) and type(value) is int and 0 < value < least:
                over[key] = least
        return over


def candidates_of(probes):
    """The places that are a window's largest in some run: {window: {moment: runs}}."""
    out = {}
    for p in probes:
        for window, (_, moment) in p.best.items():
            if window[2] != "inner":
                out.setdefault(window, collections.Counter())[moment] += 1
    return out


def expressions(T, probes, owner, keys, moments, finders, dtype):
    """The rows of these moments: the expressions of their parts, or those of each side of a switch where these are simpler."""
    looks = [p.look(moments) for p in probes]
    rows = []
    for moment in moments:
        idx = tuple(i for i, look in enumerate(looks) if moment in look)
        when = frames.condition(probes, keys, [float(moment in look) for look in looks])

        def row(some, conditions):
            return expression(probes, owner, keys, moment, looks, some, [c for c in conditions if c], finders, dtype)

        best = [row(idx, [when])] if len(idx) > 5 else []
        for key in SPLITS:
            sides = [(word, tuple(i for i in idx if its(probes[i].flat))) for word, its in sides_of(key, keys)]
            if not best or not best[0]["doubt"] or any(len(some) < 6 for _, some in sides) or not sides:
                continue
            split = [row(some, [when, word]) for word, some in sides]
            if max(r["off"] for r in split) < best[0]["off"] or not any(r["doubt"] for r in split):
                best = split
                break
        base = {k: v for k, v in probes[0].flat.items() if k in keys and k not in "BSR"}
        for r in best:
            tested = [k for k in keys if k not in names(r["when"] or "0")]
            is_hidden = hidden([p.flat for p in probes], [probes[i].flat for i in r.pop("idx")], tested, r["parts"])
            if not is_hidden and not unsound(r["parts"], base):
                rows.append(r)
    return rows


def sides_of(key, keys):
    """The sides of a switch: (expression, whether a configuration is on it)."""
    if key not in keys:
        return []
    if key in WORDS:
        word = WORDS[key][0]
        return [(f"{key}={word}", lambda f: f[key] == word), (f"!{key}={word}", lambda f: f[key] != word)]
    return [(key, lambda f: bool(f[key])), ("!" + key, lambda f: not f[key])]


def expression(probes, owner, keys, moment, looks, idx, conditions, finders, dtype):
    when = "*".join(conditions)
    row = {"moment": moment, "when": when, "runs": len(idx), "parts": [], "off": 0.0, "idx": idx}
    for part in range(len(PARTS)):
        least = {i: 0.0004 * looks[i][moment][0] for i in idx}
        share = {x[:3] for i in idx for x in looks[i][moment][1][part] if x[4] >= least[i]}
        sets = {i: [x for x in looks[i][moment][1][part] if x[:3] in share] for i in idx}
        text, off = row_of(probes, sets, idx, owner, keys, dtype, finders) if share else ("", 0.0)
        row["parts"].append(text or "0")
        row["off"] = max(row["off"], float(off))
    if when:
        row["parts"] = [x if x == "0" else f"{when}*({x})" for x in row["parts"]]
    row["doubt"] = row["off"] > 0 or any(NUMBER.search(x) for x in row["parts"])
    return row


def least_first(rows):
    """The order in which rows are tried to be left out: doubtful ones, then long ones."""
    return sorted(range(len(rows)), key=lambda n: (not rows[n]["doubt"], -len(str(rows[n]["parts"]))))


def values_of(rows, flats, width):
    """What the rows give for each configuration: an array of rows and configurations."""
    out = np.zeros((len(rows), len(flats)))
    columns = {}
    for n, row in enumerate(rows):
        for part in row["parts"]:
            code, keys = compiled(part)
            for key, word in keys:
                if (key, word) not in columns:
                    columns[key, word] = np.array([width if key == "D" else number_of(f, key, word) for f in flats])
            with np.errstate(all="ignore"):
                its = {k + ("=" + w if w else ""): columns[k, w] for k, w in keys}
                out[n] += eval(code, {"min": np.minimum, "max": np.maximum}, {"v": its})
    return out


def prune(rows, probes, width):
    """The rows without which a window's most is not known, window by window."""
    out = []
    for window in dict.fromkeys(r["moment"][0] for r in rows):
        its = [r for r in rows if r["moment"][0] == window]
        have = [p for p in probes if window in p.best]
        values = values_of(its, [p.flat for p in have], width) / np.array([p.best[window][0] for p in have])

        def cost(some):
            return np.abs(np.log(np.clip(values[some].max(axis=0), 0.05, 20))).sum()

        left = list(range(len(its)))
        best = cost(left)
        for n in least_first(its):
            less = [x for x in left if x != n]
            if less and cost(less) <= best + 0.01:
                left, best = less, cost(less)
        out += [its[n] for n in left]
    return out


def sampled(T, probes, count=600):
    """Values of configurations as large as published ones, and of loads."""
    rnd, out = random.Random(5), []
    base = dict(probes[0].flat)
    whole = T.values(T.config({}), 1, 1, RANK)
    for key, value in whole.items():
        if frames_run.LAYERS.search(key) or "[" in key:
            base[key] = value
    for _ in range(count):
        flat, size = dict(base), rnd.choice((0.25, 0.5, 1, 1, 2))
        for key, value in base.items():
            if type(value) is int and value > 7:
                flat[key] = int(value * size * rnd.choice((0.5, 1, 1, 1, 2)))
            elif isinstance(value, (bool, str, float)) and rnd.random() < 0.3:
                flat[key] = rnd.choice(probes).flat.get(key, value)
        flat.update(B=rnd.choice((1, 1, 2, 4, 8, 16, 64)), S=rnd.choice((64, 512, 1024, 2048, 8192, 32768)))
        flat.update(R=rnd.choice((4, 16, 64, 256)))
        out.append(flat)
    return out


def needed(rows, flats, width):
    """The rows that are the largest, by 1 %, of some configuration."""
    values = values_of(rows, flats, width)
    left = list(range(len(rows)))
    for n in least_first(rows):
        less = [x for x in left if x != n]
        if less and (values[n] <= values[less].max(axis=0) * 1.01).all():
            left = less
    return [rows[n] for n in left]


def solve(T, probes, owner, keys, finders):
    dtype = "float32" if T.variant[0] == "w" else "bfloat16"
    moments = [m for its in candidates_of(probes).values() for m in its]
    rows = expressions(T, probes, owner, keys, moments, finders, dtype)
    width = ELEMENT[dtype]
    kept = needed(prune(rows, probes, width), T.samples + [p.flat for p in probes], width)
    ratios = np.sort(values_of(kept, [p.flat for p in probes], width).max(axis=0) / np.array([p.peak for p in probes]))
    at = [round(float(ratios[len(ratios) * n // 10 if n < 10 else -1]), 3) for n in (0, 1, 5, 9, 10)]
    return kept, {"places": len(moments), "rows": len(kept), "runs": len(probes), "quality": at}


def runs_of(T, runs):
    for run in runs:
        try:
            yield T.run(*run)
        except Exception as e:
            T.failed = f"{type(e).__name__}: {str(e)[:200]}"
            yield None


def plan(T):
    """The runs of a type: how its values change what lives is found in one variant, and some of those runs are made in all."""
    T.variant = "penf"
    probes, owner, good, _, info = explore(T, 60, RUNS)
    ranks = random.Random(3)
    runs, kept = [], {"B", "S", *switches(T.base)}
    for p, o in zip(probes, owner):
        if (o is None or o & kept) and are_apart(p.flat):
            rank = ranks.choice((4, 24, 48, 64)) if runs and o is None else RANK
            runs.append((dict(p.over, R=rank), p.flat["B"], p.flat["S"], sorted(o or ())))
    del runs[3:5]  # two loads are enough
    for over, b, s, o in list(runs):  # values vary on either side of a switch
        if not o:
            runs += [(dict(over, **{k: v}), b, s, o) for k, v in other_sides(T, over)]
    runs += list(redrawn(T, runs))
    runs.insert(1, (dict(runs[0][0], R=40), frames_run.BASE_B, frames_run.BASE_S, ["R"]))
    keys = sorted({q for k in good for q in (k if isinstance(k, tuple) else (k,))} - {"B", "S"} | {"R"})
    absent = frames.absent(T, probes, [{"expr": k} for k in keys if k != "R"], keys)
    if GROUPS in keys:
        keys.append(PLAIN_HEADS)
    if {IMAGE, PATCH} <= set(keys):
        keys.append(TOKENS)
    if {STAGE, STEM} <= set(keys):
        keys.append(PLAIN_STAGE)
    absent.update(derived(T, keys))
    absent.update((key, T.base[key]) for key in T.fixed)
    print(T.t, info, absent, flush=True)
    return {"absent": absent, "type": T.t, "kind": T.kind, "arch": T.arch, "fixed": T.fixed, "keys": keys, "runs": runs,
            "variants": {}}


def like(T, path):
    """What is found of the type that this one is like."""
    other = os.path.join(os.path.dirname(path), LIKE.get(T.t, "") + ".json")
    if not os.path.exists(other):
        return None
    with open(other, encoding="utf-8") as file:
        return json.load(file)


def fill(flat, other):
    """Keys that a type has not, by the other's expressions."""
    for key in other["keys"]:
        if key not in flat and key in other["absent"]:
            flat[key] = evaluate(other["absent"][key], flat, 2)


def other_sides(T, over):
    for k, (word,) in WORDS.items():
        if k in over:
            yield k, T.base[k] if over[k] == word else word
    if over.get("tie_word_embeddings", T.base.get("tie_word_embeddings")) is False and len(over) > 5:
        yield "tie_word_embeddings", True
    heads = over.get(HEADS, T.base.get(HEADS))
    if GROUPS in over and over[GROUPS] != heads and len(over) > 5:
        yield GROUPS, heads
    if STAGE in over and len(over) > 5:
        yield STAGE, over.get(STEM, T.base[STEM])


def are_apart(flat):
    """Whether sizes of neighbouring stages differ: between equal ones layers are alike that otherwise are not."""
    items = [k for k in flat if "[" in k and not LAYERS.search(k)]
    return all(a.partition("[")[0] != b.partition("[")[0] or flat[a] != flat[b] for a, b in itertools.pairwise(items))


def redrawn(T, runs, count=8):
    """Runs with layers of stacks drawn apart, as what doubles together cannot be told apart, and of one sequence, of which some
    copies are not made; with sizes of stages drawn apart, too, every second with a first stage as wide as what comes before."""
    rnd, least = random.Random(7), LEAST_LAYERS.get(T.t, 2)
    some = [run for run in runs if not run[3] and len(run[0]) > 5][-count:]
    has_stages = STAGE in T.values(T.config({}), 1, 1, 1)
    for n, (over, b, s, o) in enumerate(2 * count * runs[:1] if has_stages else some):
        flat = T.values(T.config({k: v for k, v in over.items() if k != "R"}), 1, 1, 1)
        layers = {k: rnd.randint(least, 7) for k, v in flat.items() if LAYERS.search(k) and type(v) is int and v > 0}
        stages = {k: v * rnd.choice((1, 3)) for k, v in flat.items() if has_stages and "[" in k and not LAYERS.search(k)}
        if has_stages:
            stages[STEM] = flat[STEM] * rnd.choice((1, 2))
        if has_stages and n % 4 < 2:
            stages[STAGE] = stages[STEM]
        yield {**over, **layers, **stages}, 1 if n % 2 else b, min(s, 1536), o


def derived(T, keys):
    """Values that follow from others, where the configuration has none."""
    out = {k: f"({a}/{b})" for k, (a, b) in QUOTIENTS.items() if k in keys and T.base.get(k) is None}
    if PLAIN_HEADS in keys:
        out[PLAIN_HEADS] = f"(1-min(1,{HEADS}-{GROUPS}))"
    if TOKENS in keys:
        out[TOKENS] = f"(1+({IMAGE}//{PATCH})*({IMAGE}//{PATCH}))"
    if PLAIN_STAGE in keys:
        out[PLAIN_STAGE] = f"(1-min(1,max({STAGE}-{STEM},{STEM}-{STAGE})))"
    numbers = {k: v for k, v in T.values(T.config({}), 1, 1, 1).items() if k in keys and type(v) is int and v > 1}
    for key, value in numbers.items():
        flat = T.values(T.config({key: 2 * value}), 1, 1, 1)
        out.update((k, key) for k in numbers if k != key and numbers[k] == value and flat.get(k) == 2 * value)
    return out


def plan_like(T, other):
    """The same runs, with this type's own values for absent ones."""
    probes = [types.SimpleNamespace(over=over, flat=T.values(T.config(over), B, S, RANK))
              for over, B, S in (({k: v for k, v in over.items() if k != "R"}, B, S) for over, B, S, _ in other["runs"])]
    for p in probes:
        fill(p.flat, other)
    own = frames.absent(T, probes, [{"expr": k} for k in other["keys"] if k != "R"], other["keys"])
    own.update(derived(T, other["keys"]))
    same = {"keys": other["keys"], "runs": other["runs"]}
    return {"absent": own, "type": T.t, "kind": T.kind, "arch": T.arch, "fixed": T.fixed, **same, "variants": {}}


def adopted(T, result, path, variant):
    """The rows of the type that this one is like, if they are right within 1 % in some runs."""
    other = like(T, path)
    rows = other and other["variants"].get(variant)
    if not rows:
        return None
    some = [run[:3] for run in result["runs"][:2] + result["runs"][-2:]]
    probes = [p for p in runs_of(T, some) if p]
    for p in probes:
        fill(p.flat, other)
    values = values_of(rows, [p.flat for p in probes], 4 if variant[0] == "w" else 2).max(axis=0)
    ratios = [round(float(v / p.peak), 3) for v, p in zip(values, probes)]
    print(T.t, variant, "by", LIKE[T.t], ratios, flush=True)
    if len(probes) < len(some) or max(abs(r - 1) for r in ratios) > 0.01:
        return None
    result.setdefault("quality", {})[variant] = [min(ratios), ratios[0], ratios[0], ratios[0], max(ratios)]
    return rows


def measure(kind, t, path, words, verbose):
    T = Training(kind, t)
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except OSError:
        other = like(T, path)
        result = plan_like(T, other) if other else plan(T)
    owner = [set(o) or None for *_, o in result["runs"]]
    keys, finders = result["keys"], {}
    for variant in [v for v in VARIANTS if v not in result["variants"] and re.fullmatch(words, v)]:
        begin = time.process_time()
        T.variant = variant
        rows = adopted(T, result, path, variant)
        if rows:
            result["variants"][variant] = rows
            save(result, path)
            continue
        made = list(runs_of(T, [run[:3] for run in result["runs"]]))
        have = [i for i, p in enumerate(made) if p is not None]
        if len(have) < 8:
            print(t, variant, T.failed, flush=True)
            continue
        its = finders if len(have) == len(made) else {}
        probes, owners = [made[i] for i in have], [owner[i] for i in have]
        T.samples = sampled(T, probes)
        ran = time.process_time()
        rows, info = solve(T, probes, owners, keys, its)
        result["variants"][variant] = [dict(r, moment=str(r["moment"])) for r in rows]
        result.setdefault("quality", {})[variant] = info["quality"]
        print(t, variant, info, f"{ran - begin:.1f} s, {time.process_time() - ran:.1f} s", flush=True)
        if verbose:
            for r in rows:
                print("  ", r["moment"], r["runs"], r["off"], *("\n      " + n + " " + x for n, x in zip(PARTS, r["parts"])))
        save(result, path)


def save(result, path):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(path + ".new", path)


def main(args):
    verbose = "-v" in args
    words = next((a[2:] for a in args if a.startswith("-m")), ".*")
    out, *names = [a for a in args if a[0] != "-"]
    os.makedirs(out, exist_ok=True)
    signal.signal(signal.SIGALRM, alarm)
    torch.set_num_threads(1)
    for kind, t in frames_run.types(names):
        try:
            measure(kind, t, f"{out}/{kind}.{t}.json", words, verbose)
        except Exception as e:
            if verbose:
                raise
            print(kind, t, type(e).__name__, str(e)[:300], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
