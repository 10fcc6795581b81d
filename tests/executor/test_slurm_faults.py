"""What goes wrong in a Slurm cluster, with a real one: the controller away, daemons of nodes killed, jobs cancelled by
others, answers lost. Every accepted job ends once, and a GPU is given on only when nothing runs there any more."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.executor.driving import LONG, fill, running, small_disk, until
from tests.executor.slurm_cluster import SlurmCluster, slurm_cluster
from tests.executor.slurm_driving import TIMES, SlurmDriver, SlurmDriving
from trine.executor.attempt import rundir
from trine.executor.attempt.processes import marked
from trine.executor.base import (
    AttemptExited,
    AttemptStarted,
    EngineDown,
    EngineUp,
    Handle,
    InventoryChanged,
    LaunchFailed,
    NodeInfo,
    Unreachable,
)

pytestmark = pytest.mark.slurm
A, B, C = ("node0", (0,)), ("node1", (1,)), ("node2", (0, 1))


@pytest.fixture
def driving() -> Iterator[SlurmDriving]:
    """A cluster of its own: what a fault leaves behind in Slurm is nobody else's business."""
    with slurm_cluster(4, 2) as cluster:
        driving = SlurmDriving()
        driving.use(cluster)
        yield driving


@pytest.fixture
def driver(driving: SlurmDriving, tmp_path: Path) -> Iterator[SlurmDriver]:
    driver = SlurmDriver(driving, tmp_path / "state")
    try:
        yield driver
    finally:
        driver.close()


def starts(driver: SlurmDriver, job_id: str) -> int:
    return len([line for line in driver.lines(job_id) if "start" in line])


def engine_events(driver: SlurmDriver) -> list[type]:
    return [type(event) for event in driver.seen if isinstance(event, EngineDown | EngineUp)]


def node(driver: SlurmDriver, name: str) -> NodeInfo | None:
    inventory = driver.executor.inventory()
    assert not isinstance(inventory, Unreachable)
    return next((node for node in inventory if node.name == name), None)


def test_racks_come_from_the_topology_of_slurm(driver: SlurmDriver) -> None:
    inventory = driver.executor.inventory()
    assert not isinstance(inventory, Unreachable)
    assert [node.labels["rack"] for node in inventory] == ["rack0", "rack0", "rack1", "rack1"]
    assert {gpu.type for node in inventory for gpu in node.gpus} == {"v100"}


def test_jobs_run_on_while_the_controller_is_away_and_none_is_taken_as_lost(driver: SlurmDriver) -> None:
    runs, ends = driver.launch("runs", A, **LONG), driver.launch("ends", B, STEPS=60, STEP_S=0.05)
    driver.progress(runs)
    driver.progress(ends)
    driver.cluster.kill_controller()
    driver.until(lambda event: isinstance(event, EngineDown), "that Slurm is away")
    assert isinstance(driver.executor.inventory(), Unreachable)
    assert "Slurm cannot be asked" in driver.executor.trouble()
    assert set(driver.handles()) == {runs, ends}
    assert driver.exited(ends).kind == "done", "its own record tells of its end, whether or not Slurm does"
    driver.executor.preempt(runs, 20.0)
    assert driver.exited(runs).kind == "preempted", "the request to stop goes by a file"
    driver.cluster.restart_controller()
    driver.until(lambda event: isinstance(event, EngineUp), "that Slurm is back")
    assert engine_events(driver) == [EngineDown, EngineUp]
    assert driver.executor.trouble() == ""
    driver.cluster.wait_for(lambda: not driver.cluster.jobs(), "nothing left in Slurm")


