#!/usr/bin/env python3
"""gpucache top, limit, trim and pause on real programs on the simulated device: figures agree with the programs' own reports, a
limit is in force within one allocation, idle memory goes back, and every state a program can be in is shown."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import CONTEXT, MIB, OUT_OF_MEMORY, PATIENCE, Client, equal, finish, ok, tool


def top(base):
    """The JSON, its processes by name."""
    status, out, error = tool(base, "top", "--once", "--json")
    assert status == 0, error
    view = json.loads(out)
    return view, {process["name"]: process for process in view["processes"]}


def fresh(base, *names):
    """The same once these, which have helpers, have published their current figures: top does not wait long for them."""
    now = time.monotonic()
    while True:
        asked = time.monotonic()
        view, processes = top(base)
        if all(processes[name]["age_ms"] is not None and processes[name]["age_ms"] < (asked - now) * 1000 for name in names):
            return view, processes
        time.sleep(0.01)


def figures(device):
    """The figures of both sides for a device, in the words of top."""
    plain = ("hit_count", "miss_count", "oom_count", "limit_bytes", "uuid")
    result = {key: device[key] for key in plain}
    for key in ("requested", "allocated", "reserved", "pending"):
        value = device[key + "_bytes"]
        result[key] = value["current"] if isinstance(value, dict) else value
    peak = device.get("peak_reserved_bytes")
    result["peak"] = device["reserved_bytes"]["peak"] if peak is None else peak
    return result


def check_figures(base):
    """The figures of top are those of the reports."""
    clients = {"one": Client(base, "one", GPUCACHE_GROUP="train", GPUCACHE_GROUP_LIMIT="2GiB"),
               "two": Client(base, "two", GPUCACHE_GROUP="train", GPUCACHE_LIMIT="512MiB"),
               "alone": Client(base, "alone")}
    for number, client in enumerate(clients.values()):
        for _ in range(20):
            client.command(f"alloc {number + 2}")
        equal("an allocation that is too large", client.command("alloc 5000"), OUT_OF_MEMORY)
        for block in range(10):
            client.command(f"free {block}")
        for block in range(5):
            client.command("kib 64")
            client.command(f"free {20 + block}")
    view, processes = top(base)
    equal("top: the processes", sorted(processes), ["alone", "one", "two"])
    equal("top: the group", [(group["name"], group["process_count"]) for group in view["groups"]], [("train", 2)])
    equal("top: the group's limit", view["groups"][0]["devices"][0]["limit_bytes"], 2048 * MIB)
    # A process without a group responds at its next allocation call.
    clients["alone"].command("alloc 3")
    view, processes = fresh(base, "one", "two")
    clients["alone"].command("info")
    for name, client in clients.items():
        equal(f"top: {name} is itself", (processes[name]["pid"], processes[name]["state"], processes[name]["program"],
                                         processes[name]["group"]),
              (client.process.pid, "running", "live_client", None if name == "alone" else "train"))
    total = view["devices"][0]["reserved_bytes"]
    equal("top: a device's sum", total, sum(process["devices"][0]["reserved_bytes"] for process in processes.values()))
    equal("top: the group's sum", view["groups"][0]["devices"][0]["reserved_bytes"],
          sum(processes[name]["devices"][0]["reserved_bytes"] for name in ("one", "two")))
    for name, client in clients.items():
        seen = figures(processes[name]["devices"][0])
        ok(f"top: {name} had hits", seen["hit_count"] > 0, seen)
        ok(f"top: {name} has idle memory", processes[name]["devices"][0]["idle_bytes"] > 0, processes[name])
        if name == "alone":
            ok("top: figures of one without a group have an age", processes[name]["age_ms"] >= 0)
        equal(f"top: {name} as in its report", seen, figures(client.end()))
    equal("top: who ended is gone", top(base)[1], {})


def check_limit(base):
    """In force within one allocation, both ways, with and without a helper."""
    kinds = {"without a group": {}, "with a group": {"GPUCACHE_GROUP": "train"},
             "driver segments": {"GPUCACHE_BACKEND": "driver"}, "track": {"GPUCACHE_MODE": "track"},
             "track with a group": {"GPUCACHE_MODE": "track", "GPUCACHE_GROUP": "train"}}
    for kind, settings in kinds.items():
        group = "GPUCACHE_GROUP" in settings
        wait = () if group else ("--timeout", "0")
        client = Client(base, "limited", GPUCACHE_LIMIT=f"{256 + CONTEXT}MiB", **settings)
        equal(f"{kind}: within its limit", client.command("alloc 200"), "0")
        equal(f"{kind}: beyond its limit", client.command("alloc 100"), OUT_OF_MEMORY)
        if group:
            fresh(base, "limited")
        status, out, error = tool(base, "limit", client.pid, "576MiB", *wait)
        equal(f"{kind}: raised", (status, error), (0, ""))
        if group:
            equal(f"{kind}: shows the former and the new value", out,
                  f"process {client.pid} (limited), device 0: limit 320.0 MiB -> 576.0 MiB, reserved 264.0 MiB -> "
                  "264.0 MiB, idle 0 B -> 0 B\n")
        else:
            equal(f"{kind}: not waited for", out, f"process {client.pid} (limited): request left, answer not awaited\n")
        equal(f"{kind}: raised: the very next allocation", client.command("alloc 100"), "0")
        equal(f"{kind}: raised: cuMemGetInfo", client.command("info"), f"{212 * MIB} {576 * MIB}")
        lower = f"{310 + CONTEXT}MiB"
        equal(f"{kind}: lowered", tool(base, "limit", client.pid, lower, "--device", "0", *wait)[0], 0)
        equal(f"{kind}: lowered: the very next allocation", client.command("alloc 20"), OUT_OF_MEMORY)
        equal(f"{kind}: lowered: what fits", client.command("alloc 10"), "0")
        lower = f"{100 + CONTEXT}MiB"
        equal(f"{kind}: lowered below what is held", tool(base, "limit", client.pid, lower, *wait)[0], 0)
        equal(f"{kind}: nothing fits", client.command("alloc 1"), OUT_OF_MEMORY)
        equal(f"{kind}: nothing was taken from it", client.command("free 0"), "0")
        equal(f"{kind}: still over", client.command("alloc 1"), OUT_OF_MEMORY)
        equal(f"{kind}: free the rest", client.command("free 1"), "0")
        equal(f"{kind}: below again", client.command("alloc 80"), "0")
        equal(f"{kind}: a percentage", tool(base, "limit", client.pid, "50%", *wait)[0], 0)
        equal(f"{kind}: half of the device", client.command("alloc 1880"), "0")
        equal(f"{kind}: and no more", client.command("alloc 100"), OUT_OF_MEMORY)
        equal(f"{kind}: none", tool(base, "limit", client.pid, "none", *wait)[0], 0)
        equal(f"{kind}: none: the device's own", client.command("alloc 1500"), "0")
        equal(f"{kind}: the report has no limit", client.end()["limit_bytes"], None)


def check_idle(base):
    """Idle memory goes back when the limit falls below what is held, and on trim."""
    client = Client(base, "idle", GPUCACHE_GROUP="train")
    for step in ("alloc 100", "alloc 200", "free 1"):
        client.command(step)
    fresh(base, "idle")
    status, out, error = tool(base, "limit", client.pid, "150MiB")
    equal("idle memory goes back", (status, out, error),
          (0, f"process {client.pid} (idle), device 0: limit none -> 150.0 MiB, reserved 300.0 MiB -> 150.0 MiB, "
           "idle 200.0 MiB -> 50.0 MiB\n", ""))
    equal("the driver has it", client.command("info").split()[1], str(150 * MIB))
    status, out, _ = tool(base, "trim", client.pid)
    equal("trim", (status, out), (0, f"process {client.pid} (idle), device 0: reserved 150.0 MiB -> 100.0 MiB, "
                                  "idle 50.0 MiB -> 0 B\n"))
    equal("trim: in the report", client.end()["reserved_bytes"]["current"], 100 * MIB)
    client = Client(base, "quiet")
    for step in ("alloc 100", "alloc 200", "free 1"):
        client.command(step)
    equal("without a group: a limit waits for the next call", tool(base, "limit", client.pid, "150MiB", "--timeout", "0.2"),
          (1, "", f"gpucache limit: process {client.pid} (quiet) did not answer within 0.2 s: it has no group, so it "
           "answers when it next allocates or submits work; the request stays\n"))
    equal("without a group: its name is no group", tool(base, "trim", "quiet"),
          (1, "", f"gpucache trim: no group is called quiet, but process {client.pid} is: give its PID\n"))
    equal("without a group: and is in force then", client.command("alloc 60"), OUT_OF_MEMORY)
    device = top(base)[1]["quiet"]["devices"][0]
    equal("without a group: what it held idle is back, and the miss is shown", (device["reserved_bytes"], device["oom_count"]), (100 * MIB, 1))
    client.end()


def check_group(base):
    """A group's limit, raised and lowered while its members run."""
    one = Client(base, "one", GPUCACHE_GROUP="train", GPUCACHE_GROUP_LIMIT=f"{400 + 2 * CONTEXT}MiB")
    two = Client(base, "two", GPUCACHE_GROUP="train")
    equal("group: one", one.command("alloc 200"), "0")
    equal("group: two", two.command("alloc 150"), "0")
    equal("group: full", two.command("alloc 100"), OUT_OF_MEMORY)
    status, out, _ = tool(base, "limit", "train", f"{600 + 2 * CONTEXT}MiB")
    equal("group: raised", (status, out), (0, "group train, device 0: limit 528.0 MiB -> 728.0 MiB, reserved 478.0 MiB -> "
                                           "478.0 MiB\n"))
    equal("group: raised: the very next allocation", two.command("alloc 100"), "0")
    two.command("free 1")
    status, out, _ = tool(base, "limit", "group:train", f"{380 + 2 * CONTEXT}MiB")
    equal("group: lowered: idle memory goes back", (status, out.splitlines()[-1]),
          (0, "group train, device 0: limit 728.0 MiB -> 508.0 MiB, reserved 578.0 MiB -> 508.0 MiB"))
    equal("group: lowered: the very next allocation", one.command("alloc 40"), OUT_OF_MEMORY)
    equal("group: what fits", two.command("alloc 20"), "0")
    equal("group: none", tool(base, "limit", "train", "none")[0], 0)
    equal("group: as much as there is", one.command("alloc 1000"), "0")
    three = Client(base, "three", GPUCACHE_GROUP="train", GPUCACHE_GROUP_LIMIT="100MiB")
    equal("group: none, also with one that brings a limit", three.command("alloc 200"), "0")
    device = two.end()
    equal("group: the report names it, and no limit", (device["group"], device["group_limit_bytes"], device["limit_bytes"]),
          ("train", None, None))
    one.end()
    equal("group: limited again", tool(base, "limit", "train", "2GiB")[0], 0)
    device = three.end()
    equal("group: the report has its limit beside the own", (device["group_limit_bytes"], device["limit_bytes"]),
          (2048 * MIB, None))
    equal("group: nobody is left to limit", tool(base, "limit", "train", "1GiB"),
          (1, "", "gpucache limit: group train has no processes; its first process sets the limit, by GPUCACHE_GROUP_LIMIT\n"))
    client = Client(base, "later", GPUCACHE_GROUP="train", GPUCACHE_GROUP_LIMIT="200MiB", SIMCUDA_DEVICES="2")
    equal("group: limited anew", client.command("alloc 300"), OUT_OF_MEMORY)
    equal("group: raised for all devices", tool(base, "limit", "train", "1GiB")[0], 0)
    client.command("device 1")
    equal("group: also where a member comes to the device later", client.command("alloc 300"), "0")
    client.end()


