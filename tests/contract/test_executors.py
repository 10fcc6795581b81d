"""What every registered executor must do, with real processes. A new one joins by one entry in ``ENGINES``."""

from __future__ import annotations

import json
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.driving import LONG, Driver, Engine, LocalEngine, running, unique_s, until
from tests.executor.kubernetes_driving import AttemptServer, KubernetesDriving
from tests.executor.ray_driving import RayDriving, ray_settings
from tests.executor.slurm_driving import SlurmDriving
from trine.core.errors import InputError
from trine.executor import registry
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    Capabilities,
    Handle,
    JobLease,
    LaunchFailed,
    NodeDrained,
    NodeUp,
    Unreachable,
)
from trine.inputs.cluster import load_cluster

ENGINES = {
    "local": [
        pytest.param(LocalEngine(cgroups=True), id="local"),
        pytest.param(LocalEngine(cgroups=False), id="local-without-cgroups"),
    ],
    "ray": [pytest.param(RayDriving(), id="ray", marks=pytest.mark.ray)],
    "slurm": [pytest.param(SlurmDriving(), id="slurm", marks=pytest.mark.slurm)],
    "kubernetes": [pytest.param(KubernetesDriving(), id="kubernetes", marks=pytest.mark.kubernetes)],
}
"""How each executor of the registry is driven here, with the settings that matter."""
A, B, C = ("node0", (0,)), ("node1", (1,)), ("node2", (0, 1))


@pytest.fixture(params=[each for drivers in ENGINES.values() for each in drivers])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    found: Engine = request.param
    found.prepare(request)
    try:
        yield found
    finally:
        found.tidy()


@pytest.fixture
def driver(engine: Engine, tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(engine, tmp_path)
    try:
        yield driver
    finally:
        driver.close()


@pytest.fixture
def attempt_server() -> Iterator[AttemptServer]:
    server = AttemptServer()
    try:
        yield server
    finally:
        server.close()


def test_every_executor_of_the_registry_is_driven_here() -> None:
    assert set(ENGINES) == set(registry.names())
    assert registry.DEFAULT in registry.names()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "local" else [getattr(pytest.mark, name)]) for name in registry.names()],
)
def test_an_executor_is_opened_by_its_name_and_runs_a_job(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, str] = {}
    if name == "slurm":
        monkeypatch.setenv("SLURM_CONF", str(request.getfixturevalue("slurm").conf))
    if name == "kubernetes":
        monkeypatch.setenv("KUBECONFIG", str(request.getfixturevalue("kubernetes").kubeconfig))
        server = request.getfixturevalue("attempt_server")
        settings = {"python": sys.executable, "api_url": server.url}
    if name == "ray":
        settings = ray_settings(request.getfixturevalue("ray"))
    engine = registry.engine(name, settings)
    assert engine.name == name
    nodes = engine.find_nodes(load_cluster("2x2"))
    assert not isinstance(nodes, Unreachable)
    assert isinstance(engine.capabilities(nodes), Capabilities)
    assert [(node.name, len(node.gpus)) for node in nodes] == [("node0", 2), ("node1", 2)]
    executor = engine.open(tmp_path, nodes)
    if name == "kubernetes":
        server.executor = executor
    try:
        handle = executor.launch(JobLease("7", 1, (("node1", (0, 1)),), ("/bin/echo", "hello"), workdir=""))
        until(lambda: any(isinstance(event, AttemptExited) for event in executor.wait_events(1)), "the end")
        assert executor.storage.job_ids() == ["7"]
        assert executor.list_handles() == [handle]
    finally:
        executor.close()


@pytest.mark.parametrize("name", registry.names())
def test_settings_are_typed_and_unknown_ones_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown parameter of {name} 'colour'"):
        registry.engine(name, {"colour": "red"})


def test_an_unknown_executor_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"--engine: unknown engine 'lokal' .*did you mean 'local'"):
        registry.engine("lokal", {})


