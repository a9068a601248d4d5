#!/usr/bin/env python3
"""Activations against figures measured from transformers on shapes alone: of each type's own configuration and of others
with values that are no published model's (activations.jsonl.xz, recorded by scripts/architectures/frames_check.py), and of the
published ones in ../shared."""
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "formats"))
from tap import ROOT, TOOL, check, finish  # noqa: E402

ORACLE = os.path.join(ROOT, "..", "shared", "data", "estimates")
LEAST, MOST = 0.95, 1.15  # estimated over measured, at the tenth and the ninetieth percentile
TOLD = 0.25  # of the recorded configurations, at most
OVER = 1.05  # more than this share is no lower bound
SILENT = 0.85  # less than this share has to be told as a lower bound


def estimate(config, batch, tokens, *options):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        run = subprocess.run([TOOL, "estimate", folder, "--json", "--batch", str(batch), "--seq-len", str(tokens), *options],
                             capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)


def compare(name, config, batch, tokens, measured):
    """(estimated over measured, the case, told as a lower bound or approximate, told as a lower bound alone)."""
    answer = estimate(config, batch, tokens)
    parts = ("activation_bytes", "attention_workspace_bytes", "input_bytes")
    told = "activation_bytes" in answer["lower_bounds"]
    is_bound = told and "activation_bytes" not in answer["approximate"]
    return sum(answer[part] for part in parts) / measured, f"{name} {batch} x {tokens}", told, is_bound


def compare_all(cases):
    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(lambda case: compare(*case), cases))


