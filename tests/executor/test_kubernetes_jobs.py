"""Jobs of a whole daemon on a real API server: arrays, and pods that take whole nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.driving import job_log
from tests.executor.kubernetes_cluster import KubernetesCluster
from tests.executor.kubernetes_daemon import Daemon
from trine.client import Client

pytestmark = pytest.mark.kubernetes
_SHOW = ["/bin/sh", "-c", "echo $TRINE_ARRAY_ID $TRINE_ARRAY_INDEX $TRINE_ARRAY_COUNT $CUDA_VISIBLE_DEVICES; sleep 1"]
_ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def daemon(kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(kubernetes, tmp_path / "state")
    daemon.settings = {"exchange_s": "0.2"}
    try:
        yield daemon
    finally:
        daemon.end()
        kubernetes.clean()


def log(daemon: Daemon, job_id: str) -> str:
    return job_log(daemon.state, job_id, 0).strip()


def test_elements_of_an_array_are_pods_of_their_own_and_as_many_as_may_be_at_once(
    daemon: Daemon, kubernetes: KubernetesCluster
) -> None:
    daemon.up()
    with Client(state=daemon.state) as client:
        ids = client.submit([{"run": _SHOW, "gpus": 1, "array": "0-4%2", "env": _ENV}])
    most = 0
    while any(job["state"] != "done" for job in daemon.jobs()):
        most = max(most, sum(pod["status"]["phase"] in ("Pending", "Running") for pod in kubernetes.pods()))
    assert len(ids) == 5 and most == 2
    assert [log(daemon, job_id) for job_id in ids] == [f"{ids[0]} {index} 5 0" for index in range(5)]


def test_a_pod_takes_its_node_as_a_whole_and_its_job_sees_the_gpus_that_were_chosen(
    daemon: Daemon, kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    profile = tmp_path / "slow.csv"
    rows = [f"{gpu},node{gpu // 2},{2 - gpu % 2}" for gpu in range(8)]
    profile.write_text("\n".join(["gpu,node,slowdown_A", *rows, ""]))
    daemon.settings["whole_nodes"] = "true"
    daemon.options = ["--placement", "pal", "--variability", str(profile)]
    daemon.up()
    with Client(state=daemon.state) as client:
        ids = client.submit([{"run": _SHOW, "gpus": 1, "env": _ENV} for _ in range(6)])
        limits: set[str] = set()
        nodes: list[set[str]] = []
        while any(client.job(job_id)["state"] != "done" for job_id in ids):
            pods = [pod for pod in kubernetes.pods() if pod["status"]["phase"] == "Running"]
            limits |= {pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in pods}
            nodes.append({pod["spec"]["nodeName"] for pod in pods})
            assert len(nodes[-1]) == len(pods), "one job per node at a time"
    assert limits == {"2"} and max(map(len, nodes)) >= 2
    assert {log(daemon, job_id) for job_id in ids} == {"1"}, "the faster chip of its node"
