"""One process's connection to the scheduler: the environment variables of its job, SIGTERM, whether a stop is asked,
which step it is, where all ranks leave.

The loop is in ``loop``, files of checkpoints in ``checkpoints``. Nothing here runs in the background. Without the
variables of a job a script runs as it would anywhere else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from trine.sdk.agreement import NEVER, Alone, ByApi, ByFiles, StopAgreement
from trine.sdk.attempt_api import AttemptApi
from trine.sdk.lease import LOOK_S, LeaseWatch, StopReason
from trine.sdk.progress import Progress

Handler = Callable[[int, FrameType | None], object]
EXIT_STOPPED = 85
"""Exit code of a job that saved its state and gave its GPUs back."""

_REASONS = {
    "signal": "SIGTERM",
    "asked": "the scheduler asks for the GPUs",
    "expired": "the lease is over",
    "superseded": "a newer start of this job runs",
}


class JobEnvironment(NamedTuple):
    """The variables of a job: its id and attempt, its ranks, where its files are.

    ``inside`` says whether trine started this process.
    """

    inside: bool = False
    job_id: str = ""
    attempt: int = 0
    rank: int = 0
    world_size: int = 1
    run_dir: Path | None = None
    progress_dir: Path | None = None
    checkpoint_dir: Path = Path("checkpoints")
    lease_s: float | None = None
    """Seconds that the lease holds from the start of the job; the lease file knows better."""
    api: tuple[str, str, str] | None = None
    """Address of the daemon, token of the attempt and certificates, where the ranks' nodes share no files."""

    @classmethod
    def read(
        cls, variables: Mapping[str, str] = os.environ, unix_clock: Callable[[], float] = time.time
    ) -> JobEnvironment:
        return cls(
            inside=bool(variables.get("TRINE_JOB_ID") or variables.get("TRINE_RUN_DIR")),
            job_id=variables.get("TRINE_JOB_ID", ""),
            attempt=_whole(variables, "TRINE_ATTEMPT", 0),
            rank=_whole(variables, "RANK", 0),
            world_size=_whole(variables, "WORLD_SIZE", 1),
            run_dir=_folder(variables, "TRINE_RUN_DIR"),
            progress_dir=_folder(variables, "TRINE_PROGRESS_DIR"),
            checkpoint_dir=_folder(variables, "TRINE_CHECKPOINT_DIR") or Path("checkpoints"),
            lease_s=_lease_s(variables, unix_clock),
            api=_api(variables),
        )


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name}: found {text!r}; expected a whole number") from None


def _lease_s(variables: Mapping[str, str], unix_clock: Callable[[], float]) -> float | None:
    """By its duration; where only its end is given, what is left of it now.

    An end that is past when the job starts says that two clocks differ, and nothing about the lease.
    """
    lease_s = _seconds(variables, "TRINE_LEASE_S", "seconds")
    if lease_s is not None:
        return lease_s
    deadline_s = _seconds(variables, "TRINE_LEASE_DEADLINE", "Unix seconds")
    left_s = 0.0 if deadline_s is None else deadline_s - unix_clock()
    return left_s if left_s > 0 else None