def spread(name, results):
    """The percentiles of those that are not told as lower bounds; where they are too wide, all that are outside are shown."""
    ratios = [(value, what) for value, what, told, _ in results if not told]
    check(f"{name}: no lower bound is above what was measured",
          [f"{what}: {value:.3f}" for value, what, _, is_bound in results if is_bound and value > OVER])
    low, middle, high = (ratios[len(ratios) * n // 10][0] for n in (1, 5, 9))
    problems = []
    if low < LEAST or high > MOST:
        problems = [f"{what}: {value:.3f}" for value, what in ratios if not LEAST <= value <= MOST]
    told = len(results) - len(ratios)
    check(f"{name}: p10 {low:.3f}, median {middle:.3f}, p90 {high:.3f} of {len(ratios)}, {told} told", problems)


def recorded():
    with lzma.open(os.path.join(HERE, "activations.jsonl.xz"), "rt") as file:
        cases = [json.loads(line) for line in file]
    results = compare_all((case["name"], case["config"], case["batch"], case["tokens"], case["peak"]) for case in cases
                          if not case["name"].startswith("far "))
    told = sum(told for _, _, told, _ in results)
    check("recorded configurations: few are lower bounds", [] if told <= TOLD * len(results) else [f"{told} of {len(results)}"])
    check("recorded configurations: far too little is told as a lower bound",
          [f"{what}: {value:.3f}" for value, what, told, _ in results if value < SILENT and not told])
    spread("recorded configurations", results)


def far():
    """One value far beyond the others, or one token: the places that are the peak there are among those of the class."""
    with lzma.open(os.path.join(HERE, "activations.jsonl.xz"), "rt") as file:
        cases = [case for line in file if (case := json.loads(line))["name"].startswith("far ")]
    problems, told = [], 0
    for case in cases:
        answer = estimate(case["config"], case["batch"], case["tokens"])
        ratio = answer["activation_bytes"] / case["peak"]
        told += "activation_bytes" in answer["lower_bounds"]
        if not LEAST <= ratio <= MOST and "activation_bytes" not in answer["lower_bounds"]:
            problems.append(f"{case['name']} {case['batch']} x {case['tokens']}: {ratio:.3f}")
    if told > TOLD * len(cases):
        problems.append(f"{told} of {len(cases)} are told")
    check(f"values far beyond the others: {len(cases) - told} exact, {told} told", problems)


def published():
    try:
        with open(os.path.join(ORACLE, "oracle.json"), encoding="utf-8") as file:
            oracle = json.load(file)["cases"]
        with lzma.open(os.path.join(ORACLE, "configs.json.xz")) as file:
            configs = json.loads(file.read())
    except OSError as error:
        check("the published configurations", [], error)
        return
    cases = [(name, configs[name], *map(int, load.split(",")), measured)
             for name, case in oracle.items() for load, measured in (case["activations"] or {}).items()]
    spread("the published configurations", compare_all(cases))


def others():
    """Tokens of a step, devices, a class that has no rows."""
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
             "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 1000, "torch_dtype": "bfloat16",
             "max_position_embeddings": 8192}
    problems = []
    whole = 2 * (4 * 1024 + 3 * 4096)  # bytes for each token: the residual stream, its norms, gate, up and product
    for options, tokens, wanted in (([], 4096, whole), (["--chunk", "512"], 512, whole),
                                    (["--devices", "4", "--split", "tensor"], 4096, 2 * (4 * 1024 + 3 * 1024))):
        answer = estimate(llama, 1, 4096, *options)
        got = answer["devices"][0]["activation_bytes"]
        if not wanted * tokens <= got <= wanted * tokens * 1.02:
            problems.append(f"{options}: {got}, wanted {wanted * tokens}")
    narrow, wide = (estimate({**llama, "torch_dtype": t}, 1, 4096)["activation_bytes"] for t in ("bfloat16", "float32"))
    if wide != 2 * narrow:
        problems.append(f"32 bits {wide}, 16 bits {narrow}")
    scores = estimate({**llama, "vocab_size": 100000}, 3, 1)["activation_bytes"]
    if not 2 * 3 * 100000 <= scores <= 2 * 3 * (100000 + 1024):
        problems.append(f"scores of a token: {scores}")
    check("a step's tokens, shards, types, scores", problems)
    unknown = estimate({**llama, "architectures": ["StrangeForCausalLM"], "model_type": "strange"}, 1, 4096)
    check("a type that was not measured: a lower bound by name",
          [] if "activation_bytes" in unknown["lower_bounds"] and any("strange" in w for w in unknown["warnings"])
          else [f"{unknown['lower_bounds']} {unknown['warnings']}"])
    bloom = {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "torch_dtype": "bfloat16", "n_layer": 4}
    one, other = (estimate({**bloom, **names}, 1, 1000)["activation_bytes"]
                  for names in ({"hidden_size": 2048, "n_head": 32}, {"n_embed": 2048, "num_attention_heads": 32}))
    check("other names of keys", [] if one == other > 0 else [f"{one} and {other}"])
    sizes = [96, 192, 384, 768]
    one, other = (estimate({"architectures": ["ConvNextModel"], "model_type": "convnext", "torch_dtype": "bfloat16",
                            "hidden_sizes": [times * size for size in sizes]}, 1, 1) for times in (1, 2))
    check("items of lists", [] if 2 * one["activation_bytes"] == other["activation_bytes"] else
          [f"{one['activation_bytes']} and {other['activation_bytes']}"])
    nested = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
              "text_config": {**llama, "model_type": "mistral", "num_key_value_heads": 4}}
    got = estimate({**nested, "torch_dtype": "bfloat16"}, 1, 4096)["activation_bytes"]
    check("a language model of another type inside", [] if whole * 4096 <= got <= whole * 4096 * 1.02 else [str(got)])


def generating(tokens, **values):
    """Each measured class that generates, with these values, and its estimate."""
    with open(os.path.join(ROOT, "core", "classes", "frames.txt"), encoding="utf-8") as file:
        heads_of = [line[1:].split() for line in file if line.startswith("@")]
    cases = [{"architectures": [name], "model_type": kind, "torch_dtype": "bfloat16", **values}
             for name, kind, task in heads_of if task == "causal"]
    with ThreadPoolExecutor(2) as pool:
        return cases, list(pool.map(lambda config: estimate(config, 1, tokens, "--engine", "transformers"), cases))


