"""Allocates device memory from threads of an interpreter that has a lock of its own, while others work under the
main one's. Status 77: this Python has no such interpreters, or none with ctypes."""
import sys
import threading

CODE = '''
import ctypes, threading
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
def deep(count):
    if count > 0:
        return deep(count - 1)
    for i in range(200):
        address, made = ctypes.c_uint64(), [str(i)] * 3
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
        assert cuda.cuMemFree_v2(address) == 0
def work():
    assert cuda.cuCtxSetCurrent(context) == 0
    for count in range(10):
        deep(5 + count)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
'''


def main():
    """Three such interpreters, each on a thread of the main one."""
    try:
        import _interpreters as interpreters  # Python 3.13 and later
    except ImportError:
        return 77
    made = [interpreters.create("isolated") for _ in range(3)]
    if interpreters.run_string(made[0], "import ctypes") is not None:
        return 77
    failures = []

    def run(interpreter):
        failure = interpreters.run_string(interpreter, CODE)
        if failure is not None:
            failures.append(failure)
        interpreters.destroy(interpreter)

    threads = [threading.Thread(target=run, args=(interpreter,)) for interpreter in made]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        made = [str(i) for i in range(1000)]
    print(failures or "done", flush=True)
    return 0


sys.exit(main())
