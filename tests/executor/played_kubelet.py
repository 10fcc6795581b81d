"""Kubelets as the API server sees them, played for all nodes of a test: Ready nodes with GPUs and a lease, pods that
run as local processes, exit codes and termination messages in their status, TERM and grace at deletion.

Containers, images, volumes and device plugins do not exist here. Nodes can fall silent, with or without their
processes, come back, and lie about a pod."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trine.executor.attempt.processes import descendants
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable
from trine.executor.kubernetes.api import STRATEGIC_PATCH, KubernetesApi
from trine.executor.kubernetes.informer import Informer

GPU = "nvidia.com/gpu"
RACK_LABEL = "example.com/rack"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def _now(micro: bool = False) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    return f"{seconds}.{time.time_ns() // 1000 % 1_000_000:06d}Z" if micro else f"{seconds}Z"


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


class PlayedKubelets:
    """``nodes`` with ``gpus`` each, in racks of two; ``out`` gets what containers write themselves. ``idle``: pods are
    said to run, and nothing is started."""

    def __init__(
        self, api: KubernetesApi, nodes: list[str], gpus: int, out: Path, beat_s: float = 0.5, idle: bool = False
    ) -> None:
        self._api, self.names, self._gpus, self._out, self._beat_s = api, nodes, gpus, out, beat_s
        self._idle = idle
        self._lock = threading.RLock()
        self._free = {name: set(range(gpus)) for name in nodes}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        """Containers by the uid of their pod."""
        self._node_of: dict[str, str] = {}
        self._begun: set[str] = set()
        self._ending: set[str] = set()
        self._silent: set[str] = set()
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._pods = Informer(api, "/api/v1/pods", self._wake.set)

    def start(self) -> None:
        for name in self.names:
            self.register(name)
        self._pods.start()
        for target in (self._beat, self._work):
            threading.Thread(target=target, daemon=True).start()

    def stop(self) -> None:
        self._closing.set()
        self._pods.close()
        self._wake.set()
        with self._lock:
            for uid in list(self._running):
                self._kill(uid)

    # -- what tests do to it -----------------------------------------------------------------------------------------

    def silence(self, *names: str) -> None:
        """Nothing is heard of these nodes any more, and they hear nothing; what runs there runs on."""
        with self._lock:
            self._silent.update(names)

    def wake(self, *names: str) -> None:
        with self._lock:
            self._silent.difference_update(names)
        self._wake.set()

    def kill_machine(self, name: str) -> None:
        """A node that is gone without a word, with all that ran there."""
        self.silence(name)
        with self._lock:
            for uid in [uid for uid, node in self._node_of.items() if node == name]:
                self._kill(uid)

    def forget_all(self) -> None:
        """A kubelet that lost its memory: it starts the container of every pod that should run a second time."""
        with self._lock:
            self._begun.clear()
        self._wake.set()

    def claim_failure(self, pod: Mapping[str, Any]) -> None:
        """A lie: the pod has failed. Its processes run on."""
        self._status(
            pod, phase="Failed", containerStatuses=[_container(pod, terminated={"exitCode": 255, "reason": "Error"})]
        )

    def processes(self) -> int:
        """Containers that run."""
        with self._lock:
            return len(self._running)

    def descendants(self) -> list[int]:
        """All processes of containers that run."""
        with self._lock:
            first = [process.pid for process in self._running.values() if process.poll() is None]
        return [pid for one in first for pid in [one, *descendants(one)]]

    # -- nodes -------------------------------------------------------------------------------------------------------

    def register(self, name: str, gpus: int | None = None, labels: Mapping[str, str] | None = None) -> None:
        index = self.names.index(name) if name in self.names else 0
        known = {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": "zone-a",
            RACK_LABEL: f"rack{index // 2}",
            f"{GPU}.product": "Tesla-V100-SXM2-16GB",
            **(labels or {}),
        }
        with suppress(EngineRefused):
            self._api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": known}})
        with suppress(EngineRefused):
            body = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}
            self._api.create(_LEASES, body)
        self.report_node(name, gpus=gpus)

    def report_node(self, name: str, ready: str = "True", gpus: int | None = None) -> None:
        size = {"cpu": "64", "memory": "256Gi", "pods": "1000", GPU: str(self._gpus if gpus is None else gpus)}
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": size, "allocatable": size, "conditions": [condition], "addresses": addresses}
        self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC_PATCH)

    def _beat(self) -> None:
        while not self._closing.wait(self._beat_s):
            for name in self.names:
                if name not in self._silent:
                    with suppress(EngineRefused, EngineUnreachable):
                        self._api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now(micro=True)}})

    # -- pods --------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(1.0)
            self._wake.clear()
            with suppress(EngineUnreachable):
                for pod in self._pods.objects().values():
                    self._look_at(pod)

    def _look_at(self, pod: Mapping[str, Any]) -> None:
        node, uid, status = pod["spec"].get("nodeName"), pod["metadata"]["uid"], pod.get("status", {})
        with self._lock:
            if node not in self._free or node in self._silent:
                return
            over = status.get("phase") in ("Succeeded", "Failed")
            if pod["metadata"].get("deletionTimestamp"):
                if uid not in self._ending:
                    self._ending.add(uid)
                    self._thread(self._end, pod)
            elif not over and uid not in self._begun:
                self._begun.add(uid)
                if self._idle:
                    self._status(pod, phase="Running")
                else:
                    self._thread(self._run, pod)

    def _thread(self, call: Any, pod: Mapping[str, Any]) -> None:
        threading.Thread(target=self._guarded, args=(call, pod), daemon=True).start()

    def _guarded(self, call: Any, pod: Mapping[str, Any]) -> None:
        while not self._closing.is_set():
            try:
                call(pod)
            except EngineUnreachable:
                time.sleep(0.1)
            else:
                return

    def _run(self, pod: Mapping[str, Any]) -> None:
        uid, node, container = pod["metadata"]["uid"], pod["spec"]["nodeName"], pod["spec"]["containers"][0]
        wanted = int((container.get("resources", {}).get("limits") or {}).get(GPU, 0))
        refusal: dict[str, Any] = {}
        with self._lock:
            chosen = sorted(self._free[node])[:wanted]
            if uid in self._ending:
                return
            if len(chosen) < wanted:
                why = f"requested: {wanted}, available: {len(chosen)}"
                refusal = {"reason": "UnexpectedAdmissionError", "message": why}
            else:
                try:
                    process = self._spawn(pod, container, chosen)
                except OSError as error:
                    end = {"exitCode": 128, "reason": "StartError", "message": str(error)}
                    refusal = {"containerStatuses": [_container(pod, terminated=end)]}
                else:
                    self._free[node] -= set(chosen)
                    self._running[uid], self._node_of[uid] = process, node
        if refusal:
            self._status(pod, phase="Failed", **refusal)
        else:
            self._wait(pod, process, set(chosen))

    def _spawn(self, pod: Mapping[str, Any], container: Mapping[str, Any], gpus: list[int]) -> subprocess.Popen[bytes]:
        variables = {"PATH": os.environ["PATH"], "NVIDIA_VISIBLE_DEVICES": ",".join(f"GPU-{gpu}" for gpu in gpus)}
        for entry in container.get("env", ()):
            field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            variables[entry["name"]] = "127.0.0.1" if field == "status.podIP" else entry.get("value", "")
        with (self._out / f"{pod['metadata']['name']}.out").open("ab") as out:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *container.get("command", []), *container.get("args", [])],
                env=variables,
                cwd=container.get("workingDir") or "/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _wait(self, pod: Mapping[str, Any], process: subprocess.Popen[bytes], gpus: set[int]) -> None:
        uid, node, began = pod["metadata"]["uid"], pod["spec"]["nodeName"], _now()
        running = {"phase": "Running", "podIP": "127.0.0.1", "startTime": began}
        self._tell(pod, **running, containerStatuses=[_container(pod, running={"startedAt": began})])
        code = process.wait()
        with self._lock:
            self._free[node] |= gpus
            if self._running.get(uid) is process:
                self._running.pop(uid)
                self._node_of.pop(uid)
        while node in self._silent and not self._closing.is_set():
            time.sleep(0.05)
        code = 128 - code if code < 0 else code
        end = {"exitCode": code, "startedAt": began, "finishedAt": _now(), "reason": "Error" if code else "Completed"}
        end |= _message(pod)
        phase = "Failed" if code else "Succeeded"
        self._tell(pod, phase=phase, containerStatuses=[_container(pod, terminated=end)])

    def _end(self, pod: Mapping[str, Any]) -> None:
        """TERM, the grace, KILL; then the API server may forget it."""
        uid, grace_s = pod["metadata"]["uid"], pod["metadata"].get("deletionGracePeriodSeconds") or 0
        with self._lock:
            process = self._running.get(uid)
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(grace_s, 0.05))
            self._kill(uid)
            while uid in self._running and not self._closing.is_set():
                time.sleep(0.01)
            time.sleep(0.05)  # its status goes out first
        with suppress(EngineRefused):
            self._api.delete(_path(pod), 0, uid)

    def _kill(self, uid: str) -> None:
        """All processes of a container end with its first one."""
        with self._lock:
            process = self._running.get(uid)
        if process is None or process.poll() is not None:
            return
        for pid in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _tell(self, pod: Mapping[str, Any], **status: Any) -> None:
        """However long the server is away."""
        while not self._closing.is_set():
            try:
                self._status(pod, **status)
            except EngineUnreachable:
                time.sleep(0.1)
            else:
                return

    def _status(self, pod: Mapping[str, Any], **status: Any) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            self._api.patch(f"{_path(pod)}/status", body, STRATEGIC_PATCH)
        except EngineRefused:
            return  # it is gone


def _container(pod: Mapping[str, Any], **state: Any) -> dict[str, Any]:
    container = pod["spec"]["containers"][0]
    known = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {**known, "ready": "running" in state, "state": state}


def _message(pod: Mapping[str, Any]) -> dict[str, str]:
    path = Path(pod["spec"]["containers"][0].get("terminationMessagePath", ""))
    try:
        text = path.read_text()[:4096]
        path.unlink()
    except OSError:
        return {}
    return {"message": text}
