#!/usr/bin/env python3
"""Blocks of mapped memory in two processes under the library: what the other one opens, sees and writes; closes, frees,
ends and forks in any order; those who may not open them."""
# waits: for the patience with peers that do not answer
import atexit
import glob
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, MIB, PATIENCE, equal, finish, ok

INVALID_VALUE, INVALID_CONTEXT, MAP_FAILED, INVALID_HANDLE, NOT_FOUND, NOT_SUPPORTED = "1", "201", "205", "400", "500", "801"
SECONDS_MAX = 15  # of a call that finds nobody
NOBODY = 65534


class Peer:
    """progs/share.c."""

    def __init__(self, base, plain=False, user=None, **settings):
        self.report = os.path.join(base, f"report-{random.getrandbits(64):x}.json")
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"),
                       "GPUCACHE_REPORT": self.report, "GPUCACHE_LEDGER": os.path.join(base, "ledger"),
                       "SIMCUDA_MEMORY": "4GiB"}
        if not plain:
            environment["LD_PRELOAD"] = os.path.join(BUILD, "libgpucache.so")
        environment.update(settings)
        # pylint: disable-next=consider-using-with # it ends at a command
        self.process = subprocess.Popen([os.path.join(BUILD, "tests/preload/share")], env=environment, user=user,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()

    def send(self, *words):
        """One command."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def receive(self):
        """The answer."""
        return self.process.stdout.readline().strip()

    def __call__(self, *words):
        """One command; the answer."""
        self.send(*words)
        return self.receive()

    def give(self, number, offset=0):
        """The handle of a block."""
        code, _, handle = self("handle", number, offset).partition(" ")
        return handle.strip() if code == "0" else "refused: " + code

    def make(self, number, size, value):
        """A new filled block; its address."""
        code, address = self("alloc", number, size).split()
        assert code == "0" and self("fill", number, 0, value) == "0"
        return int(address)

    def kill(self):
        """As the kernel's out-of-memory killer does it."""
        self.process.kill()
        self.process.wait()

    def end(self):
        """Ends it; the exit status, and what it said."""
        _, error = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, error


def sockets(base):
    """In the ledger's folder."""
    return glob.glob(os.path.join(base, "ledger", "ipc-*")) + glob.glob(os.path.join(base, "ledger", ".ipc-*"))


def many(base):
    """64 blocks of all sizes, at once."""
    giver, taker = Peer(base), Peer(base)
    sizes = [random.choice((random.randint(1, 4096), random.randint(1, MIB), random.randint(MIB, 9 * MIB),
                            2 * MIB * random.randint(1, 4))) for _ in range(64)]
    for i, size in enumerate(sizes):
        giver.make(i, size, i)
    opened = [taker("open", i, giver.give(i)) for i in range(64)]
    equal("64 handles open at their blocks", opened, [f"0 1 {size}" for size in sizes])
    equal("with their content", {taker("check", i, 0, i) for i in range(64)}, {"1"})
    for i in range(64):
        taker("fill", i, 0, 100 + i)
    equal("the importer's writes arrive, and nowhere else", {giver("check", i, 0, 100 + i) for i in range(64)}, {"1"})
    equal("a second handle of a block is the first's address", (taker("open", 64, giver.give(5)), taker("address", 64)),
          (f"0 1 {sizes[5]}", taker("address", 5)))
    equal("all close", {taker("close", i) for i in range(65)}, {"0"})
    equal("all are freed", {giver("free", i) for i in range(64)}, {"0"})
    equal("nobody complains", (giver.end(), taker.end()), ((0, ""), (0, "")))
    equal("no socket is left", sockets(base), [])


def pieces(base):
    """A block of more extents than one message has descriptors; addresses inside a block."""
    giver, taker = Peer(base), Peer(base)
    for i in range(40):
        giver.make(i, 2 * MIB, 1)
    for i in range(40):
        giver("free", i)
    giver.make(0, 80 * MIB, 2)
    giver("fill", 0, 79 * MIB, 3)
    handle = giver.give(0, 33 * MIB + 5)
    equal("a handle of an address inside opens at the base", taker("open", 0, handle), f"0 1 {80 * MIB}")
    equal("the last bytes are at the end", taker("check", 0, 79 * MIB, 3), "1")
    taker("fill", 0, 33 * MIB, 9)
    equal("bytes are at their offsets", giver("check", 0, 33 * MIB, 9), "1")
    taker("fill", 0, 0, 4)
    equal("all of it is the same memory", giver("check", 0, 0, 4), "1")
    small = giver.make(1, 1000, 7)
    equal("a small block opens at its base", (taker("open", 1, giver.give(1, 999)), small % 512), ("0 1 1000", 0))
    equal("with its content", taker("check", 1, 0, 7), "1")
    equal("with synchronous copies", taker("sync", 1), "0")
    taker.make(2, 1000, 1)  # a process without memory of its own has no report
    giver.end()
    taker.end()
    with open(taker.report, encoding="utf-8") as file:
        imported = json.load(file)["devices"][0]["direct_bytes"]["import"]
    equal("whole pages are recorded as imported", (imported % (2 * MIB), imported > 80 * MIB), (0, True))


def count(base):
    """References, and what is refused."""
    giver, taker = Peer(base), Peer(base)
    giver.make(0, 3 * MIB, 1)
    handle = giver.give(0)
    equal("one's own handle", giver("open", 9, handle).split()[0], INVALID_CONTEXT)
    equal("a damaged handle", taker("open", 9, handle[:-1] + ("0" if handle[-1] != "0" else "1")).split()[0], INVALID_HANDLE)
    equal("a handle of nobody's", taker("open", 9, "ab" * 64).split()[0], INVALID_HANDLE)
    taker("open", 0, handle)
    taker("open", 1, handle)
    equal("opened twice, closed once: still there", (taker("close", 0), taker("check", 1, 0, 1)), ("0", "1"))
    equal("plain memory's answers in the importer", taker("story", 0), "own 1 legacy 0 types 0 retain 1")
    equal("not as memory of its own", taker("handle", 0, 0).strip(), INVALID_VALUE)
    equal("closed twice: gone", (taker("close", 0), taker("range", 0), taker("close", 0)), ("0", NOT_FOUND, INVALID_VALUE))
    equal("and opened again", (taker("open", 0, handle), taker("check", 0, 0, 1)), (f"0 1 {3 * MIB}", "1"))
    equal("the importer's context ends", taker("reset"), "0")
    equal("  and with it the mapping", taker("range", 0), NOT_FOUND)
    place = int(giver("address", 0))
    giver("free", 0)
    equal("freed", taker("open", 9, handle).split()[0], INVALID_VALUE)
    ok("  its place serves again", reuse(giver, 3 * MIB, place))
    number = next(i for i in range(100, 124) if (giver.make(i, 3 * MIB, i), int(giver("address", i)) == place)[1])
    equal("  whose handle is another", (taker("open", 8, giver.give(number)), taker("check", 8, 0, number),
                                        taker("open", 9, handle).split()[0]), (f"0 1 {3 * MIB}", "1", INVALID_VALUE))
    status, said = taker.end()
    ok("  is said", status == 0 and "cannot be opened: it was freed" in said, said)
    giver.end()


def held(base):
    """A freed block that is open elsewhere serves nobody, until it is closed."""
    giver, taker = Peer(base), Peer(base)
    for size in (3 * MIB + 512, 2000):
        place = giver.make(0, size, 1)
        taker("open", 0, giver.give(0))
        equal(f"{size}: freed while it is open", (giver("free", 0), giver("free", 0), giver("range", 0)),
              ("0", INVALID_VALUE, NOT_FOUND))
        places = [giver.make(10 + i, size, 2) for i in range(20)]
        ok("  others get other memory", all(abs(other - place) >= size for other in places), (place, places))
        equal("  the importer's content stays", taker("check", 0, 0, 1), "1")
        taker("fill", 0, 0, 3)
        equal("  and what it writes goes nowhere else", {giver("check", 10 + i, 0, 2) for i in range(20)}, {"1"})
        equal("  closed", taker("close", 0), "0")
        for i in range(20):
            giver("free", 10 + i)
        again = wait_for(lambda size=size, place=place: reuse(giver, size, place))
        ok("  then it serves again", again)
    giver.end()
    taker.end()


def reuse(giver, size, place):
    """Whether one of some blocks gets the place: of small ones many, since other free places may fit as well."""
    count = 24 if size >= MIB else 500
    places = [int(giver("alloc", 100 + i, size).split()[1]) for i in range(count)]
    for i in range(count):
        giver("free", 100 + i)
    return place in places


def wait_for(condition):
    """For what another thread does."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def state_of(peer):
    """As the kernel lists it."""
    with open(f"/proc/{peer.process.pid}/stat", encoding="utf-8") as stream:
        return stream.read().rpartition(") ")[2][0]


def program_of(peer):
    """Its name."""
    with open(f"/proc/{peer.process.pid}/comm", encoding="utf-8") as stream:
        return stream.read().strip()


def ends(base):
    """Processes end by a signal."""
    giver, taker = Peer(base), Peer(base)
    giver.make(0, 5 * MIB, 1)
    giver.make(1, 5 * MIB, 2)
    handles = giver.give(0), giver.give(1)
    taker("open", 0, handles[0])
    giver.kill()
    equal("the exporter is killed: what is open stays", taker("check", 0, 0, 1), "1")
    begin = time.monotonic()
    equal("  nothing more can be opened", taker("open", 1, handles[1]).split()[0], MAP_FAILED)
    ok("  which takes no time", time.monotonic() - begin < SECONDS_MAX)
    equal("  and closed", taker("close", 0), "0")
    equal("  a process that comes by removes its socket", (taker("open", 1, handles[1]).split()[0], sockets(base)),
          (MAP_FAILED, []))
    giver = Peer(base)
    place = giver.make(0, 5 * MIB, 1)
    taker("open", 0, giver.give(0))
    giver("free", 0)
    taker.kill()
    ok("the importer is killed: its block serves again", wait_for(lambda: reuse(giver, 5 * MIB, place)))
    giver.kill()
    left = len(sockets(base))
    other = Peer(base)
    other.make(0, 1000, 1)
    other.give(0)
    equal("a new exporter removes the sockets of those that ended", (left, len(sockets(base))), (1, 1))
    other.end()


def forks(base):
    """A child of the exporter, or of the importer."""
    giver, taker = Peer(base), Peer(base)
    place = giver.make(0, 3 * MIB, 1)
    handle = giver.give(0)
    giver("fork", 1)
    time.sleep(0.2)
    equal("the exporter's child ends: the socket stays", (taker("open", 0, handle), taker("close", 0)), (f"0 1 {3 * MIB}", "0"))
    children = [int(giver("fork", 0))]
    taker("open", 0, handle)
    children.append(int(taker("fork", 0)))
    giver("free", 0)
    taker.kill()
    ok("the importer's child does not hold the block", wait_for(lambda: reuse(giver, 3 * MIB, place)))
    giver.kill()
    taker = Peer(base)
    begin = time.monotonic()
    equal("the exporter's child does not answer", taker("open", 0, handle).split()[0], MAP_FAILED)
    ok("  which takes no time", time.monotonic() - begin < SECONDS_MAX)
    taker.end()
    for child in children:
        os.kill(child, signal.SIGKILL)


def execs(base):
    """An importer becomes another program, and its process lives on."""
    giver, taker = Peer(base), Peer(base)
    place = giver.make(0, 3 * MIB, 1)
    taker("open", 0, giver.give(0))
    giver("free", 0)
    equal("an importer calls exec", taker("exec"), "0")
    ok("  its block does not serve at once", not reuse(giver, 3 * MIB, place))
    ok("  its block serves again", wait_for(lambda: reuse(giver, 3 * MIB, place)))
    equal("  while it runs", (taker.process.poll(), program_of(taker)), (None, "sleep"))
    taker.kill()
    giver.end()


def deaf(base):
    """An exporter closes descriptors that it does not know."""
    giver, taker = Peer(base), Peer(base)
    place = giver.make(0, 3 * MIB, 1)
    giver.make(1, 3 * MIB, 2)
    handles = giver.give(0), giver.give(1)
    taker("open", 0, handles[0])
    giver("deaf")
    equal("the exporter's sockets are closed: no more can be opened", taker("open", 1, handles[1]).split()[0], MAP_FAILED)
    giver("free", 0)
    ok("  what is open is held", not reuse(giver, 3 * MIB, place))
    equal("  and its content stays", taker("check", 0, 0, 1), "1")
    taker.kill()
    ok("  until the importer has ended", wait_for(lambda: reuse(giver, 3 * MIB, place)))
    giver.end()


def storm(base):
    """Both sides are killed at any moment."""
    keeper = Peer(base)
    for i in range(15):
        giver, taker = Peer(base), Peer(base)
        size = random.randint(1, 6 * MIB)
        giver.make(0, size, i)
        keeper.make(0, size, i)
        taker.process.stdin.write(f"open 0 {giver.give(0)}\n" + f"open 1 {keeper.give(0)}\n" * 3)
        taker.process.stdin.flush()
        time.sleep(random.random() * 0.01)
        random.choice((giver, taker)).kill()
        keeper("free", 0)
        giver.kill()
        taker.kill()
    taker = Peer(base)
    keeper.make(0, 4 * MIB, 77)
    equal("after the storm", (taker("open", 0, keeper.give(0)), taker("check", 0, 0, 77)), (f"0 1 {4 * MIB}", "1"))
    equal("  nothing is said of the keeper", (taker.end()[0], keeper.end()), (0, (0, "")))


def strangers(base):
    """Those who may not, and those who cannot."""
    giver = Peer(base)
    giver.make(0, 3 * MIB, 1)
    handle = giver.give(0)
    plain = Peer(base, plain=True)
    equal("a process without the library is refused by its driver", plain("open", 0, handle).split()[0], INVALID_HANDLE)
    plain.end()
    elsewhere = Peer(base, GPUCACHE_LEDGER=os.path.join(base, "other"))
    equal("a process of another ledger", elsewhere("open", 0, handle).split()[0], MAP_FAILED)
    ok("  is told", "is another user's or another ledger's" in elsewhere.end()[1])
    if os.getuid() != 0:
        print("# not root: no other user")
        giver.end()
        return
    other = Peer(base, user=NOBODY, GPUCACHE_LEDGER=os.path.join(base, "nobody"))
    equal("another user's process", other("open", 0, handle).split()[0], MAP_FAILED)
    other.end()
    # Root enters the folder of another user, whose process asks the kernel.
    theirs = os.path.join(base, "theirs")
    other = Peer(base, user=NOBODY, GPUCACHE_LEDGER=theirs)
    other.make(0, 1000, 1)
    other.give(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
        raw.settimeout(PATIENCE)
        raw.connect(glob.glob(os.path.join(theirs, "ipc-*"))[0])
        equal("a process asks the kernel whose the other is", raw.recv(100), b"")
    other.end()
    giver.end()


MAGIC = 0x315059436b706367  # core/share/wire.h, as the formats below
REPLY = "<Q4I3Q16Q48s"


def make_handle(name):
    """A handle of nobody's block, as wire.c makes it."""
    words = [MAGIC, name, 1, 1 << 40, 5, MIB, os.getpid()]
    check = 0
    for word in words:
        check = (check ^ word) * 0x9e3779b97f4a7c15 % 2**64
        check ^= check >> 32
    return struct.pack("<8Q", *words, check).hex()


def lie(connection):
    """An answer of which nothing need be true."""
    def often(true, *others):
        return true if random.random() < 0.9 else random.choice(others)

    def number(true):
        return often(true, 0, 1, 2**32 - 1)

    sent = random.randint(0, 2)
    extents = [number(2 * MIB) for _ in range(16)]
    reply = struct.pack(REPLY, often(MAGIC, 1), random.choice((0, random.randrange(24))), often(sent, 0, 17),
                        number(sent), 0, number(2 * MIB * sent), number(0), number(MIB), *extents, often(b"", b"u" * 48))
    with open("/dev/null", encoding="utf-8") as null:
        socket.send_fds(connection, [reply[:often(len(reply), 100)]], [null.fileno()] * sent)


def liars(base):
    """An exporter that does not keep to the form."""
    taker, name = Peer(base), random.getrandbits(63) | 1 << 62
    giver = Peer(base)
    giver.make(0, 3 * MIB, 1)
    taker("open", 0, giver.give(0))
    before = len(os.listdir(f"/proc/{taker.process.pid}/fd"))
    codes, closed = [], []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.path.join(base, "ledger", f"ipc-{name:016x}"))
        listener.listen()
        listener.settimeout(PATIENCE)
        for _ in range(200):
            taker.send("open", 1, make_handle(name))
            with listener.accept()[0] as connection:
                lie(connection)
                codes.append(taker.receive().split()[0])
                closed.append(taker("close", 1) if codes[-1] == "0" else "0")
    ok("most of what a liar offers is refused", codes.count("0") < 100, codes)
    equal("  a block that may be one opens and closes", set(closed), {"0"})
    equal("  and nothing leaves a descriptor", len(os.listdir(f"/proc/{taker.process.pid}/fd")), before)
    equal("  others' blocks stay", taker("check", 0, 0, 1), "1")
    taker.end()
    giver.end()