def test_it_says_what_it_can_and_what_it_has(driver: Driver) -> None:
    nodes = driver.nodes()
    assert [node.name for node in nodes] == ["node0", "node1", "node2", "node3"]
    assert all(node.up and node.schedulable and [gpu.index for gpu in node.gpus] == [0, 1] for node in nodes)
    assert driver.executor.list_handles() == []
    assert driver.executor.trouble() == ""


def test_a_job_starts_reports_its_progress_and_ends(driver: Driver) -> None:
    handle = driver.launch("j", A, STEPS=20, STEP_S=0.02)
    end = driver.exited(handle)
    assert (end.kind, end.rc, end.step) == ("done", 0, 20)
    started, *progress, exited = driver.of(handle)
    assert isinstance(started, AttemptStarted) and exited == end
    assert all(isinstance(event, AttemptProgress) and event.total == 20 for event in progress)
    steps = [event.step for event in progress if isinstance(event, AttemptProgress)]
    assert len(steps) > 1 and steps == sorted(set(steps)) and steps[-1] == 20


def test_logs_and_checkpoints_are_found_by_job_until_they_are_removed(driver: Driver) -> None:
    storage = driver.executor.storage
    assert storage.open_log("7") is None and storage.newest_epoch("7") == -1 and storage.job_ids() == []
    keeps = "echo rank $RANK; [ $RANK = 1 ] || echo saved > $TRINE_CHECKPOINT_DIR/model"
    driver.run("7", C, epoch=3, command=("/bin/sh", "-c", keeps), checkpoint_dir="")
    for rank in (0, 1):
        log = storage.open_log("7", rank)
        assert log is not None
        assert (log.size(), log.read(0, 100), log.read(5, 1), log.read(7, 9)) == (
            7,
            b"rank %d\n" % rank,
            b"%d" % rank,
            b"",
        )
        log.close()
    assert storage.open_log("7", 2) is None
    assert storage.newest_epoch("7") == 3 and storage.job_ids() == ["7"]
    assert time.time() - 300 < storage.changed_s()["7"] <= time.time() + 1
    assert storage.has_checkpoints("7")
    driver.executor.forget(Handle("7", 3))
    storage.remove("7")
    assert storage.job_ids() == [] and not storage.has_checkpoints("7") and storage.open_log("7") is None


def test_a_path_among_the_files_of_the_executor_is_reserved(driver: Driver) -> None:
    storage = driver.executor.storage
    assert storage.is_reserved(str(driver.state / "jobs" / "8" / "model"))
    assert not storage.is_reserved(str(driver.scratch / "model"))


def test_a_lease_that_is_launched_twice_runs_once(driver: Driver) -> None:
    handles = {driver.launch("j", A, STEPS=5) for _ in range(3)}
    assert handles == {Handle("j", 1)}
    end = driver.exited(Handle("j", 1))
    driver.seen.clear()
    assert driver.run("j", A, STEPS=5) == end, "who launches it again is told how it went"
    assert len([line for line in driver.lines("j") if "start" in line]) == 1


def test_a_lease_of_an_earlier_epoch_is_refused(driver: Driver) -> None:
    driver.run("j", A, epoch=5, STEPS=1)
    end = driver.run("j", A, epoch=4, STEPS=1)
    assert isinstance(end, LaunchFailed) and "epoch 4 is out of date: epoch 5" in end.reason
    assert [line["attempt"] for line in driver.lines("j") if "start" in line] == ["5"]


def test_ranks_see_exactly_their_gpus_and_each_other(driver: Driver) -> None:
    assert driver.exited(driver.launch("j", B, C, STEPS=3)).kind == "done"
    first = "1" if driver.engine.exact_gpus else "0"  # as numbered in its container
    assert [driver.lines("j", rank)[0]["gpus"] for rank in range(3)] == [first, "0,1", "0,1"]