def test_a_job_that_is_started_twice_by_slurm_runs_once_and_a_drained_node_says_why(driver: SlurmDriver) -> None:
    """A controller that dies in the first second of a job has forgotten that it started it, or all of the job."""
    handle = driver.launch("j", A, STEPS=100, STEP_S=0.05)
    until(lambda: driver.cluster.run("squeue", "-h", "-t", "RUNNING"), "the job to run")
    driver.cluster.kill_controller()
    driver.cluster.restart_controller()
    end = driver.end(handle)
    if isinstance(end, LaunchFailed):
        assert end.passing and starts(driver, "j") == 0, "forgotten before any of its ranks ran"
        end = driver.exited(driver.launch("j", B, epoch=2, STEPS=10))
    assert end.kind == "done" and starts(driver, "j") == 1
    ends = [event for event in driver.seen if isinstance(event, AttemptExited)]
    assert len(ends) == 1
    driver.cluster.wait_for(lambda: not driver.cluster.jobs(), "nothing left in Slurm")
    if "drain" in driver.cluster.node_states()["node0"]:
        until(lambda: (found := node(driver, "node0")) is not None and not found.schedulable, "the drained node")
        found = node(driver, "node0")
        assert found is not None and "uplicate" in found.reason


def test_a_launch_while_the_controller_is_away_is_carried_out_when_it_is_back(driver: SlurmDriver) -> None:
    driver.cluster.kill_controller()
    handle = driver.launch("j", A, STEPS=3)
    driver.until(lambda event: isinstance(event, EngineDown), "that Slurm is away")
    assert not [event for event in driver.seen if isinstance(event, LaunchFailed)]
    driver.cluster.restart_controller()
    assert driver.exited(handle).kind == "done"
    assert starts(driver, "j") == 1


def test_an_engine_that_is_away_at_the_start_is_waited_for(driver: SlurmDriver) -> None:
    runs, ends = driver.launch("runs", A, **LONG), driver.launch("ends", B, STEPS=40, STEP_S=0.05)
    driver.progress(runs)
    driver.progress(ends)
    driver.cluster.kill_controller()
    driver.reopen()
    driver.until(lambda event: isinstance(event, EngineDown), "that Slurm is away")
    assert set(driver.handles()) == {runs, ends}
    driver.started(runs)
    assert driver.exited(ends).kind == "done"
    driver.cluster.restart_controller()
    driver.until(lambda event: isinstance(event, EngineUp), "that Slurm is back")
    driver.executor.preempt(runs, 20.0)
    assert driver.exited(runs).kind == "preempted"


def test_a_job_outlives_the_daemon_of_its_node(driver: SlurmDriver) -> None:
    handle = driver.launch("j", A, STEPS=80, STEP_S=0.05)
    driver.progress(handle)
    driver.cluster.kill_node("node0")
    driver.progress(handle, step=30)
    driver.cluster.start_node("node0")
    assert driver.exited(handle).kind == "done"
    assert starts(driver, "j") == 1


def test_a_job_whose_node_dies_with_everything_on_it_is_lost(driver: SlurmDriver) -> None:
    handle = driver.launch("j", A, lease_s=4.0, grace_s=1.0, **LONG)
    driver.progress(handle)
    driver.cluster.kill_machine("node0")
    end = driver.exited(handle)
    assert end.kind == "lost"
    assert driver.engine.leftovers(driver.state) == [], "what is told as lost runs no more"


def test_a_job_whose_step_dies_under_it_saves_its_work_and_leaves(driver: SlurmDriver) -> None:
    """Slurm would give its GPUs on: nothing of Slurm looks after it any more."""
    handle = driver.launch("j", A, grace_s=5.0, **LONG)
    driver.progress(handle)
    driver.cluster.kill_node("node0")
    driver.cluster.kill_steps("node0")
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 85)
    assert driver.engine.leftovers(driver.state) == []
    until(lambda: not running(str(driver.state / "jobs" / "j")), "that neither leader nor srun stays")


def test_a_part_that_is_killed_outright_ends_the_gang_although_its_lease_is_renewed(driver: SlurmDriver) -> None:
    """With all of Slurm on its node, so that nothing tells of it; the node itself is there again at once."""
    handle = driver.launch("j", A, B, lease_s=4.0, grace_s=1.0, **LONG)
    driver.progress(handle)
    driver.cluster.kill_machine("node1")
    driver.cluster.start_node("node1")
    end = driver.renewed_until_exited(handle, 4.0)
    assert end.kind == "lost" or (end.kind, end.rc) == ("preempted", 85)
    assert driver.engine.leftovers(driver.state) == []


