"""Imports PyTorch once, then forks a process for each job: CUDA starts in the child, with the child's variables.

Reads a job a line from stdin, as JSON: area, allocator, environment, output (where the result goes), errors (the
child's stderr), seconds. Answers each with a line: the child's wait status.
"""
import atexit
import ctypes
import json
import os
import signal
import sys
import traceback

import pynvml  # pylint: disable=unused-import
import torch

# The imports that follow look for devices, and CUDA, once started, would be lost to the children.
found = torch.cuda.is_available, torch.cuda.device_count
torch.cuda.is_available, torch.cuda.device_count = lambda: False, lambda: 0
# pylint: disable=wrong-import-position,unused-import
import torch._inductor.cudagraph_trees
import torch.multiprocessing
import torch.utils.data

torch.cuda.is_available, torch.cuda.device_count = found

import cases
import speed_cases


def choose(allocator):
    """Makes sure that the allocator is in use."""
    if allocator in ("pluggable", "own"):
        torch.cuda.memory.change_current_allocator(cases.program_allocator(allocator))
    else:
        assert torch.cuda.get_allocator_backend() == ("cudaMallocAsync" if allocator == "async" else "native")


def child(job):
    """Runs one area and leaves its result."""
    errors = os.open(job["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.environ.update(job["environment"])
    result = {}
    try:
        choose(job["allocator"])
        result = cases.run(job["area"], job["allocator"])
    except BaseException:  # pylint: disable=broad-exception-caught
        result["error"] = traceback.format_exc()
    with open(job["output"], "w", encoding="utf-8") as stream:
        json.dump(result, stream)


def end():
    """Python's and C's exit handlers, as at any program's end, but objects are not taken apart: that costs a second."""
    atexit._run_exitfuncs()  # pylint: disable=protected-access
    sys.stderr.flush()
    ctypes.CDLL(None).exit(0)


def main():
    cases.content(1, 0)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.alarm(job["seconds"])  # ends a child that hangs
            child(job)
            end()
        print(json.dumps(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
