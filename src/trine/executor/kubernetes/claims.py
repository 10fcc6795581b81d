"""Exact GPUs by dynamic resource allocation (``resource.k8s.io/v1``, Kubernetes 1.34): the devices that drivers publish
in ResourceSlices, and ResourceClaims whose allocation trine writes in the place of a scheduler. Which GPU has which
index is decided here, by name; the rest of trine knows indices only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from trine.executor.attempt.files import Place
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import NodeGpu, NodeInfo, Placement
from trine.executor.kubernetes.api import ApiRefused, KubernetesApi
from trine.executor.kubernetes.pods import CLAIM, STATE
from trine.executor.local.inventory import gpu_type

GROUP = "/apis/resource.k8s.io/v1"
SLICES, CLAIMS = f"{GROUP}/resourceslices", f"{GROUP}/resourceclaims"
OLDEST = (1, 34)
"""The first version with this API; older ones drop what they do not know without a word."""
HELD_BY_CLAIM = "allocated to a claim that is not trine's"
_TAINTED = "its driver has tainted it"
_PROTECTION = "resource.kubernetes.io/delete-protection"
"""The finalizer that Kubernetes gives claims while they are allocated; its controller takes it away again."""
_CONFLICT = 409

WithGpus = Callable[[list[NodeInfo]], list[NodeInfo]]
"""Gives nodes the GPUs that drivers publish there."""


class Device(NamedTuple):
    """What names a device in the whole cluster."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class Published:
    """A device with what its driver says of it."""

    device: Device
    gpu: NodeGpu


def published(slices: Iterable[Mapping[str, Any]], driver: str) -> dict[str, tuple[Published, ...]]:
    """The GPUs of each node, in the order of their indices. A pool counts when all slices of its newest generation are
    there: before that its driver is still writing them."""
    pools: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in slices:
        spec = one["spec"]
        if spec["driver"] == driver and spec.get("nodeName"):
            pools.setdefault((spec["nodeName"], spec["pool"]["name"]), []).append(spec)
    found: dict[str, list[tuple[Device, Mapping[str, Any]]]] = {}
    for (node, pool), specs in pools.items():
        newest = max(int(spec["pool"]["generation"]) for spec in specs)
        current = [spec for spec in specs if int(spec["pool"]["generation"]) == newest]
        if len(current) == int(current[0]["pool"]["resourceSliceCount"]):
            devices = [device for spec in current for device in spec.get("devices") or () if _is_gpu(device)]
            found.setdefault(node, []).extend((Device(driver, pool, device["name"]), device) for device in devices)
    return {node: _indexed(devices) for node, devices in found.items()}


def _indexed(devices: Iterable[tuple[Device, Mapping[str, Any]]]) -> tuple[Published, ...]:
    ordered = sorted(devices, key=lambda one: (one[0].pool, _natural(one[0].name)))
    return tuple(Published(device, _gpu(index, body)) for index, (device, body) in enumerate(ordered))


def _natural(name: str) -> list[tuple[int, str]]:
    """gpu-10 comes after gpu-9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _is_gpu(device: Mapping[str, Any]) -> bool:
    """Whole GPUs; drivers publish parts of them as devices of other types."""
    return _attribute(device, "type") in ("", "gpu")


def _gpu(index: int, device: Mapping[str, Any]) -> NodeGpu:
    name = _attribute(device, "productName")
    closed = any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())
    kind = gpu_type(name) if name else "gpu"
    return NodeGpu(index, kind, _attribute(device, "uuid"), name, withheld=_TAINTED if closed else "")


def _attribute(device: Mapping[str, Any], name: str) -> str:
    return str(((device.get("attributes") or {}).get(name) or {}).get("string") or "")


def allocated(claims: Iterable[Mapping[str, Any]], driver: str) -> set[Device]:
    """Devices that are allocated to any claim, ours or others'."""
    results = (((one.get("status") or {}).get("allocation") or {}).get("devices") or {} for one in claims)
    found = (result for devices in results for result in devices.get("results") or () if not result.get("adminAccess"))
    return {Device(each["driver"], each["pool"], each["device"]) for each in found if each["driver"] == driver}


def with_devices(
    nodes: Iterable[NodeInfo],
    devices: Mapping[str, Sequence[Published]],
    taken: set[Device],
    ours: Iterable[tuple[str, int]],
) -> list[NodeInfo]:
    """Nodes with the GPUs that drivers publish there; ``taken`` ones are withheld, but not ``ours``."""
    mine, found = set(ours), []
    for node in nodes:
        gpus = [
            replace(one.gpu, withheld=HELD_BY_CLAIM)
            if one.device in taken and (node.name, one.gpu.index) not in mine
            else one.gpu
            for one in devices.get(node.name, ())
        ]
        if gpus:
            found.append(replace(node, gpus=tuple(gpus)))
    return found


class Claims:
    """What devices there are, and claims for them, one per pod."""

    def __init__(self, api: KubernetesApi, namespace: str, state_id: str, device_class: str, driver: str) -> None:
        self._api, self._state_id, self._class, self._driver = api, state_id, device_class, driver
        self._path = f"{GROUP}/namespaces/{namespace}/resourceclaims"
        self._devices: Mapping[str, Sequence[Published]] = {}

    def note(
        self, slices: Iterable[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]], ours: Iterable[Place]
    ) -> WithGpus:
        """Take in what was watched: what gives nodes their GPUs now."""
        self._devices = published(slices, self._driver)
        return partial(with_devices, devices=self._devices, taken=allocated(claims, self._driver), ours=ours)

    def chosen(self, placement: Placement) -> dict[str, list[list[str]]]:
        """The devices of a placement by node, as they are put on record."""
        found: dict[str, list[list[str]]] = {}
        for node, gpus in placement:
            named = {one.gpu.index: list(one.device) for one in self._devices.get(node, ())}
            if missing := [gpu for gpu in gpus if gpu not in named]:
                raise LaunchRefused(f"no driver publishes GPU {missing[0]} of {node} any more", passing=True)
            found[node] = [named[gpu] for gpu in sorted(gpus)]
        return found

    def allocate(self, name: str, uid: str, node: str, devices: Sequence[Sequence[str]]) -> None:
        """The claim of a pod that was made and not bound yet, with exactly these devices; it goes with its pod. May be
        repeated. Blocks."""
        try:
            self._api.create(self._path, claim(name, uid, self._state_id, self._class, len(devices)))
        except ApiRefused as refusal:
            if refusal.status != _CONFLICT:
                raise
        self._api.patch(f"{self._path}/{name}/status", allocation(name, uid, node, devices))


def claim(name: str, uid: str, state_id: str, device_class: str, count: int) -> dict[str, Any]:
    """What a pod asks for; named like the pod, and removed with it."""
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "labels": {STATE: state_id},
            "finalizers": [_PROTECTION],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}],
        },
        "spec": {"devices": {"requests": [{"name": CLAIM, "exactly": exactly}]}},
    }


def allocation(name: str, uid: str, node: str, devices: Iterable[Sequence[str]]) -> dict[str, Any]:
    """What a scheduler would write into the claim, and for which pod."""
    results = [dict(zip(("driver", "pool", "device"), one, strict=True), request=CLAIM) for one in devices]
    there = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [there]}]}
    consumer = {"resource": "pods", "name": name, "uid": uid}
    return {
        "status": {"allocation": {"devices": {"results": results}, "nodeSelector": selector}, "reservedFor": [consumer]}
    }
