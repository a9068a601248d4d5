"""The calls that vLLM's cumem allocator makes, by ctypes: physical memory mapped for each allocation, put to sleep and woken.

vLLM's package has it in a C extension beside PyTorch, several GB in all; the driver cannot tell this program from it.
An allocation reserves addresses, creates memory, maps it and grants access. Sleep copies it to the host, unmaps and
releases; wake maps new memory at the same addresses and copies back.
"""
import ctypes
import random

import program

cuda = ctypes.CDLL("libcuda.so.1")
MIB = program.MIB
OUT_OF_MEMORY = 2


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("win32", ctypes.c_void_p),
                ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 4)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class OutOfMemory(Exception):
    """The driver has no memory left."""


def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error == OUT_OF_MEMORY:
        raise OutOfMemory
    assert error == 0, f"{name}: {error}"


def size_of(number):
    return ctypes.c_size_t(number)


def start():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class Block:
    """An allocation of the allocator."""

    properties = Properties(type=1, location=Location(1, 0))

    def __init__(self, size):
        granularity = ctypes.c_size_t()
        call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(self.properties), 0)
        self.size = -(-size // granularity.value) * granularity.value
        self.address, self.handle, self.saved = ctypes.c_uint64(), ctypes.c_uint64(), None
        call("cuMemAddressReserve", ctypes.byref(self.address), size_of(self.size), size_of(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        try:
            self.map()
        except OutOfMemory:
            call("cuMemAddressFree", self.address, size_of(self.size))
            raise

    def map(self):
        access = Access(Location(1, 0), 3)
        call("cuMemCreate", ctypes.byref(self.handle), size_of(self.size), ctypes.byref(self.properties), ctypes.c_uint64(0))
        program.count("cuMemCreate")
        call("cuMemMap", self.address, size_of(self.size), size_of(0), self.handle, ctypes.c_uint64(0))
        call("cuMemSetAccess", self.address, size_of(self.size), ctypes.byref(access), size_of(1))

    def unmap(self):
        call("cuMemUnmap", self.address, size_of(self.size))
        call("cuMemRelease", self.handle)

    def sleep(self):
        self.saved = self.read()
        self.unmap()

    def wake(self):
        self.map()
        self.write(self.saved)
        self.saved = None

    def free(self):
        call("cuCtxSynchronize")
        self.unmap()
        call("cuMemAddressFree", self.address, size_of(self.size))

    def write(self, data):
        call("cuMemcpyHtoD_v2", self.address, data, size_of(len(data)))

    def read(self):
        data = ctypes.create_string_buffer(self.size)
        call("cuMemcpyDtoH_v2", data, self.address, size_of(self.size))
        return data.raw


def free_memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


@program.area
def sleeping():
    """Weights sleep and wake with their bytes and addresses, what else there is sleeps without; plain memory beside it."""
    start()
    plain = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(plain), size_of(3 * MIB))
    program.count("cuMemAlloc_v2")
    call("cuMemcpyHtoD_v2", plain, program.content(3 * MIB, 99), size_of(3 * MIB))
    blocks = {}
    for seed, size in enumerate(program.sizes(20, 9 * MIB, 7)):
        block = Block(size)
        block.write(program.content(block.size, seed))
        blocks[seed] = block
    seen = {}
    for turn in range(3):
        before = free_memory()
        for block in blocks.values():
            block.sleep()
        asleep = free_memory() - before
        assert asleep == sum(block.size for block in blocks.values()), asleep
        for seed, block in blocks.items():
            block.wake()
            assert block.read() == program.content(block.size, seed), f"wrong bytes of block {seed}, turn {turn}"
        assert free_memory() == before
        seen[f"turn {turn}"] = asleep
    for seed in random.Random(3).sample(sorted(blocks), len(blocks)):
        assert blocks[seed].read() == program.content(blocks[seed].size, seed)
        blocks[seed].free()
    data = ctypes.create_string_buffer(3 * MIB)
    call("cuMemcpyDtoH_v2", data, plain, size_of(3 * MIB))
    assert data.raw == program.content(3 * MIB, 99)
    call("cuMemFree_v2", plain)
    return seen


@program.area
def limit():
    """Takes memory until there is none; one allocation sleeps, and there is room for another."""
    start()
    live = []
    seen = {}
    for turn in range(3):
        try:
            while True:
                block = Block(64 * MIB)
                block.write(program.content(MIB, len(live)))
                live.append(block)
                assert len(live) < 64, "no limit"
        except OutOfMemory:
            seen[f"turn {turn}"] = len(live)
        live[0].sleep()
        other = Block(64 * MIB)
        try:
            live[0].wake()
            raise AssertionError("there was room")
        except OutOfMemory:
            other.free()
        live[0].wake()
        for number, block in enumerate(live):
            assert block.read()[:MIB] == program.content(MIB, number), f"wrong bytes of block {number}"
        live.pop().free()
        live.pop().free()
    for block in live:
        block.free()
    return seen


program.main()
