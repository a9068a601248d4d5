"""Ray's runtime-environment plugin: the field `gpu_memory` limits the device memory of a task's or an actor's worker.

On every node, before `ray start`, and where the driver starts Ray itself:

    export RAY_RUNTIME_ENV_PLUGINS='[{"class": "gpucache.ray.GpuMemory"}]'

Then:

    @ray.remote(num_gpus=0.25, runtime_env={"gpu_memory": "4GiB"})        # a size, a percentage of each device, 0=8GiB,1=50%
    @ray.remote(num_gpus=0.25, runtime_env={"gpu_memory": "num_gpus"})    # a quarter of the device
    ray.init(runtime_env={"gpu_memory": "num_gpus"})                      # the default of a job's tasks and actors

or for programs that name nothing: export RAY_RUNTIME_ENV_HOOK=gpucache.ray.limit_by_num_gpus

The worker and the processes that it starts are a group of the library, which has the limit, too. A bad size is a
RuntimeEnvSetupError of the task; a worker that cannot have its limit does not start, or gets no device.
"""
import os
import shlex
import subprocess

from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from gpucache import _library

FIELD = "gpu_memory"
BY_NUM_GPUS = "num_gpus"
_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_ray_worker.py")
_CONTAINERS = ("container", "image_uri")


def limit_by_num_gpus(runtime_env):
    """For RAY_RUNTIME_ENV_HOOK: the job's runtime environment with gpu_memory "num_gpus", unless it has the field."""
    return {FIELD: BY_NUM_GPUS, **(runtime_env or {})}


def _check_library():
    """ValueError, unless LD_PRELOAD can name the package's library."""
    if not os.access(_library.PACKAGED, os.R_OK) or set(_library.PACKAGED) & set(" :$"):
        raise ValueError(f"runtime_env field {FIELD}: {_library.PACKAGED} cannot be read, or has a blank, a colon or a $ in its path")


def _check_size(size):
    """ValueError, unless the library takes the size. The tool knows: its words are the error's."""
    if not isinstance(size, str):
        raise ValueError(f"runtime_env field {FIELD}: {size!r} is no text; accepted: {BY_NUM_GPUS!r}, or a limit such as '4GiB'")
    if size == BY_NUM_GPUS:
        return
    done = subprocess.run([_library.TOOL, "run", f"--limit={size}", "--", "true"], capture_output=True, text=True, check=False,
                          env={key: value for key, value in os.environ.items() if key != "LD_PRELOAD"})
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0]
        raise ValueError(f"runtime_env field {FIELD}: {size!r} is not valid: {reason}; also accepted: {BY_NUM_GPUS!r}")


class GpuMemory(RuntimeEnvPlugin):
    """The field `gpu_memory`."""

    name = FIELD
    priority = 95  # after all that choose the worker's Python: it is wrapped

    @staticmethod
    def validate(runtime_env_dict):
        """ValueError: the size is bad, or the worker would run in a container, which the preload does not reach."""
        inside = [name for name in _CONTAINERS if runtime_env_dict.get(name)]
        if inside:
            raise ValueError(f"runtime_env field {FIELD} does not reach into {inside[0]}: set LD_PRELOAD and GPUCACHE_LIMIT in the image")
        _check_library()
        _check_size(runtime_env_dict[FIELD])

    def modify_context(self, uris, runtime_env, context, logger):
        """Sets the worker's variables, and has _ray_worker.py start it."""
        library = _library.PACKAGED
        variables = context.env_vars
        before = variables.get("LD_PRELOAD", os.environ.get("LD_PRELOAD", ""))
        variables["LD_PRELOAD"] = f"{library}:{before}" if before else library
        variables["GPUCACHE_LIMIT"] = runtime_env[FIELD]
        if "GPUCACHE_REPORT" not in os.environ:
            variables.setdefault("GPUCACHE_REPORT", "none")
        context.py_executable = f"{context.py_executable} {shlex.quote(_WORKER)}"
        logger.info("%s: %s, by %s", FIELD, runtime_env[FIELD], library)
