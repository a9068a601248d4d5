"""The frameworks of the matrix: their packages, programs, allocators and areas.

Packages come from PyPI, pinned, into a virtual environment of their own, BUILD/venv-NAME; the wheels are kept in
~/.cache/gpucache/frameworks (GPUCACHE_WHEELS).
"""
import glob
import os
import platform
import shutil
import subprocess
import sys

import named_stubs

HERE = os.path.dirname(os.path.abspath(__file__))
WHEELS = os.environ.get("GPUCACHE_WHEELS") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpucache/frameworks")


class Unavailable(Exception):
    """A framework cannot be had or run here; says why."""


class Framework:
    """A row of the matrix. A class below it says what differs."""

    name = ""
    packages = ()
    program = ""
    allocators = {"default": {}}  # variables of each
    areas = {}  # variables of each
    environment = {}
    varying = ()  # entry points of which a run, by its threads' chance, makes more or fewer calls; the library passes them on
    limit = "192MiB"  # the device's memory in the area of that name
    venv = ""  # its name, where frameworks share one
    reads_names = {}  # libraries that it opens by dlopen: {prefix of functions: soname}
    readers = ()  # the files that open them, below site-packages

    def __init__(self):
        self.folders, self.command, self.preloaded = [], [], []

    def has(self, _allocator, _area, _library):
        return True

    def is_varying(self, _allocator, _area):
        """Runs differ, by their threads' chance, in the number of allocations; the program counts its own."""
        return False

    def place(self, _allocator):
        """Where our library is in LD_PRELOAD: before the framework's, behind it, or put there by the tool."""
        return "before"

    def fetch(self, build):
        """The virtual environment, made if its list of packages is another."""
        venv = os.path.join(build, f"venv-{self.venv or self.name}")
        stamp, wanted = os.path.join(venv, "packages"), "\n".join(self.packages)
        if os.path.exists(stamp):
            with open(stamp, encoding="utf-8") as stream:
                if stream.read() == wanted:
                    return venv
        pip = [os.path.join(venv, "bin/pip"), "-q", "--disable-pip-version-check", "--no-input"]
        install = [*pip, "install", "--no-deps", "--no-index", "--find-links", WHEELS, *self.packages]
        os.makedirs(WHEELS, exist_ok=True)
        run([sys.executable, "-m", "venv", "--clear", venv])
        if subprocess.run(install, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode:
            run([*pip, "download", "--no-deps", "--exists-action", "i", "-d", WHEELS, *self.packages])
            run(install)
        with open(stamp, "w", encoding="utf-8") as stream:
            stream.write(wanted)
        return venv

    def prepare(self, build, compiler):
        """Everything that the jobs need; sets command and folders."""
        if platform.machine() != "x86_64":
            raise Unavailable("its wheels are fetched for x86_64 only")
        venv = self.fetch(build)
        self.command = [os.path.join(venv, "bin/python3"), os.path.join(HERE, self.program)]
        if self.reads_names or self.readers:
            self.folders = [self.make_stubs(build, compiler, venv)]

    def make_stubs(self, build, compiler, venv):
        out = os.path.join(build, f"stubs-{self.name}")
        libraries = [path for reader in self.readers
                     for path in sorted(glob.glob(os.path.join(venv, "lib/python3*/site-packages", reader)))]
        archive = os.path.join(build, "simcuda/libcudart_static.a")
        sources = glob.glob(os.path.join(HERE, "stubs/*")) + glob.glob(os.path.join(HERE, "../torch/stubs*/*"))
        made = os.path.join(out, "complete")
        inputs = [*libraries, *sources, archive, os.path.join(HERE, "named_stubs.py"), os.path.join(HERE, "../torch/stubs.py")]
        if not os.path.exists(made) or any(os.path.getmtime(path) > os.path.getmtime(made) for path in inputs):
            named_stubs.make_all(out, compiler, archive, self.reads_names, libraries)
            with open(made, "w", encoding="utf-8"):
                pass
        return out


def run(command):
    """Runs a step of the preparation; its first error is the reason if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in lines if "error" in line.lower()] or lines or [f"exit status {done.returncode}"]
        raise Unavailable(f"{os.path.basename(command[0])}: {errors[0]}")


class Jax(Framework):
    """XLA with its four allocators: memory taken at start, a pool that grows, the driver's calls, the driver's pool."""

    name = "jax"
    limit = "1GiB"
    packages = ("jax==0.10.2", "jaxlib==0.10.2", "jax-cuda13-plugin==0.10.2", "jax-cuda13-pjrt==0.10.2", "ml_dtypes==0.6.0",
                "numpy==2.4.6", "opt_einsum==3.4.0", "scipy==1.17.1")
    program = "jax_program.py"
    allocators = {
        "preallocated": {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".60"},
        "growing": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        "platform": {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
        "cuda_async": {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"},
    }
    areas = {"arrays": {"SIMCUDA_WORK_US": "50"}, "compiled": {}, "limit": {}, "devices": {"SIMCUDA_DEVICES": "2"}}
    # XLA takes the driver's compiler where there is no ptxas. The stubs have no versions for JAX to check.
    environment = {"JAX_PLATFORMS": "cuda", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
                   "XLA_FLAGS": "--xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found"}
    reads_names = {"cudnn": "libcudnn.so.9", "cublasLt": "libcublasLt.so.13", "cublas": "libcublas.so.13",
                   "cufft": "libcufft.so.12", "cusolver": "libcusolver.so.12", "cusparse": "libcusparse.so.12",
                   "cupti": "libcupti.so.13", "nccl": "libnccl.so.2"}
    varying = ("cuMemHostAlloc", "cuMemCreate")  # pools grow where their memory is still in use
    readers = ("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_cuda13_plugin/*.so")


class Rmm(Framework):
    """RMM's resources: the last release that is headers alone. The later ones' library has NVIDIA's runtime inside."""

    name = "rmm"
    limit = "1GiB"
    packages = ("librmm-cu12==24.12.1",)
    program = "rmm_program.cpp"
    allocators = {name: {"RMM_RESOURCE": name} for name in (
        "cuda", "cuda_async", "pool", "pool_async", "arena", "binning", "fixed_size", "limiting", "managed", "pinned",
        "tracking")}
    areas = {"streams": {"SIMCUDA_WORK_US": "30"}, "threads": {"SIMCUDA_WORK_US": "30"}, "limit": {}}

    def has(self, allocator, area, _library):
        # Memory of these two is not the device's; a managed allocation is limited only if asked for.
        return area != "limit" or allocator not in ("managed", "pinned")

    def is_varying(self, allocator, area):
        return area == "threads" and allocator not in ("cuda", "cuda_async", "limiting", "managed", "pinned", "tracking")

    def prepare(self, build, compiler):
        venv = self.fetch(build)
        headers = find_folder(venv, "librmm/include")
        libraries = os.path.join(os.path.dirname(headers), "lib64")
        cuda = next((path for path in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", os.path.join(build, "cuda"), "/usr")
                     if path and os.path.exists(os.path.join(path, "include/cuda_runtime_api.h"))), "/usr")
        program, source = os.path.join(build, "rmm_program"), os.path.join(HERE, self.program)
        if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
            compile_program([os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-w", "-DSPDLOG_FMT_EXTERNAL",
                 "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", f"-I{headers}/rapids/libcudacxx", f"-I{headers}/rapids",
                 f"-I{headers}", f"-I{cuda}/include", source, "-o", program, os.path.join(build, "simcuda/libcudart.so.13"),
                 f"-L{libraries}", "-lspdlog", "-lfmt", "-lpthread", "-ldl"])
        self.command, self.folders = [program], [libraries]


def compile_program(command):
    """A program of the matrix that does not compile is a failure, no skip."""
    if not shutil.which(command[0]):
        raise Unavailable(f"there is no {command[0]}")
    subprocess.run(command, capture_output=True, text=True, check=True)


def find_folder(venv, name):
    found = glob.glob(os.path.join(venv, "lib/python3*/site-packages", name))
    if not found:
        raise Unavailable(f"its package has no {name}")
    return found[0]


class Cumem(Framework):
    """vLLM's allocator, as the calls that it makes: its package brings PyTorch and several GB with it."""

    name = "cumem"
    limit = "512MiB"
    program = "cumem_program.py"
    areas = {"sleeping": {}, "limit": {}}

    def prepare(self, build, compiler):
        self.command = [sys.executable, os.path.join(HERE, self.program)]


class MemorySaver(Framework):
    """torch_memory_saver's hook, which is preloaded too: the library before it, behind it, and by `gpucache run`."""

    name = "torch_memory_saver"
    packages = ("torch_memory_saver==0.0.10",)
    program = "memory_saver_program.py"
    allocators = {"before": {}, "behind": {"MEMORY_SAVER_IS_FIRST": "1"}, "by the tool": {}}
    areas = {"pausing": {}}

    def is_varying(self, _allocator, _area):
        return True  # not with chance, but with the place of the library: the program knows

    def place(self, allocator):
        return allocator

    def prepare(self, build, compiler):
        super().prepare(build, compiler)
        venv = os.path.dirname(os.path.dirname(self.command[0]))
        self.preloaded = [find_folder(venv, "torch_memory_saver_hook_mode_preload_cu13.abi3.so")]
        allocator = os.path.join(build, "libplain_allocator.so")
        compile_program([compiler, "-shared", "-fPIC", "-O1", "-o", allocator, os.path.join(HERE, "../torch/plain_allocator.c"),
                         os.path.join(build, "simcuda/libcudart.so.13")])
        self.environment = {"MEMORY_SAVER_ALLOCATOR": allocator}


CUDA_PYTHON = ("cuda-bindings==13.5.0", "cuda-core==1.2.2", "cuda-pathfinder==1.9.0", "numba==0.68.1", "llvmlite==0.50.0",
               "numba-cuda==0.30.4", "numpy==2.4.6", "packaging==26.3")


class CudaCore(Framework):
    """cuda.core's memory resources, on the driver alone."""

    name = "cuda.core"
    venv = "cuda-python"
    packages = CUDA_PYTHON
    program = "cuda_core_program.py"
    areas = {"buffers": {"SIMCUDA_WORK_US": "50"}, "limit": {}}


class NumbaCuda(Framework):
    """numba-cuda: arrays, streams and deferred frees."""

    name = "numba-cuda"
    venv = "cuda-python"
    packages = CUDA_PYTHON
    program = "numba_program.py"
    areas = {"arrays": {"SIMCUDA_WORK_US": "50"}, "limit": {}}


class OnnxRuntime(Framework):
    """ONNX Runtime's CUDA provider: its arena, OrtValues on the device, a session."""

    name = "onnxruntime"
    packages = ("onnxruntime-gpu==1.31.1", "numpy==2.4.6", "packaging==26.3", "protobuf==7.36.2", "flatbuffers==25.12.19",
                "onnx==1.23.2", "ml_dtypes==0.6.0", "typing_extensions==4.16.0")
    program = "onnxruntime_program.py"
    areas = {"values": {}, "sessions": {}, "limit": {}}
    reads_names = {"cublasLt": "libcublasLt.so.13", "cublas": "libcublas.so.13", "curand": "libcurand.so.10",
                   "cudnn": "libcudnn.so.9", "cufft": "libcufft.so.12"}
    readers = ("onnxruntime/capi/libonnxruntime_providers_cuda.so",)


class Static(Framework):
    """A package with NVIDIA's own runtime inside, which runs on NVIDIA's driver alone."""

    areas = {"": {}}

    def __init__(self, name, which):
        super().__init__()
        self.name, self.which = name, which

    def prepare(self, build, compiler):
        raise Unavailable(f"{self.which} NVIDIA's static runtime inside, which runs on NVIDIA's driver alone")


ALL = [Jax(), Rmm(), Cumem(), MemorySaver(), CudaCore(), NumbaCuda(), OnnxRuntime(),
       Static("RMM's Python bindings", "modules of rmm-cu12 24.12.1 and librmm.so of librmm-cu13 25.10 to 26.10 have"),
       Static("CuPy", "cupy_backends/cuda/api/runtime of cupy-cuda13x 14.2.0 has")]
