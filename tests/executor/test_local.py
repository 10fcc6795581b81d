"""The local executor over crashes, races, full disks and users."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import trine
from tests.executor.driving import LONG, Driver, LocalEngine, fill, small_disk, until
from trine.executor.attempt import state_dir
from trine.executor.attempt.processes import marked
from trine.executor.attempt.spec import make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import AttemptExited, Handle, JobLease, LaunchFailed, Unreachable
from trine.executor.local import launch
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes

ENGINE = LocalEngine(cgroups=True)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a small disk")

_CONTROLLER = """
import json, sys
from trine.executor.base import JobLease
from trine.executor.local.inventory import virtual_nodes
from trine.executor.local.executor import LocalExecutor
executor = LocalExecutor(sys.argv[1], virtual_nodes("4x2"))
for lease in json.loads(sys.argv[2]):
    executor.launch(JobLease(**{**lease, "placement": [(n, tuple(g)) for n, g in lease["placement"]]}))
print("launched", flush=True)
executor.wait_events(None)
sys.stdin.read()
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(ENGINE, tmp_path)
    try:
        yield driver
    finally:
        driver.close()


def as_json(lease: JobLease) -> dict[str, object]:
    names = ("job_id", "epoch", "placement", "command", "checkpoint_dir")
    return {**{name: getattr(lease, name) for name in names}, "env": dict(lease.env)}


