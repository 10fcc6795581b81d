"""What goes wrong in a Ray cluster, with a real one: actors, raylets and the head killed, the process that talks to Ray
ended. Every accepted job ends once, and a GPU is given on only when nothing runs there any more."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.driving import LONG, running, until
from tests.executor.ray_cluster import RayCluster, ray_cluster
from tests.executor.ray_driving import RayDriver, RayDriving
from trine.executor.attempt import rundir
from trine.executor.attempt.processes import identity, is_same
from trine.executor.base import EngineDown, EngineUp, Handle, LaunchFailed, NodeInfo, Unreachable

pytestmark = [pytest.mark.ray, pytest.mark.slow]
A, B = ("node0", (0,)), ("node1", (1,))
QUICK = (
    *("RAY_health_check_period_ms=1000", "RAY_health_check_initial_delay_ms=0", "RAY_health_check_timeout_ms=2000"),
    *("RAY_health_check_failure_threshold=3",),
)
"""Ray's own patience with what is silent, shortened from a minute."""
_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(2, 2, variables=QUICK) as cluster:
        yield cluster


@pytest.fixture
def driver(cluster: RayCluster, tmp_path: Path) -> Iterator[RayDriver]:
    for name in cluster.names:
        if not cluster.is_whole(name):
            cluster.kill_machine(name)
            cluster.start_node(name)
    environ = {**cluster.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "6"}
    driving = RayDriving(shared=False, timeout_s=15.0, environ=environ)
    driving.use(cluster)
    driver = RayDriver(driving, tmp_path / "state")
    try:
        yield driver
    finally:
        driver.close()
        driving.tidy()
        driving.connection.end()


def starts(driver: RayDriver, job_id: str) -> int:
    return len([line for line in driver.lines(job_id) if "start" in line])


def node(driver: RayDriver, name: str) -> NodeInfo | None:
    inventory = driver.executor.inventory()
    found = [] if isinstance(inventory, Unreachable) else inventory
    return next((node for node in found if node.name == name), None)


def patiently(driver: RayDriver, kind: type, what: str) -> None:
    """Wait for an event for as long as Ray may take to see that its own processes are gone."""
    deadline = time.monotonic() + _PATIENCE_S
    while not any(isinstance(event, kind) for event in driver.seen):
        assert time.monotonic() < deadline, f"waited in vain for {what}: {driver.seen}"
        driver.seen += driver.executor.wait_events(1.0)


def test_racks_types_and_names_come_from_labels(driver: RayDriver) -> None:
    nodes = driver.nodes()
    assert [(node.name, node.labels["rack"]) for node in nodes] == [("node0", "rack0"), ("node1", "rack0")]
    assert {gpu.type for node in nodes for gpu in node.gpus} == {"v100"}


def test_a_job_whose_actor_is_killed_saves_its_work_and_leaves_with_all_ranks(driver: RayDriver) -> None:
    handle = driver.launch("j", A, B, grace_s=5.0, **LONG)
    driver.progress(handle)
    for pid in driver.cluster.workers("node0"):
        os.kill(pid, signal.SIGKILL)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 85)
    assert driver.engine.leftovers(driver.state) == []
    again = driver.exited(driver.launch("j", A, epoch=2, STEPS=(end.step or 0) + 5))
    assert again.kind == "done", "it goes on from there, on the same GPU"


def test_the_process_that_talks_to_ray_may_end_at_any_time(driver: RayDriver) -> None:
    handle = driver.launch("j", A, STEPS=150, STEP_S=0.05)
    driver.progress(handle)
    for _ in range(2):
        os.kill(until(lambda: driver.talks_to_ray, "the process that talks to Ray"), signal.SIGKILL)
        until(lambda: node(driver, "node0"), "Ray to be asked again")
    other = driver.launch("k", B, STEPS=2)
    assert driver.exited(other).kind == "done"
    assert driver.exited(handle).kind == "done" and starts(driver, "j") == 1


def test_a_process_that_dies_while_a_job_is_started_starts_it_once(driver: RayDriver) -> None:
    handle = driver.launch("j", A, B, STEPS=20, STEP_S=0.05)
    os.kill(until(lambda: driver.talks_to_ray, "the process that talks to Ray"), signal.SIGKILL)
    assert driver.exited(handle).kind == "done"
    assert [starts(driver, "j"), len([line for line in driver.lines("j", 1) if "start" in line])] == [1, 1]


def test_jobs_run_on_and_end_while_the_head_is_silent_and_the_daemon_survives(driver: RayDriver) -> None:
    """Ray ends the process that talks to it when the head is away for too long: here after six seconds."""
    runs, ends = driver.launch("runs", A, **LONG), driver.launch("ends", B, STEPS=60, STEP_S=0.05)
    driver.progress(runs)
    driver.progress(ends)
    before = until(lambda: driver.talks_to_ray, "the process that talks to Ray")
    driver.cluster.pause_head(signal.SIGSTOP)
    try:
        patiently(driver, EngineDown, "that Ray is away")
        assert isinstance(driver.executor.inventory(), Unreachable)
        assert "Ray cannot be asked" in driver.executor.trouble()
        assert driver.exited(ends).kind == "done", "its own record tells of its end, whether or not Ray does"
        waits = driver.launch("waits", B, STEPS=3)
        until(lambda: driver.talks_to_ray != before, "the end of the process")
    finally:
        driver.cluster.pause_head(signal.SIGCONT)
    patiently(driver, EngineUp, "that Ray is back")
    assert driver.exited(waits).kind == "done" and starts(driver, "waits") == 1
    driver.executor.preempt(runs, 20.0)
    assert driver.exited(runs).kind == "preempted" and starts(driver, "runs") == 1


