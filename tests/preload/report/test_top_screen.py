#!/usr/bin/env python3
"""gpucache top on a terminal: what the screen shows, keys, sizes, kinds of terminal, every way to end."""
# waits: for screens
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, TOOL, finish, ok
from terminal import PATIENCE, Session

MEMBERS = os.path.join(BUILD, "tests/unit/tools/test_tool_live")


def environment(folder, **more):
    """A plain one; UTF-8, xterm."""
    result = {"GPUCACHE_LEDGER": folder, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "PATH": os.environ["PATH"]}
    result.update(more)
    return {key: value for key, value in result.items() if value is not None}


def show(lines):
    """A screen for a failure's text."""
    return "\n".join("|" + line for line in lines)


def start(folder, *arguments, columns=80, lines=24, null_input=False, **more):
    """gpucache top; returns when the screen shows something."""
    session = Session([TOOL, "top", *arguments], environment(folder, **more), columns, lines, null_input)
    # The last line is written last; the narrowest have room for nothing there.
    session.see(lambda screen: screen.text()[0].startswith("gpucache"[:columns]) and screen.text()[-1] != "")
    session.read(0.15)
    return session


def press_until(session, keys, reached):
    """Presses keys every second until a state is reached; whether it was."""
    for _ in range(PATIENCE):
        session.type(keys)
        if session.read(1, lambda screen: reached()):
            return True
    return False


