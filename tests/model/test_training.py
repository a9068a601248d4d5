#!/usr/bin/env python3
"""The peak of training against torch's MemTracker: published sizes with their optimisers, precisions, attention, checkpointing
and adapters, recorded by tests/model/training.py in training.json. Prints a row for each size, measured beside estimated, and
for any that is off. Optimisers that the tool does not have are left out.

docs/estimate.md has what is measured of each class, and each model's peak that is most off; it has to be as this program
writes it:

usage: test_training.py [--write]"""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "formats"), os.path.join(HERE, "..", "..", "scripts", "architectures")]
import training_table  # noqa: E402
from tap import ROOT, TOOL, check, finish  # noqa: E402

RECORDED = os.environ.get("TRAINING_JSON", os.path.join(HERE, "training.json"))
MOST_OFF = 0.10
OPTIMISERS = {"adamw": "adamw-foreach", "adamw_fused": "adamw", "sgd": "sgd", "sgd_momentum": "sgd-momentum",
              "adafactor_transformers": "adafactor"}
PRECISIONS = {"p": ["--dtype", "bf16"], "w": ["--dtype", "f32"], "m": ["--dtype", "bf16", "--mixed-precision"]}
PASSES = {"saved_activation_bytes", "loss_bytes", "temporary_bytes"}


def run(config, *options):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return subprocess.run([TOOL, "estimate", folder, *options], capture_output=True, text=True, check=False)


def estimate(config, *options):
    done = run(config, "--json", *options)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def options_of(case):
    options = ["--train", OPTIMISERS[case["optimizer"]], "--batch", str(case["batch"]), *PRECISIONS[case["precision"]],
               "--attention", "full" if case["attention"] == "e" else "flash", "--overhead", "1", "--context-memory", "0"]
    if case["tokens"]:
        options += ["--seq-len", str(case["tokens"])]
    if case["checkpointing"]:
        options.append("--checkpointing")
    if case["lora"]:
        options += ["--lora", str(case["lora"])]
    return options


def row(case, answer):
    flags = case["precision"] + case["attention"] + ("c" if case["checkpointing"] else "n")
    rank = f" rank {case['lora']}" if case["lora"] else ""
    measured, estimated = case["peak_bytes"], answer["peak_bytes"]
    return (f"{case['name']:22} {case['batch']:3} x {case['tokens']:5} {case['optimizer']:22} {flags + rank:11}"
            f" measured {measured / 2**30:8.2f} GiB estimated {estimated / 2**30:8.2f}  {estimated / measured:6.3f}")


COLUMNS = {"16 bits": "pa.f", "autocast": "ma.f", "32 bits": "wa.f", "attention written out": ".e.f", "adapters": "...l"}
PAGE = os.path.join(ROOT, "docs", "estimate.md")
MARKS = "<!-- training begin: made by tests/model/test_training.py --write -->\n", "<!-- training end -->\n"


def coverage(section, pattern):
    """How many of a class's variants have rows."""
    every = ["".join(v) for v in itertools.product(*training_table.GROUPS) if re.fullmatch(pattern, "".join(v))]
    marks = [{mark for mark, _ in section.rows[v]} for v in every if section.rows.get(v)]
    about = sum("~" in its for its in marks)
    text = "yes" if len(marks) == len(every) else f"{len(marks)} of {len(every)}" if marks else "–"
    return text + (f", {about} about" if about else "")


