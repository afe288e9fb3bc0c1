"""Chromium without a window, driven by its DevTools protocol through a pipe: no server, no port, no other package."""

import base64
import fcntl
import json
import os
import shutil
import signal
import tempfile

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Browser:
    """A context in which pages are opened; they share one process."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        arguments = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank",
        ]  # fmt: skip
        # the browser reads from descriptor 3 and writes to descriptor 4
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        quiet = [(os.POSIX_SPAWN_OPEN, end, os.devnull, os.O_WRONLY, 0) for end in (1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(moved, (3, 4), strict=True)]
        self.process = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=[*quiet, *ends])
        for end in (theirs_in, theirs_out, *moved):
            os.close(end)
        self.reader, self.writer = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)
        self.left, self.number, self.tabs = b"", 0, {}
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (OSError, EOFError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.reader.close()
        self.writer.close()
        self.profile.cleanup()

    def call(self, method, session=None, **parameters):
        """Send a command and wait for its answer; events that come first are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        self.writer.write(json.dumps(message).encode() + b"\0")
        return self.wait(lambda heard: heard.get("id") == self.number)

    def wait(self, wanted):
        while True:
            while b"\0" not in self.left:
                part = os.read(self.reader.fileno(), 2**16)
                if not part:
                    raise EOFError("the browser has ended")
                self.left += part
            message, self.left = self.left.split(b"\0", 1)
            heard = json.loads(message)
            if "method" in heard and heard.get("sessionId") in self.tabs:
                self.tabs[heard["sessionId"]].note(heard)
            if wanted(heard):
                assert "error" not in heard, heard["error"]
                return heard.get("result", {})

    def open(self, address, width=1280, height=900, dark=False, script=True):
        """A page, once it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session, address, width, height, dark, script)


class Tab:
    """A page: what it says on the console, what it asks for, and what a visitor does with it."""

    def __init__(self, browser, session, address, width, height, dark, script):
        self.browser, self.session, self.width = browser, session, width
        self.messages, self.requests = [], []
        browser.tabs[session] = self
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=address)
        browser.wait(lambda heard: heard.get("method") == "Page.loadEventFired" and heard["sessionId"] == session)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def note(self, event):
        parameters = event.get("params", {})
        if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.messages.append(parameters)
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression):
        """The value of an expression in the page; also where the page's own policy allows no script."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def point(self, x, y, kind="mouseMoved", **more):
        """Move the pointer to a place in the window, or press and release it there."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, selector=None):
        """A picture of the whole page, or of an element, as PNG."""
        box = "document.documentElement" if selector is None else f"document.querySelector({json.dumps(selector)})"
        script = f"(r => [r.left + scrollX, r.top + scrollY, r.width, r.height])({box}.getBoundingClientRect())"
        left, top, width, height = self.evaluate(script)
        clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])
