"""Carries out orders through the executor, and makes records of what it reports.

Also after either of the two was away: attempts that the journal does not know (it was restored from a backup) are
adopted or ended, starts on record that never reached the executor are launched. While the engine cannot be asked,
nothing is started, and nothing follows from its silence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    EngineDown,
    EngineUp,
    Event,
    Executor,
    ExternalJobsChanged,
    Handle,
    InventoryChanged,
    JobStorage,
    LaunchFailed,
    NodeDown,
    NodeInfo,
    NodeUp,
    Placement,
    Unreachable,
)
from trine.server import records as rec
from trine.server import views
from trine.server.containment import FAULTS
from trine.server.external_work import ExternalWork
from trine.server.inventory import cluster_of, departed, is_cluster_of, leaving, merged_nodes, node_changes
from trine.server.live_job import LiveJob
from trine.server.records import StartOrder
from trine.server.state import LiveState


class Execution(ExternalWork):
    """The attempts that the executor runs, kept in line with those on record."""

    def __init__(self) -> None:
        super().__init__()
        self._ended: dict[Handle, AttemptExited | LaunchFailed] = {}
        """Ends that are not on record yet: the executor reports them once."""
        self._up: set[Handle] = set()
        """Starts that the executor has confirmed; it does so once, too."""
        self._leaving: dict[Handle, set[tuple[str, int]]] = {}
        """Attempts that are being ended because the journal does not know them, and the GPUs they still hold."""
        self._deferred: list[tuple[str, int]] = []
        """Starts that wait for those."""
        self._nodes: Sequence[NodeInfo] = ()
        """What the engine last said of its nodes."""
        self._departing = False
        """Nodes are kept in the cluster only because jobs hold GPUs of them."""

    @abstractmethod
    def _report_bug(self, error: BaseException) -> None:
        """An error of ours was contained."""

    @abstractmethod
    def _decide_soon(self) -> None:
        """Something may have become possible."""

    @abstractmethod
    def _report_problems(self) -> None:
        """Errors that the controller contained."""

    # -- orders ------------------------------------------------------------------------------------------------------

    def _guarded(self, call: Callable[[], None]) -> None:
        """A bug of ours is reported, and what is on record counts: the engine is built anew from it."""
        try:
            call()
        except FAULTS as error:
            self._report_bug(error)

    def _cordon(self, change: rec.NodeChanged) -> None:
        """The executor guards a drained node, too; one that it reported itself it knows about."""
        if change.by == rec.EXECUTOR or change.gpus:
            return
        if change.state == "up":
            self.executor.uncordon(change.node)
        else:
            self.executor.cordon(change.node, change.reason)

    def _say(self, what: str, job_id: str, sentence: str, **more: str) -> None:
        self.log.info(what, job=job_id, why=sentence, **more)

    def _launch(self, job_id: str, epoch: int) -> None:
        job = self.controller.state.live.get(job_id)
        if self.engine_down or job is None or job.epoch != epoch or not job.holds_gpus:
            return  # what could not be launched is, when the engine is back
        placement = views.placement_view(self.controller, job.gpus)
        if self._must_wait(job_id, {(part.node, gpu) for part in placement for gpu in part.gpus}):
            if (job_id, epoch) not in self._deferred:
                self._deferred.append((job_id, epoch))
            return
        lease = self.leases.lease(job, placement)
        co_runner = self.controller.state.co_runner_of(job)
        if co_runner is not None:
            self.executor.pair(Handle(co_runner.id, co_runner.epoch), job.id)
        self.executor.launch(lease)

    def _must_wait(self, job_id: str, places: set[tuple[str, int]]) -> bool:
        """An attempt of the same job, or on the same GPUs, is being ended and has not left yet."""
        return any(handle.job_id == job_id or places & held for handle, held in self._leaving.items())

    def _launch_deferred(self) -> None:
        """Starts that waited for GPUs whose holders the journal does not know."""
        self._leaving = {handle: held for handle, held in self._leaving.items() if self.executor.placement(handle)}
        deferred, self._deferred = self._deferred, []
        for job_id, epoch in deferred:
            job = self.controller.state.live.get(job_id)
            if job is not None and job.epoch == epoch and job.state == "stopping":
                before = "It was stopped before it could start."
                self._note(self.controller.exited(self.now(), job_id, epoch, "preempted", None, None, before))
            else:
                self._launch(job_id, epoch)

    def _stop(self, job_id: str, epoch: int) -> None:
        job = self.controller.state.live.get(job_id)
        if job is not None and job.epoch == epoch:
            self.executor.preempt(Handle(job_id, epoch), job.spec.checkpoint.grace_s)

    # -- what the executor reports -----------------------------------------------------------------------------------

    def _read_events(self) -> None:
        for event in self.executor.events():
            try:
                self._heard(event)
            except FAULTS as error:  # one event that cannot be handled must not hide the others
                self._report_bug(error)
        self._report_problems()
        if self._leaving and not self.engine_down:
            self._launch_deferred()

    def _heard(self, event: Event) -> None:
        now = self.now()
        if isinstance(event, AttemptProgress):
            # On our clock: that of the job may be another machine's, or have been set since.
            self.leases.hear(replace(event, at_s=now))
        elif isinstance(event, AttemptStarted):
            self._up.add(event.handle)
            self._note(self.controller.started(now, *event.handle))
        elif isinstance(event, AttemptExited | LaunchFailed):
            self._ended[event.handle] = event
            self._exited(now, event)
        elif isinstance(event, NodeDown):
            self._note(self.controller.change_node(now, event.node, "down", event.reason, rec.EXECUTOR))
        elif isinstance(event, NodeUp):
            known = self.controller.state.nodes.get(event.node)
            if known is not None and known.down:
                self._note(self.controller.change_node(now, event.node, "up", "", rec.EXECUTOR))
        elif isinstance(event, InventoryChanged):
            self._take_inventory(event.nodes)
        elif isinstance(event, ExternalJobsChanged):
            self._take_external(event.jobs)
        elif isinstance(event, EngineDown):
            self._engine_lost(event.reason)
        elif isinstance(event, EngineUp):
            self._engine_found()

    def _engine_lost(self, reason: str) -> None:
        """From now on the engine's silence says nothing: attempts, nodes and GPUs are as they were last seen."""
        if not self.engine_down:
            self.log.warning("engine", down=reason)
        self.engine_down = f"the engine {self.setup.engine} does not answer: {reason}"

    def _engine_found(self) -> None:
        if self.engine_down:
            self.log.warning("engine", up=self.setup.engine)
        self.engine_down = ""
        if self.journal.failure is None:  # else what is on disk is compared when the journal has come back
            self._reconcile()
        self._decide_soon()

    def _exited(self, now: float, event: AttemptExited | LaunchFailed) -> None:
        if self.journal.failure is not None:
            return  # reported again after the journal has come back
        step = self.leases.safe_step(event.handle)
        job = self.controller.state.live.get(event.handle.job_id)
        lost_s = job.lost_s if job else 0.0
        if isinstance(event, LaunchFailed):
            outcome = "host-fault" if event.passing else "failed"
            record = self.controller.exited(now, *event.handle, outcome, None, None, event.reason)
        else:
            record = self.controller.exited(now, *event.handle, event.kind, event.rc, step, event.reason)
        if job is not None:
            self.observed.lost(job.lost_s - lost_s)
        if record is None:
            self.executor.forget(event.handle)
            self._ended.pop(event.handle, None)
            self._up.discard(event.handle)
        self._note(record)

    def _reconcile(self) -> None:
        """Bring the executor in line with the state, after either of them was away."""
        handles, nodes = self.executor.list_handles(), self.executor.inventory()
        for answer in (handles, nodes):
            if isinstance(answer, Unreachable):
                self._engine_lost(answer.reason)
        if not isinstance(handles, Unreachable) and not isinstance(nodes, Unreachable):
            self._compare_attempts(set(handles))
            self._compare_nodes(nodes)
            self._compare_external()

    def _compare_attempts(self, known: set[Handle]) -> None:
        """End what is not on record, launch what was not launched, and conclude what can no longer be."""
        holders = {Handle(job.id, job.epoch): job for job in self.controller.state.holders()}
        for handle in known - holders.keys():
            if held := self.executor.placement(handle):
                self._leaving[handle] = {(node, gpu) for node, gpus in held for gpu in gpus}
            self.executor.kill(handle)
        for handle, job in holders.items():
            if handle in self._ended:
                continue  # over, but not on record yet: to launch it again would give one attempt two ends
            if job.state == "starting":
                self._guarded(partial(self._launch, job.id, job.epoch))
            elif handle not in known and not self.executor.recall(handle):
                lost = self.controller.exited(
                    self.now(), job.id, job.epoch, "lost", None, None, "its processes left no trace"
                )
                self._note(lost)
            elif job.state == "stopping":
                self._stop(job.id, job.epoch)

    def _compare_nodes(self, nodes: Sequence[NodeInfo]) -> None:
        for found in nodes:
            node = self.controller.state.nodes.get(found.name)
            if node is not None and node.drained:
                self.executor.cordon(found.name, node.reason)
        self._take_inventory(nodes)

    def _take_inventory(self, nodes: Sequence[NodeInfo]) -> None:
        """Put on record which nodes joined or left, and what the engine says of the others."""
        self._nodes = nodes
        if self.journal.failure is not None:
            return  # looked at again when the journal has come back
        state = self.controller.state
        cluster = self._cluster_of(state, nodes)
        if state.cluster is not None and cluster.nodes != state.cluster.nodes:
            self.setup = replace(self.setup, cluster=cluster)
            self.departed = departed(self.departed, state.cluster, cluster)
            self.log.warning("cluster", now=cluster.describe())
            self._note(self.controller.change_cluster(self.now(), cluster))
            self._report_problems()
        self._departing = bool(leaving(self.controller.state, nodes))
        for change in list(node_changes(self.controller.state, nodes)):
            self._note(
                self.controller.change_node(
                    self.now(), change.node, change.state, change.reason, rec.EXECUTOR, change.gpus
                )
            )

    def _cluster_of(self, state: LiveState, nodes: Sequence[NodeInfo]) -> Cluster:
        """The cluster of the nodes there are; without newcomers that cannot be scheduled, and never without nodes."""
        assert state.cluster is not None
        merged, self.unusable_nodes = merged_nodes(state, nodes), ""
        if not merged or is_cluster_of(state.cluster, merged):
            return state.cluster
        try:
            return self.setup.describe(merged)
        except InputError as error:
            known = {node.name for node in state.cluster.nodes}
            left = [node for node in merged if node.name in known]
            if len(left) < len(merged):
                self.unusable_nodes = f"nodes that joined are not used: {error}"
            return cluster_of(left, state.cluster) if left else state.cluster

    def _follow_departures(self) -> None:
        """A job has let go of its GPUs: nodes that it alone kept in the cluster can leave now."""
        if self._departing:
            self._take_inventory(self._nodes)


