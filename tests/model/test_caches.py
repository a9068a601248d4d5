#!/usr/bin/env python3
"""The cache of every model type of transformers that could be measured (caches.py), against the estimate: equal, or told as
a lower bound that is none above it, or as approximate, never silently wrong; with the configuration as its class writes it,
and without the words for each layer, as older files are; and by the configuration alone, whole and with the values alone that
differ from the class's own. Weights by the configuration alone are not above those recorded.
docs/architectures.md and core/arch/arch_measured.def have the result by type, and the former has which types' activations were
measured; they have to be as this program writes them.

usage: test_caches.py [--write]
"""
import json
import lzma
import os
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOL = os.path.join(os.environ.get("BUILD_DIR", os.path.join(ROOT, "build")), "gpucache")
DEF = os.path.join(ROOT, "core", "arch", "arch_measured.def")
FRAMES = os.path.join(ROOT, "core", "classes", "frames.txt")
DOC = os.path.join(ROOT, "docs", "architectures.md")
# Without words for their layers they look like others, or do not run: all of their files have them.
WORDS_NEEDED = ("granitemoehybrid", "lfm2_moe", "minimax")
LAYER_WORDS = ("layer_types", "layers_block_type", "mlp_layer_types")
TEXT = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
NEAR = 0.02  # small counters beside the tensors
EXACT_AT_LEAST = 0.95
# Not run, and nothing is kept as their own configuration has them: they pass everything through again, are decoders only where
# they are configured so, or are made of two models.
AS_CONFIGURED = ("flaubert", "reformer", "speech-encoder-decoder", "vision-encoder-decoder", "xlm", "xmod")
# Weights above the recorded tensors, which lack those of one dimension and buffers.
WEIGHTS_NEAR = 0.05
# Recurrent and normalised weights that are not recorded; a layer in four has experts, rounded.
WEIGHTS_OTHER = ("encodec", "nllb-moe", "patchtsmixer")


def header(tensors):
    """Names, shapes and places of bfloat16 tensors, as JSON."""
    names, end = {}, 0
    for pattern, shape, *runs in tensors:
        numbers = [None] if not runs else [n for first, last in runs[0] for n in range(first, last + 1)]
        size = 2
        for extent in shape:
            size *= extent
        for number in numbers:
            name = pattern if number is None else pattern.replace("{}", str(number), 1)
            names[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            end += size
    text = json.dumps(names).encode()
    return text + b" " * (-len(text) % 8), end


def folder(path, config, tensors):
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, "dtype": "bfloat16"}, file)
    if tensors is None:
        return
    text, end = header(tensors)
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def answer_of(path, work, wanted):
    """exact, bound, or what is silently wrong."""
    batch, tokens = work.split(",")
    run = subprocess.run([TOOL, "estimate", path, "--json", "--batch", batch, "--seq-len", tokens],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return f"exit status {run.returncode}: {run.stderr}"
    answer = json.loads(run.stdout)
    got = answer["kv_cache_bytes"] + answer["state_bytes"]
    if abs(got - wanted) <= NEAR * wanted:
        return "exact"
    told = {"kv_cache_bytes", "state_bytes"} & set(answer["lower_bounds"])
    if told and (got < wanted or told & set(answer["approximate"])):
        return "bound"
    return f"{work}: {'at least ' if told else ''}{got}, measured {wanted}"


def check(base, number, config, row):
    path = os.path.join(base, str(number))
    folder(path, config, row["tensors"])
    answers = [answer_of(path, work, wanted) for work, wanted in row["cache"].items()]
    wrong = [answer for answer in answers if answer not in ("exact", "bound")]
    return wrong[0] if wrong else "bound" if "bound" in answers else "exact"


def check_all(rows, change, has_tensors=True):
    """Answers by key."""
    rows = rows if has_tensors else [{**row, "tensors": None} for row in rows]
    with tempfile.TemporaryDirectory(prefix="gpucache-test.") as base, ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda pair: check(base, pair[0], change(pair[1]["config"]), pair[1]), enumerate(rows))
        return dict(zip((row["key"] for row in rows), answers))


