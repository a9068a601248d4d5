"""Asks one library, in a process of its own, and prints a line per answer.

usage: probe.py errors LIBRARY                 cuGetErrorName and cuGetErrorString of each code
       probe.py nvml LIBRARY SEED < NAMES     NVML's functions with null and odd arguments, before and after nvmlInit; texts
"""
import ctypes
import os
import random
import sys

def errors(library):
    for function in (library.cuGetErrorName, library.cuGetErrorString):
        for code in [*range(0, 1100), -1]:
            text = ctypes.c_char_p(b"left")
            result = function(code, ctypes.byref(text))
            print(code, result, text.value)


def in_child(call):
    """The code of a call, or the signal that it ends by."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(call()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return text or f"signal{os.WTERMSIG(status)}"


def nvml_arguments(seed):
    """Rows of arguments: null, pointers to zeroes, and at random those, small and large numbers, pointers to set bits."""
    buffers = [ctypes.create_string_buffer(bytes([byte]) * 65536, 65536) for byte in (0, 0xff)]
    values = [0, 0, 1, 2, 0xffffffff, *map(ctypes.addressof, buffers), *map(ctypes.addressof, buffers)]
    generator = random.Random(seed)
    rows = [[0] * 8, [ctypes.addressof(buffers[0])] * 8] + [[generator.choice(values) for _ in range(8)] for _ in range(14)]
    return [[ctypes.c_void_p(value) for value in row] for row in rows], buffers


def codes_of(function, rows):
    """The code of each call; after one that ends its process the next has another."""
    codes = []
    while len(codes) < len(rows):
        left = rows[len(codes):]
        text = in_child(lambda: [function(*row) for row in left])
        if text.startswith("["):
            return codes + text[1:-1].split(", ")
        codes.append(in_child(lambda: function(*left[0])))
    return codes


def nvml(library):
    names = sys.stdin.read().split()
    rows, _buffers = nvml_arguments(int(sys.argv[3]))
    for state in ("new", "failed"):
        if state == "failed":
            for start in ("nvmlInit_v2", "nvmlInit", "nvmlInitWithFlags"):
                print(state, start, library[start](0))
        for name in names:
            print(state, name, *(codes_of(library[name], rows) if hasattr(library, name) else ["absent"] * len(rows)))
    library.nvmlErrorString.restype = ctypes.c_char_p
    for code in [*range(0, 40), 99, 999, 1000]:
        print("text", code, library.nvmlErrorString(code))


if __name__ == "__main__":
    {"errors": errors, "nvml": nvml}[sys.argv[1]](ctypes.CDLL(sys.argv[2]))
