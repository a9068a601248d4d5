"""Starts a Ray worker whose runtime environment has `gpu_memory` (gpucache/ray.py). usage: _ray_worker.py WORKER.py ARGUMENT…

It runs under the worker's own Python, which need not have the package: it uses nothing of it but the tool, by its path.

Where the limit follows num_gpus, GPUCACHE_LIMIT is the word num_gpus at first, which no CUDA starts with: if this file's hook
is not called, the worker has no device rather than no limit.
"""
import ctypes
import os
import re
import runpy
import secrets
import subprocess
import sys

BY_NUM_GPUS = "num_gpus"
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "gpucache")
NOT_READY = 1  # gpucache_get_mode: CUDA was not started


def parts_of(resources):
    """The devices of a task and the part that it has of each, from its resources {name: [(id, part)]}. With a placement group
    the name has the group's, and a second row the bundle's."""
    return {index: part for name, rows in resources.items() if re.match(r"^GPU(_group_[0-9A-Za-z]+)?$", name)
            for index, part in rows}


def set_environment(size, group):
    """For this process, if CUDA is not started in it yet, and for those that it starts."""
    os.environ["GPUCACHE_LIMIT"] = size
    if group is not None:
        os.environ["GPUCACHE_GROUP"] = group
        os.environ["GPUCACHE_GROUP_LIMIT"] = size


def change_limit(library, size, group, devices):
    """After CUDA was started, by an earlier task of this worker: of the group, and of this process on each device."""
    name = group if group is not None else str(os.getpid())
    done = subprocess.run([TOOL, "limit", name, size], capture_output=True, text=True, check=False,
                          env={key: value for key, value in os.environ.items() if key != "LD_PRELOAD"})
    if done.returncode:
        raise RuntimeError(f"gpu_memory: this worker's limit stays, another one was wanted: {done.stderr.strip()}")
    figures = (ctypes.c_uint64 * 64)(23 * 8)  # struct gpucache_statistics: its size, the device's bytes, the limit, …
    for device in range(devices):
        status = library.gpucache_get_statistics(device, figures)
        wanted = int(figures[1] * float(size.rstrip("%")) / 100) if status == 0 else 0
        if status or library.gpucache_set_limit(device, ctypes.c_uint64(wanted)):
            raise RuntimeError(f"gpu_memory: the limit of device {device}, which this worker has not used, cannot be changed")


class Share:
    """The limit of the task that is running."""

    def __init__(self, group):
        self.group = group
        self.size = BY_NUM_GPUS

    def follow(self, resources):
        """The limit becomes the part of a device that the resources name. An error ends the worker, and Ray starts another."""
        parts = parts_of(resources)
        size = f"{min(1.0, *parts.values()) * 100:.6g}%" if parts else BY_NUM_GPUS
        if size == self.size:
            return
        library = ctypes.CDLL(None)
        if parts and library.gpucache_get_mode(None, None) != NOT_READY:
            change_limit(library, size, self.group, len(parts))
        set_environment(size, self.group)
        self.size = size

    def hook_into(self, utils, resources):
        """Ray names a task's devices (CUDA_VISIBLE_DEVICES) before it calls the task's function; the limit is set then, too."""
        original = utils.set_visible_accelerator_ids

        def set_visible_accelerator_ids(*arguments, **named):
            result = original(*arguments, **named)
            self.follow(resources())
            return result

        utils.set_visible_accelerator_ids = set_visible_accelerator_ids


def main():
    """Becomes the worker."""
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # as if it had been started without this file
    if not hasattr(ctypes.CDLL(None), "gpucache_api_version"):
        sys.exit("gpu_memory: the library is not preloaded in this worker")
    limit = os.environ["GPUCACHE_LIMIT"]
    group = None if "GPUCACHE_GROUP" in os.environ else f"ray-{os.getpid()}-{secrets.token_hex(4)}"
    if limit == BY_NUM_GPUS:
        import ray  # pylint: disable=import-outside-toplevel
        Share(group).hook_into(ray._private.utils, lambda: ray._private.worker.global_worker.core_worker.resource_ids())
    else:
        set_environment(limit, group)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
