"""JAX, CuPy and Numba under the library. usage: others.py jax | cupy | numba"""
import sys
import time

from rows import missing, need, row


def with_jax():
    start = time.perf_counter()
    jax = need("jax", "jax.*")
    imported = time.perf_counter()
    if jax.default_backend() != "gpu":
        missing("jax.*", f"JAX works on {jax.default_backend()}")
        return
    jnp = jax.numpy
    first = jnp.arange(1 << 20).sum().block_until_ready()
    row("jax.first_operation", time.perf_counter() - imported, "s")
    row("jax.import", imported - start, "s")
    row("jax.sum_right", int(first) == ((1 << 20) - 1) * (1 << 19) % (1 << 32) or int(first) == -524288, "yes")
    step = jax.jit(lambda x: (x @ x.T).sum())
    x = jnp.ones((1024, 1024))
    row("jax.product_right", float(step(x)) == float(1024 ** 3), "yes")


def with_cupy():
    cupy = need("cupy", "cupy.*")
    if cupy.cuda.runtime.getDeviceCount() == 0:
        missing("cupy.*", "CuPy sees no device")
        return
    for _ in range(50):
        x = cupy.arange(1 << 20, dtype=cupy.float64)
        y = (x * 2 + 1).sum()
    row("cupy.sum_right", float(y) == float((1 << 20) ** 2), "yes")
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    row("cupy.async_right", float(cupy.arange(1000.0).sum()) == 499500.0, "yes")
    cupy.cuda.set_allocator(None)
    row("cupy.no_pool_right", float(cupy.arange(1000.0).sum()) == 499500.0, "yes")


def with_numba():
    cuda = need("numba.cuda", "numba.*")
    numpy = need("numpy", "numba.*")
    if not cuda.is_available():
        missing("numba.*", "Numba sees no device")
        return

    @cuda.jit
    def add(to, x):
        i = cuda.grid(1)
        if i < to.size:
            to[i] += x[i]

    host = numpy.arange(10000, dtype=numpy.float32)
    wrong = 0
    for _ in range(20):
        device, to = cuda.to_device(host), cuda.to_device(numpy.zeros_like(host))
        add[(host.size + 255) // 256, 256](to, device)
        wrong += int((to.copy_to_host() != host).sum())
    row("numba.wrong", wrong, "words")


{"jax": with_jax, "cupy": with_cupy, "numba": with_numba}[sys.argv[1]]()