def ticks(pid):
    """Processor time that a process has taken, in hundredths of a second."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
        return sum(map(int, stream.read().rsplit(")")[1].split()[11:13]))


def check_view(folder):
    """The screen shows the rows that --once prints; keys change it."""
    once = Session([TOOL, "top", "--once"], environment(folder), 80, 60)
    ok("--once on a terminal ends well", once.end() == 0)
    rows = once.screen.text()[1:]
    session = start(folder)
    text = session.screen.text()
    ok("a line of counts", text[0] == "gpucache top: 40 processes, 5 groups, 1 device; by reserved; 1.0s", text[0])
    ok("the head", re.match(r" +PID DEV GROUP +NAME +S +LIVE RESVD +IDLE LIMIT +PEAK OOM +HIT% HISTORY$", text[1]), text[1])
    ok("the keys", text[-1].startswith("q quit  ? keys"), text[-1])
    ok("as many rows as fit, those of --once",
       all(text[2 + i][:64].rstrip() == rows[i][:64].rstrip() for i in range(21)), show(text) + "\n" + show(rows[:21]))
    ok("names are harmless", any("caf\u00e9?[" in line for line in text), show(text))
    ok("colours", session.screen.colors > 0)
    ok("history grows", session.see(lambda screen: any(re.search("[\u2581-\u2588]{2,}$", line) for line in screen.text())),
       show(session.screen.text()))

    def press(keys, name, until):
        session.type(keys)
        ok(name, session.see(until), show(session.screen.text()))

    press("\x1bOB", "down: by one row", lambda screen: screen.text()[2][:64].rstrip() == rows[1][:64].rstrip())
    press("\x1bOF", "end: the last row", lambda screen: screen.text()[22].startswith(" tenant"))
    press("\x1bOH", "home: the first row", lambda screen: screen.text()[2][:64].rstrip() == rows[0][:64].rstrip())
    press("\x1b[6~", "page down", lambda screen: screen.text()[2][:64].rstrip() == rows[20][:64].rstrip())
    press("\x1b[5~", "page up", lambda screen: screen.text()[2][:64].rstrip() == rows[0][:64].rstrip())
    press("P", "sorted by PID", lambda screen: "by pid" in screen.text()[0] and screen.text()[8].startswith(" 100000"))
    press("R", "reversed", lambda screen: "pid reversed" in screen.text()[0] and screen.text()[8].startswith(" 100039"))
    press(">", "the next order", lambda screen: "by name" in screen.text()[0])
    press("R<P", "and back", lambda screen: screen.text()[8].startswith(" 100000"))
    ok("tenants beneath their process", session.see(lambda screen: screen.text()[9].split()[:3] ==
                                                    ["tenant", "\u2514", "\u6f22\u5b57"]), show(session.screen.text()))
    press("T", "without tenants", lambda screen: screen.text()[9].startswith(" 100001"))
    count = sum(line.startswith(" 1000") for line in session.screen.text())
    press("/", "a filter", lambda screen: screen.text()[-1].startswith("filter: _"))
    press("10003", "by PID, as it is typed", lambda screen: 0 < sum(line.startswith(" 1000") for line in screen.text()) < count and
          all(line.startswith(" 10003") for line in screen.text() if line.startswith(" 1000")))
    press("\r", "kept", lambda screen: "; only 10003;" in screen.text()[0] and screen.text()[-1].startswith("q quit"))
    press("/CAF\x7f\x7fAF\r", "by name, in any case, with corrections", lambda screen: "; only CAF;" in screen.text()[0] and
          any("caf" in line for line in screen.text()[2:]) and not any(line.startswith(" 10003") and "caf" not in line for line in screen.text()))
    press("/nothing-like-this", "nothing has it", lambda screen: not any(line.startswith(" 1000") for line in screen.text()))
    press("\x1b", "Escape ends it", lambda screen: "only" not in screen.text()[0] and any(line.startswith(" 1000") for line in screen.text()))
    press("?", "the keys", lambda screen: screen.text()[1].startswith("q, Ctrl-C"))
    press("x", "and back", lambda screen: screen.text()[9].startswith(" 100001"))
    press(" -", "frozen, and slower", lambda screen: "frozen, 2.0s" in screen.text()[0])
    session.type("q")
    ok("q ends it", session.end() == 0)
    ok("the terminal is as it was", session.is_restored())
    ok("nothing was sent that a terminal would not know", not session.screen.unknown, session.screen.unknown)


def check_sizes(folder):
    """Whatever the size: whole lines, no end."""
    session = start(folder)
    for columns, lines in ((40, 10), (20, 4), (10, 2), (2, 2), (1, 1), (300, 80), (80, 24)):
        session.resize(columns, lines)
        want = ("gpucache top: 40 processes, 5 groups, 1 device; by reserved; 1.0s" if columns > 70
                else "gpucache top: "[:columns - 1].rstrip())
        ok(f"{columns} by {lines}", session.see(lambda screen, want=want: screen.text()[0].startswith(want)),
           show(session.screen.text()))
    ok("the screen is whole again", session.see(lambda screen: screen.text()[-1].startswith("q quit") and
                                                screen.text()[1].endswith("HISTORY")), show(session.screen.text()))
    session.type("q")
    ok("after all sizes it ends well", session.end() == 0 and session.is_restored())
    session = start(folder, columns=30, lines=5)
    ok("a small one from the start", "RESVD" in session.screen.text()[1], show(session.screen.text()))
    session.type("\x1b[99;99~q\x1b")
    session.read(0.3)
    ok("an unknown key does nothing", session.is_restored() is False)
    session.type("q")
    ok("a small one ends well", session.end() == 0 and session.is_restored())


def check_terminals(folder):
    """Kinds of terminal and of locale."""
    for name, settings in (("TERM=vt100", {"TERM": "vt100"}), ("NO_COLOR", {"NO_COLOR": "1"})):
        session = start(folder, **settings)
        ok(f"{name}: a screen without colours", session.screen.colors == 0 and
           session.screen.text()[1].endswith("HISTORY"), show(session.screen.text()))
        session.type("q")
        ok(f"{name}: ends well", session.end() == 0)
    session = start(folder, LC_ALL="C")
    ok("LC_ALL=C: nothing but ASCII", all(byte < 128 for byte in session.output))
    ok("LC_ALL=C: names", any("caf??" in line for line in session.screen.text()), show(session.screen.text()))
    session.type("q")
    ok("LC_ALL=C: ends well", session.end() == 0)
    for term in ("dumb", "no-such-terminal", None):
        session = Session([TOOL, "top", "--interval", "0.2"], environment(folder, TERM=term), 80, 200)
        ok(f"TERM={term}: tables, one after the other",
           session.see(lambda screen: sum("PID" in line for line in screen.text()) >= 2), session.output[-300:])
        ok(f"TERM={term}: no escapes", b"\x1b" not in session.output)
        session.type("\x03")
        ok(f"TERM={term}: Ctrl-C ends it", session.end() == -signal.SIGINT)
    session = start(folder, null_input=True)
    ok("input is no terminal: a screen", session.screen.text()[1].endswith("HISTORY"), show(session.screen.text()))
    before = ticks(session.pid)
    time.sleep(0.5)
    spent = ticks(session.pid) - before
    ok("input is no terminal: it does not spin", spent < 20, spent)
    session.kill(signal.SIGTERM)
    ok("input is no terminal: SIGTERM ends it", session.end() == -signal.SIGTERM)
    plain = subprocess.run([TOOL, "top"], env=environment(folder), stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=PATIENCE, check=False)
    ok("output is no terminal: one table", plain.returncode == 0 and plain.stdout.count(b"PID") == 1 and
       b"\x1b" not in plain.stdout and plain.stderr == b"", plain)


def check_ends(folder):
    """Ctrl-C and signals leave the terminal as it was."""
    session = start(folder)
    ok("the second screen is used, the cursor hidden", session.screen.is_second and session.screen.is_hidden)
    ok("the settings are changed meanwhile", not session.is_restored())
    session.type("\x03")
    ok("Ctrl-C: done", session.end() == 0)
    ok("Ctrl-C: the terminal is as it was", session.is_restored())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        session = start(folder)
        session.kill(number)
        status = session.end()
        ok(f"{number.name}: the end it asks for", status == (0 if number == signal.SIGINT else -number), status)
        ok(f"{number.name}: the terminal is as it was", session.is_restored())
    go_on = folder + ".go-on"
    os.mkfifo(go_on)
    shell = ["/bin/bash", "--norc", "-c", f"set -m; '{TOOL}' top; read -r go < '{go_on}'; fg"]
    session = Session(shell, environment(folder))
    session.see(lambda screen: screen.text()[-1] != "")
    # The terminal library ignores keys while it writes: they are pressed again.
    ok("Ctrl-Z: the terminal is as it was", press_until(session, "\x1a", session.is_restored))
    with open(go_on, "w", encoding="utf-8"):
        pass
    ok("fg: the screen is there again", session.see(lambda screen: screen.is_second and
                                                    screen.text()[1].endswith("HISTORY")), show(session.screen.text()))
    press_until(session, "q", session.is_restored)
    status = session.end()
    ok("fg: ends well", status == 0 and session.is_restored(), f"{status} {session.is_restored()}\n{session.output[-200:]}")
    session = start(folder)
    os.close(session.slave)
    os.close(session.master)
    end = time.monotonic() + PATIENCE
    pid = 0
    while pid == 0 and time.monotonic() < end:
        pid, _ = os.waitpid(session.pid, os.WNOHANG)
        time.sleep(0.05)
    ok("a terminal that goes away ends it", pid != 0)


def check_turns(folder):
    """Processes that take turns: the mark, and what is done to the marked one."""
    with subprocess.Popen([MEMBERS, "--turns", folder, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as members:
        members.stdout.readline()
        session = start(folder, "--interval", "0.1", "--sort", "pid", columns=100)

        def press(keys, name, until):
            session.type(keys)
            ok(name, session.see(until), show(session.screen.text()))

        def row(pid):
            return next((line for line in session.screen.text() if line.startswith(f" {pid}")), "")

        ok("turns: their columns", " SWAP  WAIT" in session.screen.text()[1], session.screen.text()[1])
        ok("turns: away", re.search(r" A +1.00M", row(100000)), row(100000))
        press("k", "turns: nothing is marked", lambda screen: screen.text()[-1].startswith("no process is marked: Tab"))
        press("\t\t", "turns: the second is marked", lambda screen: screen.text()[-1].startswith("marked: k pin"))
        press("k", "turns: pinned", lambda screen: screen.text()[-1].startswith("pinned: "))
        ok("turns: it is shown", session.see(lambda screen: re.search(r" ! +2.00M", row(100001))), row(100001))
        press("k", "turns: not pinned any more", lambda screen: screen.text()[-1].startswith("not pinned: "))
        ok("turns: it is shown no more", session.see(lambda screen: " ! " not in row(100001)), row(100001))
        press("e", "turns: evicted", lambda screen: screen.text()[-1].startswith("it was asked for all its memory"))
        press("\t", "turns: no mark after the last one", lambda screen: screen.text()[-1].startswith("no process is marked"))
        session.type("q")
        ok("turns: it ends well", session.end() == 0)
        members.stdin.close()


# Allocates, frees and tells what became of it, as it is told.
OBEYS = """import ctypes, sys
cuda, context, kept = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), []
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
for line in sys.stdin:
    if line.startswith("free"):
        print(cuda.cuMemFree_v2(kept.pop()), flush=True)
        continue
    kept.append(ctypes.c_uint64())
    print(cuda.cuMemAlloc_v2(ctypes.byref(kept[-1]), ctypes.c_size_t(int(line) << 20)), flush=True)
