#!/usr/bin/env python3
"""The metrics: gpucache exporter and `gpucache top --prom`, read by promtool and by Prometheus itself; counters that outlive their
processes; the time of a scrape of 500 processes. As root."""
import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "preload"))
from live import BUILD, MIB, OUT_OF_MEMORY, PATIENCE, TOOL, equal, finish, ok  # noqa: E402

EXPORTER = os.path.join(ROOT, "tools", "engines", "exporter")
PROCESSES = int(os.environ.get("EXPORTER_PROCESSES", "500"))
SCRAPE_MS = 50  # at most, with so many processes


class Machine:
    """Folders of ledgers, processes, an exporter."""

    def __init__(self):
        self.base = tempfile.mkdtemp(prefix="gpucache-exporter.")
        self.node = os.path.join(self.base, "node")
        self.started = []
        atexit.register(self.forget)
        for name, mode in (("", 0o755), ("users", 0o1777), ("pods", 0o755), ("pods/web", 0o1777)):
            os.mkdir(os.path.join(self.node, name))
            os.chmod(os.path.join(self.node, name), mode)
        with open(os.path.join(self.node, "pods/web.labels"), "w", encoding="utf-8") as stream:
            stream.write('pod=web-0\nnamespace=prod\ncontainer=ser"ver\\\n')
        self.plain = {"PATH": os.environ["PATH"], "GPUCACHE_NODE": self.node, "LC_ALL": "C.UTF-8"}
        self.url = ""

    def start(self, name, **settings):
        """A program that obeys commands."""
        environment = {**self.plain, "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"), "SIMCUDA_MEMORY": "1GiB",
                       "LD_PRELOAD": os.path.join(BUILD, "libgpucache.so"), "GPUCACHE_REPORT": "none", "GPUCACHE_LOG": "error",
                       "GPUCACHE_TENANT": name, **settings}
        # pylint: disable-next=consider-using-with # it ends at a command
        client = subprocess.Popen([os.path.join(BUILD, "tests/preload/live_client")], env=environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.started.append(client)
        return client

    def serve(self):
        """Starts the exporter, through the tool."""
        # pylint: disable-next=consider-using-with # it ends at a signal
        exporter = subprocess.Popen([TOOL, "exporter", "--listen", "127.0.0.1:0"], env=self.plain, stdout=subprocess.PIPE, text=True)
        self.started.append(exporter)
        self.url = exporter.stdout.readline().split()[-1]
        return exporter

    def scrape(self, path=None, **headers):
        """Status, type, text."""
        request = urllib.request.Request(path or self.url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    def forget(self):
        for process in self.started:
            process.kill()
        shutil.rmtree(self.base, ignore_errors=True)


def command(client, line):
    """One command; the answer."""
    client.stdin.write(line + "\n")
    client.stdin.flush()
    return client.stdout.readline().strip()


def value(text, name, **labels):
    """Of the one sample with that name and these labels."""
    found = []
    for line in text.splitlines():
        if line.startswith(name + "{"):
            seen = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))
            if all(seen.get(key) == wanted for key, wanted in labels.items()):
                found.append(float(line.rsplit(" ", 1)[1]))
    return found[0] if len(found) == 1 else found