def bytes_of(tensors):
    return header(tensors)[1]


def weights_of(base, number, config, row):
    """(whether they are told not to be exact, None or how they are above the recorded ones), by the configuration alone."""
    path = os.path.join(base, str(number))
    folder(path, config, None)
    run = subprocess.run([TOOL, "estimate", path, "--json"], capture_output=True, text=True, check=False)
    answer = json.loads(run.stdout) if run.returncode == 0 else {"weight_bytes": 0, "lower_bounds": ["weight_bytes"]}
    got, wanted = answer["weight_bytes"], bytes_of(row["tensors"])
    return ("weight_bytes" in answer["lower_bounds"],
            f"{row['key']}: {got}, recorded {wanted}" if got > (1 + WEIGHTS_NEAR) * wanted else None)


def check_weights(rows):
    with tempfile.TemporaryDirectory(prefix="gpucache-test.") as base, ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pair: weights_of(base, pair[0], pair[1]["config"], pair[1]), enumerate(rows)))


def without_words(config):
    return {key: without_words(value) if isinstance(value, dict) else value for key, value in config.items()
            if key not in LAYER_WORDS}


def without_class(config):
    return {key: value for key, value in config.items() if key != "architectures"}


def check_kept(number, rows):
    """Without a class: whether anything is kept, or told to be."""
    def is_other(at_row):
        at, row = at_row
        path = os.path.join(base, str(at))
        folder(path, row["config"], None)
        run = subprocess.run([TOOL, "estimate", path, "--json"], capture_output=True, text=True, check=False)
        answer = json.loads(run.stdout) if run.returncode == 0 else {"kv_cache_bytes": 0, "state_bytes": 0, "lower_bounds": []}
        got = answer["kv_cache_bytes"] + answer["state_bytes"] > 0
        return got != keeps(row) and not (keeps(row) and "kv_cache_bytes" in answer["lower_bounds"])

    with tempfile.TemporaryDirectory(prefix="gpucache-test.") as base, ThreadPoolExecutor(2) as pool:
        wrong = [row["key"] for row, other in zip(rows, pool.map(is_other, enumerate(rows))) if other]
    print(f"{'not ok' if wrong else 'ok'} {number} - without a class, {len(rows) - len(wrong)} of {len(rows)} keep something or "
          "nothing as they do")
    for key in wrong:
        print(f"# {key}")
    return not wrong


def sparse(row):
    """What differs from the class; None where the class changes even that."""
    if "changes" not in row or without_words(row["changes"]) != row["changes"]:
        return None
    return {**row["changes"], "architectures": [row["class"]], "model_type": row["config"]["model_type"]}


def types_of(config):
    yield config["model_type"]
    for key in TEXT:
        if isinstance(config.get(key), dict) and "model_type" in config[key]:
            yield from types_of(config[key])


def by_type(rows, answers):
    """exact or bound for each type; a type is exact if all its configurations are."""
    found = {}
    for row in rows:
        exact = answers[row["key"]] == "exact"
        for name in types_of(row["config"]):
            found[name] = found.get(name, True) and exact
    return found


def by_default(lines):
    """{type: the row of the class that transformers has for it, one that generates where there is one, as its type's own
    configuration has it}, of those that were run, or that need no run."""
    found = {}
    for kind in ("base", "causal", "speech", "s2s", "vlm"):
        for row in lines:
            if row["key"].startswith(kind + ".") and "+" not in row["key"] and (row.get("cache") or row.get("keeps")):
                found[row["key"].split(".", 1)[1]] = row
    for row in list(found.values()):  # language models that are no type of their own
        for name in types_of(row["config"]):
            found.setdefault(name, row)
    return {name: row for name, row in found.items() if name not in AS_CONFIGURED}


def keeps(row):
    return "keeps" in row or any(row["cache"].values())


