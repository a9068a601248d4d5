"""Imports PyTorch once, then forks a process for each job: CUDA starts in the child, with the child's variables.

Reads a job a line from stdin, as JSON: area, allocator, environment, output (where the result goes), errors (the
child's stderr), seconds. Answers each with a line: the child's wait status.
"""
import json
import os
import signal
import sys
import traceback

import torch
import torch.utils.data

import cases


def choose(allocator):
    """Makes sure that the allocator is in use."""
    if allocator in ("pluggable", "own"):
        path = os.environ["TORCH_PLAIN_ALLOCATOR" if allocator == "pluggable" else "TORCH_OWN_ALLOCATOR"]
        prefix = "plain_" if allocator == "pluggable" else "gpucache_torch_"
        torch.cuda.memory.change_current_allocator(
            torch.cuda.memory.CUDAPluggableAllocator(path, prefix + "malloc", prefix + "free"))
        return
    assert torch.cuda.get_allocator_backend() == ("cudaMallocAsync" if allocator == "async" else "native")


def child(job):
    """Runs one area and leaves its result; the process then ends as programs do, through exit()."""
    errors = os.open(job["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.environ.update(job["environment"])
    result = {}
    try:
        choose(job["allocator"])
        result["seen"] = cases.AREAS[job["area"]](job["allocator"])
    except cases.Skip as reason:
        result["skip"] = str(reason)
    except BaseException:  # pylint: disable=broad-exception-caught
        result["error"] = traceback.format_exc()
    with open(job["output"], "w", encoding="utf-8") as stream:
        json.dump(result, stream)


def main():
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.alarm(job["seconds"])  # ends a child that hangs
            child(job)
            sys.exit(0)
        print(json.dumps(os.waitpid(pid, 0)[1]), flush=True)


main()