def test_a_lost_job_is_told_only_when_its_lease_and_grace_are_over(driver: SlurmDriver) -> None:
    """Nobody can see the node, and its processes do not run: they might go on at any moment."""
    handle = driver.launch("j", A, lease_s=6.0, grace_s=1.0, **LONG)
    driver.progress(handle)
    driver.executor.renew(handle, 6.0)
    renewed_s = time.monotonic()
    ours = {*driver.engine.leftovers(driver.state), *running(str(driver.state / "jobs" / "j"))}
    frozen = [*driver.cluster.step_daemons("node0"), *ours]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        driver.cluster.kill_node("node0")
        driver.cluster.run("scontrol", "update", "nodename=node0", "state=down", "reason=pulled out")
        end = driver.exited(handle)
        assert end.kind == "lost" and time.monotonic() - renewed_s >= 6.0 + 1.0
    finally:
        for pid in frozen:
            subprocess.run(["kill", "-KILL", str(pid)], check=False, stderr=subprocess.DEVNULL)


def test_a_running_job_that_an_administrator_cancels_saves_its_work_and_may_run_again(driver: SlurmDriver) -> None:
    handle = driver.launch("j", A, B, **LONG)
    driver.progress(handle)
    driver.cluster.run("scancel", *driver.cluster.jobs())
    end = driver.exited(handle)
    assert end.kind in ("preempted", "lost"), end
    assert driver.engine.leftovers(driver.state) == []
    assert driver.exited(driver.launch("j", C, epoch=2, STEPS=(end.step or 0) + 5)).kind == "done"


def occupy(cluster: SlurmCluster, name: str, gpu: int) -> str:
    """A job of somebody else on one GPU; its id."""
    options = ["--parsable", f"--nodelist={name}", f"--gres=gpu:v100_{gpu}:1", "--output=/dev/null", "--mem=1"]
    job = cluster.run("sbatch", *options, "--wrap=sleep 600")
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", "the other job")
    return job


def test_a_job_that_slurm_keeps_waiting_is_withdrawn_for_now(driving: SlurmDriving, tmp_path: Path) -> None:
    driving.times = replace(TIMES, pending_s=2.0)
    driver = SlurmDriver(driving, tmp_path / "state")
    try:
        occupy(driver.cluster, "node0", 0)
        end = driver.run("j", A)
        assert isinstance(end, LaunchFailed) and end.passing
        assert "Slurm kept it waiting for" in end.reason
        assert driver.exited(driver.launch("j", B, epoch=2, STEPS=2)).kind == "done"
        assert starts(driver, "j") == 1
        driver.cluster.wait_for(lambda: len(driver.cluster.jobs()) == 1, "only the other one is left")
    finally:
        driver.close()


def test_a_waiting_job_that_an_administrator_cancels_may_be_started_again(driver: SlurmDriver) -> None:
    occupy(driver.cluster, "node0", 0)
    handle = driver.launch("j", A)
    until(lambda: driver.cluster.run("squeue", "-h", "-t", "PENDING"), "the job to wait")
    driver.cluster.run("scancel", "--state=PENDING", "--user=root")
    end = driver.end(handle)
    assert isinstance(end, LaunchFailed) and end.passing and "CANCELLED" in end.reason


def test_a_waiting_job_can_be_stopped(driver: SlurmDriver) -> None:
    occupy(driver.cluster, "node0", 0)
    handle = driver.launch("j", A)
    until(lambda: driver.cluster.run("squeue", "-h", "-t", "PENDING"), "the job to wait")
    driver.executor.preempt(handle, 5.0)
    end = driver.exited(handle)
    assert (end.kind, end.rc, end.reason) == ("preempted", 85, "stopped before it started")


def test_gpus_of_other_peoples_jobs_are_withheld(driver: SlurmDriver) -> None:
    driver.started(driver.launch("ours", ("node0", (1,)), **LONG))
    job = occupy(driver.cluster, "node0", 0)

    def withheld() -> list[str]:
        found = node(driver, "node0")
        return [] if found is None else [gpu.withheld for gpu in found.gpus]

    until(lambda: any(withheld()), "the GPU to be withheld")
    assert withheld() == ["held by a job of Slurm that is not trine's", ""]
    driver.cluster.run("scancel", job)
    until(lambda: not any(withheld()), "the GPU to be given back")


