#!/usr/bin/env python3
"""Root's view of all users' processes: gpucache top --all-users, limit, trim and pause across users and containers, and that a
hostile user harms nothing of it. As root."""
# timeout: 200
import atexit
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, MIB, OUT_OF_MEMORY, PATIENCE, TOOL, equal, finish, ok  # noqa: E402

USERS = [40001, 40002, 40003]
SEED = int(os.environ.get("NODE_SEED", time.time_ns() & 0xFFFFFF))
CONTAINER_ID = "0123456789abcdef" * 4


class Node:
    """The folders of a machine, in place of /run/gpucache."""

    def __init__(self):
        self.base = tempfile.mkdtemp(prefix="gpucache-node.")
        os.chmod(self.base, 0o755)
        self.root = os.path.join(self.base, "node")
        self.clients = []
        atexit.register(self.forget)
        for name, mode in (("", 0o755), ("users", 0o1777), ("jobs", 0o755), ("pods", 0o755), ("pods/web", 0o1777), ("jobs/7", 0o1777)):
            os.mkdir(os.path.join(self.root, name))
            os.chmod(os.path.join(self.root, name), mode)
        self.write("pods/web.labels", "pod=web-0\nnamespace=prod\ncontainer=server\nfoo=bar\n")
        self.write("jobs/7.labels", "job=7\n")

    def write(self, name, text):
        """A file of root's."""
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as stream:
            stream.write(text)

    def forget(self):
        for client in self.clients:
            client.kill()
        shutil.rmtree(self.base, ignore_errors=True)

    def start(self, uid, name, prefix=(), **settings):
        """tests/preload/progs/live_client.c as that user."""
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"),
                       "LD_PRELOAD": os.path.join(BUILD, "libgpucache.so"), "GPUCACHE_REPORT": "none", "GPUCACHE_LOG": "error",
                       "GPUCACHE_NODE": self.root, "GPUCACHE_TENANT": name, "SIMCUDA_MEMORY": "4GiB"}
        environment.update(settings)
        command = [*prefix, "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env",
                   f"LD_PRELOAD={environment.pop('LD_PRELOAD')}", os.path.join(BUILD, "tests/preload/live_client")]
        # pylint: disable-next=consider-using-with # it ends at a command
        client = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.clients.append(client)
        assert client.stdout.readline() == "ready\n"
        return client

    def tool(self, *arguments, timeout=PATIENCE):
        """Root's tool."""
        environment = {"PATH": os.environ["PATH"], "GPUCACHE_NODE": self.root, "LC_ALL": "C.UTF-8"}
        return subprocess.run([TOOL, *arguments], env=environment, capture_output=True, text=True, timeout=timeout, check=False)

    def top(self):
        """Root's view, by name."""
        done = self.tool("top", "--all-users", "--json")
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)["processes"]}


