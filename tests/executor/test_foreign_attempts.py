"""Pods of others over a played API server: which GPUs they hold, and what becomes of a gang that cannot be bound."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import Driver, job_log, until
from tests.executor.kubernetes_driving import RULES, TIMES, AttemptServer
from tests.executor.played_apiserver import Conflict, PlayedApiServer
from tests.executor.played_kubelet import PlayedKubelets
from trine.executor.base import ExternalJob, ExternalJobsChanged, Handle, LaunchFailed, Unreachable
from trine.executor.kubernetes.executor import KubernetesExecutor
from trine.executor.kubernetes.foreign_pods import ForeignRules
from trine.executor.kubernetes.pods import PodSettings

_TEAM = "/api/v1/namespaces/team-a/pods"
_STATE_ID = "s1"


class PlayedDriving:
    """As ``tests.executor.driving.Engine``, over a played server with two nodes of two GPUs."""

    shares_gpus, exact_gpus = False, False

    def __init__(self, server: PlayedApiServer) -> None:
        self.server, self.attempts = server, AttemptServer()

    def open(self, state: Path) -> KubernetesExecutor:
        settings = PodSettings("trine", image="none", python=sys.executable, api_url=self.attempts.url)
        executor = KubernetesExecutor(
            state, [], self.server.api(), _STATE_ID, b"a key", settings, RULES, TIMES, foreign=ForeignRules()
        )
        self.attempts.executor = executor
        return executor

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return []


@pytest.fixture
def server() -> Iterator[PlayedApiServer]:
    server = PlayedApiServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def driver(server: PlayedApiServer, tmp_path: Path) -> Iterator[Driver]:
    api = server.api()
    kubelets = PlayedKubelets(api, ["node0", "node1"], 2, tmp_path)
    kubelets.start()
    driving = PlayedDriving(server)
    driver = Driver(driving, tmp_path / "state")  # type: ignore[arg-type]
    try:
        until(lambda: len(withheld(driver)) == 4, "the GPUs")
        yield driver
    finally:
        driver.close()
        kubelets.stop()
        driving.attempts.close()
        api.close()


def withheld(driver: Driver) -> dict[str, bool]:
    """Whether each GPU is kept from jobs, by node and index."""
    nodes = driver.executor.inventory()
    found = [] if isinstance(nodes, Unreachable) else nodes
    return {f"{node.name}:{gpu.index}": bool(gpu.withheld) for node in found for gpu in node.gpus}


def make_pod(server: PlayedApiServer, name: str, labels: dict[str, str], gpus: int = 2, **spec: Any) -> None:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "c", "image": "none", "command": ["/bin/sleep", "1000"], "resources": limits}
    server.create(_TEAM, {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container], **spec}})


def gang(driver: Driver) -> ExternalJob:
    """The gang that asks to be placed, as the executor offers it."""

    def offers(event: object) -> bool:
        return isinstance(event, ExternalJobsChanged) and any(job.gpus == 4 for job in event.jobs)

    event = driver.until(offers, "the gang")
    assert isinstance(event, ExternalJobsChanged)
    return next(job for job in event.jobs if job.gpus == 4)


def test_the_label_of_the_daemon_on_a_pod_of_others_does_not_hide_the_gpus_that_it_holds(
    driver: Driver, server: PlayedApiServer
) -> None:
    make_pod(server, "sly", {"trine.dev/state": _STATE_ID}, nodeName="node0")
    handle = driver.launch("j", ("node1", (0,)), STEPS="100000")
    driver.started(handle)
    held = {"node0:0": True, "node0:1": True, "node1:0": False, "node1:1": False}
    until(lambda: withheld(driver) == held, "that only the pod of others is seen as such")
    driver.executor.kill(handle)
    driver.exited(handle)


def make_gang(driver: Driver, server: PlayedApiServer, *numbers: int) -> str:
    """The pods of these numbers, of a gang of two; the key under which the executor offers it."""
    for number in numbers:
        labels = {"trine.dev/gang": "big", "trine.dev/gang-size": "2"}
        make_pod(server, f"w{number}", labels, schedulerName="trine")
    return gang(driver).key


def place(driver: Driver, key: str, job_id: str) -> Handle:
    lease = driver.lease(job_id, ("node0", (0, 1)), ("node1", (0, 1)))
    return driver.executor.launch(replace(lease, external=key))


def pods(server: PlayedApiServer) -> dict[str, tuple[str, str]]:
    """Uid and node of every pod of the team, by name."""
    found = server.items(_TEAM, {})
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"].get("nodeName", "")) for one in found}


@pytest.mark.parametrize("status", [403, 404, 422])
def test_a_gang_of_which_one_pod_cannot_be_bound_does_not_start_in_part(
    driver: Driver, server: PlayedApiServer, status: int
) -> None:
    key = make_gang(driver, server, 0, 1)
    before = pods(server)
    server.refused[f"{_TEAM}/w1/binding"] = Conflict(status, "it is refused in the middle")
    end = driver.end(place(driver, key, "7"))
    assert isinstance(end, LaunchFailed) and end.passing and "in the middle" in end.reason
    assert pods(server) == {"w1": before["w1"]}, "the one that was bound is gone, the other one waits"
    driver.seen.clear()
    again = make_gang(driver, server, 0)  # as the controller of the pods does
    driver.started(place(driver, again, "8"))
    assert {node for _, node in pods(server).values()} == {"node0", "node1"}


def test_a_gang_whose_binding_breaks_off_is_bound_when_the_server_answers_again(
    driver: Driver, server: PlayedApiServer
) -> None:
    """Nothing was refused, so nothing is deleted: the rest is bound later, once."""
    key = make_gang(driver, server, 0, 1)
    before = pods(server)
    server.refused[f"{_TEAM}/w1/binding"] = Conflict(503, "the server is busy")
    driver.started(place(driver, key, "7"))
    assert {name: uid for name, (uid, _) in pods(server).items()} == {name: uid for name, (uid, _) in before.items()}
    assert {node for _, node in pods(server).values()} == {"node0", "node1"}