def check_devices(base):
    """A limit on one device of two; a part of each."""
    client = Client(base, "both", GPUCACHE_GROUP="train", SIMCUDA_DEVICES="2")
    for step in ("alloc 100", "device 1", "alloc 200"):
        client.command(step)
    devices = fresh(base, "both")[1]["both"]["devices"]
    equal("two devices", sorted((device["device"], device["requested_bytes"]) for device in devices),
          [(0, 100 * MIB), (1, 200 * MIB)])
    uuid = [device["uuid"] for device in devices if device["device"] == 1][0]
    status, out, _ = tool(base, "limit", client.pid, "250MiB", "--device", uuid)
    equal("one of two", (status, out), (0, f"process {client.pid} (both), device 1: limit none -> 250.0 MiB, reserved 200.0 "
                                        "MiB -> 200.0 MiB, idle 0 B -> 0 B\n"))
    equal("one of two: limited", client.command("alloc 100"), OUT_OF_MEMORY)
    client.command("device 0")
    equal("one of two: the other is not", client.command("alloc 1000"), "0")
    equal("several UUIDs begin so", tool(base, "limit", client.pid, "1g", "--device", "GPU-")[::2],
          (1, "gpucache limit: the UUIDs of several devices begin with GPU-\n"))
    status, out, _ = tool(base, "limit", "train", "25%")
    equal("a part of each device", (status, [line.split(", reserved")[0] for line in out.splitlines()][-2:]),
          (0, ["group train, device 0: limit none -> 1.0 GiB", "group train, device 1: limit none -> 1.0 GiB"]))
    equal("a share: limited", client.command("alloc 10"), OUT_OF_MEMORY)
    status, out, _ = tool(base, "top", "--once", "--device", "1")
    equal("top of one device", [line.split()[:2] for line in out.splitlines()[1:]],
          [["device", "1"], ["group", "1"], [client.pid, "1"]])
    client.end()