def test_a_raylet_that_is_killed_takes_its_node_and_the_rank_leaves(driver: RayDriver) -> None:
    handle = driver.launch("j", A, grace_s=5.0, **LONG)
    driver.progress(handle)
    driver.cluster.kill_raylet("node0")
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 85)
    assert driver.engine.leftovers(driver.state) == []
    until(lambda: (found := node(driver, "node0")) is not None and not found.up, "the node to be down")
    refused = driver.run("k", A, STEPS=1)
    assert isinstance(refused, LaunchFailed) and refused.passing and "not alive in Ray" in refused.reason


def test_a_rank_that_outlives_its_raylet_is_lost_only_when_its_lease_and_grace_are_over(driver: RayDriver) -> None:
    """Ray says that the node is dead, and nobody can see its processes: they might go on at any moment."""
    handle = driver.launch("j", A, lease_s=25.0, grace_s=1.0, **LONG)
    driver.progress(handle)
    frozen = {*driver.engine.leftovers(driver.state), *running(str(driver.state / "jobs" / "j"))}
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    driver.executor.renew(handle, 25.0)
    renewed_s = time.monotonic()
    try:
        driver.cluster.kill_raylet("node0")
        until(lambda: (found := node(driver, "node0")) is not None and not found.up, "the node to be down")
        assert not [event for event in driver.of(handle) if hasattr(event, "kind")], "its lease is not over"
        end = driver.exited(handle)
        assert end.kind == "lost" and time.monotonic() - renewed_s >= 25.0 + 1.0
    finally:
        for pid in frozen:
            subprocess.run(["kill", "-KILL", str(pid)], check=False, stderr=subprocess.DEVNULL)


def test_a_part_that_is_killed_under_its_actor_ends_the_gang_although_its_lease_is_renewed(driver: RayDriver) -> None:
    """Ray sees nothing of it: the actor that started it is well."""
    handle = driver.launch("j", A, B, lease_s=4.0, grace_s=1.0, **LONG)
    driver.progress(handle)
    part = rundir.read_json(str(driver.state / "jobs" / "j" / "1" / rundir.part_file(1)))
    assert part is not None
    os.kill(part["pid"], signal.SIGKILL)
    end = driver.renewed_until_exited(handle, 4.0)
    assert end.kind == "lost" and "not heard of" in end.reason
    assert driver.engine.leftovers(driver.state) == []
    until(lambda: not driver.engine.connection.call("ask", prefix="")["groups"], "its GPUs to be given back")


def test_gpus_of_a_node_that_others_use_are_withheld_until_they_leave(driver: RayDriver) -> None:
    held = driver.launch("ours", A, **LONG)
    driver.progress(held)
    said = driver.engine.connection.call("ask", prefix="")["nodes"]
    place = next(each["id"] for each in said if each["alive"] and each["labels"].get("trine-node") == "node0")
    driver.cluster.run(str(driver.cluster.python), "-c", _OTHERS.format(node=place, address=driver.cluster.address))
    until(lambda: (found := node(driver, "node0")) is not None and found.gpus[1].withheld, "the GPU to be withheld")
    found = node(driver, "node0")
    assert found is not None and "not trine's" in found.gpus[1].withheld
    assert not found.gpus[0].withheld, "ours are never withheld"
    driver.engine.connection.call("kill", actors=["others"])
    until(lambda: (found := node(driver, "node0")) is not None and not found.gpus[1].withheld, "the GPU to be back")


_OTHERS = """
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity
ray.init(address="{address}", namespace="trine", logging_level=40, log_to_driver=False)
class Others:
    def here(self): return True
options = dict(name="others", lifetime="detached", num_gpus=1, num_cpus=0)
actor = ray.remote(Others).options(scheduling_strategy=Affinity("{node}", soft=False), **options).remote()
ray.get(actor.here.remote())
"""


def test_a_head_that_comes_back_without_its_memory_starts_nothing_twice(driver: RayDriver) -> None:
    first, gang = driver.launch("j", A, grace_s=5.0, **LONG), driver.launch("k", B, grace_s=5.0, **LONG)
    driver.progress(first)
    driver.progress(gang)
    ranks = [identity(pid) for pid in driver.engine.leftovers(driver.state)]
    driver.cluster.kill_head()
    patiently(driver, EngineDown, "that Ray is away")
    driver.cluster.start_head()
    for name in driver.cluster.names:  # raylets of a head that is gone leave sooner or later
        driver.cluster.kill_machine(name, with_jobs=False)
        driver.cluster.start_node(name)
    patiently(driver, EngineUp, "that Ray is back")
    for handle in (first, gang):
        end = driver.exited(handle)
        assert (end.kind, end.rc) == ("preempted", 85)
    assert [starts(driver, "j"), starts(driver, "k")] == [1, 1]
    assert not any(map(is_same, ranks)) and driver.engine.leftovers(driver.state) == []
    until(lambda: (found := node(driver, "node1")) is not None and found.up, "the node of the next attempt to be back")
    again = driver.exited(driver.launch("j", B, epoch=2, STEPS=(driver.exited(first).step or 0) + 5))
    assert again.kind == "done" and starts(driver, "j") == 2
    assert driver.executor.list_handles() == [first, gang, Handle("j", 2)]
