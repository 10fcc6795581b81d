"""The nodes of an executor: whether they take jobs (cordoned, drained), and which of their GPUs running attempts hold.
What is refused here runs nowhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from trine.core.errors import nearest, unknown_name
from trine.executor.attempt.files import AttemptFiles, Place
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import Event, JobLease, NodeDrained, NodeInfo, NodeUp


class NodeStates:
    """Node states; changes are reported to ``report``."""

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        cordoned: Mapping[str, str],
        report: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._indices = {node.name: {gpu.index for gpu in node.gpus} for node in nodes}
        self._cordoned = {name: reason for name, reason in cordoned.items() if name in self._nodes}
        self._undrained: set[str] = set()
        self._report, self._clock = report, clock

    def inventory(self) -> list[NodeInfo]:
        return [self._now(node) for node in self._nodes.values()]

    def _now(self, node: NodeInfo) -> NodeInfo:
        reason = self._cordoned.get(node.name)
        return node if reason is None else replace(node, schedulable=False, reason=reason)

    def update(self, nodes: Sequence[NodeInfo]) -> bool:
        """All nodes there are now; whether anything of them changed. What is cordoned stays so while it is there."""
        changed = list(self._nodes.values()) != list(nodes)
        self._nodes = {node.name: node for node in nodes}
        self._indices = {node.name: {gpu.index for gpu in node.gpus} for node in nodes}
        self._cordoned = {name: reason for name, reason in self._cordoned.items() if name in self._nodes}
        self._undrained &= self._nodes.keys()
        return changed

    def check(self, placement: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Refuse a placement on nodes or GPUs that do not exist or take no jobs."""
        for node, gpus in placement:
            if node not in self._nodes:
                raise LaunchRefused(f"there is no node {node!r}{nearest(node, self._nodes)}")
            if node in self._cordoned:
                raise LaunchRefused(f"{node} takes no jobs: {self._cordoned[node]}", passing=True)
            if missing := sorted(set(gpus) - self._indices[node]):
                raise LaunchRefused(f"there is no GPU {missing[0]} on {node}")
            if len(set(gpus)) < len(gpus):
                raise LaunchRefused(f"a GPU of {node} is named twice")

    def cordon(self, name: str, reason: str) -> None:
        self._known(name)
        if name not in self._cordoned:
            self._undrained.add(name)
        self._cordoned[name] = reason

    def uncordon(self, name: str) -> None:
        self._known(name)
        self._undrained.discard(name)
        if self._cordoned.pop(name, None) is not None:
            self._report(NodeUp(name, self._clock()))

    def report_drained(self, busy: Collection[str]) -> None:
        """Report cordoned nodes that have become empty, once each."""
        for name in sorted(self._undrained.difference(busy)):
            self._undrained.discard(name)
            self._report(NodeDrained(name, self._clock(), self._cordoned[name]))

    def _known(self, name: str) -> None:
        if name not in self._nodes:
            raise unknown_name("executor", "node", name, self._nodes)


def check_holders(lease: JobLease, running: Sequence[AttemptFiles]) -> None:
    """A GPU is given on only after the exit of its holder was seen, and a job runs once at a time.

    Two jobs hold the same GPUs only if each was declared to share with the other; a third never joins them. A lease
    that comes too early is refused as a fault of the host: the job is not to blame.
    """
    wanted = {(node, gpu) for node, gpus in lease.placement for gpu in gpus}
    holders = [attempt for attempt in running if wanted.intersection(attempt.gpus)]
    for attempt in running:
        if attempt.handle.job_id == lease.job_id:
            raise LaunchRefused(f"{_name(attempt)} still runs", passing=True)
    if len(holders) == 1 and _name_each_other(lease, holders[0]) and set(holders[0].gpus) == wanted:
        return
    if holders:
        node, gpu = _first_held(wanted, holders)
        names = " and ".join(map(_name, holders))
        raise LaunchRefused(f"GPU {gpu} of {node} is still held by {names}", passing=True)


def may_pair(attempt: AttemptFiles, co_runner: str, running: Sequence[AttemptFiles]) -> bool:
    """No job but ``co_runner`` is on the GPUs of the attempt besides itself."""
    mine = set(attempt.gpus)
    others = {other.handle.job_id for other in running if other is not attempt and mine.intersection(other.gpus)}
    return others <= {co_runner}


def _name_each_other(lease: JobLease, holder: AttemptFiles) -> bool:
    return lease.shares_with == holder.handle.job_id and holder.shares_with == lease.job_id


def _first_held(wanted: set[Place], holders: Sequence[AttemptFiles]) -> Place:
    return min(wanted.intersection(*(set(holder.gpus) for holder in holders)) or wanted.intersection(holders[0].gpus))


def _name(attempt: AttemptFiles) -> str:
    return f"{attempt.handle.job_id} (epoch {attempt.handle.epoch})"
