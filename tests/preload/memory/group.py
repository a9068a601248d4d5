#!/usr/bin/env python3
"""Many processes of one group on one shared device: group.py BUILD_DIR SECONDS PROCESSES HOW LIMIT

HOW: kill (a third is killed at random, new ones are started) or stop (they are stopped and continued at random).
Prints one line of JSON with what was seen."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

BUILD, SECONDS, PROCESSES, HOW, LIMIT = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
SEED = int(os.environ.get("GROUP_SEED", time.time_ns() & 0xFFFFFF))
rng = random.Random(SEED)
REFUSAL = re.compile(r"gpucache: device [0-9]+: [0-9.]+ [A-Za-z]+ refused: ")
PROGS = os.path.join(BUILD, "tests/preload")
plain = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "simcuda"), SIMCUDA_SHARED=f"group-{os.getpid()}",
             SIMCUDA_MEMORY="64GiB")
member_env = dict(plain, LD_PRELOAD=os.path.join(BUILD, "libgpucache.so"), GPUCACHE_GROUP="torture",
                  GPUCACHE_GROUP_LIMIT=str(LIMIT), GPUCACHE_REPORT="none",
                  GPUCACHE_WAIT=os.environ.get("GPUCACHE_WAIT", "20"))
end = None  # known once all have been started
started = 0


class Member:
    def __init__(self):
        global started
        started += 1
        left = max(end - time.monotonic(), 0.2) if end else SECONDS + 2
        self.killed = False
        self.stopped_until = None
        self.process = subprocess.Popen(
            [os.path.join(PROGS, "group_member"), f"{left:.2f}", str(12 << 20), str(rng.randrange(1 << 30))],
            env=member_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)


observer = subprocess.Popen([os.path.join(PROGS, "group_observer")], env=plain, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
observer.stdout.readline()
members = [Member() for _ in range(PROCESSES)]
begin = time.monotonic()
end = begin + SECONDS
kills = stops = 0
while time.monotonic() < end:
    time.sleep(0.02)
    now = time.monotonic()
    due = min((now - begin) / SECONDS, 1)  # by the clock: a loaded machine gets here less often
    while HOW == "kill" and kills < int(PROCESSES // 3 * max(1, SECONDS / 15) * due):
        victim = rng.choice([m for m in members if not m.killed])
        victim.killed = True
        victim.signal(signal.SIGKILL)
        kills += 1
        if now < end - 1:
            members.append(Member())
    going = [member for member in members if member.stopped_until is None]
    while HOW == "stop" and going and stops < int(15 * SECONDS * due):
        victim = going.pop(rng.randrange(len(going)))
        victim.signal(signal.SIGSTOP)
        victim.stopped_until = now + rng.uniform(0.05, 1.5)
        stops += 1
    for member in members:
        if member.stopped_until is not None and now >= member.stopped_until:
            member.signal(signal.SIGCONT)
            member.stopped_until = None
for member in members:
    member.signal(signal.SIGCONT)

result = {"seed": SEED, "limit": LIMIT, "started": started, "kills": kills, "stops": stops, "hung": 0, "failed": 0,
          "allocations": 0, "failures": 0, "longest_ms": 0, "complaints": []}
deadline = time.monotonic() + 100
for member in members:
    try:
        out, err = member.process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        result["hung"] += 1
        member.process.kill()
        member.process.communicate()
        continue
    if member.killed:
        continue
    err = "\n".join(line for line in err.splitlines() if not REFUSAL.match(line))  # the limit is met on purpose
    if err:
        result["complaints"].append(err.strip()[:300])
    if member.process.returncode != 0:
        result["failed"] += 1
        continue
    words = out.split() or [None, 0, None, 0, None, 0]
    result["allocations"] += int(words[1])
    result["failures"] += int(words[3])
    result["longest_ms"] = max(result["longest_ms"], int(words[5]))
result["complaints"] = result["complaints"][:4]
out = observer.communicate(input="end\n", timeout=60)[0].split()
result["most"], result["samples"], result["last"] = int(out[1]), int(out[3]), int(out[5])
try:
    os.unlink(f"/dev/shm/simcuda-{os.getuid()}-group-{os.getpid()}")
except OSError:
    pass
print(json.dumps(result))