def backends(base):
    """Memory of the driver's has the driver's handles."""
    giver, taker = Peer(base, SIMCUDA_ATTRIBUTES="103=0"), Peer(base)
    giver.make(0, 3 * MIB, 1)
    equal("pages without descriptors: refused, and said so by the attributes", (giver("story", 0), giver.give(0)),
          ("own 1 legacy 0 types 0 retain 1", "refused: " + NOT_SUPPORTED))
    giver.make(1, 3 * MIB, 2)
    equal("  later memory is the driver's", (taker("open", 1, giver.give(1)), taker("check", 1, 0, 2)), (f"0 1 {3 * MIB}", "1"))
    equal("  and says so", giver("story", 1), "own 1 legacy 1 types 0 retain 1")
    giver.end()
    giver = Peer(base)
    giver.make(0, 3 * MIB, 1)
    # NCCL, src/transport/p2p.cc ipcRegisterBuffer: a handle that cannot be retained is exported by cudaIpcGetMemHandle;
    # src/register/register.cc ncclRegister: memory that is not capable of it must be retainable. UCX,
    # src/uct/cuda/cuda_ipc/cuda_ipc_md.c uct_cuda_ipc_mem_add_reg: capable memory takes the same path;
    # src/uct/cuda/cuda_copy/cuda_copy_md.c: memory without a context is taken for managed.
    plain = Peer(base, plain=True)
    plain.make(0, 3 * MIB, 1)
    equal("the answers are those of plain memory", (giver("story", 0), plain("story", 0)), ("own 1 legacy 1 types 0 retain 1",) * 2)
    opener, taker = Peer(base, plain=True), Peer(base)
    opener("open", 0, plain.give(0))
    taker("open", 0, giver.give(0))
    equal("  and of plain memory that another process opened", (taker("story", 0), opener("story", 0)),
          ("own 1 legacy 0 types 0 retain 1",) * 2)
    for peer in (plain, opener, taker, giver):
        peer.end()


