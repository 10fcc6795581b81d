"""Runs a job, samples the machine while it runs and derives its feature row: how busy it keeps compute and memory.

Which classes such rows fall into is in ``app_classes``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import IO, Any

from trine.core.errors import InputError
from trine.profile.sampling import Sampler, Usage
from trine.profile.steps import PROGRESS_VARIABLE, ProgressFile, StepTimes

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LAST_OUTPUT_S = 2.0


@dataclass(frozen=True, slots=True)
class AppRun:
    """One profiled run of a job."""

    name: str
    usage: Usage
    step_s: float | None
    """Median over all steps that were reported."""
    steps: int
    samples: int
    seconds: float
    exit_code: int
    """As the shell would say it: 128 + the signal if one ended the job."""

    @property
    def ending(self) -> str:
        """How the job ended, as part of a sentence."""
        if self.exit_code > 128:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(self.exit_code - 128).name}"
        return f"ended with exit code {self.exit_code}"

    def as_dict(self) -> dict[str, Any]:
        """The feature row."""
        return {
            "name": self.name,
            "source": self.usage.source,
            "compute_util": self.usage.compute_util,
            "memory_util": self.usage.memory_util,
            "power_w": self.usage.power_w,
            "step_s": self.step_s,
            "steps": self.steps,
            "samples": self.samples,
            "seconds": self.seconds,
            "exit_code": self.exit_code,
            "details": self.usage.details,
        }


def run_app(
    command: Sequence[str],
    name: str,
    sampler: Sampler,
    interval_s: float,
    clock: Callable[[], float],
    output: IO[bytes] | None = None,
    pattern: re.Pattern[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> AppRun:
    """Run ``command`` to its end, sampling every ``interval_s`` seconds of ``clock``.

    Its output goes to ``output`` (stderr if not given). Signals sent to us go on to the job.
    """
    printed = StepTimes(pattern)
    with _progress_file(environment) as path, _forwarded_signals() as job:
        reported, progress = StepTimes(pattern), ProgressFile(path)
        start_s = clock()
        job.process = _start(command, {**environment, PROGRESS_VARIABLE: str(path)})
        job.deliver()
        reader = _forward_output(job.process, output or sys.stderr.buffer, printed)
        sampler.start(job.process.pid)
        samples = _watch(job.process, sampler, interval_s, clock, start_s, lambda: reported.feed(progress.new()))
        seconds = max(clock() - start_s, 1e-9)
        # A process left behind may keep the pipe open for ever: what it still writes is not waited for.
        reader.join(_LAST_OUTPUT_S)
        reported.feed(progress.new())
    for times in (printed, reported):
        times.close()
    all_s = reported.seconds or printed.seconds
    code = job.process.returncode
    return AppRun(
        name=name,
        usage=sampler.usage(seconds),
        step_s=median(all_s) if all_s else None,
        steps=len(all_s),
        samples=samples,
        seconds=seconds,
        exit_code=code if code >= 0 else 128 - code,
    )


def _watch(
    process: subprocess.Popen[bytes],
    sampler: Sampler,
    interval_s: float,
    clock: Callable[[], float],
    start_s: float,
    read_progress: Callable[[], None],
) -> int:
    """Sample until the job ends; returns how often. A job shorter than the interval is sampled once, at its end."""
    samples = 0
    while True:
        due_s = start_s + (samples + 1) * interval_s
        try:
            process.wait(timeout=max(0.0, due_s - clock()))
        except subprocess.TimeoutExpired:
            sampler.sample()
            samples += 1
            read_progress()
            continue
        if not samples:
            sampler.sample()
        return max(samples, 1)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # one pipe for both, so that their lines stay whole and in order
            # The job has a session of its own and could not read from our terminal.
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
            start_new_session=True,
        )
    except OSError as error:
        found = f"{command[0]!r} cannot be started ({error.strerror})"
        raise InputError("profile app", found, "a program to run after --") from None


def _forward_output(process: subprocess.Popen[bytes], sink: IO[bytes], steps: StepTimes) -> threading.Thread:
    stream: Any = process.stdout

    def forward() -> None:
        with stream:
            while data := stream.read1(65_536):
                steps.feed(data)
                with suppress(OSError, ValueError):
                    sink.write(data)
                    sink.flush()

    thread = threading.Thread(target=forward, daemon=True)
    thread.start()
    return thread


@contextmanager
def _progress_file(environment: Mapping[str, str]) -> Iterator[Path]:
    """The file that the environment names for step times, or one of our own for this run."""
    named = environment.get(PROGRESS_VARIABLE)
    if named:
        yield Path(named)
        return
    with tempfile.TemporaryDirectory(prefix="trine-") as folder:
        yield Path(folder) / "progress.jsonl"


class _Job:
    """The process that signals are meant for; those that come before it has started are kept for it."""

    def __init__(self) -> None:
        self.process: Any = None
        self._early: list[int] = []

    def send(self, signum: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        if self.process is None:
            self._early.append(signum)
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signum)

    def deliver(self) -> None:
        while self._early:
            self.send(self._early.pop(0))


@contextmanager
def _forwarded_signals() -> Iterator[_Job]:
    job = _Job()
    before = {number: signal.signal(number, job.send) for number in FORWARDED}
    try:
        yield job
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
