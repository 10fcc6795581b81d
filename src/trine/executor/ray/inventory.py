"""The nodes of a Ray cluster as the driver tells of them: which name each has, its GPUs, its rack, which GPUs others
hold. What is asked when is decided in ``executor``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trine.core.cluster import Cluster
from trine.core.errors import InputError, unknown_name
from trine.executor.attempt.files import Place
from trine.executor.base import NodeGpu, NodeInfo

HELD_BY_OTHERS = "tasks or actors of Ray that are not trine's hold GPUs of this node, and Ray does not tell which"
_ROUTES = ("ray.io/node-id", "ray.io/accelerator-type")


@dataclass(frozen=True, slots=True)
class Naming:
    """Which labels of Ray's nodes are their name and their rack."""

    node: str = "trine-node"
    rack: str = "rack"


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node with GPUs. ``id`` is what Ray calls it until it is restarted."""

    id: str
    name: str
    address: str
    gpu_type: str
    gpus: int
    cpus: int
    memory_bytes: int
    alive: bool
    reason: str
    others: int
    """How many GPUs are held by what is not trine's."""
    labels: Mapping[str, str]

    def info(self, withheld: Collection[int] = ()) -> NodeInfo:
        """As the scheduler sees it, with the GPUs that may be others'."""
        gpus = tuple(
            NodeGpu(index, self.gpu_type, withheld=HELD_BY_OTHERS if index in withheld else "")
            for index in range(self.gpus)
        )
        return NodeInfo(
            self.name, gpus, self.cpus, self.memory_bytes, dict(self.labels), self.alive, self.alive, self.reason
        )


def parse_nodes(
    said: Sequence[Mapping[str, Any]], naming: Naming, known: Mapping[str, RayNode] | None = None
) -> list[RayNode]:
    """Nodes with GPUs, by name: those that are alive, and those of ``known`` that left without being asked to. A node
    that is restarted is another one in Ray."""
    found: dict[str, RayNode] = {}
    for each in said:
        if not each["alive"] or not each["gpus"]:
            continue
        node = _node(each, naming)
        if node.name in found:
            expected = f"a label {naming.node}=NAME of its own for every node (ray start --labels)"
            raise InputError("--engine ray", f"two nodes are called {node.name}", expected)
        found[node.name] = node
    for name, node in (known or {}).items():
        if name not in found and (why := _why_gone(node, said)):
            found[name] = replace(node, alive=False, reason=why, others=0)
    return [found[name] for name in sorted(found)]


def _why_gone(node: RayNode, said: Sequence[Mapping[str, Any]]) -> str:
    """Why a node left; empty if it was asked to. Of a dead one Ray keeps little but its id."""
    for each in said:
        if each["id"] == node.id:
            return "" if each["expected"] else f"Ray says that it died: {each['death'] or 'no reason given'}"[:200]
    return node.reason or "Ray does not know it any more"


def _node(said: Mapping[str, Any], naming: Naming) -> RayNode:
    labels = {name: value for name, value in said["labels"].items() if name not in (naming.node, *_ROUTES)}
    if naming.rack in labels:
        labels["rack"] = labels[naming.rack]
    return RayNode(
        said["id"],
        said["labels"].get(naming.node) or said["name"],
        said["address"],
        (said["model"] or "gpu").lower(),
        said["gpus"],
        said["cpus"],
        said["memory_bytes"],
        True,
        "",
        said["others"],
        labels,
    )


def check_description(found: Sequence[RayNode], described: Cluster) -> None:
    """``InputError`` where a cluster file and the cluster differ. That some of its nodes are away is no difference."""
    by_name = {node.name: node for node in found}
    if described.nodes and not any(node.name in by_name for node in described.nodes):
        raise unknown_name("--cluster", "node of the Ray cluster", described.nodes[0].name, by_name)
    for node in described.nodes:
        there = by_name[node.name].gpus if node.name in by_name else node.gpus
        if there != node.gpus:
            raise InputError("--cluster", f"node {node.name} has {there} GPUs in Ray", f"{there} GPUs, not {node.gpus}")


def described_nodes(found: Sequence[RayNode], described: Cluster) -> list[RayNode]:
    """Those that a cluster file names, with the types and racks that it gives; what Ray does not have is down."""
    by_name = {node.name: node for node in found}
    nodes = []
    for node in described.nodes:
        absent = RayNode("", node.name, "", "", node.gpus, 1, 0, False, "Ray has no node of this name", 0, {})
        known = by_name.get(node.name, absent)
        nodes.append(replace(known, gpu_type=node.gpu_type, labels={"rack": node.rack, **known.labels}))
    return nodes


class Occupancy:
    """Which nodes others use. Ray only counts GPUs, so where others hold one, all that are not ours are withheld."""

    def __init__(self) -> None:
        self._before: set[str] = set()

    def infos(self, nodes: Sequence[RayNode], ours: Collection[Place]) -> list[NodeInfo]:
        """``ours``: the GPUs that our attempts hold."""
        now = {node.name for node in nodes if node.others}
        # Withheld only when seen twice: Ray answers several questions, and what changes between them is no news.
        shared, self._before = now & self._before, now
        return [
            node.info([i for i in range(node.gpus) if node.name in shared and (node.name, i) not in ours])
            for node in nodes
        ]