def check_pause(base):
    """Out of the device and back, by PID and by name; top shows which."""
    client = Client(base, "mover", GPUCACHE_GROUP="train")
    for step in ("alloc 100", "alloc 50", "free 1"):
        client.command(step)
    status, out, _ = tool(base, "pause", client.pid)
    ok("pause: prints the result", status == 0 and out.startswith(f"process {client.pid} (mover): paused: 100.0 MiB "), out)
    seen = fresh(base, "mover")[1]["mover"]
    equal("pause: top", (seen["state"], seen["devices"][0]["reserved_bytes"], seen["devices"][0]["requested_bytes"]),
          ("paused", 0, 100 * MIB))
    equal("pause: top shows what is in host memory", seen["devices"][0]["swapped_bytes"], 100 * MIB)
    status, _, error = tool(base, "pause", "tenant:mover")
    ok("pause: once is enough", status == 1 and " refused: " in error, error)
    status, out, _ = tool(base, "resume", "mover")
    ok("resume: prints the result", status == 0 and " (mover): resumed: 100.0 MiB " in out, out)
    seen = fresh(base, "mover")[1]["mover"]
    equal("resume: top", (seen["state"], seen["devices"][0]["reserved_bytes"]), ("running", 100 * MIB))
    equal("resume: nothing is in host memory", seen["devices"][0]["swapped_bytes"], 0)
    equal("resume: it goes on", client.command("alloc 10"), "0")
    status, out, _ = tool(base, "pause", client.pid, "--drop")
    ok("pause --drop", status == 0 and "dropped" in out, out)
    equal("and back", tool(base, "resume", client.pid)[0], 0)
    report = client.end()
    equal("resume: the report", report["reserved_bytes"]["current"], 110 * MIB)
    equal("resume: the report has the peak of what was away", report["swapped_bytes"], {"current": 0, "peak": 100 * MIB})


