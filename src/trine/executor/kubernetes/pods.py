"""The pods of an attempt, one per node: their names, how they are asked for, and what their status says. Pure: nothing
is called here."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trine.executor.base import Handle

DOMAIN = "trine.dev"
STATE, ATTEMPT, PART = f"{DOMAIN}/state", f"{DOMAIN}/attempt", f"{DOMAIN}/part"
"""Labels: the state directory that a pod belongs to, and which of the parts it is; an annotation names the attempt."""
FINALIZER = f"{DOMAIN}/observed"
"""Keeps an ended pod until its end is on record."""
CLAIM = "gpus"
"""What the claim of a pod is called in it."""
_PLAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_MARGIN_S = 15
"""Seconds that the kubelet leaves a pod beyond the grace of its ranks, so that the agent can say how they ended."""
_NEVER_RAN = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "Preempting", "NodePorts", "InvalidNodeInfo")
"""Reasons with which a kubelet rejects a pod before anything of it has started."""


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What all pods have in common."""

    namespace: str
    scheduler: str = "trine"
    image: str = ""
    python: str = "python3"
    gpu_resource: str = "nvidia.com/gpu"
    device_class: str = ""
    """GPUs are asked for by a claim of this class, which is named like the pod; empty: they are counted."""
    service_account: str = ""
    tolerations: tuple[str, ...] = ()
    """Keys of taints."""
    claim: str = ""
    """The PersistentVolumeClaim that holds the daemon's state directory; empty: none."""
    cpus_per_gpu: float | None = None
    memory_per_gpu_mib: int | None = None
    api_url: str = ""
    api_ca: str = ""
    """The certificates (PEM) that the daemon's API is checked by; empty: those of the image."""

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"


def pod_name(state_id: str, handle: Handle, part: int) -> str:
    """The same for the same part of the same attempt, so that it cannot be made twice."""
    job = handle.job_id
    if not _PLAIN.fullmatch(job):
        job = hashlib.sha256(job.encode()).hexdigest()[:16]
    return f"trine-{state_id}-{job}-{handle.epoch}-{part}"


def grace_period_s(grace_s: float) -> int:
    """Whole seconds that a kubelet leaves a pod whose ranks have this grace."""
    return math.ceil(max(grace_s, 0.0)) + _MARGIN_S


def manifest(
    settings: PodSettings, state_id: str, handle: Handle, spec: Mapping[str, Any], part: int, token: str
) -> dict[str, Any]:
    """The pod of one part. What it runs is asked for by its agent, so no secret of a job but the token is in it."""
    name, (node, gpus) = pod_name(state_id, handle, part), spec["placement"][part]
    container = {
        "name": "job",
        "image": settings.image,
        "command": [settings.python, "-m", "trine.executor.kubernetes.agent"],
        "env": _environment(settings, spec, part, token, name),
        "resources": _resources(settings, len(spec.get("held", {}).get(node) or gpus)),
        "terminationMessagePath": f"/tmp/{name}.end",
        "terminationMessagePolicy": "File",
    }
    pod: dict[str, Any] = {
        "schedulerName": settings.scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_period_s(float(spec["grace_s"])),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"key": key, "operator": "Exists"} for key in settings.tolerations],
        "containers": [container],
    }
    if settings.device_class:
        pod["resourceClaims"] = [{"name": CLAIM, "resourceClaimName": name}]
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    if settings.claim:
        pod["volumes"] = [{"name": "state", "persistentVolumeClaim": {"claimName": settings.claim}}]
        below = f"jobs/{handle.job_id}/checkpoints"
        container["volumeMounts"] = [{"name": "state", "mountPath": spec["checkpoints"], "subPath": below}]
    return {
        "metadata": {
            "name": name,
            "labels": {STATE: state_id, PART: str(part)},
            "annotations": {ATTEMPT: f"{handle.job_id}/{handle.epoch}", f"{DOMAIN}/node": node},
            "finalizers": [FINALIZER],
        },
        "spec": pod,
    }