def published():
    """Types held against published formulas by test_architectures.py."""
    with open(os.path.join(HERE, "architectures.json"), encoding="utf-8") as file:
        return {name: True for model in json.load(file).values() for name in types_of(model["config"])}


def words(names, width, before, after):
    """A list, in lines of at most this width."""
    lines, line = [], ""
    for name in sorted(names):
        if line and len(line) + len(name) + 2 > width:
            lines.append(line)
            line = ""
        line += ("" if not line else " ") + name + ","
    lines.append(line)
    lines[-1] = lines[-1].rstrip(",")
    return "\n".join(before + part + after for part in lines)


def gguf_architectures():
    """Those whose caches test_llama_cpp.py holds against llama.cpp's log."""
    with lzma.open(os.path.join(HERE, "llama_cpp_caches.jsonl.xz"), "rt") as file:
        return {json.loads(line)["arch"] for line in file}


def definition(types, default):
    text = ("/* Generated by tests/model/test_caches.py --write: model types by what their measured caches are against the "
            "estimate,\n * and by whether their own class keeps any. */\n")
    for head, names in (("MEASURED(EXACT,", [name for name, exact in types.items() if exact]),
                        ("MEASURED(BOUND,", [name for name, exact in types.items() if not exact]),
                        ("MEASURED(GGUF,", gguf_architectures()),
                        ("KEEPS(", [name for name, row in default.items() if keeps(row)]),
                        ("KEEPS_NOTHING(", [name for name, row in default.items() if not keeps(row)])):
        listed = words(names, 100, '                 "', ' "')
        text += f"GC_ARCH_{head}\n{listed[:-2]}\")\n"
    return text


def activations():
    """(types with measured places, those of which a section is marked as less than was measured)."""
    measured, marked, names, is_head = set(), set(), [], False
    with open(FRAMES, encoding="utf-8") as file:
        for line in file:
            if line.startswith("@"):
                names = names + [line.split()[1]] if is_head else [line.split()[1]]
                measured.add(names[-1])
            elif line.startswith("?"):
                marked.update(names)
            is_head = line.startswith("@")
    return measured, marked


def document(rows, types, unknown, told):
    measured, marked = activations()
    cached = {name for row in rows for name in types_of(row["config"]) if any(row["cache"].values())} | set(published())
    groups = (
        ("Exact, with a cache", "The estimate is the measured cache, in all configurations that were measured.",
         [name for name, exact in types.items() if exact and name in cached]),
        ("Exact, without a cache", "Encoders and models for other tasks: nothing is kept, and nothing is counted.",
         [name for name, exact in types.items() if exact and name not in cached]),
        ("Bounded", "The measured cache differs in some configurations; the output says so, and the cache is approximate.",
         [name for name, exact in types.items() if not exact]),
        ("Unknown", "Not measured: they need inputs other than tokens, or do not run without data. Their layers are read by the "
         "same rules; the output says that they were not measured, and where their tensors do not show keys and values the "
         "cache is approximate.", [name for name in unknown if name not in types]),
        ("Weights by the configuration alone told", "A value of some of the configurations was not measured: weights are a lower "
         "bound, or approximate.", {name for name, is_told in told.items() if is_told}),
        ("Weights by the configuration alone unknown", "No model of the type could be made.",
         {name for name in unknown if name not in told}),
        ("Activations approximate", "Some configurations need more than the measured places of the code: activations are told as "
         "approximate.", marked),
        ("Activations not measured", "They need inputs other than tokens, or do not run without data: a general formula's, told "
         "as approximate, unless the configuration's class is one of another type.",
         [name for name in {*types, *unknown} if name not in measured]),
        ("GGUF architectures with an exact cache", "KV cache and state are those in llama.cpp's log; of others all but the "
         "weights is told as approximate.", gguf_architectures()))
    text = ("# Architectures\n\nThe model types of transformers by their caches: keys, values and states, measured with "
            "`tests/model/caches.py` on torch's meta\ndevice and held against the estimate; a few are held against published "
            "formulas (`tests/model/architectures.json`).\n`tests/model/test_caches.py --write` makes this page; the test fails "
            "where it is not true.\nOf each type three things are told:\n\n"
            "| | exact | bounded or approximate, told | unknown, told |\n|---|---|---|---|\n"
            "| cache | the first two lists | Bounded | Unknown |\n"
            "| weights | of files: every type; by the configuration alone: all but two lists | alone: told | alone: unknown |\n"
            "| activations | all but two lists, see [estimate.md](estimate.md) | approximate | not measured |\n")
    for title, meaning, names in groups:
        text += f"\n## {title}: {len(names)}\n\n{meaning}\n\n{words(names, 118, '', '')}\n"
    return text