def test_a_rank_finds_its_place_in_the_variables_of_torchrun(driver: Driver) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    command = ("/bin/sh", "-c", "echo " + " ".join(f"${name}" for name in names))
    driver.run("gpu", B, C, command=command)
    driver.run("node", B, C, command=command, ranks="node")
    said = {job: [driver.engine.log(driver.state, job, rank).strip() for rank in range(3)] for job in ("gpu", "node")}
    assert said["gpu"] == ["0 0 3 1 0 127.0.0.1", "1 0 3 2 1 127.0.0.1", "2 1 3 2 1 127.0.0.1"]
    assert said["node"] == ["0 0 2 1 0 127.0.0.1", "1 0 2 1 1 127.0.0.1", ""]


def test_torchrun_finds_what_it_needs_where_it_is_started_once_per_node_and_nothing_elsewhere(driver: Driver) -> None:
    names = ("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "SHUTDOWN_TIMEOUT")
    command = ("/bin/sh", "-c", "echo " + " ".join(f"$PET_{name}" for name in names) + "; echo $PET_MASTER_PORT")
    driver.run("node", B, C, command=command, ranks="node", grace_s=7.5)
    driver.run("own", C, command=command, ranks="node", PET_NPROC_PER_NODE=1, grace_s=7.5)
    driver.run("gpu", B, C, command=command)
    said = [driver.engine.log(driver.state, "node", rank).split("\n") for rank in range(2)]
    assert [lines[0] for lines in said] == ["2 0 1 127.0.0.1 8", "2 1 2 127.0.0.1 8"]
    assert said[0][1] == said[1][1] != "29500"
    assert driver.engine.log(driver.state, "own", 0).startswith("1 0 1 127.0.0.1 8\n"), "what the job says goes first"
    assert driver.engine.log(driver.state, "gpu", 0).strip() == ""


@pytest.mark.parametrize(("program", "kind"), [("torchrun", "preempted"), ("other", "failed")])
def test_a_launcher_that_is_stopped_may_exit_with_1(driver: Driver, tmp_path: Path, program: str, kind: str) -> None:
    script = tmp_path / program
    script.write_text("#!/bin/sh\ntrap 'exit 1' TERM\necho ready\nwhile :; do sleep 0.05; done\n")
    script.chmod(0o755)
    handle = driver.launch("j", C, command=(str(script), "train.py"), ranks="node")
    until(lambda: "ready" in driver.engine.log(driver.state, "j", 0), "the first line")
    driver.executor.preempt(handle, 20.0)
    assert (driver.exited(handle).kind, driver.exited(handle).rc) == (kind, 1)


def test_a_preempted_job_goes_on_elsewhere_from_its_checkpoint(driver: Driver) -> None:
    handle = driver.launch("j", A, B, **LONG)
    driver.progress(handle, step=3)
    driver.executor.preempt(handle, 20.0)
    end = driver.exited(handle)
    assert (end.kind, end.rc, end.killed, end.grace_s) == ("preempted", 85, False, 20.0)
    stopped = [driver.lines("j", rank)[-1]["stopped"] for rank in range(2)]
    assert stopped == [end.step, end.step], "ranks left at different steps"
    again = driver.exited(driver.launch("j", C, epoch=2, STEPS=stopped[0] + 5))
    assert (again.kind, again.step) == ("done", stopped[0] + 5)
    assert [line["start"] for line in driver.lines("j") if "start" in line] == [0, stopped[0]]


def test_a_script_that_knows_nothing_of_preemption_counts_as_preempted(driver: Driver) -> None:
    handle = driver.launch("j", A, B, SAVE=0, **LONG)
    driver.progress(handle)
    driver.executor.preempt(handle, 20.0)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 143)
    assert (end.killed, end.grace_s) == (False, 20.0)


