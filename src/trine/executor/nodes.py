"""The nodes of an executor and whether they take jobs: cordoned, lost, drained. Knows nothing of processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from trine.core.errors import nearest, unknown_name
from trine.executor.base import Event, NodeDown, NodeDrained, NodeInfo, NodeUp
from trine.executor.launch import LaunchRefused


class Nodes:
    """Node states; changes are told to ``tell``."""

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        cordoned: Mapping[str, str],
        tell: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._indices = {node.name: {gpu.index for gpu in node.gpus} for node in nodes}
        self._cordoned = {name: reason for name, reason in cordoned.items() if name in self._nodes}
        self._undrained: set[str] = set()
        self._lost: dict[str, str] = {}
        self._tell, self._clock = tell, clock

    def inventory(self) -> list[NodeInfo]:
        return [self._now(node) for node in self._nodes.values()]

    def _now(self, node: NodeInfo) -> NodeInfo:
        lost, cordoned = self._lost.get(node.name), self._cordoned.get(node.name)
        if lost is None and cordoned is None:
            return node
        return replace(node, up=lost is None, schedulable=False, reason=lost or cordoned or "")

    def check(self, placement: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Refuse a placement on nodes or GPUs that do not exist or take no jobs."""
        for node, gpus in placement:
            if node not in self._nodes:
                raise LaunchRefused(f"there is no node {node!r}{nearest(node, self._nodes)}")
            if node in self._lost:
                raise LaunchRefused(f"{node} is down: {self._lost[node]}", host_fault=True)
            if node in self._cordoned:
                raise LaunchRefused(f"{node} takes no jobs: {self._cordoned[node]}", host_fault=True)
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
        if self._cordoned.pop(name, None) is not None and name not in self._lost:
            self._tell(NodeUp(name, self._clock()))

    def tell_drained(self, busy: Collection[str]) -> None:
        """Tell of cordoned nodes that have become empty, once each."""
        for name in sorted(self._undrained.difference(busy)):
            self._undrained.discard(name)
            self._tell(NodeDrained(name, self._clock(), self._cordoned[name]))

    def lose(self, name: str, reason: str) -> None:
        self._known(name)
        if name not in self._lost:
            self._lost[name] = reason
            self._tell(NodeDown(name, self._clock(), reason))

    def restore(self, name: str) -> None:
        self._known(name)
        if self._lost.pop(name, None) is not None and name not in self._cordoned:
            self._tell(NodeUp(name, self._clock()))

    def _known(self, name: str) -> None:
        if name not in self._nodes:
            raise unknown_name("executor", "node", name, self._nodes)
