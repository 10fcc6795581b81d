"""A real daemon in a process of its own, with everything it started ended afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trine.client import Client
from trine.executor.base import AttemptExited, LaunchFailed
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes

PATIENCE_S = 90.0
EXAMPLES = Path(__file__).parents[2] / "examples"


class Daemon:
    """``trine up`` on a state directory; may be killed and started again."""

    def __init__(self, state: Path, *options: str) -> None:
        self.state, self.options = state, options
        self.process: subprocess.Popen[bytes] | None = None
        self.client: Client | None = None

    def up(self) -> Client:
        (self.state / "api.json").unlink(missing_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        command = [sys.executable, "-m", "trine", "up", "--state", str(self.state), "--quiet", *self.options]
        self.process = subprocess.Popen(command, env={**os.environ, "PATH": path}, stderr=subprocess.PIPE)
        until(self._answers, "the daemon to come up")
        self.client = Client(state=self.state)
        return self.client

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            assert self.process.stderr is not None
            raise AssertionError(f"the daemon ended: {self.process.stderr.read().decode()}")
        return (self.state / "api.json").exists()

    def kill(self) -> None:
        """As a power cut for the daemon; jobs go on."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.client is not None:
            self.client.close()
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(30)
        if self.process.stderr is not None:
            self.process.stderr.close()
        self.process = None
        return code


@contextmanager
def daemon(state: Path, *options: str) -> Iterator[Daemon]:
    found = Daemon(state, *options)
    try:
        yield found
    finally:
        found.kill()
        end_jobs(state)


def end_jobs(state: Path) -> None:
    """Jobs outlive their daemon; none outlives its test."""
    with LocalExecutor(state, virtual_nodes("1x1")) as executor:
        left = set(executor.list_handles())
        for handle in left:
            executor.kill(handle)
        deadline = time.monotonic() + 30
        while left and time.monotonic() < deadline:
            left -= {
                event.handle for event in executor.wait_events(0.2) if isinstance(event, AttemptExited | LaunchFailed)
            }


def until(holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"waited {patience_s:g} s for {what}"
        time.sleep(0.05)


def processes_of(job_id: str, state: Path) -> list[int]:
    """Processes that carry the job's mark, wherever they have gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"TRINE_JOB_ID={job_id}".encode() in words and any(str(state).encode() in word for word in words):
                found.append(int(entry.name))
    return found


def entry(state: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((state / "api.json").read_text())
    return found
