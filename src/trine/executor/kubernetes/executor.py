"""The Kubernetes executor: one pod per node of a lease, bound to the node that was chosen, and what follows from what
the API server and the agents in the pods say. Which objects are sent is in ``pods``, how news come in ``informer`` and
``relay``; which job goes where is decided elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trine.executor.attempt import rundir
from trine.executor.attempt.leader import write_end
from trine.executor.attempt.remote import EngineUnreachable, RemoteExecutor
from trine.executor.attempt.spec import LaunchRefused, Site, make_spec
from trine.executor.attempt.state_dir import checkpoint_dir
from trine.executor.base import ExternalJobsChanged, Handle, JobLease, NodeInfo
from trine.executor.kubernetes.agent import FRESH_S
from trine.executor.kubernetes.api import ApiRefused, KubernetesApi
from trine.executor.kubernetes.attempt import SETTLE_S, KubernetesAttempt
from trine.executor.kubernetes.claims import CLAIMS, SLICES, Claims
from trine.executor.kubernetes.foreign_attempts import ForeignPods, placed_uids
from trine.executor.kubernetes.foreign_pods import ForeignRules, uid_of
from trine.executor.kubernetes.informer import Informer
from trine.executor.kubernetes.inventory import (
    CORDONED_BY_US,
    Heartbeats,
    NodeRules,
    is_out_of_service,
    not_ready,
    why_closed,
)
from trine.executor.kubernetes.pods import (
    STATE,
    PodSettings,
    PodState,
    binding,
    grace_period_s,
    manifest,
    pod_state,
)
from trine.executor.kubernetes.relay import Relay, TokenKey
from trine.executor.kubernetes.watched import Answer, Times, by_attempt, node_infos

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_CONFLICT = 409
_KILL_GRACE_S = 5
"""Whole seconds that a pod has whose ranks are to be killed: its agent still says so."""
_LEAVES_S = 5.0
"""How long the end of all watches is waited for: a server that hangs must not keep a daemon from stopping."""
_LEAST_ASK_S, _LOOKED_AT_PER_S = 0.02, 1_000
"""Seconds between two looks at what was watched, at least; and attempts that are looked at in a second, at most."""
_FIRST_S = 10.0
"""How long the first answer of the API server is waited for."""
_AGAIN_S = 10.0
"""How long after an order to remove pods it is given again, if they are still there."""


class KubernetesExecutor(RemoteExecutor[KubernetesAttempt, Answer]):
    """Runs jobs as pods; takes up again what runs, by its own record and the label of this state directory."""

    engine = "Kubernetes"

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        api: KubernetesApi,
        state_id: str,
        key: bytes,
        pods: PodSettings,
        rules: NodeRules,
        times: Times,
        *,
        node_selector: str = "",
        may_cordon: bool = True,
        foreign: ForeignRules | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(state_dir, nodes, look_s=times.look_s, ask_s=times.ask_s, clock=clock)
        self._api, self._state_id, self._tokens = api, state_id, TokenKey(key)
        self._pod_settings, self._rules, self._times, self._may_cordon = pods, rules, times, may_cordon
        self._relay = Relay(self._state, self._tokens, self._lease_given, times.exchange_s)
        self._heartbeats = Heartbeats(times.silent_s)
        self._probed_s = -math.inf
        self._sweeping: dict[str, float] = {}
        """Pods whose removal was ordered, and when."""
        ours = {"labelSelector": f"{STATE}={state_id}"}
        selected = {"labelSelector": node_selector} if node_selector else {}
        alive = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        self._informers = {
            "pods": self._informer(pods.path, **ours),
            "nodes": self._informer("/api/v1/nodes", **selected),
            "leases": self._informer(_LEASES),
            # All of them: any user may put our label on a pod of a namespace of their own.
            "alive": self._informer("/api/v1/pods", **alive),
        }
        self._claims: Claims | None = None
        if rules.driver:
            self._claims = Claims(api, pods.namespace, state_id, pods.device_class, rules.driver)
            self._informers |= {"slices": self._informer(SLICES), "claims": self._informer(CLAIMS)}
        self._foreign = None if foreign is None else ForeignPods(api, foreign, self._order)
        if foreign is not None:
            named = {"fieldSelector": f"spec.schedulerName={foreign.scheduler}"}
            self._informers["foreign"] = self._informer("/api/v1/pods", labelSelector=f"!{STATE}", **named)
        for informer in self._informers.values():
            informer.start()
        self._open()

    def _informer(self, path: str, **selectors: str) -> Informer:
        return Informer(self._api, path, self._news, resync_s=self._times.resync_s, **selectors)

    def _news(self) -> None:
        self._ask.set()

    @property
    def relay(self) -> Relay:
        return self._relay

    @property
    def lists(self) -> int:
        """How often all objects of a kind were listed so far."""
        return sum(informer.lists for informer in self._informers.values())

    def close(self) -> None:
        for informer in self._informers.values():
            informer.close()
        super().close()
        self._api.end_watches()
        until_s = time.monotonic() + _LEAVES_S
        for informer in self._informers.values():
            informer.join(max(0.0, until_s - time.monotonic()))
        self._api.close()

    def pair(self, handle: Handle, co_runner: str) -> None:
        """Kubernetes gives a GPU to one pod only."""

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        """The lease on record begins anew; for how long its parts may run is counted from when they are given it."""
        with self._lock:
            if attempt := self._running_one(handle):
                with suppress(OSError):
                    attempt.renew_lease(lease_s, self._clock())

    def _lease_given(self, handle: Handle) -> None:
        with self._lock:
            if attempt := self._running_one(handle):
                lease_s = (attempt.read(rundir.LEASE) or {}).get("lease_s")
                held_s = None if lease_s is None else float(lease_s) + FRESH_S
                self._fences.renewed(handle, held_s, attempt.grace_s)

    def forget(self, handle: Handle) -> None:
        with self._lock:
            attempt = self._attempts.get(handle)
            super().forget(handle)
            if attempt is None or not attempt.ended:
                return
            self._relay.forget(handle)
            for pod in attempt.pods.values():
                self._remove(pod)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def cordon(self, node: str, reason: str) -> None:
        super().cordon(node, reason)
        if self._may_cordon:
            body = {"metadata": {"annotations": {CORDONED_BY_US: reason}}, "spec": {"unschedulable": True}}
            self._order(lambda: self._patch_node(node, body))

    def uncordon(self, node: str) -> None:
        """Only what trine cordoned itself is opened again."""
        super().uncordon(node)
        found = self._node(node)
        if self._may_cordon and found is not None and CORDONED_BY_US in (found["metadata"].get("annotations") or {}):
            body = {"metadata": {"annotations": {CORDONED_BY_US: None}}, "spec": {"unschedulable": None}}
            self._order(lambda: self._patch_node(node, body))

    def _patch_node(self, node: str, body: Mapping[str, Any]) -> None:
        self._api.patch(f"/api/v1/nodes/{node}", body)

    def _node(self, name: str) -> dict[str, Any] | None:
        with suppress(EngineUnreachable):
            return self._informers["nodes"].objects().get(f"/{name}")
        return None

    # -- launching ----------------------------------------------------------------------------------------------------

    def _new_attempt(self, handle: Handle) -> KubernetesAttempt:
        return KubernetesAttempt(handle, self._state.run_dir(handle), ask_first_s=time.monotonic())

    def _indices(self, name: str) -> list[int]:
        """All GPUs of a node, where pods take whole nodes."""
        nodes = self._nodes.inventory() if self._rules.whole_nodes else []
        return [gpu.index for node in nodes if node.name == name for gpu in node.gpus]

    def _check_lease(self, lease: JobLease) -> None:
        super()._check_lease(lease)
        if self._rules.whole_nodes:
            wanted = {node for node, _ in lease.placement}
            for attempt in self._running():
                if shared := sorted(attempt.nodes & wanted):
                    raise LaunchRefused(f"job {attempt.handle.job_id} has {shared[0]} as a whole", passing=True)

    def _check_external(self, lease: JobLease) -> None:
        if self._foreign is None:
            super()._check_external(lease)

    def _make_spec(self, lease: JobLease) -> dict[str, Any]:
        if lease.external and self._foreign is not None:
            return self._foreign.spec_of(lease)
        site = Site(part_per_node=True, look_s=0.2, ends_with_parent=True, interface="")
        api_url = self._pod_settings.api_url or lease.env.get("TRINE_API", "")
        spec = make_spec(lease, {}, 0, api_url, "", site)
        # Of variables a pod has those of its image; kubelets number the GPUs of a pod anew.
        spec["env"] = dict(lease.env)
        spec["held"] = {node: self._indices(node) or sorted(gpus) for node, gpus in lease.placement}
        if self._claims:
            spec["devices"] = self._claims.chosen(lease.placement)
        spec["checkpoints"] = str(checkpoint_dir(self.storage.job_dir(lease.job_id)))
        return spec

    def _hand_in(self, attempt: KubernetesAttempt) -> None:
        if self._foreign is not None and attempt.external:
            self._foreign.bind(attempt, self._check_node)
        else:
            self._make_and_bind(attempt)

    def _handed_in(self, attempt: KubernetesAttempt, refused: str) -> None:
        attempt.submitted_s = time.monotonic()
        if refused:
            attempt.withdrawn = f"Kubernetes refused it: {refused}"
        self._look.set()

    def _make_and_bind(self, attempt: KubernetesAttempt) -> None:
        """All pods first, then all bindings. What exists already, or is bound, was made by a call whose answer was
        lost. If one cannot be made, all go."""
        made = [self._make_pod(attempt, part) for part in range(attempt.count)]
        for node, _ in attempt.spec["placement"]:
            self._check_node(node)
        for name, (node, _) in zip(made, attempt.spec["placement"], strict=True):
            if self._claims:
                uid = str(self._api.get(f"{self._pod_settings.path}/{name}")["metadata"]["uid"])
                self._claims.allocate(name, uid, node, attempt.spec["devices"][node])
        for pod, (node, _) in zip(made, attempt.spec["placement"], strict=True):
            self._bind(pod, node)

    def _make_pod(self, attempt: KubernetesAttempt, part: int) -> str:
        handle = attempt.handle
        body = manifest(self._pod_settings, self._state_id, handle, attempt.spec, part, self._tokens.token(handle))
        try:
            made = pod_state(self._api.create(self._pod_settings.path, body))
        except ApiRefused as refusal:
            if refusal.status != _CONFLICT:
                raise
        else:
            with self._lock:
                attempt.pods.setdefault(part, made)
        return str(body["metadata"]["name"])

    def _check_node(self, name: str) -> None:
        """The API server binds pods to nodes that are missing, cordoned or away, without a word."""
        node = self._informers["nodes"].objects(_FIRST_S).get(f"/{name}")
        if node is None:
            raise LaunchRefused(f"there is no node {name} any more", passing=True)
        if why := not_ready(node.get("status") or {}) or why_closed(node, self._rules.tolerations):
            raise LaunchRefused(f"{name} takes no pods: {why}", passing=True)

    def _bind(self, name: str, node: str) -> None:
        try:
            self._api.create(f"{self._pod_settings.path}/{name}/binding", binding(name, node))
        except ApiRefused as refusal:
            if refusal.status != _CONFLICT:
                raise

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _preempt(self, attempt: KubernetesAttempt, grace_s: float) -> None:
        attempt.requested = attempt.requested or "preempt"
        self._request_stop(attempt, {"grace_s": grace_s}, grace_period_s(grace_s))

    def _kill(self, attempt: KubernetesAttempt) -> None:
        attempt.requested = "kill"
        self._request_stop(attempt, {"grace_s": 0.0, "kill": True}, _KILL_GRACE_S)

    def _request_stop(self, attempt: KubernetesAttempt, stop: dict[str, object], grace_s: int) -> None:
        """The request reaches agents through the relay, and at once as the TERM of their kubelet."""
        with suppress(OSError):
            rundir.write_json(str(attempt.run_dir / rundir.STOP), stop)
            rundir.request_stop(str(attempt.run_dir))
        self._delete(attempt, grace_s)
        self._look.set()

    def _delete(self, attempt: KubernetesAttempt, grace_s: int) -> None:
        attempt.deleted_s = time.monotonic()
        if self._foreign is not None and attempt.external:
            self._foreign.delete(attempt, _KILL_GRACE_S if attempt.requested == "kill" else None)
        for pod in attempt.pods.values():
            if not pod.over:
                self._order(lambda pod=pod: self._delete_pod(pod, grace_s))  # type: ignore[misc]

    def _delete_pod(self, pod: PodState, grace_s: int) -> None:
        with suppress(ApiRefused):
            self._api.delete(f"{self._pod_settings.path}/{pod.name}", grace_s, pod.uid)

    def _remove(self, pod: PodState) -> None:
        """Its end is on record: the API server may forget it."""

        def remove() -> None:
            path = f"{self._pod_settings.path}/{pod.name}"
            with suppress(ApiRefused):
                self._api.delete(path, 0, pod.uid)
                self._api.patch(path, {"metadata": {"finalizers": None, "uid": pod.uid}})

        if time.monotonic() - self._sweeping.get(pod.uid, -math.inf) > _AGAIN_S:
            self._sweeping[pod.uid] = time.monotonic()
            self._order(remove)

    # -- what the API server says -------------------------------------------------------------------------------------

    def _question(self, running: Sequence[KubernetesAttempt]) -> Answer:
        # Changes come one by one, and each look goes through all attempts: the more there are, the fewer looks.
        self._closing.wait(_LEAST_ASK_S + len(running) / _LOOKED_AT_PER_S)
        now_s = time.monotonic()
        if now_s - self._probed_s > self._times.probe_s:
            self._api.get("/readyz")
            self._probed_s = now_s
        objects = {name: informer.objects(_FIRST_S) for name, informer in self._informers.items()}
        pods, unknown = by_attempt(objects["pods"].values())
        away = frozenset(node["metadata"]["name"] for node in objects["nodes"].values() if is_out_of_service(node))
        foreign, nodes = objects.get("foreign", {}).values(), objects["nodes"].values()
        return Answer(pods, unknown, foreign, nodes, self._node_infos(objects), away)

    def _node_infos(self, objects: Mapping[str, Mapping[str, Any]]) -> list[NodeInfo]:
        silent = self._heartbeats.note(objects["leases"].values())
        with self._lock:
            running = self._running()
        ours, placed = [place for attempt in running for place in attempt.gpus], placed_uids(running)
        others = (
            pod for pod in objects["alive"].values() if uid_of(pod) not in placed and not self._is_own(pod["metadata"])
        )
        slices, claims = (objects.get(name, {}).values() for name in ("slices", "claims"))
        with_gpus = self._claims.note(slices, claims, ours) if self._claims else None
        return node_infos(objects["nodes"].values(), self._rules, silent, others, ours, with_gpus)

    def _is_own(self, metadata: Mapping[str, Any]) -> bool:
        """A pod that this daemon made. In other namespaces it makes none, whatever their labels say."""
        labels = metadata.get("labels") or {}
        return metadata.get("namespace") == self._pod_settings.namespace and labels.get(STATE) == self._state_id

    def _went_away(self, reason: str) -> None:
        self._heartbeats.restart()
        super()._went_away(reason)

    def _answered(self, answer: Answer, asked_s: float) -> None:
        for handle, attempt in self._attempts.items():
            attempt.note_pods(answer.pods.get(handle, {}), asked_s)
            for part, pod in attempt.pods.items():
                if pod.node in answer.out_of_service and not pod.over:
                    attempt.pods[part] = replace(pod, phase="Failed", ran=True, reason=f"{pod.node} is out of service")
        self._note_nodes(answer.nodes)
        if self._foreign is not None:
            known = self._attempts.values()
            jobs = self._foreign.note(answer.foreign, answer.raw_nodes, answer.nodes, known, answer.out_of_service)
            if jobs is not None:
                self._queue.put(ExternalJobsChanged(self._clock(), jobs))
        self._sweep(answer)

    def tell_external(self, reasons: Mapping[str, str]) -> None:
        if self._foreign is not None:
            self._foreign.reports.note(reasons)
            self._ask.set()

    def _sweep(self, answer: Answer) -> None:
        """Pods of attempts that were forgotten, or that nothing is known of, go; those of ended ones are ended."""
        for pod in answer.unknown:
            self._remove(pod)
        for handle, pods in answer.pods.items():
            attempt = self._attempts.get(handle)
            for pod in pods.values():
                if attempt is None:
                    self._remove(pod)
                elif attempt.ended and not pod.over and not pod.deleting:
                    self._delete(attempt, _KILL_GRACE_S)
        present = {pod.uid for pods in answer.pods.values() for pod in pods.values()}
        present |= {pod.uid for pod in answer.unknown}
        self._sweeping = {uid: at_s for uid, at_s in self._sweeping.items() if uid in present}

    # -- one attempt --------------------------------------------------------------------------------------------------

    def _take_up(self, attempt: KubernetesAttempt) -> None:
        stop = attempt.read(rundir.STOP)
        super()._take_up(attempt)
        if stop is not None and not attempt.requested:
            attempt.requested = "kill" if stop.get("kill") else "preempt"
        self._look.set()

    def _follow(self, attempt: KubernetesAttempt) -> None:
        if attempt.external:
            self._follow_foreign(attempt, time.monotonic())
            return
        attempt.record_parts()
        attempt.note_start()
        self._report_start(attempt)
        if attempt.started:
            self._report_progress(attempt)
        if (end := attempt.end()) is not None:
            self._end(attempt, end)
        elif not self._away and not attempt.submitting and self._asked_s > attempt.ask_first_s:
            self._follow_unended(attempt, time.monotonic())

    def _follow_foreign(self, attempt: KubernetesAttempt, now_s: float) -> None:
        """Pods of others: nothing but what Kubernetes says of them is known."""
        self._report_start(attempt)
        if (end := attempt.end()) is not None:
            self._end(attempt, end)
        elif self._foreign is None or self._away or attempt.submitting or self._asked_s <= attempt.ask_first_s:
            return  # followed when Kubernetes was asked, or when pods of others are scheduled again
        elif (found := self._foreign.follow(attempt)) is not None:
            write_end(str(attempt.run_dir), found)
            self._look.set()
        elif attempt.requested or attempt.withdrawn:
            if now_s > attempt.deleted_s + _AGAIN_S:
                self._delete(attempt, _KILL_GRACE_S)
        elif not self._foreign.is_bound(attempt) and now_s > attempt.submitted_s + SETTLE_S:
            self._submit(attempt)

    def _follow_unended(self, attempt: KubernetesAttempt, now_s: float) -> None:
        """What is to be done about an attempt whose end is not on record."""
        if attempt.gone or (not attempt.pods and any(attempt.claimed(part) for part in range(attempt.count))):
            self._follow_gone(attempt)
        elif attempt.requested or attempt.withdrawn:
            self._follow_stopping(attempt, now_s)
        elif not attempt.bound:
            if now_s > attempt.submitted_s + SETTLE_S:  # the watch shows it a little later than it is
                self._submit(attempt)
        elif attempt.all_over:
            self._conclude(attempt)
        else:
            self._follow_running(attempt, now_s)

    def _follow_gone(self, attempt: KubernetesAttempt) -> None:
        """A pod was removed from the API server; nothing proves that its processes ended. The other parts end; it is
        lost when its lease and grace are over, or when no agent can ever take up the missing parts."""
        self._halt(attempt)
        begun = [part for part in attempt.gone if attempt.claimed(part)] if attempt.pods or attempt.gone else [0]
        if not begun and attempt.all_over:
            self._conclude(attempt)
        elif self._fences.over(attempt.handle):
            write_end(str(attempt.run_dir), {"kind": "lost", "rc": 137, "reason": attempt.why_over()})
            self._look.set()

    def _follow_stopping(self, attempt: KubernetesAttempt, now_s: float) -> None:
        if attempt.all_over:
            self._conclude(attempt)
        elif any(not pod.over and not pod.deleting for pod in attempt.pods.values()):
            if attempt.deleted_s < attempt.submitted_s or now_s > attempt.deleted_s + _AGAIN_S:
                stop = attempt.read(rundir.STOP) or {}
                grace_s = _KILL_GRACE_S if stop.get("kill") or attempt.withdrawn else grace_period_s(attempt.grace_s)
                self._delete(attempt, grace_s)
        elif self._fences.over(attempt.handle):
            self._lost(attempt)

    def _follow_running(self, attempt: KubernetesAttempt, now_s: float) -> None:
        waiting = [part for part in range(attempt.count) if not attempt.claimed(part)]
        if not waiting:
            attempt.pending_from_s = None
        elif attempt.pending_from_s is None:
            attempt.pending_from_s = now_s
        elif now_s - attempt.pending_from_s > self._times.pending_s:
            attempt.withdrawn = f"its pods did not start within {self._times.pending_s:.0f} s ({attempt.why_pending()})"
            self._delete(attempt, _KILL_GRACE_S)
        for part, pod in attempt.pods.items():
            ended = attempt.read(rundir.part_file(part, "end"))
            if attempt.is_over(part, pod) and (ended is None or ended.get("unlaunched")):
                self._halt(attempt)  # the others would wait for it for ever
        if not waiting and self._fences.over(attempt.handle):
            self._lost(attempt)

    def _halt(self, attempt: KubernetesAttempt) -> None:
        if rundir.claim(str(attempt.run_dir), {"rank": -1, "rc": 137}, rundir.HALT):
            self._delete(attempt, grace_period_s(attempt.grace_s))

    def _lost(self, attempt: KubernetesAttempt) -> None:
        nodes = ", ".join(sorted(pod.node for pod in attempt.pods.values() if not pod.over and pod.node))
        reason = f"nothing was heard of it on {nodes} until its lease was over"
        write_end(str(attempt.run_dir), {"kind": "lost", "rc": 137, "reason": reason})
        self._look.set()

    def _conclude(self, attempt: KubernetesAttempt) -> None:
        quiet_s = 3 * self._times.exchange_s + FRESH_S

        def is_quiet(part: int) -> bool:
            return time.monotonic() - self._relay.heard_s(attempt.handle, part) > quiet_s

        if (end := attempt.concluded(is_quiet)) is not None:
            write_end(str(attempt.run_dir), end)
            self._look.set()
        else:  # Kubernetes takes its GPUs for free although it runs: it must end
            self._halt(attempt)