def test_a_stubborn_job_and_its_hidden_child_are_killed_after_the_grace(driver: Driver) -> None:
    hidden = unique_s()
    handle = driver.launch("j", A, B, IGNORE_TERM=1, DAEMON=1, DAEMON_S=hidden, **LONG)
    driver.progress(handle)
    until(lambda: len(running(hidden)) == 2, "the hidden children")
    driver.executor.preempt(handle, 0.2)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 137)
    assert (end.killed, end.grace_s) == (True, 0.2)
    assert running(hidden) == [] and driver.engine.leftovers(driver.state) == []


def test_a_hidden_child_does_not_outlive_a_job_that_is_done(driver: Driver) -> None:
    hidden = unique_s()
    end = driver.exited(driver.launch("j", A, DAEMON=1, DAEMON_S=hidden, STEPS=1))
    assert end.kind == "done" and running(hidden) == []


def test_the_exit_code_of_a_failure_is_kept_and_the_other_ranks_are_ended(driver: Driver) -> None:
    # Ranks 0 and 2 would wait for rank 1 for ever, and hear no TERM.
    end = driver.exited(driver.launch("j", B, C, FAIL_AT=2, FAIL_RANK=1, IGNORE_TERM=1, grace_s=0.2, **LONG))
    assert (end.kind, end.rc) == ("failed", 7)
    assert "rank 1 of 3" in end.reason
    assert driver.engine.leftovers(driver.state) == []


def test_a_job_that_ends_by_a_signal_has_failed(driver: Driver) -> None:
    end = driver.exited(driver.launch("j", A, command=("/bin/sh", "-c", "kill -SEGV $$")))
    assert (end.kind, end.rc) == ("failed", 128 + 11)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"command": ("no-such-command",)}, "no-such-command: not found in PATH"),
        ({"command": ("/no/such/command",)}, "/no/such/command: No such file"),
        ({"workdir": "/no/such/place"}, "/no/such/place: No such file"),
        ({"command": ("/etc/passwd",)}, "/etc/passwd: Permission denied"),
        ({"run_as": "no-such-user"}, "no user 'no-such-user'"),
        ({"env": {"A": "nul\0byte"}}, "null byte"),
    ],
)
def test_a_failed_launch_is_reported_in_a_sentence(driver: Driver, changes: dict[str, object], reason: str) -> None:
    end = driver.run("j", A, B, **changes)
    assert isinstance(end, LaunchFailed) and reason in end.reason
    assert not end.passing, "it would fail again"
    assert driver.exited(driver.launch("k", A, B, STEPS=1)).kind == "done", "the GPUs are free again"


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        ([("node9", (0,))], "no node 'node9' (did you mean"),
        ([("node0", (2,))], "no GPU 2 on node0"),
        ([("node0", (1, 1))], "named twice"),
        ([("node0", (0,)), ("node0", (1,))], "named twice"),
        ([("node0", ())], "no GPU"),
    ],
)
def test_gpus_that_do_not_exist_are_refused(
    driver: Driver, placement: list[tuple[str, tuple[int, ...]]], reason: str
) -> None:
    end = driver.run("j", *placement)
    assert isinstance(end, LaunchFailed) and reason in end.reason


@pytest.mark.parametrize("job_id", ["../j", "a/b", ".", "", "-rf", "a@1", "x" * 200, "a\0b"])
def test_ids_that_lead_elsewhere_are_refused(driver: Driver, job_id: str) -> None:
    executor = driver.executor
    handle = executor.launch(driver.lease("j").__class__(job_id, 1, (A,), ("/bin/true",)))
    assert isinstance(driver.end(handle), LaunchFailed)


def test_a_job_is_killed_at_once(driver: Driver) -> None:
    handle = driver.launch("j", A, B, IGNORE_TERM=1, grace_s=1000.0, **LONG)
    driver.started(handle)
    driver.executor.kill(handle)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("failed", 137) and "killed" in end.reason
    assert (end.killed, end.grace_s) == (False, None), "there was no grace that it could have outlived"