def masked_scores():
    """Classes that guess hidden tokens score all of a sequence's tokens over the vocabulary, however small the model is."""
    words, tokens = 100000, 512
    with open(os.path.join(ROOT, "core", "classes", "frames.txt"), encoding="utf-8") as file:
        heads = [line[1:].split()[:2] for line in file if line.startswith("@") and line.split()[0].endswith(("MaskedLM", "PreTraining"))]
    problems = []
    for name, kind in heads:
        answer = estimate({"architectures": [name], "model_type": kind, "torch_dtype": "bfloat16", "vocab_size": words}, 2, tokens)
        if answer["activation_bytes"] < 2 * tokens * words * 2 and "activation_bytes" not in answer["lower_bounds"]:
            problems.append(f"{name}: {answer['activation_bytes']}")
    check("scores of all tokens", problems if heads else ["no class"])


def wide_layers():
    """A layer far wider than the model: its place is among those of the class, or the activations are told as a bound."""
    layers, hidden, width, tokens = 4, 1024, 131072, 4096
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": 16, "head_dim": 64}
    _, narrow = generating(tokens, **sizes, intermediate_size=hidden)
    cases, answers = generating(tokens, **sizes, intermediate_size=width)
    problems, counted = [], 0
    for case, answer, other in zip(cases, answers, narrow):
        if answer["weight_bytes"] - other["weight_bytes"] < 2 * 2 * layers * hidden * (width - hidden):
            continue  # the class has another name for this size
        counted += 1
        if answer["activation_bytes"] < 2 * 2 * tokens * width and "activation_bytes" not in answer["lower_bounds"]:
            problems.append(f"{case['model_type']}: {answer['activation_bytes']} beside layers {width} wide")
    check("layers far wider than the model", problems if counted > 50 else [f"{counted} types"])


def wide_attention():
    """Attention far wider than the model: likewise."""
    layers, heads, size, tokens = 4, 64, 1024, 4096
    cases, answers = generating(tokens, num_hidden_layers=layers, hidden_size=1024, num_attention_heads=heads,
                                num_key_value_heads=heads, head_dim=size)
    problems, counted = [], 0
    for case, answer in zip(cases, answers):
        width = answer["kv_cache_bytes"] / layers
        if width < 2 * 2 * tokens * heads * size or answer["lower_bounds"]:
            continue  # the class has other names for these sizes
        counted += 1
        if answer["activation_bytes"] < 2 * width:
            problems.append(f"{case['model_type']}: {answer['activation_bytes']} beside {width:.0f} of a layer's cache")
    check("attention far wider than the model", problems if counted > 9 else [f"{counted} types"])


def table():
    """Sections measured anew replace those of the table, the others stay."""
    path = os.path.join(ROOT, "core", "classes", "frames.txt")
    with open(path, encoding="utf-8") as file:
        old = file.read()
    row = {"expr": "D*B*S", "early": False, "runs": 9, "off": 0}
    measured = {"type": "gpt2", "kind": "causal", "arch": "GPT2LMHeadModel", "absent": {}, "rows": [row], "rows32": [],
                "info": {"quality": [1, 1, 1, 1, 1], "base": 1, "held": [1]}}
    with tempfile.TemporaryDirectory() as folder:
        def joined(path=path):
            program = os.path.join(ROOT, "scripts", "architectures", "frames_table.py")
            return subprocess.run([sys.executable, program, folder, path], capture_output=True, text=True, check=True).stdout
        same = joined()
        with open(os.path.join(folder, "causal.gpt2.json"), "w", encoding="utf-8") as file:
            json.dump(measured, file)
        new = joined()
        head = "@GPT2LMHeadModel gpt2 causal\n"
        told = os.path.join(folder, "told.txt")
        with open(told, "w", encoding="utf-8") as file:
            file.write(old.replace(head, head + "?\n>1\n"))
        again = joined(told)
        measured["rows"] = [row, {**row, "expr": "D*B*S*128"}]
        constant = []
        for held in (1, 0.9):
            measured["info"]["held"] = [1, held]
            for kind in ("causal", "vlm"):
                with open(os.path.join(folder, f"{kind}.gpt2.json"), "w", encoding="utf-8") as file:
                    json.dump({**measured, "kind": kind}, file)
            constant.append(joined())
        measured.update(rows=[{**row, "expr": "D*(2*B*S-2*B*S*3)"}, {**row, "expr": "D*(2*B*S-2*B*S)"}],
                        info={**measured["info"], "held": [1]})
        with open(os.path.join(folder, "causal.gpt2.json"), "w", encoding="utf-8") as file:
            json.dump(measured, file)
        less = joined()
        measured.update(rows=[row], info={**measured["info"], "late": ["width"]})
        with open(os.path.join(folder, "causal.gpt2.json"), "w", encoding="utf-8") as file:
            json.dump(measured, file)
        late = joined()
    heads = [sorted(line for line in text.splitlines() if line[:1] == "@") for text in (old, new)]
    check("a table keeps the sections that are not measured anew",
          [what for what, is_right in (("nothing measured: the table is another", same == old),
                                       ("a section's rows are not the measured ones", head + ">D*B*S\n@" in new),
                                       ("a mark stays on a section measured anew", head + ">D*B*S\n@" in again),
                                       ("a constant that is right elsewhere is dropped",
                                        head + ">D*B*S\n>D*B*S*128\n@" in constant[0]),
                                       ("a constant that is wrong elsewhere is kept", head + "?\n>D*B*S\n@" in constant[1]),
                                       ("values that were never changed are told", head + "?\n>D*B*S\n@" in late),
                                       ("a difference of other terms is kept", head + ">D*(2*B*S-2*B*S*3)\n@" in less),
                                       ("a class has two sections", "@GPT2LMHeadModel gpt2 vlm" not in constant[0]),
                                       ("sections came or went", heads[0] == heads[1])) if not is_right])


