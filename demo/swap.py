#!/usr/bin/env python3
"""Three servers of 60 % of a device each share that device, without and with GPUCACHE_OVERCOMMIT=swap, and a picture of
whose memory was on the device: `make demo-swap` builds what this needs.

usage: swap.py [--seconds N] [--mean MS] [--seed N] [--build DIR] [--output FILE.svg]

The servers (demo/swap_server.c) are plain CUDA programs. On a GPU if there is one, else on the simulated driver. Who was
resident is what `gpucache top --json` showed, sampled."""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ("alice", "bob", "carol")
SHARE = 0.6
MIB = 1 << 20
SIMULATED = {"SIMCUDA_MEMORY": "1GiB", "SIMCUDA_LINK": "25GB", "SIMCUDA_WORK_US": "1000"}
LAYER_MIB = 16  # of demo/swap_server.c
LOAD_S = 120
SAMPLE_S = 0.04
COLUMNS = 88  # of the timeline in the terminal
RESIDENT, AWAY = 0.99, 0.1  # of a server's memory


class Server:
    """A server, the lines it printed, and those of its stderr, which are the library's."""

    def __init__(self, demo, name, number, overcommit, seconds):
        environment = demo.environment(GPUCACHE_TENANT=name, GPUCACHE_OVERCOMMIT=overcommit,
                                       LD_PRELOAD=os.path.join(demo.build, "libgpucache.so"))
        self.name, self.answers, self.end, self.problem, self.is_ready = name, [], "", "", threading.Event()
        self.complaints = []
        self.process = subprocess.Popen(
            [demo.program, name, str(demo.mib), str(demo.options.seed * 10 + number), str(seconds), str(demo.options.mean)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self.read, self.read_complaints)]
        for reader in self.readers:
            reader.start()

    def read_complaints(self):
        """Until it ends."""
        for line in self.process.stderr:
            self.complaints.append(line.strip())

    def read(self):
        """Until it ends."""
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "answer":
                self.answers.append((int(words[3]) / 1e6, int(words[5]) / 1e6, int(words[7]) / 1e6, words[8] == "right"))
            elif words[0] == "ready":
                self.is_ready.set()
            elif words[0] == "end":
                self.end = line.strip()
            else:
                self.problem = line.strip()
        self.is_ready.set()

    def result(self):
        """One line, when it has ended, and below it what went wrong."""
        for reader in self.readers:
            reader.join()
        self.process.wait()
        return "".join([self.summary()] + [f"\n         {line}" for line in self.complaints])

    def summary(self):
        """The line."""
        if self.problem:
            return self.problem
        right = sum(answer[3] for answer in self.answers)
        waits = sorted(answer[2] - answer[0] for answer in self.answers) or [0]
        return (f"{len(self.answers)} answers, {right} right; from arrival to answer: "
                f"median {1000 * waits[len(waits) // 2]:.0f} ms, longest {1000 * waits[-1]:.0f} ms")

    def is_well(self):
        """All answers right, and some there."""
        return self.process.returncode == 0 and bool(self.answers) and all(answer[3] for answer in self.answers)


