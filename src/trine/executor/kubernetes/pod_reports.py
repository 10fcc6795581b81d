"""What owners of pods see with ``kubectl get pods`` and ``kubectl describe``: the condition PodScheduled with the
reason that trine gives, and an event for every new one. Seldom per pod, few at a time, and never the same twice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from trine.executor.kubernetes.api import STRATEGIC_PATCH, ApiRefused, KubernetesApi
from trine.executor.kubernetes.foreign_pods import Pod, Workload, path_of, uid_of

_PER_POD, _WITHIN_S = 3, 60.0
"""So many reasons for the same pod within so many seconds, at most: sentences hold counts that change all the time."""
_AT_ONCE = 20
_LONGEST = 1000


class PodReports:
    """Keeps the last reason of each workload and brings it to the pods when that is due."""

    def __init__(
        self,
        api: KubernetesApi,
        scheduler: str,
        order: Callable[[Callable[[], None]], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._scheduler, self._order = api, scheduler, order
        self._monotonic = monotonic
        self._reasons: Mapping[str, str] = {}
        self._reported: dict[str, dict[str, float]] = {}
        """Reasons patched into each pod lately, by uid, and when: the watch shows a patch only a little later."""

    def note(self, reasons: Mapping[str, str]) -> None:
        """The present reasons, by the keys of workloads."""
        self._reasons = dict(reasons)

    def bring(self, waiting: Iterable[Workload]) -> None:
        """Order what is due of the reasons; ``waiting``: all that asks to be placed, as it was last seen."""
        now_s, due = self._monotonic(), []
        lately: dict[str, dict[str, float]] = {}
        for workload in waiting:
            reason = self._reasons.get(workload.job.key) or workload.job.refused
            for pod in workload.pods:
                before = self._reported.get(uid_of(pod), {}).items()
                lately[uid_of(pod)] = recent = {text: at_s for text, at_s in before if now_s - at_s < _WITHIN_S}
                if reason and reason not in recent and said_of(pod) != _short(reason) and len(recent) < _PER_POD:
                    due.append((pod, reason))
        self._reported = lately
        for pod, reason in due[:_AT_ONCE]:
            lately[uid_of(pod)][reason] = now_s
            self._order(lambda pod=pod, reason=reason: self._tell(pod, reason))  # type: ignore[misc]

    def _tell(self, pod: Pod, reason: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": _short(reason),
            "lastTransitionTime": _now(),
        }
        body = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [condition]}}
        self._api.patch(f"{path_of(pod['metadata'])}/status", body, STRATEGIC_PATCH)
        self._say(pod["metadata"], "Warning", "FailedScheduling", reason)

    def placed(self, member: Mapping[str, str]) -> None:
        """An event that says where a pod goes; one that is refused is not worth a failure."""
        message = f"Successfully assigned {member['namespace']}/{member['name']} to {member['node']}"
        with suppress(ApiRefused):
            self._say(member, "Normal", "Scheduled", message)

    def _say(self, pod: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """The name is made from what is said: the same is on record once."""
        mark = hashlib.sha256(f"{pod['uid']} {reason} {message}".encode()).hexdigest()[:16]
        about = {"apiVersion": "v1", "kind": "Pod"} | {key: pod[key] for key in ("namespace", "name", "uid")}
        event = {
            "metadata": {"name": f"{pod['name'][:200]}.{mark}", "namespace": pod["namespace"]},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": _short(message),
            "source": {"component": self._scheduler},
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "count": 1,
        }
        try:
            self._api.create(f"/api/v1/namespaces/{pod['namespace']}/events", event)
        except ApiRefused as refusal:
            if refusal.status != 409:
                raise


def said_of(pod: Pod) -> str:
    """The reason that stands at a pod for not being placed."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(one.get("message") or "") for one in conditions if one["type"] == "PodScheduled"), "")


def _short(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