def ranges():
    """Where rows are less than was measured, a quotient of values separates those configurations from the others."""
    sys.path.insert(0, os.path.join(ROOT, "scripts", "architectures"))
    from frames_range import Point, ranges as find  # pylint: disable=import-outside-toplevel

    def points(is_short):
        return [Point({"narrow": narrow, "wide": wide, "S": tokens, "other": (narrow, wide) in ((100, 100), (800, 800))},
                      is_short(narrow, wide, tokens), (narrow, wide) == (100, 400))
                for narrow in (100, 800) for wide in (100, 400, 800, 6400) for tokens in (1, 64, 1000)]

    def texts(points):
        found = find(points)
        return None if found is None else [its.text for its in found]
    cases = (("far beyond the others", lambda narrow, wide, tokens: wide > 8 * narrow, ["(8.008*narrow)//max(1,wide)"]),
             ("a few tokens", lambda narrow, wide, tokens: tokens == 1, ["(12.512*S)//max(1,narrow)"]),
             ("a switch", lambda narrow, wide, tokens: (narrow, wide, tokens) == (100, 100, 64), ["!other"]),
             ("never", lambda *_: False, []),
             ("always", lambda *_: True, None),
             ("by its own values", lambda narrow, wide, tokens: (narrow, wide, tokens) == (100, 400, 64), None))
    check("rows that are less somewhere are told there alone",
          [f"{what}: {got}" for what, is_short, wanted in cases if (got := texts(points(is_short))) != wanted])


def beyond():
    """A section's conditions are in the answer."""
    with open(os.path.join(ROOT, "core", "classes", "frames.txt"), encoding="utf-8") as file:
        sections = file.read().split("\n@")
    problems, held = [], 0
    for section in sections:
        name, kind = section.split()[:2]
        for factor, low, high in re.findall(r"^:\(([\d.]+)\*(\w+)\)//max\(1,(\w+)\)$", section, re.MULTILINE):
            config = {"architectures": [name], "model_type": kind, "torch_dtype": "bfloat16", low: 64}
            tokens = 64 if low == "S" else 1000000 if high != "S" else 1 + int(64 * float(factor))
            told = ["activation_bytes" in estimate({**config, high: size}, 1, tokens)["lower_bounds"]
                    for size in (64, 64 * (1 + int(float(factor))))]
            held += not told[0]
            problems += [] if told[1] else [f"{name}: {high} beyond {factor} times {low}"]
    check("beyond the measured range of a class", problems if held else ["no class is exact within its range"])


if __name__ == "__main__":
    table()
    ranges()
    beyond()
    recorded()
    far()
    others()
    masked_scores()
    wide_layers()
    wide_attention()
    published()
    sys.exit(finish())
