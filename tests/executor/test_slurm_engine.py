"""The engine ``slurm`` from its settings to running jobs: what is bad input, whole nodes, the pilot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import daemon
from tests.executor.driving import LONG, until
from tests.executor.pipeline import check_pipeline
from tests.executor.slurm_cluster import SlurmCluster, slurm_cluster
from tests.executor.slurm_driving import SlurmDriver, SlurmDriving
from tests.executor.test_slurm_faults import node, starts
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.base import LaunchFailed, Unreachable
from trine.executor.slurm.engine import SlurmEngine
from trine.executor.slurm.executor import SlurmExecutor

SHORT: dict[str, Any] = {"poll_s": 0.3, "nodes_s": 0.3, "look_s": 0.05, "visible_s": 0.3, "cancel_s": 3.0}


def engine(cluster: SlurmCluster, **settings: Any) -> SlurmEngine:
    settings = {"conf": str(cluster.conf), "environ": cluster.environ, **SHORT, **settings}
    return SlurmEngine(**settings)


def wrapped(directory: Path, environ: Mapping[str, str], program: str, script: str) -> dict[str, str]:
    """A program of ours in front of Slurm's own."""
    directory.mkdir(exist_ok=True)
    path = directory / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {**environ, "PATH": f"{directory}{os.pathsep}{environ['PATH']}"}


