"""Starts a server as a process of its own, waits until it is ready, and ends it gently or by kill -9."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.stack.asking import get, wait_for

# Ends a server with the process that started it, however that ends.
_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
# A server takes nothing of the user's telemetry settings or proxies.
_LEFT_OUT = ("OTEL_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class ServerProcess:
    """One server on ports that stay the same over restarts. Its output is in `log`, appended over restarts."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        ready_url: str,
        environment: Mapping[str, str] | None = None,
        stop_timeout_s: float = 60.0,
    ) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._command = [*_WITH_PARENT, *map(str, command)]
        self._ready_url = ready_url
        self._environment = dict(environment or {})
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """The process id; AssertionError where the server does not run."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, wait: bool = True) -> None:
        """Start the server, and wait until it says that it is ready."""
        assert not self.running, f"{self.name} runs already"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env={**inherited, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the server answers that it is ready; AssertionError with the end of its log where it does not."""
        try:
            wait_for(f"{self.name} to be ready", self._ready, timeout_s)
        except AssertionError as fault:
            raise AssertionError(f"{fault}\n{self.last_lines()}") from None

    def _ready(self) -> bool:
        if not self.running:
            raise AssertionError(f"{self.name} ended by itself")
        get(self._ready_url, timeout_s=5.0)
        return True

    def stop(self) -> None:
        """End the server as a system does (SIGTERM), and wait for its end; kill it where that takes too long."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        self._wait(self._stop_timeout_s)

    def kill(self) -> None:
        """End the server by SIGKILL: nothing of its own runs any more."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        self._wait(10.0)

    def restart(self) -> None:
        """Stop and start again, on the same ports and folders."""
        self.stop()
        self.start()

    def cpu_s(self) -> float:
        """Return the CPU time that the running process has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def last_lines(self, count: int = 40) -> str:
        """Return the end of the server's log: its last lines, and before them those that are no plain information."""
        if not self.log.exists():
            return ""
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines[:-5] if "info" not in line.lower()[:60]] + lines[-5:]
        return "\n".join([f"--- of {self.log}:", *(line[:1000] for line in told[-count:])])

    def _wait(self, timeout_s: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10.0)
        self._process = None


def suspended(process: ServerProcess, seconds: float) -> None:
    """Hold a server still for a time: it keeps its connections and answers nothing."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)  # the time for which it is held still
    finally:
        os.kill(process.pid, signal.SIGCONT)
