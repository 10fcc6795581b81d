"""Drives the Kubernetes executor from a test, over the cluster of the session: short times, a small server in place of
the daemon's API, clean-up in Kubernetes as well."""

from __future__ import annotations

import json
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.executor.driving import Driver, job_log
from tests.executor.kubernetes_cluster import NAMESPACE, KubernetesCluster
from tests.executor.played_kubelet import RACK_LABEL
from trine.executor.base import NodeInfo
from trine.executor.kubernetes.executor import KubernetesExecutor
from trine.executor.kubernetes.foreign_pods import ForeignRules
from trine.executor.kubernetes.inventory import NodeRules, read_nodes
from trine.executor.kubernetes.pods import PodSettings
from trine.executor.kubernetes.watched import Times

TIMES = Times(look_s=0.05, ask_s=0.3, probe_s=1.0, exchange_s=0.1, pending_s=20.0, silent_s=3.0)
RULES = NodeRules(rack_label=RACK_LABEL)


class AttemptServer:
    """The two paths of the API that agents and ranks call, on loopback, for whichever executor is there now."""

    def __init__(self) -> None:
        self.executor: KubernetesExecutor | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, token: str, body: bytes) -> dict[str, object] | None:
        relay = self.executor.relay if self.executor else None
        if relay is None:
            raise ConnectionError("no daemon")
        call = relay.exchange if path.endswith("/exchange") else relay.agree
        return call(token, json.loads(body))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    found = server.answer(self.path, self.headers["Authorization"].split()[1], body)
                except ConnectionError:
                    self.close_connection = True
                    return
                data = json.dumps(found or {}).encode()
                self.send_response(401 if found is None else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler


class KubernetesDriving:
    """As ``tests.executor.driving.Engine``."""

    shares_gpus = False
    exact_gpus = False

    def __init__(self, times: Times = TIMES) -> None:
        self.times = times
        self._cluster: KubernetesCluster | None = None
        self._server: AttemptServer | None = None
        self._nodes: list[NodeInfo] = []

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.use(request.getfixturevalue("kubernetes"))

    def use(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster
        self._server = self._server or AttemptServer()
        self._nodes = read_nodes(cluster.admin.get("/api/v1/nodes")["items"], RULES)

    @property
    def cluster(self) -> KubernetesCluster:
        assert self._cluster is not None, "the cluster comes with a fixture"
        return self._cluster

    @property
    def server(self) -> AttemptServer:
        assert self._server is not None, "the server comes with the cluster"
        return self._server

    def open(self, state: Path) -> KubernetesExecutor:
        state.mkdir(parents=True, exist_ok=True)
        settings = PodSettings(NAMESPACE, image="none", python=sys.executable, api_url=self.server.url)
        state_id, key = f"t{zlib.crc32(str(state).encode())}", b"a key of this test"
        executor = KubernetesExecutor(
            state,
            self._nodes,
            self.cluster.api("trine"),
            state_id,
            key,
            settings,
            RULES,
            self.times,
            foreign=ForeignRules(),
        )
        self.server.executor = executor
        return executor

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return self.cluster.kubelets.descendants()

    def left_behind(self) -> list[str]:
        """Pods that wait or run. Ended ones are kept by their finalizer until a daemon is there to remove them."""
        pods = self.cluster.pods()
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]

    def tidy(self) -> None:
        """Nothing of a test is left in Kubernetes, and every node takes pods again."""
        self.cluster.clean()


class KubernetesDriver(Driver):
    """A driver that knows its cluster."""

    engine: KubernetesDriving

    @property
    def cluster(self) -> KubernetesCluster:
        return self.engine.cluster
