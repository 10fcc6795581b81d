"""Drives an executor from a test: leases for the cheap trainer, waiting for events with a deadline, cleaning up."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from trine.executor.attempt.processes import marked
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    Event,
    Executor,
    Handle,
    JobLease,
    LaunchFailed,
    NodeInfo,
    Unreachable,
)
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes

TRAINER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("trainer.py")))
LONG = {"STEPS": "100000"}
DEADLINE_S = 120.0
"""How long anything is waited for, on a machine that may be busy. It costs time only when something is broken."""
_numbers = itertools.count(1)


def unique_s() -> str:
    """A time to sleep that tells the sleeping process from all others."""
    return f"1000.{os.getpid()}{next(_numbers):04d}"


def running(command: str) -> list[int]:
    """Processes with these words on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command in words:
            found.append(int(path.parent.name))
    return found


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition that something outside makes true."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[Path]:
    """A file system of its own, with options of tmpfs such as ``size=256k``; skips the test where none can be made."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room there is; the file that holds it."""
    path = disk / "ballast"
    with path.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                return path


class Engine(Protocol):
    """What a test must know about an executor beyond its interface."""

    shares_gpus: bool
    exact_gpus: bool
    """Ranks see the GPUs that were chosen by their index on the node; else numbered from 0."""

    def prepare(self, request: pytest.FixtureRequest) -> None:
        """Whatever it needs for a test; skips the test where that cannot be had."""

    def tidy(self) -> None:
        """After a test, when all jobs of its driver have ended."""

    def open(self, state: Path) -> Executor:
        """A new executor over what is in ``state``, with nodes node0 to node3 of 2 GPUs each."""

    def log(self, state: Path, job_id: str, rank: int) -> str: ...

    def leftovers(self, state: Path) -> list[int]:
        """Processes of jobs that still run."""


class LocalEngine:
    shares_gpus = True
    exact_gpus = True

    def __init__(self, cgroups: bool) -> None:
        self.cgroups = cgroups

    def open(self, state: Path, nodes: list[NodeInfo] | None = None) -> LocalExecutor:
        nodes = virtual_nodes("4x2") if nodes is None else nodes
        return LocalExecutor(state, nodes, cgroups=self.cgroups, progress_s=0.05)

    def prepare(self, request: pytest.FixtureRequest) -> None:
        """This machine is all it needs."""

    def tidy(self) -> None:
        """The driver has ended all jobs."""

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return marked_processes(state)


def job_log(state: Path, job_id: str, rank: int) -> str:
    path = state / "jobs" / job_id / ("log" if rank == 0 else f"log.{rank}")
    return path.read_text() if path.exists() else ""


def marked_processes(state: Path) -> list[int]:
    """Processes of the jobs in a state directory, by what is in their environment."""
    runs = state.glob("jobs/*/[0-9]*")
    return [pid for run in runs for pid in marked(f"TRINE_RUN_DIR={run}")]


class Driver:
    """One state directory and the executor over it, which can be ended and opened again."""

    def __init__(self, engine: Engine, state: Path) -> None:
        self.engine, self.state = engine, state
        self.scratch = state.with_name(f"{state.name}-scratch")
        """Where jobs may write: not inside the state directory."""
        self.scratch.mkdir(exist_ok=True)
        self.executor = engine.open(state)
        self.seen: list[Event] = []

    def lease(self, job_id: str, *placement: tuple[str, tuple[int, ...]], **changes: Any) -> JobLease:
        """The trainer on some GPUs; words in capitals are its variables, others fields of the lease."""
        variables = {name: str(changes.pop(name)) for name in list(changes) if name.isupper()}
        checkpoints = self.scratch / job_id
        checkpoints.mkdir(parents=True, exist_ok=True)
        fields: dict[str, Any] = {"epoch": 1, "command": TRAINER, "checkpoint_dir": str(checkpoints)}
        fields["env"] = {**changes.pop("env", {}), **variables}
        return JobLease(job_id, placement=placement or (("node0", (0,)),), **{**fields, **changes})

    def launch(self, job_id: str, *placement: tuple[str, tuple[int, ...]], **changes: Any) -> Handle:
        return self.executor.launch(self.lease(job_id, *placement, **changes))

    def run(self, job_id: str, *placement: tuple[str, tuple[int, ...]], **changes: Any) -> AttemptExited | LaunchFailed:
        return self.end(self.launch(job_id, *placement, **changes))

    def until(self, wanted: Callable[[Event], bool], what: str) -> Event:
        """The first event of this kind, seen already or still to come."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := [event for event in self.seen if wanted(event)]):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"waited in vain for {what}; saw {self.seen}"
            self.seen += self.executor.wait_events(left_s)
        return found[0]

    def of(self, handle: Handle) -> list[Event]:
        return [event for event in self.seen if getattr(event, "handle", None) == handle]

    def started(self, handle: Handle) -> None:
        self.until(lambda event: isinstance(event, AttemptStarted) and event.handle == handle, f"the start of {handle}")

    def progress(self, handle: Handle, step: int = 1) -> AttemptProgress:
        """News of this step or a later one: the job is well under way."""
        event = self.until(
            lambda event: isinstance(event, AttemptProgress) and event.handle == handle and event.step >= step,
            f"step {step} of {handle}",
        )
        assert isinstance(event, AttemptProgress)
        return event

    def end(self, handle: Handle) -> AttemptExited | LaunchFailed:
        event = self.until(
            lambda event: isinstance(event, AttemptExited | LaunchFailed) and event.handle == handle,
            f"the end of {handle}",
        )
        assert isinstance(event, AttemptExited | LaunchFailed)
        return event

    def exited(self, handle: Handle) -> AttemptExited:
        event = self.end(handle)
        assert isinstance(event, AttemptExited), event
        return event

    def renewed_until_exited(self, handle: Handle, lease_s: float) -> AttemptExited:
        """The end of an attempt whose lease is renewed for as long as it has none, as a daemon does."""
        deadline = time.monotonic() + 2 * DEADLINE_S
        while not any(isinstance(event, AttemptExited) for event in self.of(handle)):
            assert time.monotonic() < deadline, f"{handle} does not end; saw {self.seen}"
            self.executor.renew(handle, lease_s)
            self.seen += self.executor.wait_events(0.5)
        return self.exited(handle)

    def lines(self, job_id: str, rank: int = 0) -> list[dict[str, Any]]:
        """What a rank of the trainer said, over all attempts."""
        said = self.engine.log(self.state, job_id, rank).splitlines()
        return [json.loads(line) for line in said if line and not line.startswith("--- attempt ")]

    def removed(self) -> None:
        """Wait until what jobs left, which goes in the background, is gone."""
        aside = self.state / "removing"
        until(lambda: not aside.exists() or not list(aside.iterdir()), "all that jobs left is removed")

    def handles(self) -> list[Handle]:
        """The attempts that the executor follows; it can be asked."""
        found = self.executor.list_handles()
        assert not isinstance(found, Unreachable), found
        return found

    def nodes(self) -> list[NodeInfo]:
        found = self.executor.inventory()
        assert not isinstance(found, Unreachable), found
        return found

    def reopen(self) -> None:
        """A new executor in place of the old one; events that were not read are gone with it."""
        self.executor.close()
        self.seen = []
        self.executor = self.engine.open(self.state)

    def close(self) -> None:
        """End all jobs, whatever state the test left them in."""
        try:
            for handle in self.handles():
                self.executor.kill(handle)
            until(lambda: not self.engine.leftovers(self.state), "the end of all jobs")
        finally:
            self.executor.close()