def check_states(base):
    """Stopped, killed, not ours."""
    client = Client(base, "stopped", GPUCACHE_GROUP="train")
    client.command("alloc 100")
    client.command("free 0")
    client.process.send_signal(signal.SIGSTOP)
    while open(f"/proc/{client.pid}/stat", encoding="utf-8").read().rsplit(")")[1].split()[0] != "T":
        time.sleep(0.01)
    start = time.monotonic()
    equal("stopped: top shows it", top(base)[1]["stopped"]["state"], "stopped")
    status, _, error = tool(base, "trim", client.pid, "--timeout", "0.5")
    equal("stopped: trim reports it", (status, "it is stopped by a signal" in error), (1, True))
    ok("stopped: nobody waits long", time.monotonic() - start < PATIENCE)
    client.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + PATIENCE
    while top(base)[1]["stopped"]["devices"][0]["reserved_bytes"] > 0 and time.monotonic() < end:
        time.sleep(0.05)
    equal("it goes on: what was asked is done", top(base)[1]["stopped"]["devices"][0]["reserved_bytes"], 0)
    client.process.kill()
    client.process.wait()
    equal("killed: gone", top(base)[1], {})
    equal("killed: trim", tool(base, "trim", client.pid)[0], 1)
    with subprocess.Popen(["sleep", "600"]) as other:
        equal("not under the library", tool(base, "limit", str(other.pid), "1g"),
              (1, "", f"gpucache limit: process {other.pid} uses no device under the library\n"))
        other.kill()
    client = Client(base, "off", GPUCACHE_MODE="off")
    equal("mode off", tool(base, "limit", client.pid, "1g")[::2],
          (1, f"gpucache limit: process {client.pid} uses no device under the library\n"))
    client.process.stdin.close()
    client.process.wait(PATIENCE)
    client.process.stdout.close()


def main():
    """All of it; ends with 1 if anything failed."""
    for check in (check_figures, check_limit, check_idle, check_group, check_devices, check_pause, check_states):
        with tempfile.TemporaryDirectory(prefix="gpucache-live.") as base:
            check(base)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
