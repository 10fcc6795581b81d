"""What was watched of a cluster, put together for the executor: pods by attempt, nodes, and how often to look."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from trine.core.cluster import Cluster
from trine.executor.attempt.files import Place
from trine.executor.base import Handle, NodeInfo
from trine.executor.kubernetes.claims import WithGpus
from trine.executor.kubernetes.inventory import (
    NodeRules,
    gpus_held,
    read_nodes,
    silent_node,
    withhold,
    withhold_rest,
)
from trine.executor.kubernetes.pods import PodState, handle_of, pod_state


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    look_s: float = 0.25
    """Between two looks at the files of running attempts."""
    ask_s: float = 2.0
    """Between two looks at what was watched, if nothing comes."""
    probe_s: float = 10.0
    """Between two questions whether the API server is well."""
    resync_s: float = 300.0
    """Between two lists of all objects."""
    exchange_s: float = 1.0
    """Between two exchanges of an agent with the daemon."""
    pending_s: float = 120.0
    """How long a pod may take to start on its node."""
    silent_s: float = 40.0
    """How long a kubelet may leave its lease unrenewed before its node counts as down."""


class Answer(NamedTuple):
    """What was watched, at one moment."""

    pods: dict[Handle, dict[int, PodState]]
    unknown: list[PodState]
    """Pods of this state directory that name no attempt."""
    foreign: Collection[Mapping[str, Any]]
    """Pods that others made for trine to place."""
    raw_nodes: Collection[Mapping[str, Any]]
    nodes: list[NodeInfo]
    out_of_service: frozenset[str]


def by_attempt(objects: Iterable[Mapping[str, Any]]) -> tuple[dict[Handle, dict[int, PodState]], list[PodState]]:
    """Our pods by attempt and part, and those that name none."""
    pods: dict[Handle, dict[int, PodState]] = {}
    unknown = []
    for found in objects:
        handle, state = handle_of(found), pod_state(found)
        if handle is None or state.part < 0:
            unknown.append(state)
        else:
            pods.setdefault(handle, {})[state.part] = state
    return pods, unknown


def node_infos(
    nodes: Iterable[Mapping[str, Any]],
    rules: NodeRules,
    silent: Mapping[str, float],
    others: Iterable[Mapping[str, Any]],
    ours: Sequence[Place],
    with_gpus: WithGpus | None = None,
) -> list[NodeInfo]:
    """The nodes without the GPUs that ``others`` hold; ``ours``: GPUs that trine gave away itself."""
    held, found = gpus_held(others, rules.gpu_resource), []
    for node in read_nodes(nodes, replace(rules, described=None), with_gpus):
        mine = [gpu for name, gpu in ours if name == node.name]
        known = withhold(node, held.get(node.name, 0), mine)
        known = withhold_rest(known, mine) if rules.whole_nodes else known
        found.append(silent_node(known, silent[node.name]) if node.name in silent else known)
    return found if rules.described is None else _described(found, rules.described)


def _described(nodes: list[NodeInfo], described: Cluster) -> list[NodeInfo]:
    """Only those that were described, with the types and racks given there; others that join stay out."""
    given = {node.name: node for node in described.nodes}
    return [
        replace(
            node,
            gpus=tuple(replace(gpu, type=given[node.name].gpu_type) for gpu in node.gpus),
            labels={"rack": given[node.name].rack, **node.labels},
        )
        for node in nodes
        if node.name in given
    ]