def report(number, name, answers, exact_share):
    wrong = {key: answer for key, answer in answers.items() if answer not in ("exact", "bound")}
    bounds = sorted(key for key, answer in answers.items() if answer == "bound")
    exact = len(answers) - len(wrong) - len(bounds)
    passed = not wrong and exact >= exact_share * len(answers)
    print(f"{'ok' if passed else 'not ok'} {number} - {name}: {exact} of {len(answers)} exact, {len(bounds)} lower bounds")
    print(f"# lower bounds: {' '.join(bounds)}")
    for key, answer in wrong.items():
        print(f"# {key}: {answer}")
    return passed


def main():
    with lzma.open(os.path.join(HERE, "caches.jsonl.xz"), "rt") as file:
        lines = [json.loads(line) for line in file]
    rows = [row for row in lines if row.get("cache")]
    unknown = {row["key"].split(".", 1)[1] for row in lines if not row.get("cache") and "+" not in row["key"]}
    answers = check_all(rows, lambda config: config)
    types = {**published(), **by_type(rows, answers)}
    default = by_default(lines)
    held = [row for row in lines if row.get("tensors") and row["config"]["model_type"] not in WEIGHTS_OTHER]
    weights = check_weights(held)
    told = {}
    for row, (is_told, _) in zip(held, weights):
        name = row["key"].split(".", 1)[1].split("+")[0]
        told[name] = told.get(name, False) or is_told
    made = {DEF: definition(types, default), DOC: document(rows, types, unknown, told)}
    if "--write" in sys.argv:
        for path, text in made.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return 0
    passed = report(1, "caches as measured", answers, EXACT_AT_LEAST)
    bare = [row for row in rows if without_words(row["config"]) != row["config"] and "+types" not in row["key"] and
            not set(types_of(row["config"])) & set(WORDS_NEEDED)]
    passed &= report(2, "without words for the layers", check_all(bare, without_words), 0.5)
    passed &= report(3, "by the configuration alone", check_all(rows, lambda config: config, False), 0.9)
    few = [{**row, "config": sparse(row)} for row in rows if sparse(row)]
    passed &= report(4, "by few values alone", check_all(few, lambda config: config, False), 0.8)
    alike = [row for row in default.values() if row.get("cache")]
    passed &= report(5, "without a class", check_all(alike, without_class, False), 0.9)
    passed &= check_kept(6, [{**row, "config": without_class(row["config"])} for row in default.values()])
    weights += check_weights([{**row, "config": sparse(row)} for row in held if sparse(row)])
    above = [problem for _, problem in weights if problem]
    print(f"{'not ok' if above else 'ok'} 7 - weights by the configuration alone are not above the recorded ones, of {len(held)}")
    for problem in above:
        print(f"# {problem}")
    passed &= not above
    for number, (path, text) in enumerate(made.items(), 8):
        with open(path, encoding="utf-8") as file:
            same = file.read() == text
        print(f"{'ok' if same else 'not ok'} {number} - {os.path.relpath(path, ROOT)} is as measured")
        passed &= same
    print("1..9")
    return 0 if passed else 1


sys.exit(main())
