"""One attempt at a job as its directory tells of it: start, progress, end, lease. Nothing is started or watched here;
what an engine knows of the processes besides is its own."""

from __future__ import annotations

import math
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trine.executor.attempt import rundir
from trine.executor.base import AttemptExited, AttemptProgress, AttemptStarted, ExitKind, Handle, LaunchFailed

Place = tuple[str, int]
"""A GPU by node and index."""

_KINDS: dict[str, ExitKind] = {"done": "done", "preempted": "preempted", "failed": "failed"}
SLOWEST, FASTEST = 1e-9, 1e12
"""Steps per second that a job may report."""
_MOST_STEPS = 10**15


@dataclass
class AttemptFiles:
    """What is known of an attempt now; the directory holds the rest."""

    handle: Handle
    run_dir: Path
    spec: dict[str, Any] = field(default_factory=dict)
    shares_with: str = ""
    """The job that may hold the same GPUs."""
    started: bool = False
    known: bool = False
    """Its directory was read; until then it is not known which GPUs it holds."""
    unseen: str = ""
    """Why it could not be looked at the last time."""
    ending: AttemptExited | LaunchFailed | None = None
    progress_mark: tuple[int, int, int] = (0, 0, 0)
    """Which version of the file was read last."""

    @property
    def ended(self) -> bool:
        return self.ending is not None

    @property
    def grace_s(self) -> float:
        """How long its ranks have to leave, as far as that is on record."""
        return float(self.spec.get("grace_s", 0.0))

    @property
    def gpus(self) -> list[Place]:
        return [(node, gpu) for node, gpus in self.spec.get("placement", ()) for gpu in gpus]

    @property
    def nodes(self) -> set[str]:
        return {node for node, _ in self.spec.get("placement", ())}

    def read(self, name: str) -> dict[str, Any] | None:
        """A file of its directory, ``None`` if there is none; OSError if the machine cannot say."""
        return rundir.read_json(str(self.run_dir / name), raising=True)

    def change_lease(self, **values: Any) -> None:
        """Replace parts of what the job may read of its lease."""
        before = self.read(rundir.LEASE) or {"job": self.handle.job_id, "epoch": self.handle.epoch, "stop": False}
        rundir.write_json(str(self.run_dir / rundir.LEASE), {**before, **values}, 0o644)

    def renew_lease(self, lease_s: float | None, now_s: float) -> None:
        """Let the lease begin anew. The number of the renewal is how the job sees that it did."""
        before = (self.read(rundir.LEASE) or {}).get("renewal")
        count = before if isinstance(before, int) else 0
        try:
            self.change_lease(**rundir.lease_time(lease_s, count + 1, now_s))
        except OSError:  # on a full disk, say: its parts see that the file was touched
            rundir.touch_lease(str(self.run_dir))

    def start(self) -> AttemptStarted | None:
        """The start, if it is on record."""
        lines = rundir.read_status(str(self.run_dir))
        at_s = next((float(line["t"]) for line in lines if line.get("ev") == "started"), None)
        return None if at_s is None else AttemptStarted(self.handle, at_s)

    def end(self) -> AttemptExited | LaunchFailed | None:
        """The end, if it is on record."""
        record = self.read(rundir.EXIT)
        if record is None:
            return None
        at_s, reason = float(record["t"]), str(record.get("reason", ""))
        if record["kind"] == "unlaunched":
            return LaunchFailed(self.handle, at_s, reason, bool(record.get("host")))
        kind = _KINDS.get(record["kind"], "lost")
        killed, grace_s = bool(record.get("killed")), record.get("grace_s")
        return AttemptExited(self.handle, at_s, kind, int(record["rc"]), record.get("step"), reason, killed, grace_s)

    def record_loss(self, at_s: float, reason: str) -> AttemptExited:
        """Put on record that it ended without a report of how."""
        rc, step = 128 + signal.SIGKILL, rundir.last_step(str(self.run_dir))
        self._record({"kind": "lost", "rc": rc, "reason": reason, "t": at_s, "step": step})
        return AttemptExited(self.handle, at_s, "lost", rc, step, reason)

    def record_unlaunched(self, at_s: float, reason: str) -> LaunchFailed:
        """Put on record that the machine gave it no supervisor, so that none is started for it after a restart."""
        if not self._record({"kind": "unlaunched", "rc": 126, "host": True, "reason": reason, "t": at_s}):
            with suppress(OSError):
                rundir.write_unlaunched(str(self.run_dir))
        return LaunchFailed(self.handle, at_s, reason, passing=True)

    def _record(self, end: dict[str, Any]) -> bool:
        try:
            rundir.write_exit(str(self.run_dir), end)
        except OSError:
            return False
        return True

    def progress(self) -> AttemptProgress | None:
        """What rank 0 reported since the last look, if it makes sense: the file is the job's own."""
        path = rundir.progress_file(str(self.run_dir))
        try:
            now = Path(path).lstat()
        except OSError:
            return None
        mark = (now.st_mtime_ns, now.st_ino, now.st_size)
        if mark == self.progress_mark:
            return None
        self.progress_mark = mark
        return _progress(self.handle, rundir.read_job_json(path) or {})


def _progress(handle: Handle, report: dict[str, Any]) -> AttemptProgress | None:
    """A report whose numbers contradict each other, or that no training could have, is refused as a whole."""
    step, rate, at_s = _count(report.get("step")), _number(report.get("steps_per_s", 0.0)), _number(report.get("t"))
    total, saved = report.get("total"), report.get("checkpoint_step")
    if step is None or at_s is None or rate is None or (rate > 0 and not SLOWEST <= rate <= FASTEST):
        return None
    if total is not None and (_count(total) is None or step > total or total == 0):
        return None
    if saved is not None and (_count(saved) is None or saved > step):
        return None
    return AttemptProgress(handle, at_s, step, rate, total, saved)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_STEPS else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) and value >= 0 else None
