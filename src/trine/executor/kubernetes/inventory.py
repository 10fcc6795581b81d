"""The nodes of a Kubernetes cluster as trine sees them: GPUs, racks by label, cordons, taints, whether their kubelet is
heard of, and which GPUs pods of others hold. Reads objects of the API only."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trine.core.cluster import Cluster
from trine.core.errors import InputError, unknown_name
from trine.executor.base import NodeGpu, NodeInfo
from trine.executor.kubernetes.pods import DOMAIN
from trine.executor.local.inventory import gpu_type

CORDONED_BY_US = f"{DOMAIN}/cordoned"
"""An annotation of nodes: why trine cordoned them."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""A taint with which people say that a machine is off: nothing runs there any more."""
HELD_BY_OTHERS = "held by a pod that is not trine's"
WHOLE_NODE = "the rest of a node that a job has as a whole"
NOT_WHOLE = "a pod that is not trine's holds a part of the node, which is given as a whole"
_ZONE = "topology.kubernetes.io/zone"
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_QUANTITY = re.compile(r"([0-9.]+)([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What to read nodes by."""

    gpu_resource: str = "nvidia.com/gpu"
    rack_label: str = "topology.kubernetes.io/rack"
    type_label: str = "nvidia.com/gpu.product"
    tolerations: tuple[str, ...] = ()
    described: Cluster | None = None
    driver: str = ""
    """The driver whose devices are the GPUs, see ``claims``; empty: nodes count them."""
    whole_nodes: bool = False
    """A pod takes all GPUs of its node, so that those it was given are known by their indices."""


def read_nodes(
    objects: Iterable[Mapping[str, Any]],
    rules: NodeRules,
    with_gpus: Callable[[list[NodeInfo]], list[NodeInfo]] | None = None,
) -> list[NodeInfo]:
    """Nodes with GPUs, by name; those that were described, if any were. ``with_gpus`` gives them their GPUs, where the
    nodes themselves do not count them."""
    read = [_node(one, rules) for one in objects]
    found = [node for node in (with_gpus(read) if with_gpus else read) if node.gpus]
    found.sort(key=lambda node: _natural(node.name))
    return found if rules.described is None else described_nodes(found, rules.described)


def _natural(name: str) -> list[tuple[int, str]]:
    """node10 comes after node9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def described_nodes(found: Sequence[NodeInfo], described: Cluster) -> list[NodeInfo]:
    """Those that a cluster file names, with the types and racks that it gives; ``InputError`` where the two differ."""
    by_name = {node.name: node for node in found}
    chosen = []
    for node in described.nodes:
        there = by_name.get(node.name)
        if there is None:
            raise unknown_name("--gpus", "node with GPUs of the cluster", node.name, by_name)
        if len(there.gpus) != node.gpus:
            count = len(there.gpus)
            raise InputError("--gpus", f"node {node.name} has {count} GPUs in Kubernetes", f"{count}, not {node.gpus}")
        gpus = tuple(replace(gpu, type=node.gpu_type) for gpu in there.gpus)
        chosen.append(replace(there, gpus=gpus, labels={"rack": node.rack, **there.labels}))
    return chosen


def _node(node: Mapping[str, Any], rules: NodeRules) -> NodeInfo:
    metadata, status = node["metadata"], node.get("status") or {}
    size, labels = status.get("allocatable") or {}, metadata.get("labels") or {}
    name = str(labels.get(rules.type_label, ""))
    kind = gpu_type(name.replace("-", " ")) if name else "gpu"
    count = 0 if rules.driver else int(quantity(size.get(rules.gpu_resource, "0")))
    gpus = tuple(NodeGpu(i, kind, name=name) for i in range(count))
    rack = labels.get(rules.rack_label) or labels.get(_ZONE)
    down, closed = not_ready(status), why_closed(node, rules.tolerations)
    return NodeInfo(
        metadata["name"],
        gpus,
        max(int(quantity(size.get("cpu", "1"))), 1),
        int(quantity(size.get("memory", "0"))),
        {"rack": rack} if rack else {},
        up=not down,
        schedulable=not (down or closed),
        reason=down or closed,
    )


def not_ready(status: Mapping[str, Any]) -> str:
    """Why a node is down, as Kubernetes sees it; empty: it is up."""
    ready = next((one for one in status.get("conditions") or () if one["type"] == "Ready"), None)
    if ready is None:
        return "its kubelet has not reported yet"
    if ready["status"] == "True":
        return ""
    return str(ready.get("message") or ready.get("reason") or "its kubelet is not ready")


def why_closed(node: Mapping[str, Any], tolerated: Sequence[str]) -> str:
    """Why no pod may be started on a node that is up; empty: one may. What trine itself cordoned it knows better."""
    spec, annotations = node.get("spec") or {}, node["metadata"].get("annotations") or {}
    if node["metadata"].get("deletionTimestamp"):
        return "it is being removed from Kubernetes"
    ours = CORDONED_BY_US in annotations
    if spec.get("unschedulable") and not ours:
        return "cordoned in Kubernetes"
    known = {*tolerated, *(["node.kubernetes.io/unschedulable"] if ours else [])}
    for taint in spec.get("taints") or ():
        if taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in known:
            return f"tainted in Kubernetes: {taint['key']}"
    return ""


def is_out_of_service(node: Mapping[str, Any]) -> bool:
    return any(taint["key"] == OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ())


def quantity(text: object) -> float:
    """``63500m``, ``256Gi`` or ``64`` as a number; 0 for what is none."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return 0.0
    return float(match[1]) / 1000 if match[2] == "m" else float(match[1]) * _UNITS.get(match[2], 0)


def gpus_held(pods: Iterable[Mapping[str, Any]], gpu_resource: str) -> dict[str, int]:
    """How many GPUs pods hold on each node."""
    held: dict[str, int] = {}
    for pod in pods:
        node, phase = pod["spec"].get("nodeName"), (pod.get("status") or {}).get("phase")
        if node and phase not in ("Succeeded", "Failed"):
            held[node] = held.get(node, 0) + gpus_wanted(pod, gpu_resource)
    return held


def gpus_wanted(pod: Mapping[str, Any], gpu_resource: str) -> int:
    """GPUs that a pod asks for."""
    return sum(_requested(container, gpu_resource) for container in pod["spec"].get("containers", ()))


def _requested(container: Mapping[str, Any], gpu_resource: str) -> int:
    return int(quantity(((container.get("resources") or {}).get("limits") or {}).get(gpu_resource, "0")))


def withhold(node: NodeInfo, held: int, ours: Iterable[int]) -> NodeInfo:
    """The node without the GPUs that others hold. Which those are only the kubelet knows: as many are taken from the
    end, never one of ours."""
    if not held:
        return node
    free = [gpu.index for gpu in node.gpus if gpu.index not in set(ours)]
    taken = set(free[-held:])
    gpus = tuple(replace(gpu, withheld=HELD_BY_OTHERS) if gpu.index in taken else gpu for gpu in node.gpus)
    return replace(node, gpus=gpus)


def withhold_rest(node: NodeInfo, ours: Iterable[int]) -> NodeInfo:
    """The node where it is given as a whole: taken as soon as anything of it is."""
    mine = set(ours)
    if not mine and not any(gpu.withheld for gpu in node.gpus):
        return node
    why = WHOLE_NODE if mine else NOT_WHOLE
    gpus = (gpu if gpu.index in mine or gpu.withheld else replace(gpu, withheld=why) for gpu in node.gpus)
    return replace(node, gpus=tuple(gpus))


class Heartbeats:
    """Which kubelets are silent. A lease that was renewed carries another time; how long ago that was is measured by
    the clock of this process, whatever the clocks of the nodes say."""

    def __init__(self, silent_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._silent_s, self._monotonic = silent_s, monotonic
        self._seen: dict[str, tuple[object, float]] = {}

    def note(self, leases: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Nodes whose lease was not renewed in time, with the seconds since it was. A node without a lease is none."""
        now_s, silent = self._monotonic(), {}
        for lease in leases:
            name, renewed = lease["metadata"]["name"], (lease.get("spec") or {}).get("renewTime")
            before = self._seen.get(name)
            if before is None or before[0] != renewed:
                self._seen[name] = (renewed, now_s)
            elif now_s - before[1] > self._silent_s:
                silent[name] = now_s - before[1]
        return silent

    def restart(self) -> None:
        """The server was away: nothing follows from what could not be seen meanwhile."""
        self._seen.clear()


def silent_node(node: NodeInfo, silent_s: float) -> NodeInfo:
    reason = f"its kubelet has not been heard of for {silent_s:.0f} s"
    return replace(node, up=False, schedulable=False, reason=node.reason or reason)
