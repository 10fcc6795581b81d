"""Pods of other people as the executor deals with them: offered to the scheduler, bound together or not at all,
followed until they end, deleted where they have to leave. They have no agent: all that is known of them is what
Kubernetes says."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from trine.executor.attempt import rundir
from trine.executor.attempt.leader import unlaunched
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import ExternalJob, JobLease, NodeInfo
from trine.executor.kubernetes.api import ApiRefused, KubernetesApi
from trine.executor.kubernetes.attempt import KubernetesAttempt
from trine.executor.kubernetes.foreign_pods import (
    ForeignRules,
    Pod,
    Workload,
    end_of,
    has_started,
    members,
    path_of,
    uid_of,
    workloads,
)
from trine.executor.kubernetes.pod_reports import PodReports
from trine.executor.kubernetes.pods import binding

_CONFLICT = 409
_TERMINATED_RC, _KILLED_RC = 143, 137


class ForeignPods:
    """What was last seen of pods that others made for trine. Methods are called with the executor's lock held, but for
    those that say they block."""

    def __init__(self, api: KubernetesApi, rules: ForeignRules, order: Callable[[Callable[[], None]], None]) -> None:
        self._api, self._rules, self._order = api, rules, order
        self.reports = PodReports(api, rules.scheduler, order)
        self._pods: dict[str, Pod] = {}
        self._waiting: dict[str, Workload] = {}
        self._out_of_service: Collection[str] = frozenset()
        self._offered: tuple[ExternalJob, ...] | None = None

    # -- what is there ------------------------------------------------------------------------------------------------

    def note(
        self,
        pods: Iterable[Pod],
        nodes: Iterable[Pod],
        infos: Sequence[NodeInfo],
        attempts: Iterable[KubernetesAttempt],
        out_of_service: Collection[str],
    ) -> tuple[ExternalJob, ...] | None:
        """Take in what was watched. All work there is now, if that differs from what was said before."""
        self._pods, self._out_of_service = {uid_of(pod): pod for pod in pods}, out_of_service
        placed = [attempt for attempt in attempts if attempt.external and not attempt.ended]
        taken = placed_uids(placed)
        by_name = {node["metadata"]["name"]: node for node in nodes}
        asking = workloads(self._pods.values(), taken, by_name, infos, self._rules)
        self._waiting = {workload.job.key: workload for workload in asking}
        self.reports.bring(asking)
        stays = [_running(attempt.external) for attempt in placed if not self._is_taken_back(attempt)]
        found = (*(each.job for each in asking), *sorted(stays, key=lambda job: job.key))
        if found == self._offered:
            return None
        self._offered = found
        return found

    def _is_taken_back(self, attempt: KubernetesAttempt) -> bool:
        """A pod of it was deleted before it had ended, by its owner or by Kubernetes."""
        return any(self._is_leaving(attempt, number) for number in range(len(attempt.external["pods"])))

    def _is_leaving(self, attempt: KubernetesAttempt, number: int) -> bool:
        if (end := self._end(attempt, number)) is not None:
            return bool(end.get("left"))
        pod = self._pods.get(attempt.external["pods"][number]["uid"])
        return pod is None or bool(pod["metadata"].get("deletionTimestamp"))

    # -- placing ------------------------------------------------------------------------------------------------------

    def spec_of(self, lease: JobLease) -> dict[str, Any]:
        """What is put on record before any pod is bound: which pod goes where."""
        workload = self._waiting.get(lease.external)
        if workload is None or workload.job.refused:
            raise LaunchRefused("its pods do not ask to be placed any more", passing=True)
        chosen = members(workload, lease.placement)
        if not chosen:
            raise LaunchRefused("its pods cannot be dealt out to these GPUs", passing=True)
        return {
            "job": lease.job_id,
            "epoch": lease.epoch,
            "grace_s": lease.grace_s,
            "placement": [[node, list(gpus)] for node, gpus in lease.placement],
            "ranks": [],
            "external": {"key": lease.external, "name": workload.job.name, "user": workload.job.user, "pods": chosen},
        }

    def bind(self, attempt: KubernetesAttempt, check_node: Callable[[str], None]) -> None:
        """Bind all pods of a gang; what was bound by a call whose answer was lost is left as it is. If one cannot be,
        those that were are deleted: their owners make them anew, and the gang starts as a whole. Blocks."""
        chosen, bound = attempt.external["pods"], False
        try:
            for node in dict.fromkeys(member["node"] for member in chosen):
                check_node(node)
            pods = [self._look_up(member) for member in chosen]
            bound = any(pod["spec"].get("nodeName") for pod in pods)
            for member, pod in zip(chosen, pods, strict=True):
                if not pod["spec"].get("nodeName"):
                    self._bind_one(member)
                bound = True
        except (ApiRefused, LaunchRefused):
            if bound:
                for member in chosen:
                    self._delete_one(member, only_bound_to=member["node"])
            raise
        for member in chosen:
            self.reports.placed(member)

    def _look_up(self, member: Mapping[str, str]) -> Pod:
        """As the API server has it now: what was watched is a moment old, and a Binding cannot be taken back."""
        try:
            pod = self._api.get(path_of(member))
        except ApiRefused as refusal:
            if refusal.status != 404:
                raise
            raise LaunchRefused(f"there is no pod {member['name']} any more", passing=True) from None
        node = pod["spec"].get("nodeName")
        if uid_of(pod) != member["uid"] or pod["metadata"].get("deletionTimestamp"):
            raise LaunchRefused(f"there is no pod {member['name']} any more", passing=True)
        if node not in (None, "", member["node"]):
            raise LaunchRefused(f"pod {member['name']} was bound to {node} by others", passing=True)
        return pod

    def _bind_one(self, member: Mapping[str, str]) -> None:
        try:
            body = binding(member["name"], member["node"], member["uid"])
            self._api.create(f"{path_of(member)}/binding", body)
        except ApiRefused as refusal:
            if refusal.status != _CONFLICT:
                raise
            self._look_up(member)  # bound there by a call whose answer was lost, or by others

    # -- following ----------------------------------------------------------------------------------------------------

    def follow(self, attempt: KubernetesAttempt) -> dict[str, Any] | None:
        """The end of an attempt, once nothing of it runs any more. A kubelet that is not heard of proves nothing: its
        pods run until Kubernetes says otherwise."""
        chosen = attempt.external["pods"]
        ends = [self._end(attempt, number) for number in range(len(chosen))]
        found = [self._pods.get(member["uid"]) for member in chosen]
        if all(pod is not None and has_started(pod) for pod in found) and not rundir.read_status(str(attempt.run_dir)):
            rundir.append_status(str(attempt.run_dir), t=time.time(), ev="started")
        if attempt.withdrawn:
            left = [pod for pod, end in zip(found, ends, strict=True) if pod is not None and end is None]
            return (
                None if any(pod["spec"].get("nodeName") for pod in left) else unlaunched(attempt.withdrawn, host=True)
            )
        if any(end is None and _may_run(pod, attempt.requested) for end, pod in zip(ends, found, strict=True)):
            return None
        return _verdict(attempt.requested, ends)

    def is_bound(self, attempt: KubernetesAttempt) -> bool:
        """All of its pods have a node, or are gone."""
        pods = (self._pods.get(member["uid"]) for member in attempt.external["pods"])
        return all(pod is None or pod["spec"].get("nodeName") for pod in pods)

    def _end(self, attempt: KubernetesAttempt, number: int) -> dict[str, Any] | None:
        """How a pod of an attempt ended. On record as soon as it is seen: any user may remove ended pods."""
        name = rundir.part_file(number, "end")
        if (known := attempt.read(name)) is not None:
            return known
        pod = self._pods.get(attempt.external["pods"][number]["uid"])
        end = None if pod is None else end_of(pod, self._out_of_service)
        if end is not None:
            rundir.write_json(str(attempt.run_dir / name), end)
        return end

    # -- stopping -----------------------------------------------------------------------------------------------------

    def delete(self, attempt: KubernetesAttempt, grace_s: int | None = None) -> None:
        """Its pods leave, within their own grace."""
        for number, member in enumerate(attempt.external["pods"]):
            pod = self._pods.get(member["uid"])
            if pod is not None and pod["spec"].get("nodeName") and self._end(attempt, number) is None:
                self._order(lambda member=member: self._delete_one(member, grace_s))  # type: ignore[misc]

    def _delete_one(self, member: Mapping[str, str], grace_s: int | None = None, only_bound_to: str = "") -> None:
        with suppress(ApiRefused):
            if only_bound_to and self._api.get(path_of(member))["spec"].get("nodeName") != only_bound_to:
                return
            self._api.delete(path_of(member), grace_s, member["uid"])


def placed_uids(attempts: Iterable[KubernetesAttempt]) -> set[str]:
    """Pods of others that trine gave a place."""
    return {member["uid"] for attempt in attempts if attempt.external for member in attempt.external["pods"]}


def _running(external: Mapping[str, Any]) -> ExternalJob:
    why = "It was placed for a job that is not on record any more."
    return ExternalJob(external["key"], external["name"], external["user"], 0, refused=why)


def _may_run(pod: Pod | None, requested: str) -> bool:
    """A pod that is to go and has no node never gets one from us: only its owner deletes it."""
    return pod is not None and bool(pod["spec"].get("nodeName") or not requested)


def _verdict(requested: str, ends: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """How an attempt ended none of whose pods runs any more; ``None`` among the ends: that pod was deleted."""
    if requested == "kill":
        return {"kind": "failed", "rc": _KILLED_RC, "reason": "killed on request"}
    if requested:
        return {"kind": "preempted", "rc": _TERMINATED_RC, "reason": "its pods were deleted to make room"}
    if any(end is None or end.get("left") for end in ends):
        return {"kind": "preempted", "rc": _TERMINATED_RC, "reason": "its pods were deleted"}
    failed = next((end for end in ends if end and end["code"]), None)
    if failed is None:
        return {"kind": "done", "rc": 0}
    return {"kind": "failed", "rc": int(failed["code"]), "reason": str(failed["reason"])}