def unknown_attempts(state: LiveState, storage: JobStorage) -> dict[str, int]:
    """The newest attempt on disk of each live job whose journal knows only older ones."""
    newest = {job.id: storage.newest_epoch(job.id) for job in state.live.values()}
    return {job_id: number for job_id, number in newest.items() if number > state.live[job_id].epoch}


def adoptable(
    state: LiveState, attempts: dict[str, int], cluster: Cluster, executor: Executor
) -> tuple[StartOrder, ...]:
    """Unknown attempts that still run and may go on: their GPUs are free on record, and no request is to stop them."""
    if state.cluster is not None and state.cluster.nodes != cluster.nodes:
        return ()  # GPU ids on record are about to change
    taken = {gpu for job in state.holders() if job.id not in attempts for gpu in job.gpus}
    found = []
    for job_id, number in attempts.items():
        gpus = _gpu_ids(cluster, executor.placement(Handle(job_id, number)))
        if not _may_go_on(state.live[job_id], gpus, cluster) or taken.intersection(gpus):
            continue
        taken.update(gpus)
        sentence = f"Attempt {number} was found running; it was started after this journal was saved."
        found.append(StartOrder(job_id, number, gpus, "found", sentence))
    return tuple(found)


def _may_go_on(job: LiveJob, gpus: tuple[int, ...], cluster: Cluster) -> bool:
    whole = len(gpus) == job.spec.gpus.count and len({cluster.type_of(gpu) for gpu in gpus}) == 1
    return whole and job.state != "held" and not job.requested_action


def _gpu_ids(cluster: Cluster, placement: Placement) -> tuple[int, ...]:
    """GPU ids of the cluster; none at all if one of the GPUs is not part of it."""
    first = {node.name: (cluster.first_gpu[i], node.gpus) for i, node in enumerate(cluster.nodes)}
    ids = []
    for node, gpus in placement:
        start, count = first.get(node, (0, 0))
        if any(not 0 <= gpu < count for gpu in gpus):
            return ()
        ids += [start + gpu for gpu in gpus]
    return tuple(sorted(ids))