class Demo:
    """Both runs."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.build = os.path.abspath(options.build)
        self.program = os.path.join(self.build, "tests/demo/swap_server")
        self.samples = []  # (when, {name: (resident bytes, is waiting)})
        self.surroundings = dict(os.environ)
        self.where = "the GPU"
        if not has_gpu():
            self.where = ("the simulated driver (there is no GPU here): a device of " + SIMULATED["SIMCUDA_MEMORY"] +
                          f", its link {SIMULATED['SIMCUDA_LINK']}/s each way")
            self.surroundings.update(SIMULATED, SIMCUDA_SHARED=os.path.basename(folder),
                                     LD_LIBRARY_PATH=os.path.join(self.build, "simcuda"))
        self.limit = self.measure_device()
        self.mib = int(self.limit * SHARE) // MIB // LAYER_MIB * LAYER_MIB

    def environment(self, **settings):
        """Of the programs of this demo."""
        return {**self.surroundings, "GPUCACHE_LEDGER": os.path.join(self.folder, "ledger"), "GPUCACHE_GROUP": "demo",
                "GPUCACHE_REPORT": "none", **settings}

    def measure_device(self):
        """What the servers may hold together: what the device has free, but no more than this host can hold of it."""
        done = subprocess.run([self.program, "--free"], env=self.environment(), capture_output=True, text=True, check=True)
        with open("/proc/meminfo", encoding="utf-8") as stream:
            available = next(int(line.split()[1]) << 10 for line in stream if line.startswith("MemAvailable"))
        limit = min(int(int(done.stdout) * 0.98), available // 3)
        self.surroundings["GPUCACHE_GROUP_LIMIT"] = str(limit)
        return limit

    def sample(self):
        """Whose memory is on the device now."""
        done = subprocess.run([os.path.join(self.build, "gpucache"), "top", "--once", "--json"], env=self.environment(),
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            rows = {row["name"]: row for row in json.loads(done.stdout)["processes"]}
            self.samples.append((time.monotonic(), {
                name: (sum(map(self.resident_bytes, row["devices"])), row["state"] == "waiting") for name, row in rows.items()}))

    def resident_bytes(self, device):
        """Of a server's memory; what it holds of the device is more, by its context."""
        return min(device["reserved_bytes"], self.mib * MIB - device["swapped_bytes"])

    def serve(self, overcommit, seconds):
        """All three, started one after the other; they end by themselves."""
        servers = []
        for number, name in enumerate(NAMES):
            servers.append(Server(self, name, number, overcommit, seconds))
            until = time.monotonic() + LOAD_S
            while not servers[-1].is_ready.wait(SAMPLE_S) and time.monotonic() < until:
                self.sample()
        while any(server.process.poll() is None for server in servers):
            self.sample()
            time.sleep(SAMPLE_S)
        return servers

    def run(self):
        """False: it was not as it should be."""
        print(f"device:  {self.where}")
        print(f"servers: {', '.join(NAMES)}, {self.mib} MiB each; together they may hold {self.limit // MIB} MiB\n")
        print("WITHOUT GPUCACHE_OVERCOMMIT")
        without = self.serve("off", 2)
        for server in without:
            print(f"  {server.name:6} {server.result()}")
        self.samples.clear()
        print("\nWITH GPUCACHE_OVERCOMMIT=swap")
        servers = self.serve("swap", self.options.seconds)
        for server in servers:
            print(f"  {server.name:6} {server.result()}")
        self.print_timeline(servers)
        with open(self.options.output, "w", encoding="utf-8") as stream:
            stream.write(draw(self, servers))
        print(f"\nas a picture: {self.options.output}")
        return any(server.problem for server in without) and all(server.is_well() for server in servers)

    # ---- the timeline ----

    def span(self, servers):
        """From the first sample to the last answer."""
        ends = [answer[2] for server in servers for answer in server.answers]
        first = self.samples[0][0] if self.samples else 0
        return first, max([self.samples[-1][0] if self.samples else 1, first + 0.001] + ends)

    def resident(self, name, begin, end):
        """The largest share of a server's memory that was on the device; None if nothing was seen."""
        seen = [sample[1][name][0] for sample in self.samples if begin <= sample[0] < end and name in sample[1]]
        return max(seen) / (self.mib * MIB) if seen else None

    def print_timeline(self, servers):
        """A character is a moment."""
        begin, end = self.span(servers)
        step = (end - begin) / COLUMNS
        print(f"\nWHOSE MEMORY WAS ON THE DEVICE (█ all, ▒ a part, · none; ' answers), a character is {1000 * step:.0f} ms")
        for server in servers:
            cells, marks, last = "", "", None
            for column in range(COLUMNS):
                start = begin + column * step
                seen = self.resident(server.name, start, start + step)
                last = seen if seen is not None else last
                ended = server.answers and start > server.answers[-1][2] + 1
                cells += " " if last is None or ended else "█" if last > RESIDENT else "·" if last < AWAY else "▒"
                marks += "'" if any(start <= answer[2] < start + step for answer in server.answers) else " "
            print(f"  {server.name:6} {cells}\n         {marks.rstrip()}")