def test_the_rest_of_a_gang_ends_when_a_rank_is_killed(driver: SlurmDriver) -> None:
    handle = driver.launch("j", A, B, grace_s=1.0, **LONG)
    driver.progress(handle)
    os.kill(driver.lines("j", 1)[0]["pid"], signal.SIGKILL)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("failed", 137) and "rank 1 of 2" in end.reason
    assert driver.engine.leftovers(driver.state) == []


def test_a_node_that_is_drained_in_slurm_shows_its_reason(driver: SlurmDriver) -> None:
    driver.cluster.run("scontrol", "update", "nodename=node3", "state=drain", "reason=new fans")
    driver.until(lambda event: isinstance(event, InventoryChanged), "the change")
    until(lambda: (found := node(driver, "node3")) is not None and found.reason == "new fans", "the reason")
    found = node(driver, "node3")
    assert found is not None and (found.up, found.schedulable) == (True, False)
    driver.cluster.run("scontrol", "update", "nodename=node3", "state=resume")
    until(lambda: (found := node(driver, "node3")) is not None and found.schedulable, "the node to be back")


def test_a_node_that_is_drained_here_is_drained_in_slurm(driver: SlurmDriver) -> None:
    driver.executor.cordon("node3", "fan is loud")
    until(lambda: "drain" in driver.cluster.node_states()["node3"], "the drain in Slurm")
    assert "trine: fan is loud" in driver.cluster.run("sinfo", "-h", "-n", "node3", "-o", "%E")
    driver.executor.uncordon("node3")
    until(lambda: driver.cluster.node_states()["node3"] == "idle", "the node to be back in Slurm")
    driver.cluster.run("scontrol", "update", "nodename=node3", "state=drain", "reason=the administrator")
    driver.executor.uncordon("node3")
    assert "drain" in driver.cluster.node_states()["node3"], "what others drained is theirs to resume"


def test_a_node_that_is_removed_from_slurm_leaves(driver: SlurmDriver) -> None:
    before = driver.cluster.conf.read_text()
    lines = [line for line in before.splitlines() if not line.startswith("NodeName=node3 ")]
    topology = driver.cluster.base / "topology.conf"
    switches = topology.read_text()
    try:
        driver.cluster.conf.write_text("\n".join(lines) + "\n")
        topology.write_text(switches.replace("node2,node3", "node2"))
        driver.cluster.kill_node("node3")
        driver.cluster.kill_controller(signal.SIGTERM)
        driver.cluster.restart_controller()
        until(lambda: not driver.executor.trouble() and node(driver, "node3") is None, "the node to leave")
        refused = driver.run("j", ("node3", (0,)))
        assert isinstance(refused, LaunchFailed) and "no node 'node3'" in refused.reason
    finally:
        driver.cluster.conf.write_text(before)
        topology.write_text(switches)
        driver.cluster.kill_controller(signal.SIGTERM)
        driver.cluster.restart_controller()
        driver.cluster.start_node("node3")


def wrapper(directory: Path, program: str, script: str) -> dict[str, str]:
    """A program of ours in front of Slurm's own."""
    directory.mkdir(exist_ok=True)
    path = directory / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def test_a_launch_whose_answer_is_lost_runs_once(driving: SlurmDriving, tmp_path: Path) -> None:
    """Slurm took the job, and the connection broke before it could say so."""
    lost = (
        f'test -e {tmp_path}/once && exec /usr/bin/sbatch "$@"; touch {tmp_path}/once; /usr/bin/sbatch "$@" >&2; '
        "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1"
    )
    environ = wrapper(tmp_path / "bin", "sbatch", lost)
    driver = SlurmDriver(driving, tmp_path / "state")
    driver.executor.close()
    driver.executor = driving.open(driver.state, environ)
    try:
        handle = driver.launch("j", A, STEPS=5)
        assert driver.exited(handle).kind == "done"
        assert starts(driver, "j") == 1
        assert engine_events(driver) == [EngineDown, EngineUp]
        driver.cluster.wait_for(lambda: not driver.cluster.jobs(), "nothing left in Slurm")
    finally:
        driver.close()


