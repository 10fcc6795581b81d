"""One attempt as the Kubernetes executor follows it: its files, and what the API server says of its pods. What follows
from that is decided in ``executor``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trine.executor.attempt import rundir
from trine.executor.attempt.leader import conclude, unlaunched
from trine.executor.attempt.part import parts_of
from trine.executor.attempt.remote import RemoteAttempt
from trine.executor.kubernetes.pods import PodState

SETTLE_S = 5.0
"""How long a pod that was made may take to be seen by the watch."""
_KILLED_RC, _CHECKPOINTED_RC = 137, 85


@dataclass
class KubernetesAttempt(RemoteAttempt):
    """Times are seconds of this process's monotonic clock."""

    pods: dict[int, PodState] = field(default_factory=dict)
    """By part. One that was seen once and is missing now is gone, whatever removed it."""
    seen: set[int] = field(default_factory=set)
    """Parts whose pods the watch has shown."""
    submitted_s: float = -math.inf
    """When all of its pods were made and bound."""
    requested: Literal["", "preempt", "kill"] = ""
    withdrawn: str = ""
    """Why it was taken back before it started."""
    pending_from_s: float | None = None
    deleted_s: float = -math.inf
    """When the deletion of its pods was last ordered."""

    @property
    def external(self) -> dict[str, Any]:
        """Which pods of others it is about, as ``foreign_attempts`` put it on record; empty: its pods are our own."""
        found: dict[str, Any] = self.spec.get("external") or {}
        return found

    @property
    def count(self) -> int:
        return len(parts_of(self.spec))

    @property
    def bound(self) -> bool:
        return len(self.pods) == self.count and all(pod.node for pod in self.pods.values())

    @property
    def gone(self) -> list[int]:
        """Parts whose pods were there and are missing."""
        late = time.monotonic() > self.submitted_s + SETTLE_S
        return [
            part for part in range(self.count) if part not in self.pods and (part in self.seen or (self._made and late))
        ]

    @property
    def _made(self) -> bool:
        return self.submitted_s > -math.inf

    @property
    def all_over(self) -> bool:
        return all(self.is_over(part, pod) for part, pod in self.pods.items())

    def is_over(self, part: int, pod: PodState) -> bool:
        """Nothing of a pod runs: the kubelet saw that, or it was released before an agent of it came. One that comes
        later finds its part taken."""
        return pod.over or (pod.released and not pod.ran and not self._begun(part))

    def _begun(self, part: int) -> bool:
        return bool((self.read(rundir.part_file(part)) or {}).get("instance"))

    def claimed(self, part: int) -> bool:
        """An agent took the part up, or none ever will."""
        return self.read(rundir.part_file(part)) is not None

    def note_pods(self, found: Mapping[int, PodState], seen_s: float) -> None:
        """What the watch shows of it now. Pods that were made a moment ago may be missing there."""
        self.seen |= found.keys()
        late = seen_s > self.submitted_s + SETTLE_S
        made = {part: pod for part, pod in self.pods.items() if part not in self.seen and not late}
        self.pods = {**made, **found}

    def record_parts(self) -> None:
        """Put on record what ended pods left. A failure counts if it came before any order to stop."""
        stopped = self.read(rundir.STOP) is not None and len(self.spec["ranks"]) > 1
        for part, pod in self.pods.items():
            end, path = self.end_of(part, pod), self.run_dir / rundir.part_file(part, "end")
            if end is None or not pod.over or path.exists():
                continue
            if "up" in end:
                rundir.write_json(str(self.run_dir / rundir.part_file(part, "up")), {"t": float(end["up"])})
            if (failure := end.get("failure")) and not stopped:
                first = dict(zip(("rank", "rc", "t"), failure, strict=False))
                rundir.claim(str(self.run_dir), first, rundir.HALT)
            # What one part alone took for a failure counts if the attempt failed; an agent may not know of the stop.
            left_out = {"up", "instance"} | ({"failure"} if self.read(rundir.HALT) is None else set())
            kept = {name: value for name, value in end.items() if name not in left_out}
            rundir.claim(str(self.run_dir), {"instance": end.get("instance", "")}, rundir.part_file(part))
            if not end.get("lost"):
                rundir.write_json(str(path), kept)

    def end_of(self, part: int, pod: PodState) -> Mapping[str, Any] | None:
        """What the agent that ran the part left; not what a second container left, which found the part taken."""
        owner = self.read(rundir.part_file(part)) or {}
        if pod.end is None or ("instance" in owner and owner["instance"] != pod.end.get("instance")):
            return None
        return pod.end

    def note_start(self) -> None:
        """All of its parts run: that is its start."""
        if not self.started and not rundir.read_status(str(self.run_dir)):
            ups = [self.read(rundir.part_file(part, "up")) for part in range(self.count)]
            if all(ups):
                rundir.append_status(str(self.run_dir), t=max(float(up["t"]) for up in ups if up), ev="started")

    def concluded(self, is_quiet: Callable[[int], bool]) -> dict[str, Any] | None:
        """Its end, now that none of its pods runs; ``None`` while an agent is still heard of although its pod is said
        to be over (``is_quiet``: it is not)."""
        why = self.why_over()
        if self.requested and not any(self.claimed(part) for part in range(self.count)):
            conclude(str(self.run_dir), self.spec, why)
            return self._stopped_before_start()
        if self.withdrawn and (end := conclude(str(self.run_dir), self.spec, self.withdrawn)) is not None:
            return unlaunched(self.withdrawn, host=True) if end["kind"] == "unlaunched" else end
        end = conclude(str(self.run_dir), self.spec, why)
        if end is not None:
            return end
        if not all(is_quiet(part) for part, pod in self.pods.items() if self.end_of(part, pod) is None):
            return None
        return self._ended_without_record(why)

    def _stopped_before_start(self) -> dict[str, Any]:
        if self.requested == "kill":
            return {"kind": "failed", "rc": _KILLED_RC, "reason": "killed before it started"}
        return {"kind": "preempted", "rc": _CHECKPOINTED_RC, "reason": "stopped before it started"}

    def _ended_without_record(self, why: str) -> dict[str, Any]:
        if self.requested == "kill":
            return {"kind": "failed", "rc": _KILLED_RC, "reason": "killed on request"}
        if self.requested == "preempt":
            stop = self.read(rundir.STOP) or {}
            return {"kind": "preempted", "rc": _KILLED_RC, "killed": True, "grace_s": stop.get("grace_s")}
        return {"kind": "lost", "rc": _KILLED_RC, "reason": why}

    def why_over(self) -> str:
        """What Kubernetes says of its pods, in words."""
        if self.gone:
            return "a pod of it was removed"
        reasons = dict.fromkeys(
            pod.reason for pod in self.pods.values() if pod.reason not in ("", "Completed", "Error")
        )
        return f"Kubernetes ended it: {'; '.join(reasons)}" if reasons else "Kubernetes ended it"

    def why_pending(self) -> str:
        reasons = dict.fromkeys(pod.reason for pod in self.pods.values() if pod.reason)
        return "; ".join(reasons) or "its kubelets say nothing of it"
