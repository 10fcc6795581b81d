"""A real kube-apiserver with its etcd on loopback, access control (RBAC) on, and kubelets played by this process; all
of it below one directory, ended by process id. No scheduler and no controllers run: what they would do, nobody does.

``python -m tests.executor.kubernetes_cluster 4x2`` keeps one up until it is interrupted, ``... 4x2 -- COMMAND`` for as
long as a command runs, with KUBECONFIG set for it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.executor.cluster_command import keep_up
from tests.executor.driving import DEADLINE_S
from tests.executor.played_kubelet import PlayedKubelets
from tests.executor.slurm_cluster import free_ports
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable
from trine.executor.kubernetes.api import KubernetesApi

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
NAMESPACE = "trine"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trine"


def missing() -> str:
    """Why no cluster can be started here, empty if it can."""
    if not (_CACHE / "kube-apiserver").is_file():
        return f"no kube-apiserver in {_CACHE}; `make kube-apiserver` builds one"
    absent = [name for name in ("etcd", "openssl", "setpriv") if shutil.which(name) is None]
    return f"no {', '.join(absent)} here; on Debian: apt-get install etcd-server openssl" if absent else ""


needs_kubernetes = pytest.mark.skipif(bool(missing()), reason=missing() or "Kubernetes is here")


class KubernetesCluster:
    """``nodes`` nodes called node0, node1 ... with ``gpus`` GPUs each. ``admin`` may do everything, the user ``trine``
    only what the manifests of ``deploy/kubernetes`` allow."""

    def __init__(self, nodes: int = 4, gpus: int = 2, idle: bool = False) -> None:
        self.names, self.gpus, self._idle = [f"node{i}" for i in range(nodes)], gpus, idle
        self.base = Path(tempfile.mkdtemp(prefix="trine-kube-"))
        self._api_port, self._etcd_port, self._peer_port = free_ports(3)
        self.url = f"https://127.0.0.1:{self._api_port}"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = self.base / "kubeconfig"

    def start(self) -> None:
        for name in ("pki", "log", "etcd", "out"):
            (self.base / name).mkdir()
        self._make_certificates()
        self.start_etcd()
        self.start_server()
        self.admin = self.api("admin")
        self._wait_ready()
        self._apply_manifests()
        self.write_kubeconfig(self.kubeconfig)
        beat_s = 10.0 if self._idle else 0.5
        self.kubelets = PlayedKubelets(
            self.api("admin"), self.names, self.gpus, self.base / "out", beat_s, idle=self._idle
        )
        self.kubelets.start()

    def stop(self) -> None:
        if hasattr(self, "kubelets"):
            self.kubelets.stop()
        for name in ("apiserver", "etcd"):
            self.end(name)
        shutil.rmtree(self.base, ignore_errors=True)

    # -- daemons -----------------------------------------------------------------------------------------------------

    def start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            "etcd",
            *("etcd", "--name=test", f"--data-dir={self.base}/etcd", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}"),
        )

    def start_server(self) -> None:
        pki = self.base / "pki"
        self._spawn(
            "apiserver",
            str(_CACHE / "kube-apiserver"),
            *(f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--secure-port={self._api_port}"),
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
            *(f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key"),
            *(f"--client-ca-file={pki}/ca.crt", f"--token-auth-file={pki}/tokens.csv", "--authorization-mode=RBAC"),
            *("--service-account-issuer=https://127.0.0.1", f"--service-account-key-file={pki}/account.key"),
            *(f"--service-account-signing-key-file={pki}/account.key", "--service-cluster-ip-range=10.96.0.0/24"),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        )

    def restart_server(self) -> None:
        """Killed without warning, started again, waited for."""
        self.end("apiserver")
        self.start_server()
        self._wait_ready()

    def pause(self, name: str) -> None:
        self._daemons[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._daemons[name].send_signal(signal.SIGCONT)

    def end(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait(10)

    # -- what it says ------------------------------------------------------------------------------------------------

    def api(self, user: str, timeout_s: float = 10.0) -> KubernetesApi:
        pki = self.base / "pki"
        known: dict[str, Any] = {
            "host": self.url,
            "verify_ssl": True,
            "ssl_ca_cert": str(pki / "ca.crt"),
            "cert_file": str(pki / f"{user}.crt"),
            "key_file": str(pki / f"{user}.key"),
            "tls_server_name": None,
            "auth_settings": dict,
        }
        return KubernetesApi(SimpleNamespace(**known), timeout_s)

    def pods(self) -> list[dict[str, Any]]:
        """All pods in the namespace of trine."""
        return list(self.admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])

    def all_pods(self) -> list[dict[str, Any]]:
        return list(self.admin.get("/api/v1/pods")["items"])

    def write_kubeconfig(self, path: Path, user: str = "trine", url: str = "", namespace: str = NAMESPACE) -> None:
        pki = self.base / "pki"
        cluster = {"server": url or self.url, "certificate-authority": str(pki / "ca.crt")}
        account = {"client-certificate": str(pki / f"{user}.crt"), "client-key": str(pki / f"{user}.key")}
        context = {"cluster": "test", "user": user, "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": account}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def clean(self) -> None:
        """No pod is left, and every node takes pods again."""
        self.kubelets.wake(*self.names)
        for name in self.names:
            self.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None, "taints": None}})
        for pod in self.all_pods():
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            with suppress(EngineRefused):
                self.admin.delete(path, 1)
                self.admin.patch(path, {"metadata": {"finalizers": None}})
        self.wait_for(lambda: not self.all_pods() and not self.kubelets.processes(), "no pod is left")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; {self._last_words()}"
            time.sleep(0.05)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _wait_ready(self) -> None:
        def ready() -> bool:
            with suppress(EngineUnreachable, EngineRefused):
                self.admin.call("GET", "/readyz")
                self.admin.get("/api/v1/namespaces/default")
                return True
            return False

        self.wait_for(ready, "kube-apiserver to answer")

    def _apply_manifests(self) -> None:
        """Namespaces, roles and their bindings as they are given to users, and the user ``trine`` bound in addition."""
        kinds = {
            "Namespace": "/api/v1/namespaces",
            "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
            "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
        }
        self._create("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
        for path in sorted(MANIFESTS.glob("*.yaml")):
            for found in yaml.safe_load_all(path.read_text()):
                if found and found["kind"] in kinds:
                    if found["kind"].endswith("Binding"):
                        user = {"kind": "User", "name": "trine", "apiGroup": "rbac.authorization.k8s.io"}
                        found["subjects"].append(user)
                    self._create(kinds[found["kind"]].format(found["metadata"].get("namespace", "")), found)

    def _create(self, path: str, body: dict[str, Any]) -> None:
        with suppress(EngineRefused):  # there already
            self.admin.create(path, body)

    def _make_certificates(self) -> None:
        pki = self.base / "pki"
        pki.chmod(0o700)
        (pki / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        (pki / "tokens.csv").write_text(f"{secrets.token_hex(16)},nobody,nobody\n")
        self._openssl("genrsa", "-out", "account.key", "2048")
        request = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        self._openssl(*request, "-x509", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca", "-days", "30")
        for name, subject in (
            ("server", "/CN=server"),
            ("admin", "/O=system:masters/CN=admin"),
            ("trine", "/CN=trine"),
        ):
            self._openssl(*request, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
            signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "names")
            self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.base / "pki", check=True, capture_output=True)

    def _spawn(self, name: str, *command: str) -> None:
        with (self.base / "log" / name).open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                # A test that is killed leaves none of them behind.
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _last_words(self) -> str:
        said = []
        for name, daemon in self._daemons.items():
            lines = (self.base / "log" / name).read_text(errors="replace").splitlines()
            said.append(f"{name} ({daemon.poll()}): {' / '.join(lines[-2:])}")
        return "; ".join(said)


@contextmanager
def kubernetes_cluster(nodes: int = 4, gpus: int = 2) -> Iterator[KubernetesCluster]:
    """A cluster for as long as the block lasts; skips the test where there is none."""
    if why := missing():
        pytest.skip(why)
    cluster = KubernetesCluster(nodes, gpus)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


if __name__ == "__main__":  # NODESxGPUS [-- COMMAND...]
    sys.exit(keep_up(missing(), lambda nodes, gpus, _: KubernetesCluster(nodes, gpus), ("KUBECONFIG",)))
