"""From the nodes that an engine has to the cluster that is scheduled, at the start and whenever they change.

Pure: what is on record goes in, with what the engine says now; what has to be put on record comes out. A node is part
of the cluster for as long as a job on record holds GPUs of it, whatever the engine says: its ranks may still run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.base import NodeGpu, NodeInfo
from trine.server.live_job import NodeState
from trine.server.state import LiveState

Describe = Callable[[Sequence[NodeInfo]], Cluster]
"""The cluster of some nodes; ``InputError`` if they cannot be scheduled as one."""
_DEFAULT_RACK = "rack0"


@dataclass(frozen=True)
class NodeChange:
    """A change of a node that the engine reports: ``state`` and ``gpus`` as in ``records.NodeChanged``."""

    node: str
    state: str
    reason: str = ""
    gpus: tuple[int, ...] = ()


def cluster_of(nodes: Sequence[NodeInfo], described: Cluster | None = None) -> Cluster:
    """The cluster of these nodes. Racks, links and scores are those of the description, where there is one and the
    engine does not know better; a node of several GPU types cannot be described yet."""
    _check_nodes(nodes)
    stated = {} if described is None else {node.name: node for node in described.nodes}
    found = tuple(_cluster_node(node, stated.get(node.name)) for node in nodes)
    if described is None:
        return Cluster(found)
    if found == described.nodes:
        return described
    return replace(described, nodes=found, scores=_scores(described, found))


def _check_nodes(nodes: Sequence[NodeInfo]) -> None:
    seen: set[str] = set()
    for node in nodes:
        kinds = sorted({gpu.type for gpu in node.gpus})
        if len(kinds) > 1:
            raise InputError(
                node.name, f"GPUs of types {', '.join(kinds)} in one machine", "one type per node: give --gpus FILE"
            )
        if node.name in seen:
            raise InputError(node.name, "two nodes of this name", "a name of its own for every node")
        seen.add(node.name)


def _cluster_node(node: NodeInfo, stated: Node | None) -> Node:
    indices = tuple(gpu.index for gpu in node.gpus)
    unusual = () if indices == tuple(range(len(indices))) else indices
    rack = node.labels.get("rack") or (stated.rack if stated else _DEFAULT_RACK)
    return Node(node.name, len(indices), node.gpus[0].type, rack, unusual)


def _scores(described: Cluster, nodes: Sequence[Node]) -> dict[str, tuple[float, ...]]:
    """Those of the description, by node and index; GPUs that it does not know are median ones."""
    known = {(described.nodes[node].name, described.index_of(gpu)): gpu for gpu, node in enumerate(described.node_of)}
    ids = [known.get((node.name, index)) for node in nodes for index in node.gpu_indices]
    return {
        name: tuple(1.0 if gpu is None else values[gpu] for gpu in ids) for name, values in described.scores.items()
    }


def node_info(node: Node) -> NodeInfo:
    """A node of a cluster as an engine would tell of it."""
    return NodeInfo(
        node.name, tuple(NodeGpu(index, node.gpu_type) for index in node.gpu_indices), labels={"rack": node.rack}
    )


def merged_nodes(state: LiveState, nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
    """The nodes to schedule: those there are, in the order on record, with newcomers at the end. Of a node that has
    left, or has other GPUs than before, the old form stays while a job holds some of it."""
    assert state.cluster is not None
    found, held = {node.name: node for node in nodes if node.gpus}, _held_nodes(state)
    merged = []
    for node in state.cluster.nodes:
        now = found.pop(node.name, None)
        if node.name in held and (now is None or not _same_gpus(node, now)):
            merged.append(node_info(node))
        elif now is not None:
            merged.append(now)
    return [*merged, *found.values()]


def is_cluster_of(cluster: Cluster, nodes: Sequence[NodeInfo]) -> bool:
    """These nodes, in this order and with these GPUs, are the cluster."""
    return len(cluster.nodes) == len(nodes) and all(
        node.name == now.name and _same_gpus(node, now) and now.labels.get("rack", node.rack) == node.rack
        for node, now in zip(cluster.nodes, nodes, strict=True)
    )


def departed(before: Sequence[Node], old: Cluster, new: Cluster) -> tuple[Node, ...]:
    """Nodes that were part of the cluster and are not now, after it changed; ``before``: the same, before it did. What
    an engine loses sight of it may see again."""
    now = {node.name for node in new.nodes}
    known = {node.name: node for node in (*before, *old.nodes)}
    return tuple(node for name, node in known.items() if name not in now)


def leaving(state: LiveState, nodes: Sequence[NodeInfo]) -> dict[str, str]:
    """Nodes of the cluster that are to go once no job holds GPUs of them, and why nothing starts there until then."""
    assert state.cluster is not None
    found = {node.name: node for node in nodes if node.gpus}
    reasons = {}
    for node in state.cluster.nodes:
        now = found.get(node.name)
        if now is None:
            reasons[node.name] = "it is not part of the cluster any more"
        elif not _same_gpus(node, now):
            reasons[node.name] = "it has other GPUs than before"
    return reasons


def node_changes(state: LiveState, nodes: Sequence[NodeInfo]) -> Iterator[NodeChange]:
    """What the engine says of nodes that are part of the cluster, where it differs from what is on record."""
    assert state.cluster is not None
    found, going = {node.name: node for node in nodes}, leaving(state, nodes)
    for node in state.cluster.nodes:
        known = state.nodes.get(node.name) or NodeState("up", "")
        now = found.get(node.name)
        reason = going.get(node.name) or ("" if now is None or now.up else now.reason or "the engine reports it down")
        if bool(reason) != known.down:
            yield NodeChange(node.name, "down" if reason else "up", reason)
        yield from _withheld_changes(known, now, node.name)


def _withheld_changes(known: NodeState, now: NodeInfo | None, name: str) -> Iterator[NodeChange]:
    """GPUs that the engine withholds by now, or no longer."""
    wanted = {} if now is None else _withheld(now, drained_here=known.drained)
    over = tuple(index for index in known.withheld if index not in wanted)
    if over:
        yield NodeChange(name, "up", gpus=over)
    news = {index: reason for index, reason in wanted.items() if known.withheld.get(index) != reason}
    for reason in dict.fromkeys(news.values()):
        yield NodeChange(name, "withheld", reason, tuple(index for index in news if news[index] == reason))


def _withheld(node: NodeInfo, drained_here: bool) -> dict[int, str]:
    """Indices of GPUs with reasons. A node that was drained here is cordoned there, too: that is one drain."""
    if not node.schedulable and not drained_here:
        return {gpu.index: node.reason or "the engine takes no jobs there" for gpu in node.gpus}
    return {gpu.index: gpu.withheld for gpu in node.gpus if gpu.withheld}


def _held_nodes(state: LiveState) -> set[str]:
    assert state.cluster is not None
    return {state.cluster.nodes[state.cluster.node_of[gpu]].name for job in state.holders() for gpu in job.gpus}


def _same_gpus(node: Node, now: NodeInfo) -> bool:
    return node.gpu_indices == tuple(gpu.index for gpu in now.gpus) and {gpu.type for gpu in now.gpus} == {
        node.gpu_type
    }