def _environment(
    settings: PodSettings, spec: Mapping[str, Any], part: int, token: str, name: str
) -> list[dict[str, Any]]:
    plain = {
        "TRINE_API": settings.api_url or spec["api"],
        "TRINE_API_CA": settings.api_ca,
        "TRINE_ATTEMPT_TOKEN": token,
        "TRINE_PART": str(part),
        "TRINE_END": f"/tmp/{name}.end",
    }
    address = {"name": "TRINE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return [*({"name": name, "value": value} for name, value in plain.items() if value), address]


def _resources(settings: PodSettings, gpus: int) -> dict[str, Any]:
    if settings.device_class:
        return {"limits": _limits(settings, gpus), "claims": [{"name": CLAIM}]}
    return {"limits": {settings.gpu_resource: str(gpus), **_limits(settings, gpus)}}


def _limits(settings: PodSettings, gpus: int) -> dict[str, str]:
    limits = {}
    if settings.cpus_per_gpu is not None:
        limits["cpu"] = f"{round(1000 * settings.cpus_per_gpu * gpus)}m"
    if settings.memory_per_gpu_mib is not None:
        limits["memory"] = f"{settings.memory_per_gpu_mib * gpus}Mi"
    return limits


def binding(name: str, node: str, uid: str = "") -> dict[str, Any]:
    """What tells the API server that a pod goes to a node; ``uid``: only if it is still the same pod."""
    return {
        "metadata": {"name": name, **({"uid": uid} if uid else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


@dataclass(frozen=True, slots=True)
class PodState:
    """What the API server says of a pod of ours."""

    name: str
    uid: str
    part: int
    node: str
    """Empty: it was not bound yet."""
    phase: str
    deleting: bool
    end: Mapping[str, Any] | None
    """What the agent left as it ended; ``None``: nothing."""
    reason: str
    """Why it waits or has failed, in the words of Kubernetes."""
    ran: bool
    """Its container ran to its end, as the kubelet saw it."""
    released: bool = False
    """Its kubelet, or a forced deletion, let the API server remove it."""

    @property
    def over(self) -> bool:
        """Nothing of it runs: the kubelet saw its end, rejected it, or never got it."""
        if not self.node:
            return self.deleting
        return self.phase in ("Succeeded", "Failed") and (self.ran or self.reason.startswith(_NEVER_RAN))


def handle_of(pod: Mapping[str, Any]) -> Handle | None:
    """The attempt that a pod belongs to, by its annotation."""
    job_id, _, epoch = str(pod["metadata"].get("annotations", {}).get(ATTEMPT, "")).rpartition("/")
    return Handle(job_id, int(epoch)) if job_id and epoch.isdecimal() else None


def pod_state(pod: Mapping[str, Any]) -> PodState:
    metadata, status = pod["metadata"], pod.get("status") or {}
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses") or [{}])).get("state") or {}
    ended, waiting = container.get("terminated"), container.get("waiting") or {}
    part = str(metadata.get("labels", {}).get(PART, ""))
    return PodState(
        metadata["name"],
        metadata["uid"],
        int(part) if part.isdecimal() else -1,
        pod["spec"].get("nodeName") or "",
        status.get("phase") or "",
        bool(metadata.get("deletionTimestamp")),
        _message(ended),
        _words(status) or _words(ended or {}) or _words(waiting),
        ended is not None,
        bool(metadata.get("deletionTimestamp")) and metadata.get("deletionGracePeriodSeconds") == 0,
    )


def _message(ended: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """How the part ended, as its agent wrote it; anything else that stands there is none."""
    try:
        found = json.loads((ended or {}).get("message") or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("codes"), dict) else None


def _words(status: Mapping[str, Any]) -> str:
    reason, message = str(status.get("reason") or ""), " ".join(str(status.get("message") or "").split())
    if message.startswith("{"):
        message = ""
    return f"{reason}: {message}"[:200] if reason and message else reason or message[:200]
