# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, over its DevTools protocol: messages of JSON, each followed by a zero byte, in two
pipes that the browser has as descriptors 3 and 4."""

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Limits each step on a machine that hangs.
TIMEOUT_SECONDS = 120
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--remote-debugging-pipe",
)
# Gives the two descriptors of the arguments their numbers, and starts the browser.
START = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
         "os.execv(sys.argv[3], sys.argv[3:])")


def find():
    """The path of a browser, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def pipe():
    """A pipe whose descriptors are not 3 or 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix="vescomm-browser-", ignore_cleanup_errors=True)
        commands, self.commands = pipe()
        self.answers, answers = pipe()
        with open(os.path.join(self.folder.name, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, str(commands), str(answers), program, *ARGUMENTS,
                 f"--user-data-dir={self.folder.name}/profile", "about:blank"],
                pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        os.close(commands)
        os.close(answers)
        self.bytes, self.number, self.session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(TIMEOUT_SECONDS)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            pass  # it has ended, or is killed below
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.folder.cleanup()

    def read(self, deadline):
        """The next message of the browser."""
        while b"\0" not in self.bytes:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self.answers, 1 << 16) if ready else b""
            if not more:
                with open(os.path.join(self.folder.name, "log"), encoding="utf-8", errors="replace") as log:
                    state = "has ended" if ready else "does not answer"
                    raise RuntimeError(f"the browser {state}:\n{log.read()[-4000:]}")
            self.bytes += more
        message, _, self.bytes = self.bytes.partition(b"\0")
        return json.loads(message)

    def until(self, wanted):
        """Collects events up to the first message that is wanted."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            message = self.read(deadline)
            if "method" in message:
                self.events.append(message)
            if wanted(message):
                return message

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        answer = self.until(lambda one: one.get("id") == self.number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url):
        """Opens a page and waits until it is loaded, with its scripts and pictures."""
        self.events = []
        error = self.call("Page.navigate", url=url).get("errorText")
        if error:
            raise RuntimeError(f"{url}: {error}")
        self.event("Page.loadEventFired")

    def event(self, method, wanted=lambda values: True, first=0):
        """The position among the events since the page was opened of the first event, from `first` on,
        whose values are wanted. Waits for it."""
        for number, event in enumerate(self.events[first:], first):
            if event["method"] == method and wanted(event["params"]):
                return number
        self.until(lambda one: one.get("method") == method and wanted(one["params"]))
        return len(self.events) - 1

    def frame(self, ending):
        """Waits until a frame of the page has loaded a URL with this ending. Returns its context."""
        number = self.event("Page.frameNavigated", lambda one: one["frame"]["url"].endswith(ending))
        frame = self.events[number]["params"]["frame"]["id"]
        self.event("Page.frameStoppedLoading", lambda one: one["frameId"] == frame, number)
        contexts = [event["params"]["context"] for event in self.events
                    if event["method"] == "Runtime.executionContextCreated"]
        return [one["id"] for one in contexts if one["auxData"]["frameId"] == frame][-1]

    def run(self, script, **where):
        """The value of an expression, or of the promise that it returns; of the page, or of the frame
        with contextId."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           **where)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, condition):
        """Waits until an expression is true."""
        self.run("new Promise(done => { const look = () => (" + condition + ") ? done() : "
                 "requestAnimationFrame(look); look(); })")

    def errors(self):
        """Errors and warnings of the console since the page was opened: those of scripts, and of files
        that could not be loaded."""
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        found = []
        for event in self.events:
            values = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = values["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and values["type"] in (
                    "error", "warning", "assert"):
                found.append(" ".join(str(one.get("value", one.get("description")))
                                      for one in values["args"]))
            elif event["method"] == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
                found.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")
        return found