@pytest.mark.parametrize("how", ["preempt", "kill"])
def test_a_job_can_be_stopped_from_the_first_moment_on(driver: Driver, how: str) -> None:
    handle = driver.launch("j", A, **LONG)
    if how == "preempt":
        driver.executor.preempt(handle, 20.0)
    else:
        driver.executor.kill(handle)
    assert driver.exited(handle).kind == ("preempted" if how == "preempt" else "failed")


def test_a_second_wish_can_shorten_the_grace(driver: Driver) -> None:
    handle = driver.launch("j", A, IGNORE_TERM=1, **LONG)
    driver.progress(handle)
    driver.executor.preempt(handle, 1000.0)
    driver.executor.preempt(handle, 0.1)
    assert driver.exited(handle).kind == "preempted"


def test_a_gpu_is_given_on_only_after_its_holder_has_left(driver: Driver) -> None:
    first = driver.launch("first", A, **LONG)
    driver.progress(first)
    refused = driver.run("second", ("node0", (1, 0)))
    assert isinstance(refused, LaunchFailed) and "GPU 0 of node0 is still held by first" in refused.reason
    driver.executor.preempt(first, 20.0)
    driver.exited(first)
    assert driver.exited(driver.launch("third", ("node0", (1, 0)), STEPS=1)).kind == "done"


def test_a_job_does_not_run_twice_at_a_time(driver: Driver) -> None:
    driver.started(driver.launch("j", A, **LONG))
    end = driver.run("j", B, epoch=2, **LONG)
    assert isinstance(end, LaunchFailed) and "still runs" in end.reason


def test_a_cordoned_node_takes_no_jobs_and_reports_when_it_is_empty(driver: Driver) -> None:
    handle = driver.launch("j", A, **LONG)
    driver.started(handle)
    driver.executor.cordon("node0", "fan is loud")
    node = driver.nodes()[0]
    assert (node.up, node.schedulable, node.reason) == (True, False, "fan is loud")
    refused = driver.run("k", ("node0", (1,)))
    assert isinstance(refused, LaunchFailed) and "fan is loud" in refused.reason
    assert not [event for event in driver.seen if isinstance(event, NodeDrained)], "a job still runs there"
    driver.executor.preempt(handle, 20.0)
    driver.until(lambda event: isinstance(event, NodeDrained) and event.node == "node0", "the empty node")
    driver.executor.uncordon("node0")
    driver.until(lambda event: isinstance(event, NodeUp) and event.node == "node0", "the node to be back")
    assert driver.exited(driver.launch("k", ("node0", (1,)), epoch=2, STEPS=1)).kind == "done"


def test_an_unknown_node_cannot_be_cordoned(driver: Driver) -> None:
    with pytest.raises(InputError, match="did you mean 'node3'"):
        driver.executor.cordon("nodee3", "why not")


def test_a_lease_is_renewed_without_a_restart(driver: Driver) -> None:
    began_s = time.time()
    renewed = 'until grep -q "\\"renewal\\": $1" $TRINE_RUN_DIR/lease.json; do sleep 0.02; done; '
    script = f"{renewed} cat $TRINE_RUN_DIR/lease.json; echo; echo $TRINE_LEASE_S $TRINE_LEASE_DEADLINE"
    handle = driver.launch("j", A, command=("/bin/sh", "-c", script, "-", "2"), lease_s=42.5)
    driver.started(handle)
    driver.executor.renew(handle, 99.0)
    driver.executor.renew(handle, 4711.0)
    assert driver.exited(handle).kind == "done"
    lease, variables = driver.engine.log(driver.state, "j", 0).splitlines()
    assert json.loads(lease)["lease_s"] == 4711.0
    assert 4711.0 <= json.loads(lease)["deadline_s"] - began_s < 4711.0 + 300
    lease_s, deadline_s = map(float, variables.split())
    assert lease_s == 42.5 and 42.5 <= deadline_s - began_s < 42.5 + 300


