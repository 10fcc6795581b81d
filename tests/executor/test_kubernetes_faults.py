"""What goes wrong in a Kubernetes cluster, with a real API server: it is killed or stands still, nodes fall silent,
pods are removed, changed or lied about, rights are taken away. Every accepted job ends once, and a GPU is given on only
when nothing runs there any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import LONG, until
from tests.executor.kubernetes_cluster import NAMESPACE, KubernetesCluster
from tests.executor.kubernetes_driving import KubernetesDriver, KubernetesDriving
from trine.executor.base import (
    AttemptExited,
    EngineDown,
    EngineUp,
    InventoryChanged,
    LaunchFailed,
    NodeInfo,
    Unreachable,
)

pytestmark = pytest.mark.kubernetes
A, B, C = ("node0", (0,)), ("node1", (1,)), ("node2", (0, 1))
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/trine"


@pytest.fixture
def driving(kubernetes: KubernetesCluster) -> Iterator[KubernetesDriving]:
    driving = KubernetesDriving()
    driving.use(kubernetes)
    try:
        yield driving
    finally:
        driving.tidy()
        driving.server.close()


@pytest.fixture
def driver(driving: KubernetesDriving, tmp_path: Path) -> Iterator[KubernetesDriver]:
    driver = KubernetesDriver(driving, tmp_path / "state")
    try:
        yield driver
    finally:
        driving.cluster.kubelets.wake(*driving.cluster.names)
        driver.close()


def starts(driver: KubernetesDriver, job_id: str) -> int:
    return len([line for line in driver.lines(job_id) if "start" in line])


def node(driver: KubernetesDriver, name: str) -> NodeInfo:
    inventory = driver.executor.inventory()
    assert not isinstance(inventory, Unreachable), inventory
    return next(node for node in inventory if node.name == name)


def pod_of(driver: KubernetesDriver, part: int = 0) -> dict[str, Any]:
    return next(pod for pod in driver.cluster.pods() if pod["metadata"]["name"].endswith(f"-{part}"))


def ends(driver: KubernetesDriver, job_id: str) -> list[AttemptExited]:
    return [event for event in driver.seen if isinstance(event, AttemptExited) and event.handle.job_id == job_id]


def test_racks_types_and_sizes_come_from_the_nodes(driver: KubernetesDriver) -> None:
    nodes = driver.nodes()
    assert [node.labels["rack"] for node in nodes] == ["rack0", "rack0", "rack1", "rack1"]
    assert {gpu.type for node in nodes for gpu in node.gpus} == {"v100"}
    assert (nodes[0].cpus, nodes[0].memory_bytes) == (64, 256 << 30)


def test_pods_say_who_made_them_where_they_are_and_how_they_ended(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, B, STEPS=2)
    driver.exited(handle)
    pods = driver.cluster.pods()
    assert [pod["spec"]["nodeName"] for pod in pods] == ["node0", "node1"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"trine"}
    assert {pod["metadata"]["annotations"]["trine.dev/attempt"] for pod in pods} == {"j/1"}
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}, "kept until the end is on record"
    driver.executor.forget(handle)
    driver.cluster.wait_for(lambda: not driver.cluster.pods(), "no pod is left")


def test_pods_that_could_not_be_removed_are_removed_after_a_restart(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, STEPS=1)
    driver.exited(handle)
    driver.cluster.end("apiserver")
    driver.until(lambda event: isinstance(event, EngineDown), "that Kubernetes is away")
    driver.executor.forget(handle)
    driver.executor.close()
    driver.cluster.restart_server()
    assert len(driver.cluster.pods()) == 1
    driver.executor = driver.engine.open(driver.state)
    driver.cluster.wait_for(lambda: not driver.cluster.pods(), "no pod is left")


def test_jobs_run_on_while_the_server_is_away_and_can_be_stopped(driver: KubernetesDriver) -> None:
    runs, done = driver.launch("runs", A, B, **LONG), driver.launch("ends", C, STEPS=100, STEP_S=0.05)
    driver.progress(runs)
    driver.progress(done)
    driver.cluster.end("apiserver")
    driver.until(lambda event: isinstance(event, EngineDown), "that Kubernetes is away")
    assert isinstance(driver.executor.inventory(), Unreachable)
    assert "Kubernetes cannot be asked" in driver.executor.trouble()
    assert set(driver.handles()) == {runs, done}
    driver.executor.preempt(runs, 20.0)
    until(lambda: all("stopped" in driver.lines("runs", rank)[-1] for rank in (0, 1)), "both ranks to leave")
    driver.cluster.restart_server()
    driver.until(lambda event: isinstance(event, EngineUp), "that Kubernetes is back")
    assert (driver.exited(runs).kind, driver.exited(runs).rc) == ("preempted", 85)
    assert driver.exited(done).kind == "done"
    assert (starts(driver, "runs"), starts(driver, "ends")) == (1, 1)


def test_a_launch_while_the_server_is_away_is_carried_out_when_it_is_back(driver: KubernetesDriver) -> None:
    driver.cluster.end("apiserver")
    handle = driver.launch("j", A, B, STEPS=3)
    driver.until(lambda event: isinstance(event, EngineDown), "that Kubernetes is away")
    driver.cluster.restart_server()
    assert driver.exited(handle).kind == "done"
    assert starts(driver, "j") == 1
    assert not [event for event in driver.seen if isinstance(event, LaunchFailed)]


def test_a_server_whose_store_stands_still_is_away(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, STEPS=200, STEP_S=0.05)
    driver.progress(handle)
    driver.cluster.pause("etcd")
    try:
        driver.until(lambda event: isinstance(event, EngineDown), "that Kubernetes is away")
        driver.progress(handle, step=50)
    finally:
        driver.cluster.go_on("etcd")
    driver.until(lambda event: isinstance(event, EngineUp), "that Kubernetes is back")
    assert driver.exited(handle).kind == "done"


def test_an_executor_that_starts_while_the_server_is_away_loses_nothing(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, STEPS=150, STEP_S=0.05)
    driver.progress(handle)
    driver.cluster.end("apiserver")
    driver.reopen()
    driver.until(lambda event: isinstance(event, EngineDown), "that Kubernetes is away")
    assert driver.handles() == [handle]
    driver.progress(handle)
    driver.cluster.restart_server()
    assert driver.exited(handle).kind == "done"
    assert starts(driver, "j") == 1


def test_a_silent_node_is_down_its_job_goes_on_and_it_comes_back(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, **LONG)
    first = driver.progress(handle)
    driver.cluster.kubelets.silence("node0")
    until(lambda: not node(driver, "node0").up, "the silent node")
    assert "not been heard of for" in node(driver, "node0").reason
    driver.progress(handle, first.step + 20)
    driver.cluster.kubelets.wake("node0")
    until(lambda: node(driver, "node0").up, "the node to be back")
    assert any(isinstance(event, InventoryChanged) for event in [*driver.seen, *driver.executor.events()])
    driver.executor.preempt(handle, 20.0)
    assert driver.exited(handle).kind == "preempted"


def test_a_job_on_a_dead_machine_is_lost_when_its_lease_is_over_and_not_before(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, B, lease_s=3.0, grace_s=0.5, **LONG)
    driver.progress(handle)
    driver.cluster.kubelets.kill_machine("node0")
    dead_s = time.monotonic()
    end = driver.exited(handle)
    assert end.kind == "lost" and time.monotonic() - dead_s > 3.0
    assert driver.cluster.kubelets.descendants() == [], "the other part has ended, too"
    assert len(ends(driver, "j")) == 1


def test_a_machine_that_people_say_is_off_is_believed_to_be(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, lease_s=1000.0, **LONG)
    driver.progress(handle)
    driver.cluster.kubelets.kill_machine("node0")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    driver.cluster.admin.patch("/api/v1/nodes/node0", {"spec": {"taints": [taint]}})
    end = driver.exited(handle)
    assert end.kind == "lost" and "node0 is out of service" in end.reason


def test_a_pod_that_somebody_deletes_saves_its_work(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, B, **LONG)
    driver.progress(handle, step=3)
    driver.cluster.admin.delete(f"{_PODS}/{pod_of(driver)['metadata']['name']}", 30)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 85)
    assert [line["start"] for line in driver.lines("j") if "start" in line] == [0]


def test_a_pod_that_was_torn_out_ends_the_gang_and_is_lost_when_its_lease_is_over(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, B, lease_s=4.0, grace_s=0.5, **LONG)
    driver.progress(handle)
    path = f"{_PODS}/{pod_of(driver)['metadata']['name']}"
    driver.cluster.kubelets.silence("node0")
    driver.cluster.admin.patch(path, {"metadata": {"finalizers": None}})
    driver.cluster.admin.delete(path, 0)
    end = driver.exited(handle)
    assert end.kind == "lost" and "removed" in end.reason
    assert driver.engine.leftovers(driver.state) == [], "its parts ended themselves"


def test_a_pod_without_its_label_is_not_ours_any_more_and_its_job_ends_once(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, lease_s=3.0, grace_s=0.5, **LONG)
    driver.progress(handle)
    path = f"{_PODS}/{pod_of(driver)['metadata']['name']}"
    driver.cluster.admin.patch(path, {"metadata": {"labels": {"trine.dev/state": None}}})
    assert driver.exited(handle).kind == "lost"
    assert driver.engine.leftovers(driver.state) == []
    assert len(ends(driver, "j")) == 1


def test_a_kubelet_that_lies_about_an_end_is_not_believed_while_the_job_is_heard(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, grace_s=2.0, **LONG)
    driver.progress(handle)
    driver.cluster.kubelets.claim_failure(pod_of(driver))
    driver.exited(handle)
    assert driver.engine.leftovers(driver.state) == [], "its end was told when nothing of it ran any more"
    assert len(ends(driver, "j")) == 1


def test_a_kubelet_that_starts_a_container_twice_runs_it_once(driver: KubernetesDriver) -> None:
    handle = driver.launch("j", A, grace_s=2.0, **LONG)
    driver.progress(handle)
    driver.cluster.kubelets.forget_all()
    driver.exited(handle)
    assert starts(driver, "j") == 1
    until(lambda: not driver.engine.leftovers(driver.state), "nothing is left")


def test_a_node_that_others_cordoned_is_not_bound_to_and_a_gang_starts_as_a_whole(driver: KubernetesDriver) -> None:
    driver.cluster.admin.patch("/api/v1/nodes/node1", {"spec": {"unschedulable": True}})
    until(lambda: not node(driver, "node1").schedulable, "the cordoned node")
    assert node(driver, "node1").reason == "cordoned in Kubernetes"
    end = driver.run("j", A, B)
    assert isinstance(end, LaunchFailed) and end.passing and "node1 takes no pods: cordoned" in end.reason
    assert driver.engine.log(driver.state, "j", 0) == "", "no part of it has started"
    driver.cluster.admin.patch("/api/v1/nodes/node1", {"spec": {"unschedulable": None}})
    until(lambda: node(driver, "node1").schedulable, "the node to be open again")
    assert driver.exited(driver.launch("j", A, B, epoch=2, STEPS=1)).kind == "done"


def test_a_taint_closes_a_node(driver: KubernetesDriver) -> None:
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    driver.cluster.admin.patch("/api/v1/nodes/node3", {"spec": {"taints": [taint]}})
    until(lambda: not node(driver, "node3").schedulable, "the tainted node")
    assert node(driver, "node3").reason == "tainted in Kubernetes: example.com/repair"


def test_a_node_that_trine_drains_is_cordoned_for_others_too_and_opened_again(driver: KubernetesDriver) -> None:
    def cordoned() -> bool:
        return bool(driver.cluster.admin.get("/api/v1/nodes/node2")["spec"].get("unschedulable"))

    def seen() -> dict[str, Any] | None:
        """As the executor has it; ``None`` before its first list of nodes."""
        return driver.executor._node("node2")  # type: ignore[attr-defined, no-any-return]

    driver.executor.cordon("node2", "new fans")
    until(cordoned, "the cordon")
    until(lambda: (seen() or {"spec": {}})["spec"].get("unschedulable"), "that trine sees it")
    driver.executor.uncordon("node2")
    until(lambda: not cordoned(), "the node to be open again")


def test_gpus_that_pods_of_others_hold_are_withheld(driver: KubernetesDriver) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "c", "image": "none", "command": ["/bin/sleep", "1000"], "resources": limits}
    pod = {"metadata": {"name": "notebook"}, "spec": {"nodeName": "node3", "containers": [container]}}
    driver.cluster.admin.create(_PODS, pod)
    until(lambda: [bool(gpu.withheld) for gpu in node(driver, "node3").gpus] == [False, True], "the GPU to be withheld")
    assert driver.exited(driver.launch("j", ("node3", (0,)), STEPS=1)).kind == "done", "the other one is free"
    refused = driver.run("k", ("node3", (0, 1)))
    assert isinstance(refused, LaunchFailed) and refused.passing and "UnexpectedAdmissionError" in refused.reason
    driver.cluster.admin.delete(f"{_PODS}/notebook", 0)
    until(lambda: not any(gpu.withheld for gpu in node(driver, "node3").gpus), "the GPU to be given back")


def test_a_right_that_is_taken_away_is_named_and_the_job_waits(driver: KubernetesDriver) -> None:
    rules = driver.cluster.admin.get(_ROLE)["rules"]
    without = [rule | {"verbs": [verb for verb in rule["verbs"] if verb != "create"]} for rule in rules]
    driver.cluster.admin.patch(_ROLE, {"rules": [rule for rule in without if rule["verbs"]]})
    try:

        def refusal() -> LaunchFailed | None:
            refusal.epoch += 1  # type: ignore[attr-defined]
            end = driver.run("j", A, epoch=refusal.epoch, STEPS=1)  # type: ignore[attr-defined]
            return end if isinstance(end, LaunchFailed) else None

        refusal.epoch = 0  # type: ignore[attr-defined]
        refused = until(refusal, "the right to be gone")
        assert refused.passing and 'User "trine" cannot create resource "pods"' in refused.reason
    finally:
        driver.cluster.admin.patch(_ROLE, {"rules": rules})
    until(lambda: not isinstance(driver.executor.inventory(), Unreachable), "that it is asked again")


def test_two_daemons_touch_only_their_own_pods(driver: KubernetesDriver, tmp_path: Path) -> None:
    other_driving = KubernetesDriving()
    other_driving.use(driver.cluster)
    other = KubernetesDriver(other_driving, tmp_path / "other")
    try:
        mine, theirs = driver.launch("j", A, **LONG), other.launch("j", B, **LONG)
        driver.progress(mine)
        other.progress(theirs)
        until(lambda: node(driver, "node1").gpus[0].withheld or node(driver, "node1").gpus[1].withheld, "a held GPU")
        driver.executor.kill(mine)
        driver.exited(mine)
        driver.executor.forget(mine)
        first = other.progress(theirs)
        other.progress(theirs, first.step + 10)
        other.executor.preempt(theirs, 20.0)
        assert other.exited(theirs).kind == "preempted"
    finally:
        other.close()
        other_driving.server.close()
