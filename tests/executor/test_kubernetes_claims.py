"""Exact GPUs by ResourceClaims. No server that has them can be had here, so the API server is played, too: what is
shown is what trine asks for, not that a real one takes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import Driver, job_log, until
from tests.executor.kubernetes_driving import TIMES, AttemptServer
from tests.executor.played_apiserver import PlayedApiServer
from tests.executor.played_kubelet import PlayedKubelets
from trine.core.errors import InputError
from trine.executor.base import NodeInfo, Unreachable
from trine.executor.kubernetes.claims import CLAIMS, SLICES, Device, allocated, published
from trine.executor.kubernetes.engine import KubernetesEngine
from trine.executor.kubernetes.executor import KubernetesExecutor
from trine.executor.kubernetes.inventory import NodeRules
from trine.executor.kubernetes.pods import PodSettings

DRIVER = "gpu.example.com"
_OTHERS = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims"


def resource_slice(node: str, *names: str, generation: int = 1, count: int = 1, part: int = 0, **more: Any) -> Any:
    def device(name: str) -> dict[str, Any]:
        known = {"type": "gpu", "productName": "Tesla V100-SXM2-16GB", "uuid": f"GPU-{node}-{name}"}
        return {"name": name, "attributes": {key: {"string": value} for key, value in known.items()}, **more}

    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [device(name) for name in names]}
    return {"metadata": {"name": f"{node}-{generation}-{part}"}, "spec": spec}


def test_indices_follow_the_names_of_devices_and_only_whole_pools_count() -> None:
    found = published([resource_slice("n0", "gpu-10", "gpu-9", "gpu-1")], DRIVER)
    assert [one.device.name for one in found["n0"]] == ["gpu-1", "gpu-9", "gpu-10"]
    assert [(one.gpu.index, one.gpu.type) for one in found["n0"]] == [(0, "v100"), (1, "v100"), (2, "v100")]
    older, newer = resource_slice("n0", "gpu-0"), resource_slice("n0", "gpu-0", generation=2, count=2)
    assert published([older, newer], DRIVER) == {}, "the driver is still writing"
    second = resource_slice("n0", "gpu-1", generation=2, count=2, part=1)
    assert len(published([older, newer, second], DRIVER)["n0"]) == 2
    assert published([older], "other.example.com") == {}


def test_parts_of_gpus_are_not_offered_and_tainted_ones_are_withheld() -> None:
    part = resource_slice("n0", "mig-0", attributes={"type": {"string": "mig"}})
    assert published([part], DRIVER)["n0"] == ()
    tainted = resource_slice("n0", "gpu-0", taints=[{"key": "broken", "effect": "NoExecute"}])
    assert published([tainted], DRIVER)["n0"][0].gpu.withheld


def test_devices_of_all_claims_count_as_allocated() -> None:
    result = {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    claims: list[dict[str, Any]] = [
        {"status": {"allocation": {"devices": {"results": [result]}}}},
        {"status": {"allocation": {"devices": {"results": [{**result, "device": "gpu-1", "adminAccess": True}]}}}},
        {"status": {}},
        {},
    ]
    assert allocated(claims, DRIVER) == {Device(DRIVER, "n0", "gpu-0")}


@pytest.fixture
def server() -> Iterator[PlayedApiServer]:
    server = PlayedApiServer()
    try:
        yield server
    finally:
        server.close()


class ClaimsDriving:
    """As ``tests.executor.driving.Engine``, over a played server with two nodes of two GPUs."""

    shares_gpus, exact_gpus = False, True

    def __init__(self, server: PlayedApiServer) -> None:
        self.server, self.attempts = server, AttemptServer()

    def open(self, state: Path) -> KubernetesExecutor:
        settings = PodSettings(
            "trine", image="none", python=sys.executable, api_url=self.attempts.url, device_class=DRIVER
        )
        rules = NodeRules(driver=DRIVER)
        executor = KubernetesExecutor(state, [], self.server.api(), "s1", b"a key", settings, rules, TIMES)
        self.attempts.executor = executor
        return executor

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return []


@pytest.fixture
def driver(server: PlayedApiServer, tmp_path: Path) -> Iterator[Driver]:
    api = server.api()
    kubelets = PlayedKubelets(api, ["node0", "node1"], 2, tmp_path)
    kubelets.start()
    for node in kubelets.names:
        api.create(SLICES, resource_slice(node, "gpu-0", "gpu-1"))
    driving = ClaimsDriving(server)
    driver = Driver(driving, tmp_path / "state")  # type: ignore[arg-type]
    try:
        until(lambda: len(gpus(driver)) == 4, "the GPUs")
        yield driver
    finally:
        driver.close()
        kubelets.stop()
        driving.attempts.close()
        api.close()


def gpus(driver: Driver) -> dict[str, str]:
    """Why each GPU is withheld, by node and index."""
    nodes: list[NodeInfo] | Unreachable = driver.executor.inventory()
    found = [] if isinstance(nodes, Unreachable) else nodes
    return {f"{node.name}:{gpu.index}": gpu.withheld for node in found for gpu in node.gpus}


def test_a_pod_gets_the_very_devices_that_were_chosen(driver: Driver, server: PlayedApiServer) -> None:
    handle = driver.launch("j", ("node1", (1,)), ("node0", (0, 1)), STEPS=1)
    driver.exited(handle)
    claims = server.items(CLAIMS, {})
    chosen = {one["metadata"]["name"][-1]: one["status"]["allocation"]["devices"]["results"] for one in claims}
    assert [(one["pool"], one["device"]) for one in chosen["0"]] == [("node1", "gpu-1")]
    assert [(one["pool"], one["device"]) for one in chosen["1"]] == [("node0", "gpu-0"), ("node0", "gpu-1")]
    pods = {pod["metadata"]["name"]: pod for pod in server.items("/api/v1/pods", {})}
    for claim in claims:
        pod, wanted = pods[claim["metadata"]["name"]], claim["spec"]["devices"]["requests"][0]["exactly"]
        assert [user["uid"] for user in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"], "it goes with its pod"
        assert wanted["count"] == len(claim["status"]["allocation"]["devices"]["results"])
        assert pod["spec"]["containers"][0]["resources"] == {"limits": {}, "claims": [{"name": "gpus"}]}


def test_devices_that_claims_of_others_have_are_withheld(driver: Driver, server: PlayedApiServer) -> None:
    api = server.api()
    api.create(_OTHERS, {"metadata": {"name": "theirs"}, "spec": {}})
    result = {"driver": DRIVER, "pool": "node0", "device": "gpu-1", "request": "r"}
    api.patch(f"{_OTHERS}/theirs/status", {"status": {"allocation": {"devices": {"results": [result]}}}})
    until(lambda: gpus(driver)["node0:1"] == "allocated to a claim that is not trine's", "the device to be withheld")
    assert not gpus(driver)["node0:0"]
    api.close()


def test_a_launch_whose_answers_were_lost_allocates_the_same_devices(driver: Driver, server: PlayedApiServer) -> None:
    handle = driver.launch("j", ("node0", (1,)), STEPS=400, STEP_S=0.05)
    driver.progress(handle)
    (claim,) = server.items(CLAIMS, {})
    pod = claim["metadata"]["name"]
    executor = driver.executor
    assert isinstance(executor, KubernetesExecutor)
    assert executor._claims is not None
    executor._claims.allocate(
        pod, claim["metadata"]["ownerReferences"][0]["uid"], "node0", [[DRIVER, "node0", "gpu-1"]]
    )
    assert server.items(CLAIMS, {})[0]["status"]["allocation"] == claim["status"]["allocation"]
    executor.kill(handle)
    driver.exited(handle)


class TestEngine:
    def engine(self, server: PlayedApiServer, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> KubernetesEngine:
        engine = KubernetesEngine(namespace="trine", device_class=DRIVER, **settings)
        monkeypatch.setattr(engine, "_connect", server.api)
        return engine

    def test_servers_without_claims_are_refused(self, server: PlayedApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
        server.version = "v1.33.4"
        with pytest.raises(InputError, match=r"device_class: the API server is of version v1.33.4; expected 1.34 or"):
            self.engine(server, monkeypatch).find_nodes(None)
        with pytest.raises(InputError, match=r"true together with engine.device_class; expected one of the two"):
            self.engine(server, monkeypatch, whole_nodes=True).find_nodes(None)

    def test_nodes_have_the_gpus_that_the_driver_publishes_and_exactly_those_are_given(
        self, server: PlayedApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api, engine = server.api(), self.engine(server, monkeypatch)
        api.create("/api/v1/nodes", {"metadata": {"name": "node0"}, "status": {}})
        with pytest.raises(InputError, match=rf"none of 1 nodes has devices of {DRIVER}"):
            engine.find_nodes(None)
        api.create(SLICES, resource_slice("node0", "gpu-0", "gpu-1"))
        (node,) = engine.find_nodes(None)  # type: ignore[misc]
        assert [gpu.uuid for gpu in node.gpus] == ["GPU-node0-gpu-0", "GPU-node0-gpu-1"]
        assert engine.capabilities([node]).exact_gpus
        api.close()
