"""Pods that other people make and give to trine to place (``schedulerName: trine``): which of them belong together,
whose they are, which nodes they may go to, and how they ended. Pure: nothing is called here."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trine.executor.base import ExternalJob, NodeInfo
from trine.executor.kubernetes.inventory import gpus_wanted
from trine.executor.kubernetes.node_fit import fits
from trine.executor.kubernetes.pods import DOMAIN, STATE

GANG, GANG_SIZE = f"{DOMAIN}/gang", f"{DOMAIN}/gang-size"
"""Labels: pods of one namespace with the same gang start together, when as many of them exist as the size says."""
_LONGEST_USER = 32
_OVER = ("Succeeded", "Failed")

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ForeignRules:
    """Which pods of others are scheduled, and whose they are."""

    scheduler: str = "trine"
    gpu_resource: str = "nvidia.com/gpu"
    owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """User and queue by namespace; of namespaces that are not named: ``user_of`` and the default queue."""
    preemptible: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods that are placed together, or a single one."""

    job: ExternalJob
    pods: tuple[Pod, ...]


def uid_of(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def user_of(namespace: str) -> str:
    """The user of a namespace for which none was configured. The dot, which no namespace has, keeps it apart from
    people: a namespace called like one is not that person's."""
    user = f"kube.{namespace}"
    if len(user) <= _LONGEST_USER:
        return user
    return f"{user[: _LONGEST_USER - 9]}-{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"


def workloads(
    pods: Iterable[Pod],
    placed: Collection[str],
    nodes: Mapping[str, Pod],
    infos: Sequence[NodeInfo],
    rules: ForeignRules,
) -> list[Workload]:
    """What asks to be placed now, complete gangs and what is wrong with the others; ``placed``: uids of pods that were
    given a node already. The same pods give the same gangs, in whatever order they are seen."""
    asking = [pod for pod in pods if uid_of(pod) not in placed and _asks(pod, rules.scheduler)]
    found = []
    for (_, gang), members in _by_gang(asking).items():
        if not gang:
            found += [_workload([pod], nodes, infos, rules) for pod in members]
            continue
        why, size = _gang_size(members)
        if why:
            found += [_refused([pod], why, rules) for pod in members]
            continue
        for first in range(0, len(members), size):
            some = members[first : first + size]
            if len(some) == size:
                found.append(_workload(some, nodes, infos, rules))
            else:
                missing = f"It waits for its gang {gang}: {len(some)} of {size} pods exist."
                found += [_refused([pod], missing, rules) for pod in some]
    return sorted(found, key=lambda workload: _age(workload.pods[-1]))


def _asks(pod: Pod, scheduler: str) -> bool:
    spec, metadata = pod["spec"], pod["metadata"]
    return (
        spec.get("schedulerName") == scheduler
        and STATE not in (metadata.get("labels") or {})
        and not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and not metadata.get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") not in _OVER
    )


def _age(pod: Pod) -> tuple[str, str]:
    """Orders pods by when they were made."""
    return str(pod["metadata"]["creationTimestamp"]), str(pod["metadata"]["name"])


def _by_gang(pods: Iterable[Pod]) -> dict[tuple[str, str], list[Pod]]:
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in sorted(pods, key=_age):
        gang = (pod["metadata"].get("labels") or {}).get(GANG, "")
        found.setdefault((pod["metadata"]["namespace"] if gang else "", gang), []).append(pod)
    return found


def _gang_size(members: Sequence[Pod]) -> tuple[str, int]:
    """Why the gang has no size, or its size."""
    sizes = {str(pod["metadata"]["labels"].get(GANG_SIZE, "")) for pod in members}
    if len(sizes) > 1:
        return f"Pods of its gang name different sizes ({', '.join(sorted(sizes))}) in the label {GANG_SIZE}.", 0
    size = sizes.pop()
    if not size.isascii() or not size.isdecimal() or not 1 <= int(size[:6]) <= 10_000 or len(size) > 5:
        return f"Its label {GANG_SIZE} is {size!r}; expected the number of pods of its gang.", 0
    return "", int(size)


def _workload(
    pods: Sequence[Pod], nodes: Mapping[str, Pod], infos: Sequence[NodeInfo], rules: ForeignRules
) -> Workload:
    counts = {gpus_wanted(pod, rules.gpu_resource) for pod in pods}
    if 0 in counts:
        return _refused(pods, f"It asks for no GPUs ({rules.gpu_resource}); trine places pods with GPUs only.", rules)
    if len(counts) > 1:
        return _refused(
            pods, "The pods of its gang ask for different numbers of GPUs; expected the same of all.", rules
        )
    why, types = _types(pods, nodes, infos)
    if why:
        return _refused(pods, why, rules)
    (each,) = counts
    # Pods with one GPU fit wherever a GPU is; of others each has a node of its own.
    count = None if each == 1 and len(pods) > 1 else len(pods)
    return Workload(_job(pods, rules, gpus=each * len(pods), nodes=count, types=types), tuple(pods))


def _types(pods: Sequence[Pod], nodes: Mapping[str, Pod], infos: Sequence[NodeInfo]) -> tuple[str, tuple[str, ...]]:
    """Why the pods cannot be placed by what they ask of nodes, or the types of GPUs that they may have (none: any)."""
    known = [info for info in infos if info.name in nodes]
    allowed = [info for info in known if all(fits(pod, nodes[info.name]) for pod in pods)]
    if len(allowed) == len(known):
        return "", ()
    if not allowed:
        return "No node that trine schedules has what its node selector, affinity and tolerations ask for.", ()
    kinds = {info.gpus[0].type for info in allowed if info.gpus}
    alike = [info for info in known if info.gpus and info.gpus[0].type in kinds]
    if len(alike) > len(allowed):
        found = f"{len(allowed)} of {len(alike)} nodes with GPUs of its types"
        return f"Its node selector, affinity and tolerations leave {found}; trine can keep a pod to types only.", ()
    return "", tuple(sorted(kinds))


def _refused(pods: Sequence[Pod], why: str, rules: ForeignRules) -> Workload:
    return Workload(_job(pods, rules, refused=why), tuple(pods))


def _job(pods: Sequence[Pod], rules: ForeignRules, **more: Any) -> ExternalJob:
    first = pods[0]["metadata"]
    user, queue = rules.owners.get(first["namespace"]) or (user_of(first["namespace"]), "")
    gang = (first.get("labels") or {}).get(GANG) if len(pods) > 1 else ""
    known = {"gpus": 0, "queue": queue, "preemptible": rules.preemptible, **more}
    return ExternalJob(_key(pods), f"{first['namespace']}:{gang or first['name']}", user, **known)


def _key(pods: Sequence[Pod]) -> str:
    """Made from the uids, which Kubernetes gives to no other pods, ever."""
    if len(pods) == 1:
        return uid_of(pods[0])
    return f"gang-{hashlib.sha256(','.join(sorted(map(uid_of, pods))).encode()).hexdigest()[:32]}"


def members(workload: Workload, placement: Sequence[tuple[str, Sequence[int]]]) -> list[dict[str, str]]:
    """Which pod goes to which node, as it is put on record; all of them, or none if they cannot be dealt out."""
    each = workload.job.gpus // len(workload.pods)
    places = [node for node, gpus in placement for _ in range(len(gpus) // each)]
    if len(places) != len(workload.pods) or any(len(gpus) % each for _, gpus in placement):
        return []
    return [
        {
            "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"],
            "uid": uid_of(pod),
            "node": node,
        }
        for pod, node in zip(workload.pods, places, strict=True)
    ]


def path_of(member: Mapping[str, str]) -> str:
    return f"/api/v1/namespaces/{member['namespace']}/pods/{member['name']}"


def end_of(pod: Pod, out_of_service: Collection[str]) -> dict[str, Any] | None:
    """How a pod ended, as its kubelet saw it: exit code and reason; ``None`` while it may run. ``left``: it ended
    because it was deleted."""
    status, node = pod.get("status") or {}, pod["spec"].get("nodeName")
    if node in out_of_service:
        return {"code": 137, "reason": f"{node} is out of service"}
    if status.get("phase") not in _OVER:
        return None
    ended = [one.get("state", {}).get("terminated") for one in status.get("containerStatuses") or ()]
    codes = [int(one.get("exitCode") or 0) for one in ended if one]
    code = next((code for code in codes if code), 0)
    if status["phase"] == "Succeeded":
        return {"code": 0, "reason": ""}
    reason = str(status.get("reason") or "") or next((str(one.get("reason") or "") for one in ended if one), "")
    why = f"pod {pod['metadata']['name']} failed" + (f": {reason}" if reason else "")
    return {"code": code or 1, "reason": why, "left": bool(pod["metadata"].get("deletionTimestamp"))}


def has_started(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", *_OVER)
