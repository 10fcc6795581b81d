"""The engine ``kubernetes`` from its settings to a daemon whose pods reach it over TLS: what is bad input, and in which
words; what the API server is asked for in a steady state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.executor.driving import LONG, until
from tests.executor.kubernetes_cluster import MANIFESTS, KubernetesCluster
from tests.executor.kubernetes_driving import KubernetesDriver, KubernetesDriving
from trine.client import Client
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.base import Unreachable
from trine.executor.kubernetes import engine as engine_module
from trine.executor.kubernetes.engine import KubernetesEngine


def test_a_machine_without_a_kubeconfig_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"there is no kubeconfig /no/config; expected a kubeconfig \(engine.kubeconfig"
    ):
        KubernetesEngine(kubeconfig="/no/config").find_nodes(None)
    broken = tmp_path / "config"
    broken.write_text("clusters: 7\n")
    with pytest.raises(InputError, match=rf"{broken} cannot be used: "):
        KubernetesEngine(kubeconfig=str(broken)).find_nodes(None)


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trine", "up", "--engine", "kubernetes", "--state", str(tmp_path / "state")]
    done = subprocess.run(
        [*command, "--set", "engine.kubeconfig=/no/config"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("trine: --engine kubernetes: there is no kubeconfig /no/config; expected")
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "state").exists()


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(InputError, match=r"kubernetes is not installed; expected pip install 'trine\[kubernetes\]'"):
        KubernetesEngine().find_nodes(None)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"api_url": "http://trine.example:7460"},
            "engine.api_url: found 'http://trine.example:7460'; expected an https",
        ),
        ({"api_ca": "/no/ca.pem"}, "engine.api_ca: /no/ca.pem: No such file or directory; expected a certificate"),
    ],
)
def test_settings_that_would_show_tokens_are_bad_input(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        KubernetesEngine(**settings).find_nodes(None)  # type: ignore[arg-type]


class OtherVersion:
    """An API server of another version."""

    def __init__(self, version: str) -> None:
        self.version = version

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/version"
        return {"gitVersion": self.version}


@pytest.mark.parametrize("version", ["v1.19.16", "v0.9.0", "", "newest"])
def test_an_old_or_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"the API server is of version .*; expected version 1.20 or newer"):
        KubernetesEngine()._check_version(OtherVersion(version))  # type: ignore[arg-type]
    KubernetesEngine()._check_version(OtherVersion("v1.34.1-gke.7"))  # type: ignore[arg-type]


@pytest.mark.kubernetes
class TestWithCluster:
    """What only a server can say."""

    @pytest.fixture
    def config(self, kubernetes: KubernetesCluster) -> str:
        return str(kubernetes.kubeconfig)

    def test_nodes_are_found_and_described_ones_only_if_they_fit(self, config: str) -> None:
        engine = KubernetesEngine(kubeconfig=config, rack_label="example.com/rack")
        nodes = engine.find_nodes(None)
        assert not isinstance(nodes, Unreachable)
        assert [(node.name, node.labels["rack"]) for node in nodes][1:3] == [("node1", "rack0"), ("node2", "rack1")]
        chosen = engine.find_nodes(Cluster((Node("node2", 2, "a100"),)))
        assert not isinstance(chosen, Unreachable)
        assert [(node.name, node.gpus[0].type) for node in chosen] == [("node2", "a100")]
        with pytest.raises(InputError, match="unknown node with GPUs of the cluster 'gpu7'"):
            engine.find_nodes(Cluster((Node("gpu7", 2, "a100"),)))
        with pytest.raises(InputError, match="node node1 has 2 GPUs in Kubernetes"):
            engine.find_nodes(Cluster((Node("node1", 4, "a100"),)))

    def test_nodes_without_gpus_are_bad_input(self, config: str) -> None:
        with pytest.raises(InputError, match=r"none of 4 nodes has amd.com/gpu; expected nodes with GPUs"):
            KubernetesEngine(kubeconfig=config, gpu_resource="amd.com/gpu").find_nodes(None)
        with pytest.raises(InputError, match=r"none of 0 nodes with the labels pool=big has"):
            KubernetesEngine(kubeconfig=config, node_selector="pool=big").find_nodes(None)

    def test_a_namespace_that_does_not_exist_is_bad_input(self, kubernetes: KubernetesCluster, tmp_path: Path) -> None:
        kubernetes.write_kubeconfig(tmp_path / "config", user="admin")
        with pytest.raises(InputError, match=r"there is no namespace 'tarin'; expected engine.namespace"):
            KubernetesEngine(kubeconfig=str(tmp_path / "config"), namespace="tarin").find_nodes(None)

    def test_a_right_that_is_missing_is_named(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "_PASSING_S", 0.0)
        with pytest.raises(InputError, match=r'a right is missing: .*"trine" cannot create resource "pods".*"default"'):
            KubernetesEngine(kubeconfig=config, namespace="default").find_nodes(None)

    def test_a_wrong_credential_is_bad_input(self, kubernetes: KubernetesCluster, tmp_path: Path) -> None:
        path = tmp_path / "config"
        kubernetes.write_kubeconfig(path)
        text = path.read_text()
        path.write_text(text[: text.index("  user:\n")] + "  user:\n    token: expired\n")
        with pytest.raises(InputError, match="does not accept the credential; expected a credential that is valid"):
            KubernetesEngine(kubeconfig=str(path)).find_nodes(None)

    def test_a_server_that_is_not_there_is_away(self, kubernetes: KubernetesCluster, tmp_path: Path) -> None:
        kubernetes.write_kubeconfig(tmp_path / "config", url="https://127.0.0.1:1")
        found = KubernetesEngine(kubeconfig=str(tmp_path / "config")).find_nodes(None)
        assert isinstance(found, Unreachable) and "refused" in found.reason

    def test_steady_state_is_watched_and_not_listed(self, kubernetes: KubernetesCluster, tmp_path: Path) -> None:
        driving = KubernetesDriving()
        driving.use(kubernetes)
        driver = KubernetesDriver(driving, tmp_path / "state")
        try:
            handle = driver.launch("j", ("node0", (0,)), ("node1", (0,)), **LONG)
            first = driver.progress(handle)
            lists = driver.executor.lists  # type: ignore[attr-defined]
            driver.progress(handle, first.step + 300)
            assert driver.executor.lists == lists == 5, "pods, nodes, leases, pods of others and those for trine"  # type: ignore[attr-defined]
        finally:
            driver.close()
            driving.server.close()
            kubernetes.clean()


@pytest.mark.kubernetes
def test_the_server_takes_every_manifest(kubernetes: KubernetesCluster) -> None:
    paths = {
        "Deployment": "/apis/apps/v1/namespaces/trine/deployments",
        "PersistentVolumeClaim": "/api/v1/namespaces/trine/persistentvolumeclaims",
        "Service": "/api/v1/namespaces/trine/services",
        "ServiceAccount": "/api/v1/namespaces/trine/serviceaccounts",
    }
    found = [one for path in MANIFESTS.glob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
    taken = [kubernetes.admin.create(f"{paths[one['kind']]}?dryRun=All", one) for one in found if one["kind"] in paths]
    assert sorted(one["kind"] for one in taken) == sorted(paths)


@pytest.fixture
def daemon(kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[Path]:
    """A daemon that serves TLS; pods check its certificate."""
    pki = kubernetes.base / "pki"
    state = tmp_path / "state"
    settings = {
        "kubeconfig": str(kubernetes.kubeconfig),
        "python": sys.executable,
        "api_ca": str(pki / "ca.crt"),
        "exchange_s": "0.2",
    }
    options = [word for name, value in settings.items() for word in ("--set", f"engine.{name}={value}")]
    tls = ("--tls-cert", str(pki / "server.crt"), "--tls-key", str(pki / "server.key"))
    command = [sys.executable, "-m", "trine", "up", "--state", str(state), "--engine", "kubernetes", "--port", "0"]
    process = subprocess.Popen([*command, *tls, *options, "--round", "1", "--quiet"])
    try:
        until(lambda: process.poll() is not None or (state / "api.json").exists(), "the daemon")
        yield state
    finally:
        process.terminate()
        process.wait(30)
        kubernetes.clean()


@pytest.mark.kubernetes
def test_pods_reach_their_daemon_over_tls_alone(daemon: Path, kubernetes: KubernetesCluster) -> None:
    url = json.loads((daemon / "api.json").read_text())["url"]
    assert url.startswith("https://")
    with Client(state=daemon) as client:
        run = ["/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE; env | grep -c hush"]
        env = {"SECRET": "hush", "PATH": os.environ["PATH"]}
        (job_id,) = client.submit([{"run": run, "gpus": 2, "nodes": 2, "ranks": "gpu", "env": env}])
        until(lambda: client.job(job_id)["state"] == "done", "the end of the job")
    assert (daemon / "jobs" / job_id / "log.1").read_text() == "rank 1 of 2\n1\n"
    pods = json.dumps(kubernetes.pods())
    assert "hush" not in pods, "variables of jobs do not lie in the API server"


@pytest.mark.kubernetes
def test_beyond_loopback_tls_is_required(kubernetes: KubernetesCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trine", "up", "--engine", "kubernetes", "--state", str(tmp_path / "state")]
    options = ["--set", f"engine.kubeconfig={kubernetes.kubeconfig}", "--host", "0.0.0.0", "--port", "0"]
    began_s = time.monotonic()
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and time.monotonic() - began_s < 60
    assert done.stderr.startswith("trine: --host: 0.0.0.0 without TLS; expected --tls-cert and --tls-key")