LANE, TOP, LEFT, WIDTH, BAR = 78, 64, 70, 1000, 40
COLORS = ("#3b76c4", "#c9722e", "#3d9a5f")


def draw(demo, servers):
    """The timeline as SVG: for each server its resident memory, and below it the requests, waiting and served."""
    begin, end = demo.span(servers)

    def x_of(when):
        return LEFT + WIDTH * (when - begin) / (end - begin)

    height = TOP + LANE * len(servers) + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
             'font-family="sans-serif" font-size="13">',
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             f'<text x="{LEFT}" y="22" font-size="16">Three servers of {demo.mib} MiB each take turns in '
             f'{demo.limit // MIB} MiB</text>',
             f'<text x="{LEFT}" y="42" fill="#555">bar: memory on the device; line: a request, from its arrival (pale: it '
             'waits) to its answer (dark: it is served)</text>']
    for lane, server in enumerate(servers):
        base = TOP + lane * LANE + BAR
        parts.append(f'<text x="8" y="{base - 14}">{server.name}</text>')
        parts.append(f'<path d="M{LEFT} {base}H{LEFT + WIDTH}" stroke="#bbb"/>')
        area, last = [], 0.0
        for when, sample in demo.samples:
            bar = BAR * min(sample.get(server.name, (0, False))[0] / (demo.mib * MIB), 1.0)
            area += [f"L{x_of(when):.1f} {base - last:.1f}", f"L{x_of(when):.1f} {base - bar:.1f}"]
            last = bar
        parts.append(f'<path d="M{LEFT} {base}{"".join(area)}L{LEFT + WIDTH} {base - last:.1f}V{base}Z" '
                     f'fill="{COLORS[lane]}" fill-opacity="0.55"/>')
        for arrived, began, ended, is_right in server.answers:
            color = COLORS[lane] if is_right else "#d00000"
            y = base + 10
            parts.append(f'<path d="M{x_of(arrived):.1f} {y}H{x_of(began):.1f}" stroke="{color}" stroke-width="3" '
                         'stroke-opacity="0.3"/>')
            parts.append(f'<path d="M{x_of(began):.1f} {y}H{max(x_of(ended), x_of(began) + 1):.1f}" stroke="{color}" '
                         'stroke-width="6"/>')
    for second in range(int(end - begin) + 1):
        x = x_of(begin + second)
        parts.append(f'<path d="M{x:.1f} {TOP}V{height - 30}" stroke="#000" stroke-opacity="0.08"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle" fill="#555">{second} s</text>')
    return "\n".join(parts) + "\n</svg>\n"


def has_gpu():
    """By the driver's own tool."""
    with contextlib.suppress(OSError):
        return "GPU" in subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return False


def main():
    """Reads the arguments; the exit status."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--mean", type=float, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=os.environ.get("BUILD_DIR", os.path.join(ROOT, "build")))
    parser.add_argument("--output", default="")
    options = parser.parse_args()
    options.output = os.path.abspath(options.output or os.path.join(options.build, "demo-swap.svg"))
    with tempfile.TemporaryDirectory(prefix="gpucache-demo.") as folder:
        try:
            is_well = Demo(options, folder).run()
        finally:
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/simcuda-{os.getuid()}-{os.path.basename(folder)}")
    if not is_well:
        print("demo failed", file=sys.stderr)
        return 1
    print("\nWithout, there was no room for all; with it every answer was right.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
