"""Looks after the documents: runs what they show, and holds links and names against the tree and the tool.

usage: docs.py ROOT SANDBOX DOCUMENT…, with the environment that examples are to have. Prints TAP.

A fenced block whose info is `sh run [STATUS]` is a script for bash -e, run in the document's sandbox, blocks in their
order; it ends with STATUS (0). `console run [STATUS]` has commands behind `$ ` and below each what it prints: lines in
that order, numbers and blanks aside; `...` stands for any lines. With the word `keep` what a block exports holds for those
after it. README's blocks find nothing that they do not name: there is no build folder on their PATH, no simulated device on
their LD_LIBRARY_PATH. With the word `live` a program runs meanwhile,
tenant llama in group team, as SANDBOX/live starts it. `sh check` blocks are run by tests/self/test_deploy.sh.
"""
import os
import re
import shutil
import subprocess
import sys

PATIENCE_S = 100
FENCE = re.compile(r"^(\s*)```(.*)$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
VARIABLE = re.compile(r"\bGPUCACHE_[A-Z0-9_]*[A-Z0-9]\b")
PATH = re.compile(r"^(?:core|shim|tools|tests|scripts|docs|examples|demo|debian)/[\w./*-]+$")
CALL = re.compile(r"(?:^|[\s(|&'\"])(?:[\w./]*/)?gpucache ([a-z]+\b[^#|&;\n]*)", re.MULTILINE)

counts = {"all": 0, "failed": 0}


def ok(name, good, shown=""):
    """One test."""
    counts["all"] += 1
    counts["failed"] += not good
    if not good:
        for line in str(shown).splitlines():
            print(f"# {line}")
    print(f"{'ok' if good else 'not ok'} {counts['all']} - {name}", flush=True)


def blocks(text):
    """(line, info, lines) of each fenced block."""
    found, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and inside is None:
            inside = (number, fence.group(2).strip(), [])
        elif fence:
            found.append(inside)
            inside = None
        elif inside is not None:
            inside[2].append(line)
    return found


def without_blocks(text):
    """The text with fenced blocks left out."""
    kept, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def code(text):
    """The code lines of a document."""
    return [line for _, _, lines in blocks(text) for line in lines] + re.findall(r"`([^`\n]+)`", without_blocks(text))


def slugs(text):
    """The anchors that a document's headings make."""
    words = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", word.strip().lower()).replace(" ", "-") for word in words}


def plain(line):
    """A line with its numbers and blanks alike."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", line)).strip()


def shell(sandbox, script):
    """Runs a script after what blocks before it exported; its status and what it printed."""
    script = f"[ ! -e .kept ] || . ./.kept\n{script}"
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=sandbox, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def lacking(wanted, output):
    """The first line of `wanted` that `output` does not have in that order, else None."""
    printed = [plain(line) for line in output.splitlines()]
    at, may_skip = 0, False
    for line in wanted:
        if line.strip() == "...":
            may_skip = True
            continue
        if plain(line) == "" and not may_skip:
            continue
        while at < len(printed) and printed[at] != plain(line) and (may_skip or printed[at] == ""):
            at += 1
        if at == len(printed) or printed[at] != plain(line):
            return line
        at, may_skip = at + 1, False
    return None


def run_console(sandbox, lines, status):
    """Runs each command of a console block; what was wrong, else an empty text."""
    command, wanted, pairs = None, [], []
    for line in [*lines, "$ "]:
        if line.startswith("$ "):
            if command is not None:
                pairs.append((command, wanted))
            command, wanted = line[2:], []
        else:
            wanted.append(line)
    for number, (command, wanted) in enumerate(pairs, 1):
        got, output = shell(sandbox, command)
        if got != (status if number == len(pairs) else 0):
            return f"exit status {got}: {command}\n{output}"
        missing = lacking(wanted, output)
        if missing is not None:
            return f"not printed: {missing}\nby: {command}\n{output}"
    return ""


def run_block(sandbox, info, lines):
    """Runs a block; what was wrong, else an empty text."""
    words = info.split()[2:]
    status = next((int(word) for word in words if word.isdigit()), 0)
    live = subprocess.Popen([os.path.join(sandbox, "live")], cwd=sandbox, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE) if "live" in words else None
    try:
        if live is not None and live.stdout.readline().strip() != b"ready":
            return "the program that is to run meanwhile did not start"
        if info.startswith("console"):
            return run_console(sandbox, lines, status)
        got, output = shell(sandbox, "\n".join([*lines, "export -p > .kept"] if "keep" in words else lines))
        return "" if got == status else f"exit status {got}, wanted {status}\n{output}"
    except subprocess.TimeoutExpired as error:
        return f"longer than {PATIENCE_S} s: {error.cmd}"
    finally:
        if live is not None:
            live.stdin.close()
            live.wait()


def check_blocks(document, text, template, sandboxes):
    """Runs what is marked; a block of sh that nobody runs is an error."""
    sandbox = os.path.join(sandboxes, document.replace("/", "_"))
    shutil.copytree(template, sandbox, symlinks=True)
    if document == "README.md":
        with open(os.path.join(sandbox, ".kept"), "w", encoding="utf-8") as stream:
            stream.write("unset LD_LIBRARY_PATH\nPATH=$PLAIN_PATH\n")
    ran = 0
    for number, info, lines in blocks(text):
        if re.match(r"(sh|console) run\b", info):
            wrong = run_block(sandbox, info, lines)
            ok(f"{document}:{number}: {info}", wrong == "", wrong)
            ran += 1
        elif info.split()[:1] in (["sh"], ["console"], ["bash"]) and info != "sh check":
            ok(f"{document}:{number}: {info}", False, "write `run`, or leave the word out where it cannot be run")
    return ran


def check_links(root, document, text):
    """Files and headings that a document points to."""
    wrong = []
    for target in LINK.findall(without_blocks(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(root, os.path.dirname(document), name)) if name else os.path.join(root, document)
        if not os.path.exists(path):
            wrong.append(f"no file: {target}")
        elif anchor and path.endswith(".md"):
            with open(path, encoding="utf-8") as stream:
                if anchor not in slugs(stream.read()):
                    wrong.append(f"no heading: {target}")
    ok(f"{document}: links", not wrong, "\n".join(wrong))


def check_paths(root, document, text):
    """Paths of this tree, written as code."""
    if document == "docs/comparison.md":  # cells behind a row's third name other projects' paths
        text = "\n".join("|".join(line.split("|")[:3]) for line in text.splitlines())
    listed = subprocess.run([os.path.join(root, "scripts/files.sh")], capture_output=True, text=True, check=True)
    files = listed.stdout.split()
    wrong = []
    for word in re.findall(r"`([^`\s]+)`", without_blocks(text)):
        if PATH.match(word) and "*" not in word:
            stem = word.rstrip("/")
            if not any(name == stem or name.startswith((stem + "/", stem + ".")) for name in files) and \
                    not any(re.fullmatch(re.escape(stem) + r"(_\w+)?\.\w+", name) for name in files) and \
                    not os.path.exists(os.path.join(root, "build", stem)):
                wrong.append(word)
    ok(f"{document}: paths", not wrong, "\n".join(wrong))


def check_cases(root, document, text):
    """Cases of tests, written as `tests/FILE`: "CASE"."""
    wrong = []
    for path, case in re.findall(r'`(tests/[^`\s]+)`: "([^"]+)"', text):
        full = os.path.join(root, path)
        if not os.path.exists(full):
            continue  # check_paths names it
        with open(full, encoding="utf-8") as stream:
            if case not in stream.read():
                wrong.append(f"{path} has no case {case}")
    ok(f"{document}: cases of tests are there", not wrong, "\n".join(wrong))


def check_drivers(root):
    """Each row of docs/drivers.md names a test and its case; the numbers are whole."""
    with open(os.path.join(root, "docs/drivers.md"), encoding="utf-8") as stream:
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in stream.read().splitlines()
                if re.match(r"\| (\d+|–) \| ", line)]
    wrong = []
    for row in rows:
        cells = [cell.rstrip("| ") for cell in row]
        test = cells[3] if len(cells) > 3 else ""
        if len(cells) not in (3, 4):
            wrong.append(f"{len(cells)} cells: {row[0]} {row[1]}")
        elif not re.fullmatch(r'`tests/[^`\s]+`: "[^"]+"', test):
            wrong.append(f"no test with a case: {cells[1]}: {test}")
    numbers = [int(row[0]) for row in rows if row[0].isdigit()]
    if sorted(set(numbers)) != list(range(1, 20)) or numbers != sorted(numbers):
        wrong.append(f"the numbers are {numbers}")
    ok("docs/drivers.md: each row has a test and a case", not wrong, "\n".join(wrong))


def check_names(document, text, known, commands):
    """Variables, commands and their options."""
    wrong = [name for name in sorted(set(VARIABLE.findall(text))) if name not in known]
    for call in CALL.findall("\n".join(code(text))):
        words = call.split(" -- ")[0].split()
        if words[0] == "help":
            continue
        if words[0] not in commands:
            wrong.append(f"gpucache {words[0]}")
            continue
        wrong += [f"gpucache {words[0]} {option}" for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words))
                  if not re.search(rf"(?<![\w-]){option}(?![\w-])", commands[words[0]]) and option != "--help"]
    ok(f"{document}: variables, commands and options are there", not wrong, "\n".join(wrong))


def check_comparison(root):
    """Each row of docs/comparison.md's table has its sources, under the same number; README's rows are rows of that table."""
    text = {}
    for document in ("README.md", "docs/comparison.md"):
        with open(os.path.join(root, document), encoding="utf-8") as stream:
            text[document] = stream.read()
    table, _, sources = text["docs/comparison.md"].partition("<!-- comparison end -->")
    row = re.compile(r"^\| (\*\*\d+\*\*) .*$", re.MULTILINE)
    numbers = [found.group(1) for found in row.finditer(table)]
    ok("the comparison: sources for each row", len(numbers) > 20 and numbers == row.findall(sources), numbers)
    rows, shown = ({found.group(0) for found in row.finditer(part)} for part in (table, text["README.md"]))
    ok("the comparison: README's rows are rows of it", len(shown) == 10 and shown <= rows, "\n".join(shown - rows))


def tool_text(*arguments):
    """What the tool prints."""
    return subprocess.run(["gpucache", *arguments], capture_output=True, text=True, check=True).stdout


def main():
    root, sandboxes, documents = sys.argv[1], sys.argv[2], sys.argv[3:]
    commands = {name: tool_text(name, "--help") for name in re.findall(r"^  ([a-z]+)  ", tool_text("--help"), re.MULTILINE)}
    known = set(VARIABLE.findall(tool_text("help", "options")))
    with open(os.path.join(root, "core/gpucache.h"), encoding="utf-8") as stream:
        known |= set(VARIABLE.findall(stream.read()))
    ran = 0
    for document in documents:
        with open(os.path.join(root, document), encoding="utf-8") as stream:
            text = stream.read()
        check_links(root, document, text)
        check_paths(root, document, text)
        check_cases(root, document, text)
        check_names(document, text, known, commands)
        ran += check_blocks(document, text, os.path.join(sandboxes, "template"), sandboxes)
    check_comparison(root)
    check_drivers(root)
    ok("there are examples to run", ran >= 10, f"{ran} were run")
    print(f"1..{counts['all']}")
    return counts["failed"] != 0


sys.exit(main())