def test_a_stop_needs_no_answer_of_slurm(driving: SlurmDriving, tmp_path: Path) -> None:
    environ = wrapper(tmp_path / "bin", "scancel", "echo 'scancel: error: Socket timed out' >&2; exit 1")
    driver = SlurmDriver(driving, tmp_path / "state")
    driver.executor.close()
    driver.executor = driving.open(driver.state, environ)
    try:
        handle = driver.launch("j", A, B, IGNORE_TERM=1, **LONG)
        driver.progress(handle)
        driver.executor.preempt(handle, 0.5)
        end = driver.exited(handle)
        assert (end.kind, end.killed) == ("preempted", True)
    finally:
        driver.close()


def test_two_daemons_on_one_slurm_touch_only_their_own(driving: SlurmDriving, tmp_path: Path) -> None:
    one, two = (SlurmDriver(driving, tmp_path / name) for name in ("one", "two"))
    try:
        first, second = one.launch("7", A, **LONG), two.launch("7", B, **LONG)
        one.progress(first)
        two.progress(second)
        one.reopen()
        one.started(first)
        one.executor.kill(first)
        assert one.exited(first).kind == "failed"
        two.progress(second, step=20)
        until(lambda: (found := node(one, "node1")) is not None and found.gpus[1].withheld, "the other's GPU withheld")
    finally:
        one.close()
        two.close()


def test_the_end_of_a_job_is_kept_on_a_full_disk(driving: SlurmDriving, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=512k") as disk:
        driver = SlurmDriver(driving, disk / "state")
        try:
            handle = driver.launch("j", A, command=("/bin/sh", "-c", "sleep 2; exit 7"))
            driver.started(handle)
            ballast = fill(disk)
            refused = driver.run("k", B)
            assert isinstance(refused, LaunchFailed) and refused.passing
            assert (driver.exited(handle).kind, driver.exited(handle).rc) == ("failed", 7)
            ballast.unlink()
            assert driver.exited(driver.launch("k", B, epoch=2, command=("/bin/true",))).kind == "done"
        finally:
            driver.close()


def test_a_state_directory_that_nodes_do_not_see_is_named(driver: SlurmDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory goes away between the submission and the start, as it would be missing on another machine."""
    occupy(driver.cluster, "node0", 0)
    handle = driver.launch("j", A)
    until(lambda: driver.cluster.run("squeue", "-h", "-t", "PENDING"), "the job to wait")
    run_dir = driver.state / "jobs" / "j" / "1"
    aside = driver.state / "aside"
    run_dir.rename(aside)
    driver.cluster.run("scancel", "--state=RUNNING", "--user=root")
    driver.cluster.wait_for(lambda: not driver.cluster.jobs(), "the batch script to give up")
    aside.rename(run_dir)
    end = driver.end(handle)
    assert isinstance(end, LaunchFailed) and end.passing and "is not visible on node0" in end.reason


def test_a_withdrawn_attempt_is_taken_up_by_nobody(driver: SlurmDriver) -> None:
    """The claim decides between a withdrawal and a start that come at the same time."""
    occupy(driver.cluster, "node0", 0)
    driver.launch("j", A)
    until(lambda: driver.cluster.run("squeue", "-h", "-t", "PENDING"), "the job to wait")
    run_dir = driver.state / "jobs" / "j" / "1"
    assert rundir.claim(str(run_dir), {"pid": 0, "withdrawn": True})
    driver.cluster.run("scancel", "--state=RUNNING", "--user=root")
    driver.cluster.wait_for(lambda: not driver.cluster.jobs(), "the leader to leave")
    assert driver.engine.log(driver.state, "j", 0) == "" and marked(f"TRINE_RUN_DIR={run_dir}") == []
    assert not [event for event in driver.of(Handle("j", 1)) if isinstance(event, AttemptStarted)]