def promtool(*arguments, text=None):
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check_values(machine):
    """What is served, and that it stays."""
    first = machine.start("first", GPUCACHE_GROUP="g", GPUCACHE_GROUP_LIMIT="512MiB")
    pod = machine.start("in-pod", GPUCACHE_LEDGER=os.path.join(machine.node, "pods/web/0"))
    for client in (first, pod):
        assert client.stdout.readline() == "ready\n"
    equal("memory is there", (command(first, "alloc 100"), command(first, "alloc 600"), command(pod, "alloc 50")), ("0", OUT_OF_MEMORY, "0"))
    status, kind, text = machine.scrape()
    equal("the answer", (status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
    equal("live bytes", value(text, "gpucache_process_live_bytes", tenant="first", group="g", user="root", pid=str(first.pid)), 100 * MIB)
    equal("a pod's labels", value(text, "gpucache_process_live_bytes", tenant="in-pod", pod="web-0", namespace="prod",
                                  container='ser\\"ver\\\\'), 50 * MIB)
    equal("the group's limit", value(text, "gpucache_group_limit_bytes", group="g"), 512 * MIB)
    equal("refused requests", value(text, "gpucache_group_refusals_total", group="g"), 1)
    equal("no sample where there is no limit", value(text, "gpucache_process_limit_bytes", tenant="first"), [])
    equal("promtool check metrics", promtool("check", "metrics", text=text), (0, ""))
    allocations = value(text, "gpucache_group_allocations_total", group="g")
    first.stdin.close()
    first.wait(PATIENCE)
    killed = machine.start("killed", GPUCACHE_GROUP="g", GPUCACHE_GROUP_LIMIT="512MiB")
    assert killed.stdout.readline() == "ready\n"
    equal("another process of the group", command(killed, "alloc 1"), "0")
    machine.scrape()
    killed.kill()
    killed.wait(PATIENCE)
    text = machine.scrape()[2]
    equal("an ended process has no series", value(text, "gpucache_process_live_bytes", tenant="first"), [])
    equal("its counters stay, a killed one's too", value(text, "gpucache_group_allocations_total", group="g"), allocations + 1)
    equal("refusals, too", value(text, "gpucache_group_refusals_total", group="g"), 1)
    later = machine.start("later", GPUCACHE_GROUP="g", GPUCACHE_GROUP_LIMIT="512MiB")
    assert later.stdout.readline() == "ready\n"
    text = machine.scrape()[2]
    equal("and when their slots have new owners", value(text, "gpucache_group_allocations_total", group="g"), allocations + 1)
    for i in range(100):  # hits of the thread's own cache, but for the first
        assert (command(later, "kib 4"), command(later, f"free {i}")) == ("0", "0")
    later.stdin.close()
    later.wait(PATIENCE)
    equal("all allocations count at the end of a process",
          value(machine.scrape()[2], "gpucache_group_allocations_total", group="g"), allocations + 101)
    return text


def check_openmetrics(machine):
    status, kind, text = machine.scrape(Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    equal("OpenMetrics where it is asked for", (status, kind), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"))
    ok("it ends so", text.endswith("# EOF\n"))
    # Read by Prometheus' own library for Python.
    place = os.path.join(BUILD, "venv-exporter")
    python = os.path.join(place, "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "prometheus_client==0.21.1"], check=True)
    program = ("import sys; from prometheus_client.openmetrics import parser; "
               "print([f.type for f in parser.text_string_to_metric_families(sys.stdin.read()) if f.name == 'gpucache_group_allocations'])")
    done = subprocess.run([python, "-c", program], input=text, capture_output=True, text=True, check=False)
    equal("prometheus_client reads it", (done.returncode, done.stdout.strip()), (0, "['counter']"))


def check_http(machine):
    base = machine.url.rsplit("/", 1)[0]
    equal("a start page", machine.scrape(base + "/")[0], 200)
    equal("else nothing", machine.scrape(base + "/etc/passwd")[0], 404)
    request = urllib.request.Request(machine.url, data=b"x" * 100000, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            refused = answer.status
    except (urllib.error.URLError, ConnectionError) as error:
        refused = getattr(error, "code", "closed")
    ok("POST is refused", refused in (405, "closed"), refused)
    equal("HEAD", subprocess.run(["curl", "-sI", machine.url], capture_output=True, text=True, check=False).stdout[:15]
          if shutil.which("curl") else "HTTP/1.1 200 OK", "HTTP/1.1 200 OK")
    for address in ("nonsense", "1.2.3.4:99999", "::1:80", "999.1.1.1:80"):
        done = subprocess.run([TOOL, "exporter", "--listen", address], capture_output=True, text=True, check=False, timeout=PATIENCE)
        ok(f"--listen {address} is refused", done.returncode == 2 and address in done.stderr, done)


def check_file(machine):
    """For node_exporter's textfile collector."""
    path = os.path.join(machine.base, "gpucache.prom")
    done = subprocess.run([TOOL, "top", "--all-users", "--prom", path], env=machine.plain, capture_output=True, text=True, check=False)
    equal("top --prom", (done.returncode, done.stderr), (0, ""))
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    equal("promtool", promtool("check", "metrics", text=text), (0, ""))
    equal("the same figures", value(text, "gpucache_process_live_bytes", tenant="in-pod"), 50 * MIB)
    done = subprocess.run([TOOL, "top", "--prom", "/nonexistent/x.prom"], env=machine.plain, capture_output=True, text=True, check=False)
    ok("a folder that is not there", done.returncode == 1 and "/nonexistent/x.prom" in done.stderr, done.stderr)
    equal("nothing else is left in the folder", sorted(os.listdir(machine.base)), ["gpucache.prom", "node"])


def check_prometheus(machine):
    """Prometheus itself scrapes it and reads the rules; the expressions of the dashboard are ones."""
    rules = os.path.join(EXPORTER, "alerts.yml")
    status, said = promtool("check", "rules", rules)
    equal("promtool check rules", status, 0)
    status, said = promtool("test", "rules", os.path.join(EXPORTER, "alerts-test.yml"))
    ok("promtool test rules", status == 0, said)
    config = os.path.join(machine.base, "prometheus.yml")
    with open(config, "w", encoding="utf-8") as stream:
        json.dump({"global": {"scrape_interval": "1s"}, "rule_files": [rules],
                   "scrape_configs": [{"job_name": "gpucache", "static_configs": [{"targets": [machine.url.split("/")[2]]}]}]}, stream)
    port = 19944
    # pylint: disable-next=consider-using-with # it is killed
    prometheus = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={machine.base}/tsdb",
                                   f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    machine.started.append(prometheus)

    def query(expression):
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]["result"]

    found, until = [], time.monotonic() + PATIENCE
    while not found and time.monotonic() < until:
        time.sleep(0.5)
        try:
            found = query('gpucache_process_live_bytes{tenant="in-pod"}')
        except (urllib.error.URLError, ConnectionError):
            continue
    ok("Prometheus has it", found and float(found[0]["value"][1]) == 50 * MIB, found)
    with open(os.path.join(EXPORTER, "dashboard.json"), encoding="utf-8") as stream:
        panels = json.load(stream)["panels"]
    for panel in panels:
        for target in panel["targets"]:
            expression = re.sub(r"\$__(rate_interval|range)", "1m", target["expr"].replace("$instance", ".*").replace("$user", ".*"))
            try:
                rows = query(expression)
            except urllib.error.HTTPError as error:
                rows = error.read().decode()
            ok(f"dashboard: {panel['title']}: {target['refId']}", isinstance(rows, list), rows)
    prometheus.kill()


def check_time(machine):
    """A scrape of many processes."""
    clients = [machine.start(f"p{i}", GPUCACHE_GROUP=f"group-{i % 10}", GPUCACHE_GROUP_LIMIT="512MiB", SIMCUDA_MEMORY="64MiB")
               for i in range(PROCESSES)]
    for client in clients:
        assert client.stdout.readline() == "ready\n"
    time.sleep(1)
    times = []
    for _ in range(11):
        begin = time.monotonic()
        text = machine.scrape()[2]
        times.append((time.monotonic() - begin) * 1000)
        time.sleep(0.3)
    times.sort()
    count = text.count("gpucache_process_reserved_bytes{")
    ok("all are there", count >= PROCESSES, count)
    print(f"# a scrape of {count} processes: {times[0]:.1f} ms at least, {times[5]:.1f} ms in the middle, {times[-1]:.1f} ms at most; {len(text)} bytes")
    ok(f"a scrape takes less than {SCRAPE_MS} ms", times[5] < SCRAPE_MS, times)
    equal("promtool", promtool("check", "metrics", text=text), (0, ""))


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP not root")
        return 0
    machine = Machine()
    exporter = machine.serve()
    check_values(machine)
    check_openmetrics(machine)
    check_http(machine)
    check_file(machine)
    check_prometheus(machine)
    check_time(machine)
    exporter.send_signal(signal.SIGTERM)
    equal("SIGTERM ends it", exporter.wait(PATIENCE), 0)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