def _api(variables: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Only for ranks on several nodes: those of one node share its files."""
    token, url = variables.get("TRINE_ATTEMPT_TOKEN", ""), variables.get("TRINE_API", "")
    on_one_node = _whole(variables, "LOCAL_WORLD_SIZE", 1) >= _whole(variables, "WORLD_SIZE", 1)
    return None if on_one_node or not (token and url) else (url, token, variables.get("TRINE_API_CA", ""))


def _seconds(variables: Mapping[str, str], name: str, expected: str) -> float | None:
    text = variables.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"environment variable {name}: found {text!r}; expected {expected}") from None


def _folder(variables: Mapping[str, str], name: str) -> Path | None:
    text = variables.get(name)
    return Path(text) if text else None


class SigtermCatcher:
    """SIGTERM means: save and leave. The handler only notes it, and passes it on to the one that was there before; the
    loop acts between two steps.
    """

    def __init__(self, noted: Callable[[], None]) -> None:
        self._noted = noted
        self._before: Handler | int | None = None
        self._pid = 0
        self.caught = False

    @property
    def installed(self) -> bool:
        return self._pid == os.getpid()

    def install(self) -> bool:
        """Catch SIGTERM from now on. Only the main thread can; elsewhere this does nothing and returns False."""
        if self.installed:
            return True
        if threading.current_thread() is not threading.main_thread():
            return False
        self._before = signal.signal(signal.SIGTERM, self._handle)
        self._pid = os.getpid()
        return True

    def remove(self) -> None:
        """Give way to the earlier handler, unless another handler was installed since or this is another thread."""
        in_main = threading.current_thread() is threading.main_thread()
        if self.installed and in_main and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._earlier())
            self._pid = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.installed:
            self._end_child()
            return
        self.caught = True
        self._noted()
        if callable(self._before):
            self._before(number, frame)

    def _end_child(self) -> None:
        """A forked worker inherits the handler but not the loop: there SIGTERM does what it did before."""
        signal.signal(signal.SIGTERM, self._earlier())
        os.kill(os.getpid(), signal.SIGTERM)

    def _earlier(self) -> Handler | int:
        return signal.SIG_DFL if self._before is None else self._before


class Session:
    """State of one process. Steps are counted in ``ticks`` from its beginning, over all loops of the script."""

    def __init__(
        self,
        environment: JobEnvironment,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.environment = env = environment
        self.clock = clock
        self.progress = Progress(env.progress_dir if env.inside else None, env.rank, clock, unix_clock)
        self.sigterm = SigtermCatcher(self._look_next)
        self.restored_step = 0
        self.ticks = 0
        self.due_tick = 0 if env.inside else NEVER
        self.due_s = clock() if env.inside else float("inf")
        self.stopped: StopReason | None = None
        """Why the job leaves, once that is decided for all ranks."""
        self.last_answer: StopReason | None = None
        """Why the job should leave, as ``should_stop()`` last answered the script."""
        lease = env.run_dir / "lease.json" if env.run_dir else None
        self._lease = LeaseWatch(lease, env.attempt, env.lease_s, clock)
        self._shared = self._agreement()
        self._last = (self.due_s, 0)
        self._steps_per_s = 0.0

    def _agreement(self) -> StopAgreement:
        env = self.environment
        if env.inside and env.api is not None:
            return ByApi(AttemptApi(*env.api).agree, env.rank)
        if not env.inside or env.world_size == 1 or env.progress_dir is None:
            return Alone()
        return ByFiles(env.progress_dir, env.attempt, env.rank, self.clock)

    def _look_next(self) -> None:
        """After the next step, whatever the time: called by the handler of SIGTERM."""
        self.due_s = float("-inf")

    def asked(self) -> StopReason | None:
        """Why this rank should leave, as far as it knows by itself."""
        if not self.environment.inside:
            return None
        return "signal" if self.sigterm.caught else self._lease.over()

    def look(self, agreement: StopAgreement | None = None) -> bool:
        """Ask everything there is to ask after ``ticks`` steps: does this job leave now?"""
        agreement = agreement or self._shared
        now_s = self.clock()
        reason = self.asked()
        self._measure(now_s)
        leaves = agreement.leave(self.ticks, reason is not None, self._steps_per_s)
        self.due_tick, self.due_s = agreement.due, now_s + LOOK_S
        if leaves:
            self.stopped = reason or self.asked() or "asked"
        return leaves

    def _measure(self, now_s: float) -> None:
        then_s, ticks = self._last
        if now_s > then_s and self.ticks > ticks:
            self._steps_per_s = (self.ticks - ticks) / (now_s - then_s)
            self._last = now_s, self.ticks

    def step_done(self, step: int, total: int | None) -> bool:
        """One more step: for loops that are not ours. Every rank calls it after every step."""
        self.ticks += 1
        if not self.environment.inside:
            return False
        if self.stopped:
            return True
        if self.ticks < self.due_tick and self.clock() < self.due_s:
            self.progress.step = step
            return False
        self.progress.at(step, total)
        leaves = self.look()
        if leaves:
            self.progress.flush()
        return leaves

    def stop_reason(self) -> str:
        """Why the job leaves, as part of a sentence."""
        return _REASONS[self.stopped] if self.stopped else "nothing asks for a stop"

    def leave(self) -> NoReturn:
        sys.exit(EXIT_STOPPED)


_current: Session | None = None


def current() -> Session:
    """The session of this process, made from its environment when first asked for."""
    global _current  # noqa: PLW0603
    if _current is None:
        _current = Session(JobEnvironment.read())
    return _current


def say(sentence: str) -> None:
    """One line on stderr, which is the job's log, or nothing: no training ends because the disk of the log is full.

    Not by ``print``: what could not be written would stay in its buffer, and fail the process once more at its end.
    """
    if sys.stderr is None:
        return
    try:
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook, or a test
        print(f"trine.sdk: {sentence}", file=sys.stderr, flush=True)
        return
    with suppress(OSError):
        sys.stderr.flush()
        os.write(descriptor, f"trine.sdk: {sentence}\n".encode(errors="replace"))