def tables(worst):
    """The tables of docs/estimate.md; `worst`: (case, bytes estimated, how it is told) of each model."""
    yield "| class | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 1) + "|\n"
    with open(os.path.join(ROOT, "core", "classes", "training.txt"), encoding="utf-8") as file:
        sections = training_table.read(file)
    for (_, _, name), section in sorted(sections.items(), key=lambda its: its[0][2]):
        yield f"| {name} | " + " | ".join(coverage(section, pattern) for pattern in COLUMNS.values()) + " |\n"
    yield "\n| model | batch × tokens | kind | measured GiB | estimated GiB | ratio |\n|---|---|---|---|---|---|\n"
    for case, size, how in worst:
        load = f"{case['batch']} × {case['tokens']}" if case["tokens"] else f"{case['batch']} images"
        words = [OPTIMISERS[case["optimizer"]], {"p": "bf16", "w": "f32", "m": "mixed precision"}[case["precision"]],
                 *(["attention written out"] if case["attention"] == "e" else []),
                 *(["checkpointing"] if case["checkpointing"] else []), *([f"rank {case['lora']}"] if case["lora"] else [])]
        peak = case["peak_bytes"]
        yield (f"| {case['name']} | {load} | {', '.join(words)} | {peak / 2**30:.2f} | {size / 2**30:.2f} | "
               f"{size / peak:.3f}{how} |\n")


def page(worst):
    """docs/estimate.md as it has to be."""
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    return text, before + MARKS[0] + "".join(tables(worst)) + MARKS[1] + after


def recorded():
    with open(RECORDED, encoding="utf-8") as file:
        cases = [case for case in json.load(file) if case["optimizer"] in OPTIMISERS]
    off, near, told, parts, ratios, worst = [], [], [], [], {}, {}
    for case in cases:
        answer = estimate(case["config"], *options_of(case))
        ratio = answer["peak_bytes"] / case["peak_bytes"]
        how = ", about" if PASSES & set(answer["approximate"]) else ", at least" if PASSES & set(answer["lower_bounds"]) else ""
        worst.setdefault(case["name"], []).append((abs(ratio - 1), (case, answer["peak_bytes"], how)))
        if PASSES & set(answer["approximate"]):
            near.append((ratio, row(case, answer)))
        elif PASSES & set(answer["lower_bounds"]):
            told.append((ratio, row(case, answer)))
        else:
            ratios.setdefault(case["name"], []).append((ratio, row(case, answer)))
            if abs(ratio - 1) > MOST_OFF:
                off.append(row(case, answer))
        kept = {"states": answer["optimiser_state_bytes"], "parameters": answer["weight_bytes"]}
        for part, size in kept.items():
            measured = case["parts"][part]
            if abs(size - measured) > 0.01 * measured + (1 << 20) and not (
                    {"weight_bytes", "optimiser_state_bytes"} & set(answer["lower_bounds"])):
                parts.append(f"{row(case, answer)} {part}: {size}, measured {measured}")
    for text in (text for _, text in told):
        print(f"# {text}  a lower bound")
    for text in (text for _, text in near):
        print(f"# {text}  approximate")
    for its in ratios.values():
        print(f"# {max(its, key=lambda one: abs(one[0] - 1))[1]}  the worst of {len(its)}")
    check(f"{len(cases) - len(told) - len(near)} of {len(cases)} peaks within {MOST_OFF:.0%}", off)
    check(f"{len(near)} peaks told as approximate are near",
          [text for ratio, text in near if not training_table.NEAR[0] < ratio < training_table.NEAR[3]])
    above = [text for ratio, text in told if ratio > 1.005]
    check(f"{len(told)} peaks told as lower bounds are no more than measured", above)
    check("parameters and states as kept", parts)
    have, wanted = page([max(its, key=lambda one: one[0])[1] for _, its in sorted(worst.items())])
    if "--write" in sys.argv:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(wanted)
        have = wanted
    if "TRAINING_JSON" not in os.environ:
        check("docs/estimate.md has these peaks", [] if have == wanted else ["run tests/model/test_training.py --write"])


