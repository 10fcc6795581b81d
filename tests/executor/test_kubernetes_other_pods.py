"""Pods that other people make with ``schedulerName: trine``, on a real API server with a whole daemon: they are jobs as
far as anybody can see, start together or not at all, and their owners read in Kubernetes why they wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.executor.kubernetes_cluster import KubernetesCluster
from tests.executor.kubernetes_daemon import Daemon, until
from trine.client import Client
from trine.executor.attempt.remote import EngineRefused

pytestmark = pytest.mark.kubernetes
_TEAM = "/api/v1/namespaces/team-a/pods"
_FOR_EVER = ["/bin/sleep", "1000"]


@pytest.fixture
def daemon(kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[Daemon]:
    with suppress(EngineRefused):
        kubernetes.admin.create("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    daemon = Daemon(kubernetes, tmp_path / "state")
    try:
        yield daemon
    finally:
        daemon.end()
        kubernetes.clean()


def make_pod(
    cluster: KubernetesCluster, name: str, gpus: int = 1, command: list[str] | None = None, gang: str = "", **spec: Any
) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "none", "command": command or _FOR_EVER}
    container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    labels = dict(zip(("trine.dev/gang", "trine.dev/gang-size"), gang.split(":"), strict=True)) if gang else {}
    body = {"schedulerName": "trine", "containers": [container], "terminationGracePeriodSeconds": 1, **spec}
    return cluster.admin.create(_TEAM, {"metadata": {"name": name, "labels": labels}, "spec": body})


def pod(cluster: KubernetesCluster, name: str) -> dict[str, Any]:
    return cluster.admin.get(f"{_TEAM}/{name}")


def reason(cluster: KubernetesCluster, name: str) -> str:
    """What ``kubectl describe`` shows as the reason why the pod is not scheduled."""
    conditions = pod(cluster, name)["status"].get("conditions") or ()
    found = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
    return f"{found[0]['reason']}: {found[0]['message']}" if found else ""


def events(cluster: KubernetesCluster, name: str, what: str) -> list[str]:
    found = cluster.admin.get("/api/v1/namespaces/team-a/events")["items"]
    return [one["message"] for one in found if one["involvedObject"]["name"] == name and one["reason"] == what]


def test_a_pod_of_others_is_a_job_of_its_namespace_and_ends_with_the_pod(
    daemon: Daemon, kubernetes: KubernetesCluster
) -> None:
    make_pod(kubernetes, "hello", 2, ["/bin/sh", "-c", "sleep 1"])
    make_pod(kubernetes, "broken", 1, ["/bin/sh", "-c", "exit 3"])
    daemon.up()
    done, failed = daemon.job("team-a:hello", "done"), daemon.job("team-a:broken", "failed")
    assert (done["user"], done["gpus"], failed["exit_code"]) == ("kube.team-a", 2, 3)
    assert events(kubernetes, "hello", "Scheduled")
    assert pod(kubernetes, "hello")["status"]["phase"] == "Succeeded", "its owner keeps it"


def test_a_gang_starts_when_all_of_it_exists_and_then_as_a_whole(daemon: Daemon, kubernetes: KubernetesCluster) -> None:
    daemon.up()
    make_pod(kubernetes, "worker-0", 2, gang="big:2")
    until(lambda: "1 of 2 pods exist" in reason(kubernetes, "worker-0"), "the reason")
    assert daemon.jobs() == [], "half a gang is no job"
    make_pod(kubernetes, "worker-1", 2, gang="big:2")
    job = daemon.job("team-a:big", "running")
    nodes = {pod(kubernetes, name)["spec"]["nodeName"] for name in ("worker-0", "worker-1")}
    assert len(nodes) == 2 and job["gpus"] == 4
    kubernetes.admin.delete(f"{_TEAM}/worker-0", None)
    daemon.job("team-a:big", "cancelled")
    kubernetes.wait_for(lambda: not kubernetes.all_pods(), "that its peer does not stay behind")


def test_owners_read_in_kubernetes_why_their_pods_wait(daemon: Daemon, kubernetes: KubernetesCluster) -> None:
    daemon.up()
    for number in range(4):
        make_pod(kubernetes, f"full-{number}", 2)
    for number in range(4):
        daemon.job(f"team-a:full-{number}", "running")
    make_pod(kubernetes, "waits", 2)
    make_pod(kubernetes, "huge", 64)
    make_pod(kubernetes, "plain", 0)
    make_pod(kubernetes, "picky", 1, nodeSelector={"kubernetes.io/hostname": "node1"})
    daemon.job("team-a:waits", "waiting")
    until(lambda: "needs 2 GPUs at once, 0 v100 free" in reason(kubernetes, "waits"), "the reason")
    until(lambda: "can never run" in reason(kubernetes, "huge"), "the reason of a pod that can never run")
    until(lambda: "asks for no GPUs" in reason(kubernetes, "plain"), "the reason of a pod without GPUs")
    until(lambda: "leave 1 of 4 nodes" in reason(kubernetes, "picky"), "the reason of a pod for one node")
    until(lambda: events(kubernetes, "huge", "FailedScheduling"), "the event")
    assert len(daemon.jobs()) == 5, "what can never run is no job"
    kubernetes.admin.delete(f"{_TEAM}/waits", 0)
    daemon.job("team-a:waits", "cancelled")


def test_after_a_crash_of_the_daemon_nothing_is_a_job_twice(daemon: Daemon, kubernetes: KubernetesCluster) -> None:
    daemon.up()
    for number in range(4):
        make_pod(kubernetes, f"runs-{number}", 2)
    for number in range(4):
        daemon.job(f"team-a:runs-{number}", "running")
    make_pod(kubernetes, "waits", 1)
    daemon.job("team-a:waits", "waiting")
    before = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in kubernetes.all_pods()}
    daemon.end(signal.SIGKILL)
    kubernetes.admin.delete(f"{_TEAM}/runs-0", 0)
    daemon.up()
    daemon.job("team-a:runs-0", "cancelled")
    daemon.job("team-a:waits", "running")
    assert len(daemon.jobs()) == 5
    after = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in kubernetes.all_pods()}
    assert after.pop("waits") == before["runs-0"], "it got what the deleted pod had"
    assert after == {name: node for name, node in before.items() if name not in ("waits", "runs-0")}


def test_limits_hold_for_pods_of_others_and_a_cancelled_one_leaves(
    daemon: Daemon, kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("queues: {default: , research: {users: [alice]}}\nusers: {alice: {max_gpus: 2}}\n")
    daemon.options, daemon.settings = ["--config", str(config)], {"namespaces": "team-a=alice/research"}
    daemon.up()
    make_pod(kubernetes, "one", 2)
    first = daemon.job("team-a:one", "running")
    assert (first["user"], first["queue"]) == ("alice", "research")
    make_pod(kubernetes, "two", 1)
    make_pod(kubernetes, "three", 2, gang="g:2")
    make_pod(kubernetes, "four", 2, gang="g:2")
    daemon.job("team-a:two", "waiting")
    until(lambda: "user alice may use 2" in reason(kubernetes, "four"), "the reason")
    with Client(state=daemon.state) as client:
        client.cancel(first["id"])
    daemon.job("team-a:one", "cancelled")
    daemon.job("team-a:two", "running")


@pytest.mark.parametrize("may", ["true", "false"])
def test_pods_of_others_leave_for_other_jobs_only_where_the_operator_says_so(
    daemon: Daemon, kubernetes: KubernetesCluster, may: str
) -> None:
    daemon.options, daemon.settings = ["--policy", "las"], {"preempt_other_pods": may}
    daemon.up()
    for number in range(4):
        make_pod(kubernetes, f"worker-{number}", 2, gang="big:4")
    daemon.job("team-a:big", "running")
    with Client(state=daemon.state) as client:
        submitted = client.submit({"name": "urgent", "run": _FOR_EVER, "gpus": {"count": 2}, "priority": 5.0})
    if may == "true":
        daemon.job("urgent", "running")
        daemon.job("team-a:big", "cancelled")
        left = [one["metadata"]["name"] for one in kubernetes.all_pods() if one["metadata"]["namespace"] == "team-a"]
        assert left == [], "a gang leaves as a whole"
    else:
        until(lambda: "0 v100 free" in explained(daemon, submitted[0]), "the reason why it waits")
        assert daemon.job("team-a:big", "running")["attempt"] == 1
    with Client(state=daemon.state) as client:
        client.cancel(submitted[0])
    daemon.job("urgent", "cancelled")


def explained(daemon: Daemon, job_id: str) -> str:
    with Client(state=daemon.state) as client:
        return str(client.explain(job_id))
