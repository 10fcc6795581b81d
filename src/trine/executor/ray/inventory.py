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


def parse_nodes(said: Sequence[Mapping[str, Any]], naming: Naming) -> list[RayNode]:
    """Nodes with GPUs, by name: those that are alive, and those that died without being told to.

    A node that is restarted is another one in Ray: the living one counts."""
    found: dict[str, RayNode] = {}
    for node in sorted((_node(each, naming) for each in said if _is_wanted(each)), key=lambda node: node.name):
        known = found.get(node.name)
        if known is not None and known.alive and node.alive:
            expected = f"a label {naming.node}=NAME of its own for every node (ray start --labels)"
            raise InputError("--engine ray", f"two nodes are called {node.name}", expected)
        if known is None or node.alive:
            found[node.name] = node
    return list(found.values())


def _is_wanted(node: Mapping[str, Any]) -> bool:
    return node["gpus"] > 0 and (node["alive"] or not node["expected"])


def _node(said: Mapping[str, Any], naming: Naming) -> RayNode:
    labels = {name: value for name, value in said["labels"].items() if name not in (naming.node, *_ROUTES)}
    if naming.rack in labels:
        labels["rack"] = labels[naming.rack]
    why = "" if said["alive"] else f"Ray says that it died: {said['death'] or 'no reason given'}"
    return RayNode(
        said["id"],
        said["labels"].get(naming.node) or said["name"],
        said["address"],
        (said["model"] or "gpu").lower(),
        said["gpus"],
        said["cpus"],
        said["memory_bytes"],
        said["alive"],
        why[:200],
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
