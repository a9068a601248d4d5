"""What tests of the report's page share: runs whose reports and traces they show, the page in headless Chromium, and looks at it.
PAGE_SHOTS=FOLDER keeps screenshots."""
import atexit
import json
import os
import re
import subprocess
import sys
import tempfile

import browser
import native_trace
import tap

TOOL = tap.TOOL
CLIENT = os.path.join(tap.BUILD, "tests", "formats", "traced_client")
SIM = os.path.join(tap.BUILD, "simcuda")
SHOTS = os.environ.get("PAGE_SHOTS")
HOSTILE = "</script><img src=x onerror=alert(1)>&\"'<b>"


def tool(*arguments):
    done = subprocess.run([TOOL, *arguments], capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: {done.stderr.decode()}")


def record(name, steps, report, limit="0=160MiB,1=2GiB", seed=42, program=None, stacks="off"):
    """A run of the client, or of another program, in FOLDER: its trace is NAME, its report NAME + report."""
    environment = dict(os.environ, LD_LIBRARY_PATH=SIM, SIMCUDA_DEVICES="2", SIMCUDA_MEMORY="4GiB", GPUCACHE_LEDGER=FOLDER.name + "/ledger",
                       GPUCACHE_STACKS=stacks)
    if program:
        limit = "2GiB"
    done = subprocess.run([TOOL, "run", "--limit", limit, "--trace", path(name), "--report", path(name + report), "--",
                           *(program or [CLIENT, str(steps), str(seed)])],
                          env=environment, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())


def path(name):
    return os.path.join(FOLDER.name, name)


def data_of(name):
    with open(path(name), encoding="utf-8") as stream:
        return json.loads(re.search(r'id="data">(.*?)</script>', stream.read(), re.S).group(1))


def read_json(name):
    with open(path(name), encoding="utf-8") as stream:
        return json.load(stream)


def show(name, width=1200, dark=False, shot=None, height=900):
    """Opens the page; no script of it fails, it asks for nothing but itself, and nothing sticks out."""
    PAGE.show(width, height, dark)
    PAGE.open(path(name))
    tap.equal(PAGE.errors, [], "errors of its scripts")
    tap.equal([url for url in PAGE.requests if not url.startswith("file://" + path(name))], [], "asked for from elsewhere")
    tap.equal(PAGE.value("document.documentElement.dataset.ready"), "yes", "the page is built")
    wide = PAGE.value("document.documentElement.scrollWidth")
    if wide > width:
        raise AssertionError(f"the page is {wide} wide, the window {width}")
    if SHOTS and shot:
        PAGE.picture(os.path.join(SHOTS, shot + ".png"))


def size(value):
    """As the page writes bytes."""
    if value is None:
        return "none"
    unit = 0
    while value >= 1024:
        value /= 1024
        unit += 1
    digits = 0 if unit == 0 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {['B', 'KiB', 'MiB', 'GiB'][unit]}"


def rows_of(selector):
    return PAGE.value(f"[...document.querySelectorAll({json.dumps(selector)})].map(r => [...r.children].map(c => c.textContent))")


def no_browser(test):
    def skipped(_):
        return "no Chromium (Debian: chromium); CHROMIUM names another"
    skipped.__name__ = test.__name__
    return skipped


def run(tests, in_browser):
    """Prints TAP; the exit status."""
    return tap.run(tests + [test if PAGE else no_browser(test) for test in in_browser])


if not os.path.exists(os.path.join(SIM, "libcuda.so.1")):
    print(f"1..0 # SKIP {SIM}/libcuda.so.1 is not built")
    sys.exit(0)
FOLDER = tempfile.TemporaryDirectory(prefix="gpucache-test.")
FOLDER.name = os.path.realpath(FOLDER.name)
atexit.register(FOLDER.cleanup)
PROGRAM = browser.find()
PAGE = browser.Browser(PROGRAM) if PROGRAM else None
if PAGE:
    atexit.register(PAGE.close)