def devices(base):
    """Memory of another device."""
    for peers, opened in (("all", "0"), ("none", INVALID_VALUE)):
        two = {"SIMCUDA_DEVICES": "2", "SIMCUDA_PEERS": peers, "GPUCACHE_BACKEND": "vmm"}
        giver, taker = Peer(base, **two), Peer(base, **two)
        giver("device", 1)
        giver.make(0, 3 * MIB, 1)
        equal(f"peers: {peers}", taker("open", 0, giver.give(0)).split()[0], opened)
        if opened == "0":
            equal("  its content", (taker("check", 0, 0, 1), taker("fill", 0, 0, 2), giver("check", 0, 0, 2)), ("1", "0", "1"))
        else:  # nothing is left of it
            taker("device", 1)
            equal("  by its own device", (taker("open", 0, giver.give(0)), taker("check", 0, 0, 1)), (f"0 1 {3 * MIB}", "1"))
        place = int(giver("address", 0))
        giver("free", 0)
        taker("close", 0)
        ok("  it serves again", wait_for(lambda giver=giver, place=place: reuse(giver, 3 * MIB, place)))
        giver.end()
        taker.end()
    three = {"SIMCUDA_DEVICES": "3", "GPUCACHE_BACKEND": "vmm"}
    giver, taker = Peer(base, **three), Peer(base, **three)
    giver.make(0, 3 * MIB, 1)
    taker("open", 0, giver.give(0))
    for device in (1, 2):
        taker("device", device)
        equal(f"opened on device 0, used on {device}", (taker("fill", 0, 0, 5 + device), taker("check", 0, 0, 5 + device)), ("0", "1"))
        equal("  is the exporter's memory", giver("check", 0, 0, 5 + device), "1")
    giver.end()
    taker.end()