def scaled():
    """No row of the table is negative or falls at configurations further from what was measured, each has an answer, and each
    kind has the place of the loss."""
    with open(os.path.join(ROOT, "core", "classes", "training.txt"), encoding="utf-8") as file:
        sections = training_table.read(file)
    problems, rows_count = [], 0
    for (kind, model_type, name), section in sections.items():
        rows = sorted({row[1] for its in section.rows.values() for row in its})
        base = training_table.filled(section.absent, {})
        rows_count += len(rows)
        wrong = [training_table.unsound(text.split("|"), base) for text in rows]
        problems += [f"{name} ({model_type}): {text[-200:]}" for text in wrong if text]
        if kind in training_table.HAS_LOSS:
            problems += [f"{name} {variant} has no place of the loss" for variant, its in section.rows.items()
                         if its and training_table.lacks_loss([text.split("|") for _, text in its], base, variant)]
        for flags in sorted(section.rows):
            case = {"optimizer": "sgd", "batch": 3, "tokens": 700, "precision": flags[0], "attention": flags[1],
                    "checkpointing": flags[2] == "c", "lora": 16 if flags[3] == "l" else 0}
            for flat in training_table.scaled(base):
                config = {k: v for k, v in flat.items() if len(k) > 1 and "[" not in k}
                answer = run({**config, "architectures": [name], "model_type": model_type}, "--json", *options_of(case))
                if "its parameters are unknown" in answer.stderr:
                    continue  # a clear answer: the class's weights are known with other values alone
                told = json.loads(answer.stdout) if answer.returncode in (0, 3) else {}
                if not told or PASSES & set(told["lower_bounds"]) - set(told["approximate"]):
                    problems.append(f"{name} {flags} {config}: {answer.stderr}")
                    break
    check(f"{rows_count} rows at configurations further away", problems)


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
         "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 1000, "torch_dtype": "bfloat16",
         "max_position_embeddings": 512}
ELEMENTS = 2 * 1000 * 1024 + 4 * (4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024) + 1024


def others():
    """What is told without --train, a class that was not measured, options that contradict each other."""
    answer = estimate(LLAMA)
    problems = []
    if answer["mode"] != "inference" or answer["training"] is not None or answer["training_at_least_bytes"] < 8 * ELEMENTS:
        problems.append(str({key: answer[key] for key in ("mode", "training", "training_at_least_bytes")}))
    check("without --train: inference, and what training would take", problems)
    strange = estimate({**LLAMA, "architectures": ["CohereForCausalLM"], "model_type": "cohere"}, "--train", "adamw")
    wanted = {"weight_bytes": 2 * strange["parameters"], "optimiser_state_bytes": 4 * strange["parameters"]}
    problems = [f"{key}: {strange[key]}" for key, value in wanted.items() if strange[key] != value]
    if "saved_activation_bytes" not in strange["lower_bounds"] or "training of CohereForCausalLM has" not in str(strange["warnings"]):
        problems.append(f"{strange['lower_bounds']} {strange['warnings']}")
    check("a class that was not measured: a lower bound by name, its states exact", problems)
    outer = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": LLAMA}
    told = estimate(outer, "--train", "adamw")["warnings"]
    check("such a class around a measured one: its own name", [] if "training of LlavaForConditionalGeneration has" in str(told) else told)
    phases = {"backward": "forward and backward", "step": "the optimiser's step"}
    wrong = [(tokens, phase) for tokens, phase in (("1", "step"), ("512", "backward"))
             if f"of the peak, in {phases[phase]}\n" not in run(LLAMA, "--train", "adamw", "--seq-len", tokens).stdout
             or estimate(LLAMA, "--train", "adamw", "--seq-len", tokens)["training"]["peak_phase"] != phase]
    check("the parts are those of the larger phase, which is named", wrong)
    problems = []
    for options, word in (("--zero 2", "--train"), ("--lora 8", "--train"), ("--checkpointing", "--train"),
                          ("--train adam", "adamw-foreach"),
                          ("--train sgd --zero 2", "--devices"), ("--train sgd --devices 2", "--zero"),
                          ("--train sgd --engine vllm", "transformers"), ("--train sgd --gpu-layers 1", "--gpu-layers"),
                          ("--train sgd --resident-experts 1", "--resident-experts"), ("--train sgd --chunk 1", "--chunk"),
                          ("--train sgd --kv-dtype f8", "--kv-dtype"), ("--train sgd --dtype nf4", "--lora"),
                          ("--train sgd --dtype f8", "bf16"), ("--train sgd --mixed-precision --dtype f32", "bf16"),
                          ("--train sgd --table", "--train"), ("--train sgd --split tensor", "--split")):
        done = run(LLAMA, *options.split())
        if done.returncode not in (1, 2) or word not in done.stderr or done.stdout:
            problems.append(f"{options}: {done.returncode} {done.stderr}")
    check("options that contradict each other", problems)


