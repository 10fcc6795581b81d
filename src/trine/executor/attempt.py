"""One attempt at a job as the local executor follows it, and what its directory says about it. Starts nothing."""

from __future__ import annotations

import math
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trine.executor import rundir
from trine.executor.base import Exited, ExitKind, Handle, LaunchFailed, Progress, Started
from trine.executor.cgroup import Cgroup
from trine.executor.processes import marked, send

Place = tuple[str, int]
"""A GPU by node and index."""

_KINDS: dict[str, ExitKind] = {"done": "done", "preempted": "preempted", "failed": "failed"}
_LOOKS, _LOOK_S = 10, 0.02


@dataclass
class Attempt:
    """What is known of an attempt now; the directory holds the rest."""

    handle: Handle
    run_dir: Path
    spec: dict[str, Any] = field(default_factory=dict)
    shares_with: str = ""
    """The job that may hold the same GPUs."""
    pid: int = 0
    pidfd: int = -1
    ready: int = -1
    wish: int = 0
    """The signal that was last sent to the supervisor."""
    started: bool = False
    lost: bool = False
    """Its supervisor is gone without a word, and what it left is being ended."""
    ending: Exited | LaunchFailed | None = None
    progress_mark: tuple[int, int, int] = (0, 0, 0)
    """Which version of the file was read last."""

    @property
    def ended(self) -> bool:
        return self.ending is not None

    @property
    def gpus(self) -> list[Place]:
        return [(node, gpu) for node, gpus in self.spec.get("placement", ()) for gpu in gpus]

    @property
    def nodes(self) -> set[str]:
        return {node for node, _ in self.spec.get("placement", ())}

    def read(self, name: str) -> dict[str, Any] | None:
        return rundir.read_json(str(self.run_dir / name))

    def change_lease(self, **values: Any) -> None:
        """Replace parts of what the job may read of its lease."""
        before = self.read(rundir.LEASE) or {"job": self.handle.job_id, "epoch": self.handle.epoch, "stop": False}
        rundir.write_json(str(self.run_dir / rundir.LEASE), {**before, **values}, 0o644)

    def start(self) -> Started | None:
        """The start, if it is on record."""
        lines = rundir.read_status(str(self.run_dir))
        at_s = next((float(line["t"]) for line in lines if line.get("ev") == "started"), None)
        return None if at_s is None else Started(self.handle, at_s)

    def end(self) -> Exited | LaunchFailed | None:
        """The end, if it is on record."""
        record = self.read(rundir.EXIT)
        if record is None:
            return None
        at_s, reason = float(record["t"]), str(record.get("reason", ""))
        if record["kind"] == "unlaunched":
            return LaunchFailed(self.handle, at_s, reason)
        kind = _KINDS.get(record["kind"], "lost")
        return Exited(self.handle, at_s, kind, int(record["rc"]), record.get("step"), reason)

    def record_loss(self, at_s: float) -> Exited:
        """Put on record that its supervisor ended without a word."""
        rc, reason, step = 128 + signal.SIGKILL, "its supervisor was killed", rundir.last_step(str(self.run_dir))
        self._record({"kind": "lost", "rc": rc, "reason": reason, "t": at_s, "step": step})
        return Exited(self.handle, at_s, "lost", rc, step, reason)

    def record_failure(self, at_s: float, reason: str) -> LaunchFailed:
        """Put on record that it has no supervisor, so that none is started for it after a restart."""
        self._record({"kind": "unlaunched", "rc": 126, "reason": reason, "t": at_s})
        return LaunchFailed(self.handle, at_s, reason)

    def _record(self, end: dict[str, Any]) -> None:
        with suppress(OSError):
            rundir.write_exit(str(self.run_dir), end)

    def progress(self) -> Progress | None:
        """What rank 0 told since the last look, if it makes sense: the file is the job's own."""
        path = rundir.progress_file(str(self.run_dir))
        try:
            now = Path(path).lstat()
        except OSError:
            return None
        mark = (now.st_mtime_ns, now.st_ino, now.st_size)
        if mark == self.progress_mark:
            return None
        self.progress_mark = mark
        return _progress(self.handle, rundir.read_json(path) or {})

    def log_tail(self) -> str:
        """The last line of what the supervisor itself had to say."""
        try:
            lines = (self.run_dir / rundir.SUPERVISOR_LOG).read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")[:200]

    def sweep(self) -> bool:
        """Kill what a dead supervisor left behind; True if nothing is left."""
        cgroup = Cgroup(str((self.read(rundir.PID) or {}).get("cgroup", "")))
        for _ in range(_LOOKS):
            left = {*cgroup.pids(), *marked(f"TRINE_RUN_DIR={self.run_dir}")}
            if not left:
                cgroup.remove()
                return True
            cgroup.kill()
            for pid in left:
                send(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        return False


def _progress(handle: Handle, told: dict[str, Any]) -> Progress | None:
    step, rate, at_s = _count(told.get("step")), _number(told.get("steps_per_s")), _number(told.get("t"))
    if step is None or at_s is None:
        return None
    return Progress(handle, at_s, step, rate or 0.0, _count(told.get("total")), _count(told.get("checkpoint_step")))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) and value >= 0 else None