def faults(base):
    """Each driver call of an open fails: an error, nothing stays open or mapped, and the next time it works."""
    failing = [(call, nth, False) for call in ("cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess")
               for nth in ((1,) if call in ("cuMemAddressReserve", "cuMemSetAccess") else (1, 2, 20))]
    failing += [("cuMemExportToShareableHandle", nth, True) for nth in (2, 18)]  # the first is the handle's
    for call, nth, is_giver in failing:
        fail = {"SIMCUDA_FAIL": f"{call}@{nth}=CUDA_ERROR_UNKNOWN"}
        giver, taker = Peer(base, **(fail if is_giver else {})), Peer(base, **({} if is_giver else fail))
        for i in range(20):
            giver.make(i, 2 * MIB, 1)
        for i in range(20):
            giver("free", i)
        place = giver.make(0, 40 * MIB, 2)
        handle = giver.give(0)
        code = taker("open", 0, handle).split()[0]
        equal(f"{call}, {nth}: an error, then not", (code in ("999", MAP_FAILED), taker("open", 0, handle), taker("check", 0, 0, 2)),
              (True, f"0 1 {40 * MIB}", "1"))
        giver("free", 0)
        taker("close", 0)
        ok("  the memory serves again", wait_for(lambda giver=giver, place=place: reuse(giver, 40 * MIB, place)))
        giver.end()
        said = taker.end()[1]
        equal("  which is said", "no descriptor left" in said, is_giver)


