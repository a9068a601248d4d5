"""A driver of Ray's: prints a line of JSON with what its tasks and actors saw. usage: ray_program.py SCENE"""
import json
import os
import pathlib
import sys
import time

import ray

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import device  # noqa: E402

SCENES = {}


def scene(function):
    SCENES[function.__name__] = function
    return function


class Holder:
    """An actor."""

    def look(self):
        return device.look()


def error_of(call):
    try:
        ray.get(call, timeout=100)
    except Exception as error:  # pylint: disable=broad-except
        return [type(error).__name__, str(error)]
    return None


def task(size, gpus=0.25, **options):
    environment = {} if size is None else {"runtime_env": {"gpu_memory": size, **options}}
    return ray.remote(num_gpus=gpus, **environment)(device.look)


def after(call):
    """The result of a task whose worker ends with it; waits for that end, which gives the device's memory back."""
    seen = ray.get(call)
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{seen['pid']}") and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


@scene
def sizes():
    return {size: after(task(size).remote()) for size in ("4GiB", "1000MB", "12.5%", "0=3GiB")}


@scene
def fractions():
    return {str(gpus): after(task("num_gpus", gpus).remote()) for gpus in (0.25, 0.5, 0.3333, 1)} | \
        {"0": ray.get(task("num_gpus", 0).remote())}


@scene
def together():
    """Two tasks at once, with limits of their own, on one device."""
    return ray.get([task("1GiB", 0.5).remote(3), task("3GiB", 0.5).remote(3)])


@scene
def actors():
    seen = {}
    for size in ("2GiB", "num_gpus"):
        actor = ray.remote(num_gpus=0.25, runtime_env={"gpu_memory": size})(Holder).remote()
        seen[size] = [ray.get(actor.look.remote()) for _ in range(2)]
        ray.kill(actor)
    return seen


@scene
def placement():
    group = ray.util.placement_group([{"GPU": 0.5, "CPU": 1}])
    ray.get(group.ready())
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    return ray.get(task("num_gpus", 0.5).options(scheduling_strategy=strategy).remote())


@scene
def reuse():
    """A task that is given its devices by options() leaves its worker to the next one, and CUDA is started there."""
    function = ray.remote(runtime_env={"gpu_memory": "num_gpus"})(device.look)
    return [ray.get(function.options(num_gpus=gpus).remote()) for gpus in (0.25, 0.5, 0.125, 0.125)]


@scene
def children():
    return {size: ray.get(ray.remote(num_gpus=0.25, runtime_env={"gpu_memory": size})(device.family).remote())
            for size in ("2GiB", "num_gpus")}


@scene
def group():
    """Two tasks in a group of the user's."""
    variables = {"GPUCACHE_GROUP": "users", "GPUCACHE_GROUP_LIMIT": "3GiB"}
    return ray.get([task("2GiB", 0.5, env_vars=variables).remote(3) for _ in range(2)])


@scene
def preload():
    return ray.get(task("2GiB", 0.25, env_vars={"LD_PRELOAD": "libm.so.6"}).remote())


@scene
def executable():
    """A Python of the user's choice, with an argument."""
    function = ray.remote(num_gpus=0.25, runtime_env={"gpu_memory": "2GiB", "py_executable": f"{sys.executable} -B"})(
        lambda: [device.look(), sys.dont_write_bytecode])
    return ray.get(function.remote())


@scene
def bad():
    return {str(size): error_of(task(size).remote()) for size in ("4XB", "0", "", 5, "101%", "--help", "4GiB --mode off", ["1GiB"])}


@scene
def missing():
    """The library is not where it was installed."""
    import gpucache._library  # pylint: disable=import-outside-toplevel
    library = pathlib.Path(gpucache._library.PACKAGED)
    library.rename(library.with_suffix(".away"))
    try:
        return error_of(task("5GiB").remote())
    finally:
        library.with_suffix(".away").rename(library)


@scene
def unnamed():
    """A program that names no limit."""
    return [after(task(None, gpus).remote()) for gpus in (0.25, 1)]


def main():
    ray.init(address="auto", logging_level="warning", log_to_driver=False)
    print(json.dumps(SCENES[sys.argv[1]]()), flush=True)


main()