def test_a_job_reads_in_its_lease_that_it_shall_leave(driver: Driver) -> None:
    asked = 'grep -q "\\"stop\\": true" $TRINE_RUN_DIR/lease.json'
    script = f"trap '' TERM; echo deaf; until {asked}; do sleep 0.02; done; exit 85"
    handle = driver.launch("j", A, command=("/bin/sh", "-c", script))
    until(lambda: driver.engine.log(driver.state, "j", 0), "the script to hear no TERM")
    driver.executor.preempt(handle, 20.0)
    assert (driver.exited(handle).kind, driver.exited(handle).rc) == ("preempted", 85)


def test_running_and_ended_jobs_are_found_after_a_restart(driver: Driver) -> None:
    runs, ends = driver.launch("runs", A, **LONG), driver.launch("ends", B, STEPS=2)
    driver.progress(runs)
    until(lambda: "done" in driver.engine.log(driver.state, "ends", 0), "the end of the short job")
    driver.reopen()
    assert set(driver.handles()) == {runs, ends}
    assert driver.exited(ends).kind == "done"
    driver.started(runs)
    assert driver.launch("runs", A, **LONG) == runs
    refused = driver.run("other", A)
    assert isinstance(refused, LaunchFailed) and "still held by runs" in refused.reason
    driver.executor.preempt(runs, 20.0)
    assert driver.exited(runs).kind == "preempted"
    assert len([line for line in driver.lines("runs") if "start" in line]) == 1


def test_an_end_is_reported_after_every_restart_until_it_is_forgotten(driver: Driver) -> None:
    handle = driver.launch("j", A, FAIL_AT=1)
    for _ in range(2):
        assert (driver.exited(handle).kind, driver.exited(handle).rc) == ("failed", 7)
        driver.reopen()
    driver.exited(handle)
    driver.executor.forget(handle)
    driver.reopen()
    assert driver.executor.list_handles() == []
    assert isinstance(driver.run("j", A, epoch=0), LaunchFailed), "epochs are not forgotten"


def test_many_jobs_end_once_each_and_no_gpu_is_held_twice(driver: Driver) -> None:
    """Eight GPUs, always full; every job proves by a lock file that it is alone on its GPU."""
    free: list[tuple[str, tuple[int, ...]]] = [(f"node{n}", (g,)) for n in range(4) for g in range(2)]
    alone = "mkdir $LOCK || exit 9; rmdir $LOCK"
    waiting = [f"j{i}" for i in range(40)]
    held: dict[Handle, tuple[str, tuple[int, ...]]] = {}
    while waiting or held:
        while waiting and free:
            node, gpus = place = free.pop()
            lock = str(driver.state / f"{node}-{gpus[0]}")
            held[driver.launch(waiting.pop(), place, command=("/bin/sh", "-c", alone), LOCK=lock)] = place
        ended = [handle for handle in held if any(isinstance(event, AttemptExited) for event in driver.of(handle))]
        free += [held.pop(handle) for handle in ended]
        if held and not ended:
            driver.seen += driver.executor.wait_events(20.0)
    kinds = Counter(event.kind for event in driver.seen if isinstance(event, AttemptExited))
    assert kinds == {"done": 40}
    assert {Counter(map(type, driver.of(Handle(f"j{i}", 1))))[AttemptStarted] for i in range(40)} == {1}


def test_an_event_loop_can_sleep_until_something_happens(driver: Driver) -> None:
    descriptor = driver.executor.fileno()
    assert select.select([descriptor], [], [], 0)[0] == []
    driver.launch("j", A, STEPS=1)
    assert select.select([descriptor], [], [], 20)[0] == [descriptor]
    assert list(driver.executor.events())
    driver.executor.wait_events(20)
    assert driver.executor.wait_events(0) == list(driver.executor.events()) == []
    assert select.select([descriptor], [], [], 0)[0] == []