def launch_and_crash(driver: Driver, *leases: JobLease) -> None:
    """Launch from a process of its own that is then killed without warning."""
    command = [sys.executable, "-c", _CONTROLLER, str(driver.state), json.dumps([as_json(lease) for lease in leases])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"launched\n"
        controller.kill()


def test_jobs_survive_the_death_of_the_daemon_and_are_found_again(driver: Driver) -> None:
    leases = [driver.lease(f"j{i}", (f"node{i}", (0,)), STEPS=40) for i in range(3)]
    launch_and_crash(driver, *leases)
    driver.reopen()
    assert driver.executor.list_handles() == [lease.handle for lease in leases]
    for lease in leases:
        assert driver.executor.launch(lease) == lease.handle
        assert driver.exited(lease.handle).kind == "done"
        assert len([line for line in driver.lines(lease.job_id) if "start" in line]) == 1


def test_an_attempt_that_is_being_taken_up_is_not_looked_at_meanwhile(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart finds attempts without supervisors, and starting one takes longer than a tick of the watch."""
    cut = [driver.lease(f"cut{i}", (f"node{i}", (0,)), STEPS=2) for i in range(2)]
    for lease in cut:
        StateDir(driver.state).prepare(lease, make_spec(lease, os.environ, 20_000, "", ""))
    driver.executor.close()
    spawn = launch.spawn_supervisor

    def slow(run_dir: Path) -> tuple[int, int]:
        time.sleep(0.5)  # ten ticks of the watch: what must not happen would happen in one of them
        return spawn(run_dir)

    monkeypatch.setattr("trine.executor.local.executor.spawn_supervisor", slow)
    driver.executor = ENGINE.open(driver.state)
    assert [driver.exited(lease.handle).kind for lease in cut] == ["done", "done"]


def test_a_supervisor_that_died_unseen_leaves_a_lost_job(driver: Driver) -> None:
    handle = driver.launch("j", **LONG)
    driver.progress(handle)
    driver.executor.close()
    owner = json.loads((driver.state / "jobs/j/1/pid.json").read_text())
    os.kill(owner["pid"], signal.SIGKILL)
    os.waitpid(owner["pid"], 0)
    driver.executor = ENGINE.open(driver.state)
    assert driver.exited(handle).kind == "lost"
    assert ENGINE.leftovers(driver.state) == []
    assert driver.exited(driver.launch("j", epoch=2, STEPS=1)).kind == "done"


def test_a_process_that_got_the_number_of_a_dead_supervisor_is_left_alone(driver: Driver) -> None:
    handle = driver.launch("j", STEPS=1)
    driver.exited(handle)
    run = driver.state / "jobs/j/1"
    with subprocess.Popen(["/bin/sleep", "1000"]) as innocent:
        record = json.loads((run / "pid.json").read_text())
        (run / "pid.json").write_text(json.dumps({**record, "pid": innocent.pid}))
        (run / "exit.json").unlink()
        driver.reopen()
        assert driver.exited(handle).kind == "lost"
        assert innocent.poll() is None
        innocent.kill()


def test_a_launch_that_was_cut_short_is_finished_or_undone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon dies at the worst moments: before there is a directory, and before there is a supervisor."""
    (driver.state / "active").mkdir(exist_ok=True)
    (driver.state / "active" / "never@1").touch()
    cut = driver.lease("cut", ("node0", (0,)), STEPS=2)
    spec = make_spec(cut, os.environ, 20_000, "", "")
    StateDir(driver.state).prepare(cut, spec)
    driver.reopen()
    assert driver.executor.list_handles() == [Handle("cut", 1)]
    assert driver.exited(cut.handle).kind == "done"
    assert driver.exited(driver.launch("never", STEPS=1)).kind == "done"


def test_two_executors_that_launch_the_same_lease_run_it_once(driver: Driver) -> None:
    with ENGINE.open(driver.state) as other:
        lease = driver.lease("j", STEPS=10)
        threads = [threading.Thread(target=executor.launch, args=(lease,)) for executor in (driver.executor, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert driver.exited(lease.handle).kind == "done"
        until(
            lambda: any(isinstance(event, AttemptExited) for event in other.wait_events(1)),
            "the end, seen by the other",
        )
    assert len([line for line in driver.lines("j") if "start" in line]) == 1


def test_the_log_goes_on_over_attempts(driver: Driver) -> None:
    for epoch in (1, 2):
        driver.run(
            "j", ("node0", (0, 1)), epoch=epoch, command=("/bin/sh", "-c", "echo $TRINE_ATTEMPT.$RANK; echo e >&2")
        )
    mark = r"\n--- attempt 2, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ---\n"
    for rank, name in enumerate(("log", "log.1")):
        text = (driver.state / "jobs/j" / name).read_text()
        assert re.fullmatch(rf"1\.{rank}\ne\n{mark}2\.{rank}\ne\n", text), text


def test_what_is_forgotten_keeps_no_secrets_and_stays_on_record(driver: Driver) -> None:
    handle = driver.launch("j", command=("/bin/true",), env={"PASSWORD": "hush"})
    spec = driver.state / "jobs/j/1/spec.json"
    driver.exited(handle)
    assert stat.S_IMODE(spec.stat().st_mode) == 0o600
    driver.executor.forget(handle)
    assert not [path for path in driver.state.rglob("*") if path.is_file() and "hush" in path.read_text()]
    assert json.loads((driver.state / "jobs/j/1/exit.json").read_text())["kind"] == "done"
    assert driver.executor.list_handles() == []


def test_a_job_that_runs_cannot_be_forgotten(driver: Driver) -> None:
    handle = driver.launch("j", **LONG)
    driver.executor.forget(handle)
    assert driver.executor.list_handles() == [handle]


def test_a_job_does_not_keep_the_port_of_the_daemon(driver: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        address = server.getsockname()
        driver.progress(driver.launch("j", **LONG))
    socket.create_server(address).close()


def test_a_cordon_from_before_is_honoured(tmp_path: Path) -> None:
    with LocalExecutor(tmp_path, virtual_nodes("2x1"), cordoned={"node1": "burnt", "gone": "sold"}) as executor:
        executor.launch(JobLease("j", 1, (("node1", (0,)),), ("/bin/true",)))
        (event,) = executor.wait_events(10)
        assert isinstance(event, LaunchFailed) and "burnt" in event.reason
        inventory = executor.inventory()
        assert not isinstance(inventory, Unreachable)
        assert [node.schedulable for node in inventory] == [True, False]


def test_a_state_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with LocalExecutor(tmp_path / "file" / "state", virtual_nodes("1x1")) as executor:
        executor.launch(JobLease("j", 1, (("node0", (0,)),), ("/bin/true",)))
        (event,) = executor.wait_events(10)
        assert isinstance(event, LaunchFailed) and event.passing
        assert event.reason.startswith("cannot be started: ") and event.reason.endswith(": Not a directory")


@needs_root
def test_a_full_disk_fails_the_launch_and_loses_no_end(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=256k") as disk:
        driver = Driver(ENGINE, disk)
        try:
            runs = driver.launch("runs", **LONG)
            driver.progress(runs)
            ballast = fill(disk)
            driver.executor.renew(runs, 1e9)
            refused = driver.end(driver.executor.launch(JobLease("j", 1, (("node1", (0,)),), ("/bin/true",))))
            assert isinstance(refused, LaunchFailed) and "No space left on device" in refused.reason
            driver.executor.preempt(runs, 20.0)
            end = driver.exited(runs)
            driver.reopen()
            assert driver.exited(runs) == end, "the end is on record in spite of the full disk"
            ballast.unlink()
            assert driver.exited(driver.launch("j", ("node1", (0,)), command=("/bin/true",))).kind == "done"
        finally:
            driver.close()


@pytest.fixture
def passable_state() -> Iterator[Path]:
    """A state directory that other users may pass through."""
    path = Path(tempfile.mkdtemp(prefix="trine-test-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@needs_root
def test_a_job_runs_as_its_user_and_as_nothing_else(passable_state: Path) -> None:
    driver = Driver(ENGINE, passable_state)
    nobody = pwd.getpwnam("nobody")
    script = """
        grep -E '^(Uid|Gid|Groups):' /proc/self/status; echo $HOME $USER $LOGNAME
        cat $TRINE_RUN_DIR/lease.json > /dev/null && echo reads its lease
        (echo {} > $TRINE_PROGRESS_DIR/progress-0.json) 2> /dev/null && echo tells progress
        (echo {} > $TRINE_CHECKPOINT_DIR/c) 2> /dev/null && echo saves
        for file in lease.json exit.json status spec.json; do
            (echo {} > $TRINE_RUN_DIR/$file) 2> /dev/null && echo wrote $file
        done
        cat $TRINE_RUN_DIR/spec.json 2> /dev/null; echo again >> /dev/stdout; exit 0
    """
    checkpoints = str(passable_state / "jobs" / "j" / "checkpoints")
    try:
        lease = JobLease(
            "j", 1, (("node0", (0,)),), ("/bin/sh", "-c", script), checkpoint_dir=checkpoints, run_as="nobody"
        )
        driver.executor.launch(lease)
        end = driver.exited(lease.handle)
        uid, gid = [str(nobody.pw_uid)] * 4, [str(nobody.pw_gid)] * 4
        said = [line.split() for line in driver.engine.log(passable_state, "j", 0).splitlines()]
        assert said[:3] == [["Uid:", *uid], ["Gid:", *gid], ["Groups:", gid[0]]]
        assert said[3] == [nobody.pw_dir, "nobody", "nobody"]
        assert [" ".join(words) for words in said[4:]] == ["reads its lease", "tells progress", "saves", "again"]
        assert end.kind == "done"
    finally:
        driver.close()


def test_another_user_needs_root(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    end = driver.run("j", run_as="nobody")
    assert isinstance(end, LaunchFailed) and "cannot run a job as nobody" in end.reason


@needs_root
def test_a_job_whose_user_vanished_is_not_run_as_root(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trine.executor.attempt.executor.check_user", lambda user: None)
    monkeypatch.setattr(state_dir, "_own_dir", lambda path, user: path.mkdir(exist_ok=True))
    end = driver.run("j", command=("/bin/echo", "ran"), run_as="no-such-user")
    assert isinstance(end, LaunchFailed) and "no-such-user" in end.reason
    assert driver.engine.log(driver.state, "j", 0) == ""


def test_a_script_with_the_sdk_tells_progress_and_leaves_in_time(driver: Driver) -> None:
    script = "import time, trine.sdk as sdk\nfor step, _ in sdk.steps(100000, save=print): time.sleep(0.01)"
    variables = {"PYTHONPATH": str(Path(trine.__file__).parents[1])}
    handle = driver.launch("j", ("node0", (0, 1)), command=(sys.executable, "-c", script), env=variables)
    assert driver.progress(handle, step=50).total == 100_000
    driver.executor.preempt(handle, 20.0)
    end = driver.exited(handle)
    assert (end.kind, end.rc) == ("preempted", 85)
    assert (end.step or 0) >= 50


@pytest.mark.parametrize("python", ["/bin/false", "/no/such/python"])
def test_an_attempt_whose_supervisor_cannot_start_is_over(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    handle = driver.launch("j", STEPS=1)
    told = driver.end(handle)
    assert isinstance(told, LaunchFailed) and told.passing, "the job is not to blame"
    monkeypatch.undo()
    driver.reopen()
    assert driver.end(handle) == told, "started by itself after it was said to have failed"
    assert driver.exited(driver.launch("j", epoch=2, STEPS=1)).kind == "done"


def test_processes_of_an_attempt_without_a_directory_are_ended_before_it_counts_as_lost(driver: Driver) -> None:
    run_dir = driver.state / "jobs" / "gone" / "3"
    stray = subprocess.Popen(["/bin/sleep", "1000"], env={"TRINE_RUN_DIR": str(run_dir)})
    try:
        until(lambda: marked(f"TRINE_RUN_DIR={run_dir}"), "the process")
        assert not driver.executor.recall(Handle("gone", 3)), "nothing of it runs any more"
        assert stray.wait(10) == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait()
