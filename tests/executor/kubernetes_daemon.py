"""A whole daemon over a cluster of Kubernetes, as a process of its own, for tests."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.executor.driving import DEADLINE_S
from tests.executor.kubernetes_cluster import KubernetesCluster
from trine.client import Client


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition that something outside makes true."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


class Daemon:
    """A daemon over the cluster of the session, which can be killed and started again."""

    def __init__(self, cluster: KubernetesCluster, state: Path) -> None:
        self.cluster, self.state = cluster, state
        self.settings: dict[str, str] = {}
        self.options: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        known = {"kubeconfig": str(self.cluster.kubeconfig), "python": sys.executable, **self.settings}
        options = [word for name, value in known.items() for word in ("--set", f"engine.{name}={value}")]
        command = [sys.executable, "-m", "trine", "up", "--state", str(self.state), "--engine", "kubernetes"]
        command += ["--port", "0", "--round", "1", "--quiet", *options, *self.options]
        self._process = process = subprocess.Popen(command)
        until(lambda: process.poll() is not None or (self.state / "api.json").exists(), "the daemon")

    def end(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            with suppress(FileNotFoundError):
                (self.state / "api.json").unlink()

    def jobs(self) -> list[Any]:
        """All jobs there ever were, in order of arrival."""
        every = ["waiting", "starting", "running", "stopping", "held", "done", "failed", "cancelled"]
        with Client(state=self.state) as client:
            return sorted(client.jobs(states=every), key=lambda job: int(job["id"]))

    def job(self, name: str, state: str) -> Any:
        """The last job of this name, once it is in this state."""

        def found() -> Any:
            jobs = [job for job in self.jobs() if job["name"] == name]
            return jobs[-1] if jobs and jobs[-1]["state"] == state else None

        return until(found, f"{name} to be {state}")
