"""The soak on a real kube-apiserver with played kubelets: the server and its store die and stand still, nodes fall
silent or die, pods are deleted, removed and lied about, nodes are cordoned.

``python -m tests.executor.kubernetes_soak --seed N`` runs 200 jobs and 30 faults, in at most ten minutes."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.executor.engine_soak import EngineSoak, run_soak, soak_on
from tests.executor.kubernetes_cluster import NAMESPACE, KubernetesCluster, missing
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable

_SETTINGS = {"exchange_s": 0.3, "timeout_s": 5, "pending_s": 20, "silent_s": 5, "python": sys.executable}


class KubernetesSoak(EngineSoak):
    """On a cluster of its own."""

    def __init__(self, seed: int, home: Path, cluster: KubernetesCluster) -> None:
        super().__init__(seed, home)
        self.cluster = cluster

    @property
    def environ(self) -> Mapping[str, str]:
        return self.cluster.environ

    @property
    def options(self) -> Sequence[str]:
        settings = [word for name, value in _SETTINGS.items() for word in ("--set", f"engine.{name}={value}")]
        return ["--engine", "kubernetes", *settings]

    def ranks(self) -> list[int]:
        return self.cluster.kubelets.descendants()

    def kinds(self) -> Sequence[Callable[[], None]]:
        return [
            *(self.server_dies, self.store_stands_still, self.node_silent, self.machine_dies),
            *(self.pod_deleted, self.pod_removed, self.kubelet_lies, self.cordoned),
        ]

    def _node(self) -> str:
        return self.draw.choice(self.cluster.names)

    def _pod(self) -> dict[str, Any] | None:
        """One that runs."""
        with suppress(EngineUnreachable):
            running = [pod for pod in self.cluster.pods() if pod["status"]["phase"] == "Running"]
            return self.draw.choice(running) if running else None
        return None

    def server_dies(self) -> None:
        self.cluster.end("apiserver")
        time.sleep(self.draw.uniform(0.0, 3.0))
        self.cluster.restart_server()

    def store_stands_still(self) -> None:
        self.cluster.pause("etcd")
        time.sleep(self.draw.uniform(0.5, 4.0))
        self.cluster.go_on("etcd")

    def node_silent(self) -> None:
        """For long enough to count as down, or not."""
        name = self._node()
        self.cluster.kubelets.silence(name)
        time.sleep(self.draw.uniform(0.5, 8.0))
        self.cluster.kubelets.wake(name)

    def machine_dies(self) -> None:
        name = self._node()
        self.cluster.kubelets.kill_machine(name)
        time.sleep(self.draw.uniform(0.5, 8.0))
        self.cluster.kubelets.wake(name)

    def pod_deleted(self) -> None:
        if pod := self._pod():
            with suppress(EngineRefused, EngineUnreachable):
                self.cluster.admin.delete(self._path(pod), 5)

    def pod_removed(self) -> None:
        """With force, and without its finalizer: the API server knows nothing of it any more."""
        if pod := self._pod():
            with suppress(EngineRefused, EngineUnreachable):
                self.cluster.admin.patch(self._path(pod), {"metadata": {"finalizers": None}})
                self.cluster.admin.delete(self._path(pod), 0)

    def kubelet_lies(self) -> None:
        if pod := self._pod():
            with suppress(EngineUnreachable):
                self.cluster.kubelets.claim_failure(pod)

    def cordoned(self) -> None:
        path = f"/api/v1/nodes/{self._node()}"
        with suppress(EngineUnreachable):
            self.cluster.admin.patch(path, {"spec": {"unschedulable": True}})
            time.sleep(self.draw.uniform(0.5, 2.0))
            self.cluster.admin.patch(path, {"spec": {"unschedulable": None}})

    def _path(self, pod: Mapping[str, Any]) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"

    def mend(self) -> None:
        """Nodes are opened by the faults themselves."""

    def check_engine(self) -> None:
        self.cluster.wait_for(lambda: not self.cluster.pods(), "no pod is left")


def soak(seed: int, jobs: int, faults: int, limit_s: float, home: Path) -> tuple[dict[str, int], Counter[str]]:
    """Ends by state and faults by kind."""
    cluster = KubernetesCluster(8, 2)
    return soak_on(cluster, KubernetesSoak(seed, home, cluster), jobs, faults, limit_s)


if __name__ == "__main__":
    sys.exit(run_soak(soak, missing(), 600.0, __doc__))