def stopped(base):
    """An exporter that does not answer for a while."""
    giver, taker = Peer(base), Peer(base)
    giver.make(0, MIB, 1)
    giver.make(1, MIB, 2)
    giver.make(2, MIB, 3)
    handles = giver.give(0), giver.give(1)
    taker("open", 2, giver.give(2))
    giver.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(giver) == "T")
    begin = time.monotonic()
    equal("stopped: refused", taker("open", 0, handles[0]).split()[0], MAP_FAILED)
    ok("  after a while", time.monotonic() - begin < SECONDS_MAX)
    giver.process.send_signal(signal.SIGCONT)
    equal("it goes on: each handle opens its own block", [taker("open", i, handles[i]) and taker("check", i, 0, i + 1) for i in (1, 0)],
          ["1", "1"])
    taker.end()
    giver.end()


def tasks(base):
    """Tasks of a job that are not under the library get memory that they can open."""
    for count, number in (("WORLD_SIZE", "RANK"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK"),
                          ("SLURM_NTASKS", "SLURM_PROCID")):
        job = {count: str(random.randint(10**6, 10**9))}
        first, second = Peer(base, **job, **{number: "0"}), Peer(base, **job, **{number: "1"})
        first.make(0, MIB, 1)
        equal(f"{count}: all under the library", (second("open", 0, first.give(0)), second("check", 0, 0, 1)), (f"0 1 {MIB}", "1"))
        second.end()
        first.end()
        second = Peer(base, plain=True, **job, **{number: "1"})
        first = Peer(base, **job, **{number: "0"})
        first.make(0, MIB, 1)
        equal("  one is not", (second("open", 0, first.give(0)), second("check", 0, 0, 1)), (f"0 1 {MIB}", "1"))
        first.end()
        second.end()


def main():
    """Each in a folder of its own."""
    seed = int(os.environ.get("SEED", random.getrandbits(32)))
    random.seed(seed)
    print(f"# SEED={seed}")
    for case in (many, pieces, count, held, ends, forks, execs, deaf,
                 storm, strangers, liars, backends, devices, faults, stopped, tasks):
        with tempfile.TemporaryDirectory() as base:
            os.chmod(base, 0o777)
            print(f"# {case.__name__}")
            case(base)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