def outside():
    """What rows were not measured with is told, about or at least."""
    bert = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 1000}
    mistral = {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 256}
    problems = []
    for config, options, word, about in (
            (LLAMA, "", None, False), ({**LLAMA, "hidden_act": "quick_gelu"}, "", "hidden_act", True),
            ({**LLAMA, "attention_dropout": 0.1}, "", "attention_dropout", False),
            ({**LLAMA, "attention_dropout": 0.0, "hidden_act": "gelu"}, "", None, False),
            (bert, "", None, False), ({**bert, "hidden_dropout_prob": 0.0}, "", "hidden_dropout_prob", True),
            (mistral, "", "sliding_window", False), ({**mistral, "sliding_window": None}, "", None, False),
            ({**mistral, "sliding_window": 513}, "", None, False),
            ({**mistral, "sliding_window": 512}, "", "sliding_window", False),
            (LLAMA, "--dtype f64", "f64", False), (LLAMA, "--lora 8 --zero 2 --devices 2", "DeepSpeed", True),
            (LLAMA, "--dtype nf4 --lora 8", None, False),
            (LLAMA, "--dtype nf4 --lora 8 --mixed-precision", "mixed precision beside", True)):
        answer = estimate(config, "--train", "adamw", "--seq-len", "512", *options.split())
        told = PASSES & set(answer["lower_bounds"]), PASSES & set(answer["approximate"])
        named = [text for text in answer["warnings"] if word and word in text]
        if (bool(told[0]), bool(told[1]), bool(named)) != (bool(word), about, bool(word)):
            problems.append(f"{config} {options}: {told} {answer['warnings']}")
    check("values that were not measured are told by name", problems)


def offers():
    """Each value that is offered fits, and where it is a largest or smallest, the next does not."""
    problems = []
    base = ["--seq-len", "512", "--context-memory", "0"]
    load = {"--train": "adamw", "--batch": "4"}
    need = estimate(LLAMA, *base, *[word for pair in load.items() for word in pair])["peak_bytes"]

    def tried(part, options):
        given = {**load, **dict(zip(options[::2], options[1::2]))}
        flags = [word for pair in given.items() for word in pair if word]
        return run(LLAMA, "--json", *base, *flags, "--budget", str(int(need * part)))

    count_of = 0
    for part in (0.95, 0.9, 0.6, 0.45):
        done = tried(part, [])
        answer = json.loads(done.stdout)
        tries = []
        if answer["largest_batch"]:
            tries.append((["--batch", str(answer["largest_batch"])], ["--batch", str(answer["largest_batch"] + 1)]))
        if answer["checkpointing_fits"]:
            tries.append((["--checkpointing", ""], None))
        if answer["fitting_optimiser"]:
            tries.append((["--train", answer["fitting_optimiser"]], None))
        devices, rank = answer["fewest_devices_zero"], answer["largest_lora_rank"]
        if devices:
            fewer = ["--devices", str(devices - 1), "--zero", "3"] if devices > 2 else None
            tries.append((["--devices", str(devices), "--zero", "3"], fewer))
        if rank:
            tries.append((["--lora", str(rank)], ["--lora", str(rank + 1)] if rank < 1024 else None))
        for good, bad in tries:
            if tried(part, good).returncode != 0:
                problems.append(f"{part}: {good} does not fit")
            if bad and tried(part, bad).returncode != 3:
                problems.append(f"{part}: {bad} fits as well")
        count_of += len(tries)
    check(f"{count_of} values that fit", problems if count_of > 5 else [*problems, "too few values"])


if __name__ == "__main__":
    recorded()
    scaled()
    others()
    outside()
    offers()
    sys.exit(finish())
