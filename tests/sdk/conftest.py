"""A job without a scheduler: the folders and files that an executor would make, and real processes in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SET_BY_TRINE = ("TRINE_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_")
DEADLINE_S = 120.0


def wait_for(condition: Callable[[], Any], what: str, process: subprocess.Popen[str] | None = None) -> Any:
    """Poll until ``condition`` is true; fails if the process ended meanwhile or it takes too long."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        if found := condition():
            return found
        if process is not None and process.poll() is not None:
            pytest.fail(f"ended with {process.returncode} while waiting until {what}: {process.communicate()[1]}")
        time.sleep(0.01)
    pytest.fail(f"gave up waiting until {what}")


class FakeJob:
    """One job: start attempts at it, talk to them through its lease, read what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.attempt = 0
        self._renewal = 0
        self._deadline_s: float | None = None
        self._processes: list[subprocess.Popen[str]] = []

    def begin(self, lease_s: float | None = None) -> None:
        """A new attempt, with files of its own."""
        self.attempt += 1
        self.run_dir = self.folder / f"attempt-{self.attempt}"
        self.progress_dir = self.run_dir / "progress"
        self.progress_dir.mkdir(parents=True)
        self.lease(lease_s=lease_s)

    def lease(
        self, lease_s: float | None = None, stop: bool = False, epoch: int | None = None, renew: bool = True
    ) -> None:
        """Replace the lease file, as a renewal unless ``renew`` is false."""
        if renew:
            self._renewal += 1
            self._deadline_s = None if lease_s is None else time.time() + lease_s
        held = {"lease_s": lease_s, "renewal": self._renewal, "deadline_s": self._deadline_s}
        fields = {"job": "7", "epoch": epoch or self.attempt, **held, "stop": stop}
        aside = self.run_dir / "lease.tmp"
        aside.write_text(json.dumps(fields))
        aside.replace(self.run_dir / "lease.json")

    def environment(self, rank: int = 0, world: int = 1) -> dict[str, str]:
        own = {
            **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0},
            **{"TRINE_JOB_ID": "7", "TRINE_ATTEMPT": self.attempt, "TRINE_LEASE_DEADLINE": ""},
            **{"TRINE_RUN_DIR": self.run_dir, "TRINE_PROGRESS_DIR": self.progress_dir},
            "TRINE_CHECKPOINT_DIR": self.checkpoints,
        }
        return outside() | {name: str(value) for name, value in own.items()}

    def start(self, *command: object, rank: int = 0, world: int = 1, **extra: str) -> subprocess.Popen[str]:
        """``command`` is a program, or a Python file with its arguments."""
        words = [str(word) for word in command]
        words = [sys.executable, *words] if words[0].endswith(".py") else words
        process = subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment(rank, world) | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def progress(self, rank: int = 0) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.progress_dir / f"progress-{rank}.json").read_text())
        except FileNotFoundError:
            return {"step": -1}
        return found

    def reached(self, step: int, process: subprocess.Popen[str], rank: int = 0) -> None:
        wait_for(lambda: self.progress(rank)["step"] >= step, f"rank {rank} has done {step} steps", process)

    def stop(self, *processes: subprocess.Popen[str]) -> None:
        """As the executor does: the lease says so, and SIGTERM."""
        self.lease(stop=True)
        for process in processes:
            process.send_signal(signal.SIGTERM)

    def saved_steps(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("step-")) for path in self.checkpoints.glob("step-*.json"))

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def outside() -> dict[str, str]:
    """An environment in which nothing is set by trine."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SET_BY_TRINE)}


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process that ends by itself."""
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


@pytest.fixture
def job(tmp_path: Path) -> Iterator[FakeJob]:
    made = FakeJob(tmp_path)
    made.begin()
    yield made
    made.close()