def test_secrets_of_the_daemon_do_not_reach_a_job(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINE_TOKEN", "hush-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-2")
    driver.run("j", A, command=("/usr/bin/env",), env={"MINE": "here", "RANK": "77", "CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    said = dict(line.split("=", 1) for line in driver.engine.log(driver.state, "j", 0).splitlines())
    assert "hush" not in json.dumps(said)
    assert (said["MINE"], said["RANK"], said["CUDA_VISIBLE_DEVICES"]) == ("here", "0", "0")


def test_nothing_in_a_command_is_read_by_a_shell(driver: Driver) -> None:
    words = ("$(touch pwned)", "; exit 3", "`id`", "a b", "*")
    driver.run("j", A, command=("/bin/echo", *words), workdir=str(driver.scratch))
    assert driver.engine.log(driver.state, "j", 0) == " ".join(words) + "\n"
    assert not (driver.state / "pwned").exists()


@pytest.fixture
def sharing(driver: Driver) -> Driver:
    if not driver.engine.shares_gpus:
        pytest.skip("this executor gives a GPU to one job only")
    return driver


def test_two_jobs_that_name_each_other_see_the_same_gpus_and_end_on_their_own(sharing: Driver) -> None:
    one = sharing.launch("one", C, shares_with="other", **LONG)
    sharing.progress(one)
    other = sharing.launch("other", C, shares_with="one", STEPS=5)
    assert sharing.exited(other).kind == "done"
    assert sharing.lines("one")[0]["gpus"] == sharing.lines("other")[0]["gpus"] == "0,1"
    sharing.executor.preempt(one, 20.0)
    assert sharing.exited(one).kind == "preempted", "it went on alone until it was told to stop"


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [("", "one", A), ("other", "", A), ("third", "one", A), ("other", "third", A), ("other", "one", ("node0", (0, 1)))],
    ids=["holder undeclared", "comer undeclared", "holder names another", "comer names another", "other GPUs"],
)
def test_a_gpu_is_shared_only_by_jobs_that_name_each_other(
    sharing: Driver, first: str, second: str, place: tuple[str, tuple[int, ...]]
) -> None:
    sharing.started(sharing.launch("one", A, shares_with=first, **LONG))
    refused = sharing.run("other", place, shares_with=second)
    assert isinstance(refused, LaunchFailed) and "GPU 0 of node0 is still held by one" in refused.reason


def test_a_running_job_learns_of_its_partner_and_a_third_never_joins(sharing: Driver) -> None:
    one = sharing.launch("one", A, **LONG)
    sharing.started(one)
    sharing.executor.pair(one, "other")
    other = sharing.launch("other", A, shares_with="one", **LONG)
    sharing.started(other)
    sharing.executor.pair(one, "third")
    refused = sharing.run("third", A, shares_with="one")
    assert isinstance(refused, LaunchFailed)
    assert "one (epoch 1)" in refused.reason and "other (epoch 1)" in refused.reason
    sharing.executor.kill(other)
    sharing.exited(other)
    sharing.executor.pair(one, "third")
    assert sharing.exited(sharing.launch("third", A, epoch=2, shares_with="one", STEPS=1)).kind == "done"


def test_who_shares_with_whom_is_known_after_a_restart(sharing: Driver) -> None:
    one = sharing.launch("one", A, **LONG)
    sharing.started(one)
    sharing.executor.pair(one, "other")
    sharing.reopen()
    assert isinstance(sharing.run("third", A, shares_with="one"), LaunchFailed)
    other = sharing.launch("other", A, shares_with="one", **LONG)
    sharing.started(other)
    sharing.executor.renew(other, 4711.0)
    sharing.reopen()
    assert isinstance(sharing.run("third", A, epoch=2, shares_with="other"), LaunchFailed)
    assert set(sharing.handles()) >= {one, other}


def test_a_script_that_knows_nothing_of_leases_is_ended_when_its_lease_is_over(driver: Driver) -> None:
    """Nobody renews it: the daemon is gone, or cannot be reached from there."""
    script = "trap '' TERM; while :; do sleep 0.02; done"
    handle = driver.launch("j", A, B, command=("/bin/sh", "-c", script), lease_s=1.0, grace_s=0.2)
    end = driver.exited(handle)
    assert (end.kind, end.rc, end.killed) == ("preempted", 128 + 9, True)
    assert "lease" in end.reason
    assert driver.engine.leftovers(driver.state) == []


def test_a_lease_that_is_renewed_in_time_never_ends(driver: Driver) -> None:
    handle = driver.launch("j", A, lease_s=1.0, grace_s=5.0, **LONG)
    first = driver.progress(handle)
    over_s = time.monotonic() + 2.5
    while time.monotonic() < over_s:
        driver.executor.renew(handle, 1.0)
        driver.seen += driver.executor.wait_events(0.2)
    assert not any(isinstance(event, AttemptExited) for event in driver.seen)
    driver.progress(handle, first.step + 10)


def test_ranks_that_fail_because_others_left_after_a_stop_are_no_failures(driver: Driver) -> None:
    gone = driver.scratch / "gone"
    leaves = f"trap 'touch {gone}; exit 85' TERM; echo ready; while :; do sleep 0.02; done"
    fails = f"trap '' TERM; echo ready; while [ ! -e {gone} ]; do sleep 0.02; done; exit 1"
    script = f"if [ $RANK = 0 ]; then {leaves}; else {fails}; fi"
    handle = driver.launch("j", A, B, command=("/bin/sh", "-c", script))
    until(lambda: all("ready" in driver.engine.log(driver.state, "j", rank) for rank in (0, 1)), "both ranks")
    driver.executor.preempt(handle, 20.0)
    end = driver.exited(handle)
    assert (end.kind, end.rc, end.killed) == ("preempted", 1, False)


def test_a_failure_before_any_stop_is_one_even_if_a_stop_follows(driver: Driver) -> None:
    script = "[ $RANK = 1 ] && exit 7; trap '' TERM; while :; do sleep 0.02; done"
    handle = driver.launch("j", A, B, command=("/bin/sh", "-c", script), grace_s=1.0)
    driver.started(handle)
    until(lambda: len(driver.engine.leftovers(driver.state)) <= 2, "the end of rank 1")
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("failed", 7) and "rank 1 of 2" in end.reason


def test_the_log_of_every_rank_is_read_from_any_place_while_it_grows_and_over_attempts(driver: Driver) -> None:
    go = driver.scratch / "go"
    script = f"echo rank $RANK begins; while [ ! -e {go} ]; do sleep 0.02; done; echo rank $RANK ends"
    driver.launch("7", C, command=("/bin/sh", "-c", script))
    log = until(lambda: driver.executor.storage.open_log("7", 1), "the log of rank 1")
    try:
        assert until(lambda: log.read(0, 100), "its first line") == b"rank 1 begins\n"
        read = log.size()
        go.touch()
        until(lambda: log.size() > read, "its second line")
        assert log.read(read, 100) == b"rank 1 ends\n"
        driver.end(Handle("7", 1))
        driver.exited(driver.launch("7", C, epoch=2, command=("/bin/sh", "-c", "echo again")))
        assert log.read(read, 1000).startswith(b"rank 1 ends\n") and log.read(read, 1000).endswith(b"again\n")
    finally:
        log.close()
    assert driver.executor.storage.open_log("7", 2) is None, "there are two ranks"


def test_what_is_not_known_at_all_is_certain_not_to_run(driver: Driver) -> None:
    assert not driver.executor.recall(Handle("never", 1))
    assert driver.executor.placement(Handle("never", 1)) == ()