def test_a_machine_without_slurm_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"--engine slurm: no sbatch, .* in PATH; expected .*apt-get install slurm-cl"):
        SlurmEngine(environ={"PATH": "/nowhere"}).find_nodes(None)


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"conf": "/no/slurm.conf"},
            r"engine.conf: there is no file '/no/slurm.conf'; expected the path of slurm.conf",
        ),
        ({"partition": "mian"}, r"engine.partition: unknown partition 'mian' \(did you mean 'main'\?\)"),
        ({"within_allocation": True}, "the daemon was not started inside an allocation; expected salloc"),
        ({"within_allocation": True, "allocation": "x7"}, "'x7' is no job id"),
        ({"within_allocation": True, "allocation": "4711"}, "Invalid job id specified"),
    ],
)
def test_settings_that_do_not_fit_the_cluster_are_bad_input(
    slurm: SlurmCluster, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        engine(slurm, **settings).find_nodes(None)


@pytest.mark.slurm
def test_a_cluster_file_with_other_nodes_is_bad_input(slurm: SlurmCluster) -> None:
    with pytest.raises(InputError, match="unknown node of the Slurm partition 'gpu7'"):
        engine(slurm).find_nodes(Cluster((Node("gpu7", 2, "v100"),)))


@pytest.mark.slurm
def test_nodes_without_gpus_are_bad_input() -> None:
    with (
        slurm_cluster(1, 0) as cluster,
        pytest.raises(InputError, match="no node of the default partition has GPUs in Slurm"),
    ):
        engine(cluster).find_nodes(None)


@pytest.mark.slurm
def test_a_user_who_may_not_submit_is_told_so_at_the_start(slurm: SlurmCluster, tmp_path: Path) -> None:
    as_nobody = 'exec setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/sbatch "$@"'
    environ = wrapped(tmp_path / "bin", slurm.environ, "sbatch", as_nobody)
    closed = engine(slurm, partition="closed", environ=environ)
    nodes = closed.find_nodes(None)
    assert not isinstance(nodes, Unreachable)
    with pytest.raises(InputError, match=r"Slurm takes no jobs from this user: .*denied.*; expected a partition"):
        closed.open(tmp_path / "state", nodes)


@pytest.mark.slurm
def test_a_cluster_without_a_node_in_service_is_opened_all_the_same(tmp_path: Path) -> None:
    """Slurm then says that no node fits, which is no want of rights: a daemon that starts in that moment waits."""
    with slurm_cluster(1, 1) as cluster:
        nodes = engine(cluster).find_nodes(None)
        assert not isinstance(nodes, Unreachable)
        cluster.run("scontrol", "update", f"nodename={cluster.names[0]}", "state=drain", "reason=test")
        executor = engine(cluster).open(tmp_path / "state", nodes)
        try:
            assert executor.list_handles() == []
        finally:
            executor.close()


@pytest.mark.slurm
def test_a_state_directory_that_nodes_do_not_see_is_bad_input(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    with slurm_cluster(1, 1, hidden=hidden) as cluster:
        nodes = engine(cluster).find_nodes(None)
        assert not isinstance(nodes, Unreachable)
        with pytest.raises(InputError, match=f"the nodes do not see state directory {hidden}/state; expected --state"):
            engine(cluster).open(hidden / "state", nodes)
        with pytest.raises(InputError, match=r"the nodes do not see Python /no/python; expected engine.python"):
            engine(cluster, python="/no/python").open(tmp_path / "state", nodes)


@pytest.mark.slurm
def test_the_command_line_says_it_in_one_sentence_with_exit_code_2(slurm: SlurmCluster, tmp_path: Path) -> None:
    def up(*options: str, environ: Mapping[str, str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "trine", "up", "--engine", "slurm", "--state", str(tmp_path), *options]
        done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr

    code, said = up("--set", "engine.partition=mian", environ=slurm.environ)
    assert code == 2 and said.count("\n") == 1 and "did you mean 'main'" in said
    code, said = up("--set", "engine.pending_s=-1", environ=slurm.environ)
    assert code == 2 and "engine.pending_s: '-1'; expected at least 0.1" in said
    gone = tmp_path / "gone.conf"
    gone.write_text(slurm.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1\n#"))
    settings = ["--set", "engine.timeout_s=8", "--set", f"engine.conf={gone}"]
    code, said = up(*settings, environ=slurm.environ)
    assert code == 2 and "it does not answer" in said and said.count("\n") == 1
    assert list(tmp_path.glob("*.db")) == [], "nothing is half-written"


@pytest.mark.slurm
def test_an_array_runs_after_its_job_and_the_next_after_all_of_it(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    with daemon(tmp_path / "state", "--engine", "slurm", "--round", "3") as running:
        check_pipeline(running.up(), tmp_path)


@pytest.fixture
def whole() -> Iterator[SlurmDriving]:
    with slurm_cluster(2, 2, typed=False) as cluster:
        driving = SlurmDriving()
        driving.use(cluster)
        yield driving


@pytest.mark.slurm
def test_without_a_type_per_gpu_a_job_gets_whole_nodes_and_sees_only_its_gpus(
    whole: SlurmDriving, tmp_path: Path
) -> None:
    driver = SlurmDriver(whole, tmp_path / "state")
    try:
        handle = driver.launch("j", ("node0", (1,)), ("node1", (0,)), **LONG)
        driver.progress(handle)
        assert [driver.lines("j", rank)[0]["gpus"] for rank in range(2)] == ["1", "0"]
        until(lambda: (found := node(driver, "node0")) is not None and found.gpus[0].withheld, "the rest withheld")
        found = node(driver, "node0")
        assert found is not None and "as a whole" in found.gpus[0].withheld and not found.gpus[1].withheld
        driver.executor.preempt(handle, 20.0)
        assert driver.exited(handle).kind == "preempted"
        until(
            lambda: (found := node(driver, "node0")) is not None and not found.gpus[0].withheld, "the rest given back"
        )
    finally:
        driver.close()


class PilotDriving(SlurmDriving):
    """Jobs as steps of an allocation of two nodes, of whose GPUs one is part of it on each."""

    allocation = ""

    def allocate(self) -> None:
        job = ["sbatch", "--parsable", "--nodes=2", "--nodelist=node1,node2", "--gres=gpu:v100_1:1", "--mem=100"]
        self.allocation = self.cluster.run(*job, "--output=/dev/null", "--wrap=sleep 600")
        state = ["squeue", "-h", "-j", self.allocation, "-o", "%T"]
        self.cluster.wait_for(lambda: self.cluster.run(*state) == "RUNNING", "the allocation")

    def open(self, state: Path, environ: Mapping[str, str] | None = None) -> SlurmExecutor:
        inside = {**self.cluster.environ, "SLURM_JOB_ID": self.allocation}
        pilot = engine(self.cluster, within_allocation=True, environ=inside)
        nodes = pilot.find_nodes(None)
        assert not isinstance(nodes, Unreachable)
        return pilot.open(state, nodes)


@pytest.fixture
def pilot(tmp_path: Path) -> Iterator[SlurmDriver]:
    with slurm_cluster(3, 2) as cluster:
        driving = PilotDriving()
        driving.use(cluster)
        driving.allocate()
        driver = SlurmDriver(driving, tmp_path / "state")
        try:
            yield driver
        finally:
            driver.close()


@pytest.mark.slurm
def test_the_pilot_runs_jobs_inside_an_allocation_on_its_gpus_only(pilot: SlurmDriver) -> None:
    inventory = pilot.executor.inventory()
    assert not isinstance(inventory, Unreachable)
    assert [(node.name, [gpu.index for gpu in node.gpus]) for node in inventory] == [("node1", [1]), ("node2", [1])]
    refused = pilot.run("k", ("node1", (0,)))
    assert isinstance(refused, LaunchFailed) and "no GPU 0 on node1" in refused.reason
    handle = pilot.launch("j", ("node1", (1,)), ("node2", (1,)), **LONG)
    pilot.progress(handle)
    assert [pilot.lines("j", rank)[0]["gpus"] for rank in range(2)] == ["1", "1"]
    pilot.reopen()
    pilot.started(handle)
    pilot.executor.preempt(handle, 20.0)
    end = pilot.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 85)
    again = pilot.exited(pilot.launch("j", ("node2", (1,)), epoch=2, STEPS=(end.step or 0) + 3))
    assert again.kind == "done" and starts(pilot, "j") == 2
    assert len(pilot.cluster.jobs()) == 1, "the allocation is all there is in Slurm"


@pytest.mark.slurm
def test_the_end_of_the_allocation_ends_its_jobs_and_closes_its_nodes(pilot: SlurmDriver) -> None:
    handle = pilot.launch("j", ("node1", (1,)), lease_s=4.0, grace_s=1.0, **LONG)
    pilot.progress(handle)
    driving = pilot.engine
    assert isinstance(driving, PilotDriving)
    pilot.cluster.run("scancel", driving.allocation)
    assert pilot.exited(handle).kind in ("preempted", "lost")
    until(lambda: (found := node(pilot, "node1")) is not None and "has ended" in found.reason, "the closed node")
    assert pilot.engine.leftovers(pilot.state) == []
