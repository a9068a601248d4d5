"""A headless Chromium and one page in it, by its debugging protocol over a pipe. No network port, no driver program."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_S = 60


def find():
    """The browser's path, or None."""
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page. Errors of its scripts and whatever it asks the network for are collected."""

    def __init__(self, program):
        # Processes of the browser may outlive it for a moment and write there.
        self.folder = tempfile.TemporaryDirectory(prefix="gpucache-browser.", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # The browser takes commands on 3 and answers on 4.
        os.set_inheritable(to_read, True)
        os.set_inheritable(to_write, True)
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--remote-debugging-pipe", "--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={self.folder.name}",
                   "about:blank"]
        shell = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", shell, "browser", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, pass_fds=(to_read, to_write))
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.errors = []
        self.requests = []
        self.loaded = False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.ask(domain + ".enable")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    # ---- the protocol ----

    def _message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.back, 1 << 20) if ready else b""
            if not data:
                raise AssertionError("the browser does not answer" if not ready else "the browser ended")
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def _see(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def ask(self, method, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            answer = self._message(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._see(answer)

    # ---- what tests do ----

    def show(self, width, height, dark=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path):
        self.errors, self.requests, self.loaded = [], [], False
        self.ask("Page.navigate", url="file://" + os.path.abspath(path))
        deadline = time.monotonic() + ANSWER_S
        while not self.loaded:
            self._see(self._message(deadline))
        self.wait_idle()

    def wait_idle(self):
        """Until what was asked for is drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def box(self, selector):
        """Left, top, width, height, once it is scrolled into view."""
        return self.value(f"(() => {{ const n = document.querySelector({json.dumps(selector)}); n.scrollIntoView({{block: 'center', behavior: "
                          "'instant'}); const b = n.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")

    def mouse(self, kind, x, y, **more):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector):
        left, top, width, height = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, left + width / 2, top + height / 2, button="left", clickCount=1)
        self.wait_idle()

    def press(self, key, code=None):
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **({"text": text} if text and kind == "keyDown" else {}))
        self.wait_idle()

    def tree(self):
        """The accessibility tree: (role, name, properties) of what is not ignored."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", ""), {p["name"]: p["value"].get("value") for p in n.get("properties", [])})
                for n in nodes if not n.get("ignored")]

    def picture(self, path):
        """All of the page as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1})
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(shot["data"]))

    def pdf(self):
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])
