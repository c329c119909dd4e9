# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven through its DevTools pipe: no port, no package beyond the standard library."""
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


class BrowserError(Exception):
    pass


def find_chromium():
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        sys.exit("report_browser: no Chromium was found on PATH. On Debian: apt-get install chromium. "
                 "`tools/setup.sh --lint` installs it.")
    return found


class Browser:
    """One page. Use as a context manager; `messages` collects what the page logged and threw."""

    def __init__(self, deadline_s=100):
        self.deadline = time.monotonic() + deadline_s
        self.ids = itertools.count(1)
        self.session = None
        self.unread = b""
        self.events = []
        self.messages = []
        self.requests = []

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="paceline_browser_")
        command_read, self.commands = os.pipe()
        self.answers, answer_write = os.pipe()
        self.log = open(os.path.join(self.profile, "log"), "wb")
        self.process = subprocess.Popen(
            [find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=lambda: place([command_read, answer_write], [3, 4]), close_fds=False,
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(command_read)
        os.close(answer_write)
        self.attach()
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def attach(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        number = next(self.ids)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def read(self):
        while b"\0" not in self.unread:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise BrowserError("the browser did not answer in time")
            more = os.read(self.answers, 1 << 16)
            if not more:
                with open(self.log.name, "rb") as log:
                    raise BrowserError("the browser ended: " + log.read()[-2000:].decode(errors="replace"))
            self.unread += more
        text, self.unread = self.unread.split(b"\0", 1)
        message = json.loads(text)
        self.notice(message)
        return message

    def notice(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.messages.append(" ".join(str(a.get("value", a)) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.messages.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method:
            self.events.append(method)

    def wait_for(self, event):
        while event not in self.events:
            self.read()

    def open(self, path, width, scheme="light", height=900):
        """Opens a file in a window that is `width` CSS pixels wide, with the colours that a user prefers."""
        self.events, self.messages, self.requests = [], [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("Page.loadEventFired")
        # The figures draw themselves when their width is known: that is after the next frame.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def key(self, key):
        for kind in ["rawKeyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)


def place(descriptors, wanted):
    copies = [os.dup(os.dup(d)) for d in descriptors]     # high enough not to be overwritten
    for copy, number in zip(copies, wanted):
        os.dup2(copy, number)