"""


def check_steering(base):
    """A process under the library: limit, trim, pause and resume by keys; its colours."""
    folder = os.path.join(base, "steering")
    sim = os.path.join(BUILD, "simcuda")
    if not os.path.exists(os.path.join(sim, "libcuda.so.1")):
        print(f"# {sim} is not built: no process is steered")
        return
    with subprocess.Popen([TOOL, "run", "--limit", "1GiB", "--report", "none", "--", sys.executable, "-c", OBEYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=environment(folder, LD_LIBRARY_PATH=sim, GPUCACHE_GROUP="steered", GPUCACHE_TENANT="obeys")) as program:
        def order(line):
            program.stdin.write(line.encode() + b"\n")
            program.stdin.flush()
            return program.stdout.readline()

        order("200")
        order("100")
        order("free")
        session = start(folder, "--interval", "0.1", columns=100)

        def press(keys, name, until):
            session.type(keys)
            ok(name, session.see(until), show(session.screen.text()))

        def row():
            return next((line for line in session.screen.text() if "obeys" in line and "group" not in line), "")

        def cell(name):
            head = session.screen.text()[1]
            end = head.index(name) + len(name)
            return row()[max(0, end - 6):end].split()[-1] if row() else ""

        def state():
            at = session.screen.text()[1].index(" S ") + 1
            return row()[at:at + 1]

        for key in "ltp":
            press(key, f"{key}: no process is marked", lambda screen: screen.text()[-1].startswith("no process is marked"))
        press("\t", "it is marked", lambda screen: screen.text()[-1].startswith("marked: l limit"))
        ok("it has idle memory", session.see(lambda screen: cell("IDLE") == "100M"), row())
        press("t", "trim: asked", lambda screen: screen.text()[-1].startswith("it was asked for its idle memory"))
        ok("trim: it has none", session.see(lambda screen: cell("IDLE") == "0"), row())
        press("l", "limit: asks for a size", lambda screen: re.search(r"^limit of \d+ obeys \(8GiB, 50%, none\): _", screen.text()[-1]))
        press("12x\r", "limit: no size", lambda screen: screen.text()[-1].startswith("not a size; limit of"))
        press("\x15500MiB\r", "limit: a size", lambda screen: screen.text()[-1].startswith("it was asked to keep the new limit"))
        ok("limit: it is in force", session.see(lambda screen: cell("LIMIT") == "500M"), row())
        ok("no trouble, no red", b"\x1b[31m" not in session.output)
        press("l100MiB\r", "limit: below the live memory it asks again", lambda screen: re.search(r"^100MiB is below the live memory of \d+ obeys", screen.text()[-1]))
        press("n", "limit: no", lambda screen: screen.text()[-1].startswith("nothing was done") and cell("LIMIT") == "500M")
        press("l50%\r", "limit: a share of the device", lambda screen: cell("LIMIT") == "8.00G")
        press("lnone\r", "limit: none", lambda screen: cell("LIMIT") == "-")
        press("l280MiB\r", "limit: little above what it has", lambda screen: cell("LIMIT") == "280M")
        ok("near the limit it is yellow", session.see(lambda screen: b"\x1b[33m" in session.output), session.output[-200:])
        press("p", "pause: asks first", lambda screen: re.search(r"^pause \d+ obeys\?", screen.text()[-1]))
        press("x", "pause: no", lambda screen: screen.text()[-1].startswith("nothing was done"))
        press("py", "pause: yes", lambda screen: state() == "P")
        press("p", "it goes on", lambda screen: state() != "P")
        ok("a request that is refused", order("900") == b"2\n")
        ok("its process is red", session.see(lambda screen: b"\x1b[31m" in session.output), session.output[-200:])
        session.type("q")
        ok("steering: it ends well", session.end() == 0)
        plain = start(folder, TERM="vt100", columns=100)
        ok("a terminal without colours: trouble is bold", plain.see(lambda screen: b"\x1b[1m" in plain.output or b"\x1b[;1m" in plain.output or b"\x1b[0;1m" in plain.output)
           and plain.screen.colors == 0, plain.output[-200:])
        plain.type("q")
        ok("it ends well", plain.end() == 0)
        program.stdin.close()


def main():
    """All of it; ends with 1 if anything failed."""
    with tempfile.TemporaryDirectory(prefix="gpucache-top.") as base:
        folder = os.path.join(base, "ledger")
        with subprocess.Popen([MEMBERS, "--members", folder, "40"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as members:
            ok("members are there", members.stdout.readline() == b"ready\n")
            check_view(folder)
            check_sizes(folder)
            check_terminals(folder)
            check_ends(folder)
            session = start(folder, "--interval", "0.1")
            members.stdin.close()
            members.wait(PATIENCE)
        ok("who ends is gone from the screen",
           session.see(lambda screen: screen.text()[0].startswith("gpucache top: 0 processes")),
           show(session.screen.text()))
        shutil.rmtree(folder)
        with subprocess.Popen([MEMBERS, "--members", folder, "3"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as members:
            members.stdout.readline()
            ok("another ledger in its place is found",
               session.see(lambda screen: screen.text()[0].startswith("gpucache top: 3 processes")),
               show(session.screen.text()))
            members.stdin.close()
        session.type("q")
        ok("an empty screen ends well", session.end() == 0)
        check_turns(os.path.join(base, "turns"))
        check_steering(base)
        nothing = Session([TOOL, "top", "--once"], environment(os.path.join(base, "nothing")))
        ok("without a ledger: an empty table", nothing.end() == 0 and "PID" in nothing.screen.text()[0])
    return finish()


if __name__ == "__main__":
    sys.exit(main())
