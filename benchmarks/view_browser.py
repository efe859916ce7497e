"""A headless Chromium of which nothing is watched: it is told where to go and asked for values, and that is all.

The usual drivers of browsers have V8 note the calls behind every error that is made, caught ones too. To say in which
lines one came about V8 reads the sources on the stack once more, which takes half a second while a script of some
megabytes looks at what the browser can do: whoever opens a page does not wait for that, so neither page is measured
with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psutil
from view_probes import PATIENCE_S

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Tab:
    """The one page of a browser, over the two pipes of Chromium's DevTools protocol."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self._left = b""
        self._last = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)

    def goto(self, address: str) -> None:
        """Go to an address; done once its document has begun. RuntimeError where it cannot be had."""
        fault = self._call("Page.navigate", url=address).get("errorText")
        if fault:
            raise RuntimeError(f"{address}: {fault}")

    def evaluate(self, expression: str) -> Any:
        """Return what an expression is, a promise awaited; as JSON can tell it. RuntimeError where it throws."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(str(details.get("exception", {}).get("description") or details.get("text")))
        return answer["result"].get("value")

    def call(self, function: str, argument: Any = None) -> Any:
        """Return what a function of JavaScript gives for an argument; see `evaluate`."""
        return self.evaluate(f"({function})({json.dumps(argument)})")

    def end(self) -> None:
        """Have the browser end."""
        self._session = None
        with contextlib.suppress(OSError, RuntimeError):
            self._call("Browser.close")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        order: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            answer = json.loads(self._message())
            if answer.get("id") != self._last:
                continue  # what it tells unasked
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _message(self) -> bytes:
        while b"\0" not in self._left:
            piece = os.read(self._answers, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._left += piece
        message, _, self._left = self._left.partition(b"\0")
        return message


@contextlib.contextmanager
def fresh_page() -> Iterator[Tab]:
    """Give an empty page of a browser that was started for it, with a profile of its own, and has come to rest.

    Starting a browser keeps both cores busy for a second behind its first page; that is not what is measured.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("chromium is not on the PATH")
    their_orders, orders = os.pipe()
    answers, their_answers = os.pipe()

    def place() -> None:
        # Chromium reads its orders from descriptor 3 and answers to 4. Copied first: one may stand in the other's way.
        copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (their_orders, their_answers)]
        for descriptor, number in zip(copies, (3, 4), strict=True):
            os.dup2(descriptor, number)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [chromium, *_FLAGS, f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place,
            start_new_session=True,
        )
        os.close(their_orders)
        os.close(their_answers)
        try:
            tab = Tab(orders, answers)
            try:
                _await_rest(process.pid)
                yield tab
            finally:
                tab.end()
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(orders)
            os.close(answers)


def _await_rest(pid: int) -> None:
    """Wait until a process and its children do next to nothing for a quarter of a second."""
    until_s, before_s = time.monotonic() + PATIENCE_S, -1.0
    while time.monotonic() < until_s:
        now_s = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(pid)
            for process in [own, *own.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    now_s += times.user + times.system
        if 0 <= now_s - before_s <= 0.01:
            return
        before_s = now_s
        time.sleep(0.25)
    raise RuntimeError("the browser does not come to rest")


def seconds_until(tab: Tab, address: str, condition: str) -> float:
    """Return the seconds from the request of an address until a condition (JavaScript) holds in its page."""
    start_s = time.perf_counter()
    tab.goto(address)
    tab.call(
        f"""async () => {{
          const holds = () => {{ try {{ return {condition}; }} catch {{ return false; }} }};
          const until = performance.now() + {1000 * PATIENCE_S};
          while (!holds()) {{
            if (performance.now() > until) throw new Error("it never came");
            await new Promise((done) => setTimeout(done, 5));
          }}
        }}"""
    )
    return time.perf_counter() - start_s