def command(client, line):
    """One command; the answer."""
    client.stdin.write(line + "\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def host_pid(client):
    """Of the program itself, which may be a grandchild."""
    pid = client.pid
    while True:
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        if not children:
            return pid
        pid = int(children[0])


def check_view(node, plain, job, contained):
    """Rows of three users."""
    rows = node.top()
    equal("all are there", sorted(rows), ["in-job", "in-pod", "plain"])
    equal("users", [rows[name]["user"] for name in ("plain", "in-job", "in-pod")], [str(uid) for uid in USERS])
    equal("the pod's labels", [rows["in-pod"][key] for key in ("pod", "namespace", "container")], ["web-0", "prod", "server"])
    equal("the job's", rows["in-job"]["job"], "7")
    equal("no labels elsewhere", [rows["plain"][key] for key in ("pod", "container", "job")], [None] * 3)
    equal("PIDs are those here", [rows[name]["host_pid"] for name in ("plain", "in-job", "in-pod")],
          [host_pid(client) for client in (plain, job, contained)])
    ok("a container has its own beside", rows["in-pod"]["pid"] != rows["in-pod"]["host_pid"], rows["in-pod"]["pid"])
    ok("command lines", all(row["command"].endswith("live_client") for row in rows.values()), rows)
    equal("bytes", [rows[name]["devices"][0]["requested_bytes"] // MIB for name in ("plain", "in-job", "in-pod")], [100, 200, 300])
    shown = json.loads(node.tool("top", "--all-users", "--json").stdout)
    equal("one device for all", [(row["process_count"], row["requested_bytes"] // MIB) for row in shown["devices"]], [(3, 600)])
    equal("two users' groups of one name are two", sorted((row["name"], row["user"], row["process_count"]) for row in shown["groups"]),
          [("same", str(USERS[1]), 1), ("same", str(USERS[2]), 1)])
    rows = json.loads(node.tool("top", "--user", str(USERS[1]), "--json").stdout)["processes"]
    equal("top --user", [row["name"] for row in rows], ["in-job"])
    text = node.tool("top", "--all-users", "--once").stdout
    ok("the table has the columns", all(word in text.splitlines()[0] for word in
                                        ("NSPID", "USER", "POD", "CONTAINER", "JOB", "OOM", "COMMAND")), text)


def check_steering(node, plain, job, contained):
    """Commands across users."""
    pid = str(host_pid(contained))
    done = node.tool("limit", pid, "400MiB", "--all-users")
    equal("the limit of a process in a container", (done.returncode, done.stderr), (0, ""))
    equal("holds", command(contained, "alloc 200"), OUT_OF_MEMORY)
    done = node.tool("limit", "same", "1GiB", "--all-users")
    ok("a group's name that two users have is not taken", done.returncode == 1 and "give the PIDs, or --user" in done.stderr, done.stderr)
    done = node.tool("limit", "same", "300MiB", "--user", str(USERS[1]))
    equal("with the user it is", (done.returncode, done.stderr), (0, ""))
    equal("and holds there", (command(job, "alloc 150"), command(job, "alloc 20")), (OUT_OF_MEMORY, "0"))
    equal("and not elsewhere", command(contained, "alloc 20"), "0")
    command(job, "free 1")
    done = node.tool("trim", str(host_pid(job)), "--all-users")
    ok("trim", done.returncode == 0 and "released" not in done.stderr, (done.stdout, done.stderr))
    done = node.tool("pause", str(host_pid(job)), "--all-users")
    equal("pause", (done.returncode, done.stderr), (0, ""))
    equal("shows", node.top()["in-job"]["state"], "paused")
    equal("resume", node.tool("resume", str(host_pid(job)), "--all-users").returncode, 0)
    done = node.tool("limit", str(host_pid(plain)), "1GiB")
    ok("without --all-users another user's process is not meant", done.returncode == 1 and "--all-users" in done.stderr, done.stderr)
    done = node.tool("limit", "1", "1GiB", "--all-users")
    ok("nor a process without a device", done.returncode == 1 and "uses no device" in done.stderr, done.stderr)
    as_user = ["setpriv", f"--reuid={USERS[0]}", f"--regid={USERS[0]}", "--clear-groups", TOOL]
    for words in (["top", "--all-users", "--once"], ["trim", "1", "--all-users"]):
        done = subprocess.run([*as_user, *words], capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"], "GPUCACHE_NODE": node.root})
        ok(f"not for users: {words[0]}", done.returncode == 1 and "for root" in done.stderr, done.stderr)
    done = subprocess.run([*as_user, "top", "--json"], capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"], "GPUCACHE_NODE": node.root})
    equal("a user sees its own", [row["name"] for row in json.loads(done.stdout)["processes"]], ["plain"])


def check_series(node, plain):
    """The same group in two ledgers of a user: no series is there twice."""
    folder = f"/dev/shm/gpucache-{USERS[0]}"
    twin = node.start(USERS[0], "twin", GPUCACHE_LEDGER=folder, GPUCACHE_GROUP="twice", GPUCACHE_GROUP_LIMIT="100MiB")
    other = node.start(USERS[0], "other", GPUCACHE_GROUP="twice", GPUCACHE_GROUP_LIMIT="200MiB")
    text = node.tool("top", "--all-users", "--prom", "-").stdout
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    equal("no series is there twice", sorted(name for name in set(series) if series.count(name) > 1), [])
    equal("two ledgers' group is the sum",
          [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("gpucache_group_limit_bytes") and 'group="twice"' in line],
          [str(300 * MIB)])
    for client in (twin, other):
        client.kill()
        client.wait(PATIENCE)
    shutil.rmtree(folder, ignore_errors=True)
    del plain


def check_hostile(node):
    """A user who writes anything into its ledger, cuts it short, and makes folders that lead elsewhere."""
    rng = random.Random(SEED)
    folder = os.path.join(node.root, "users", str(USERS[0]))
    name = next(entry for entry in os.listdir(folder) if entry.startswith("ledger-"))
    path = os.path.join(folder, name)
    size = os.path.getsize(path)
    for link in ("40009", "40010"):
        os.symlink("/etc", os.path.join(node.root, "users", link))
    os.mkdir(os.path.join(node.root, "users", "40011"))  # of root, not of 40011
    os.mkfifo(os.path.join(node.root, "users", "40012"))
    with open(path, "r+b") as stream:
        head = stream.read(64)
        for _ in range(40):
            for _ in range(rng.randrange(1, 400)):
                stream.seek(rng.randrange(64, min(size, 24 << 20)))
                stream.write(rng.randbytes(rng.choice([1, 4, 8, 64])))
            stream.flush()
            done = node.tool("top", "--all-users", "--once")
            if done.returncode != 0:
                break
        equal("what is in a ledger harms nobody", (done.returncode, done.stderr), (0, ""))
        rows = node.top()
        ok("others' rows stay", all(rows[row]["host_pid"] for row in ("in-job", "in-pod")), rows.keys())
        # It is cut while root looks.
        with subprocess.Popen(["sh", "-c", f"while :; do truncate -s 4096 {path}; truncate -s {size} {path}; done"]) as cutter:
            for _ in range(30):
                done = node.tool("top", "--all-users", "--once")
                if done.returncode != 0:
                    break
            cutter.kill()
        equal("nor does a file that is cut", done.returncode, 0)
        stream.seek(0)
        stream.write(head)
    ok("the others can still be steered", node.tool("trim", "group:same", "--user", str(USERS[1])).returncode == 0)


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP not root")
        return 0
    print(f"# NODE_SEED={SEED}")
    node = Node()
    plain = node.start(USERS[0], "plain")
    job = node.start(USERS[1], "in-job", GPUCACHE_LEDGER=os.path.join(node.root, "jobs/7", str(USERS[1])), GPUCACHE_GROUP="same",
                     GPUCACHE_GROUP_LIMIT="1GiB")
    inside = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c",
              f"mount --bind {node.root}/pods/web {node.root}/users && exec \"$@\"", "sh"]
    contained = node.start(USERS[2], "in-pod", inside, GPUCACHE_GROUP="same", GPUCACHE_GROUP_LIMIT="1GiB")
    for client, mib in ((plain, 100), (job, 200), (contained, 300)):
        assert command(client, f"alloc {mib}") == "0"
    command(plain, "info")
    check_view(node, plain, job, contained)
    check_steering(node, plain, job, contained)
    check_series(node, plain)
    check_hostile(node)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
