"""Tools beside the library, in both orders: the library in the tool's program alone, and in the tool as well.

usage: tools.py LIBRARY PROGRAM [ARGUMENT...], a program that launches kernels.
"""
import os
import re
import shutil
import subprocess
import sys

from rows import missing, row

LIBRARY, PROGRAM = sys.argv[1], sys.argv[2:]
TOOLS = {  # its command, and what a run that worked shows
    "ncu": (["ncu", "--clock-control", "none", "--launch-count", "5", "--metrics", "gpu__time_duration.sum"],
            r"gpu__time_duration"),
    "memcheck": (["compute-sanitizer", "--tool", "memcheck"], r"ERROR SUMMARY: 0 errors"),
    "nsys": (["nsys", "profile", "--force-overwrite", "true", "-o", "/tmp/gpucache-nsys"], r"nsys|Generat"),
    "cuda-gdb": (["cuda-gdb", "-q", "-batch", "-ex", "run", "--args"], r"exited normally"),
}
ORDERS = ("without", "inside", "around")
SECONDS = 168 // max(1, len(ORDERS) * sum(shutil.which(words[0]) is not None for words, _ in TOOLS.values()))  # for each run


def run(tool, order):
    command, works = TOOLS[tool]
    environment = dict(os.environ)
    program = list(PROGRAM)
    if order != "without":
        environment.update(GPUCACHE_REPORT="none")
    if order == "around":
        environment["LD_PRELOAD"] = LIBRARY
    elif order == "inside" and tool == "cuda-gdb":
        command = command[:-1] + ["-ex", f"set environment LD_PRELOAD {LIBRARY}"] + command[-1:]
        command.remove("run")  # the variable is set before the run
        command.remove("-ex")
        command = command[:-1] + ["-ex", "run"] + command[-1:]
    elif order == "inside":
        program = ["env", f"LD_PRELOAD={LIBRARY}"] + program
        if tool == "ncu":
            command = command + ["--target-processes", "all"]
        elif tool == "memcheck":
            command = command + ["--target-processes", "all"]
    try:
        result = subprocess.run(command + program, env=environment, capture_output=True, text=True, errors="replace",
                                timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        print(f"{tool} {order}: over {SECONDS} s\n{str(late.stdout)[-2000:]}")
        row(f"{tool}.{order}.status", 124, "status")
        row(f"{tool}.{order}.works", 0, "yes")
        return
    output = result.stdout + result.stderr
    print(f"---- {tool} {order}: {result.returncode}")
    print("".join(f"| {line}\n" for line in output[-2500:].splitlines()), end="")  # its rows are not this program's
    row(f"{tool}.{order}.status", result.returncode, "status")
    row(f"{tool}.{order}.works", re.search(works, output) is not None, "yes")
    wrong = re.search(r"row \w+\.copies\.wrong (\S+)", output)
    if wrong:
        row(f"{tool}.{order}.wrong", float(wrong[1]), "words")


for name, (words, _) in TOOLS.items():
    if shutil.which(words[0]) is None:
        missing(f"{name}.*", f"{words[0]} is not on PATH")
        continue
    for how in ORDERS:
        run(name, how)
