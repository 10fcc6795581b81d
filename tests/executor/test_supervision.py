"""What a job may do to its supervisor and the supervisor to it, beyond the contract of all executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trine
from tests.executor.driving import LONG, TRAINER, Driver, LocalEngine, running, unique_s, until
from trine.executor.attempt.processes import marked
from trine.executor.attempt.spec import make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import STALE_EXIT, Handle
from trine.executor.local.launch import spawn_supervisor

SRC = str(Path(trine.__file__).parents[1])


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(LocalEngine(cgroups=True), tmp_path)
    try:
        yield driver
    finally:
        driver.close()


def run_dir(driver: Driver, handle: Handle) -> Path:
    return driver.state / "jobs" / handle.job_id / str(handle.epoch)


def supervisor_pid(driver: Driver, handle: Handle) -> int:
    return int(json.loads((run_dir(driver, handle) / "pid.json").read_text())["pid"])


def test_a_training_below_a_shell_can_still_save_its_work(driver: Driver) -> None:
    """The shell dies of the TERM that it got; what it ran hears it second and has the grace to save."""
    script = f"{' '.join(TRAINER)}; echo not reached"
    handle = driver.launch("j", command=("/bin/sh", "-c", script), **LONG)
    driver.progress(handle)
    driver.executor.preempt(handle, 20.0)
    end = driver.exited(handle)
    assert end.kind == "preempted"
    assert driver.lines("j")[-1]["stopped"] == end.step


def test_the_children_of_a_rank_that_lives_hear_no_term(driver: Driver) -> None:
    """A data loader that dies of it would take the training down before its checkpoint is written."""
    loader = "(trap 'echo loader heard it' TERM; while :; do sleep 0.02; done) &"
    script = f"{loader} trap 'sleep 0.2; kill -9 $!; exit 85' TERM; echo ready; while :; do sleep 0.02; done"
    handle = driver.launch("j", command=("/bin/sh", "-c", script))
    until(lambda: driver.engine.log(driver.state, "j", 0), "the script")
    driver.executor.preempt(handle, 20.0)
    assert driver.exited(handle).rc == 85
    assert driver.engine.log(driver.state, "j", 0) == "ready\n"


def test_a_supervisor_that_is_asked_to_end_preempts_its_job(driver: Driver) -> None:
    handle = driver.launch("j", **LONG)
    driver.progress(handle)
    os.kill(supervisor_pid(driver, handle), signal.SIGTERM)
    assert (driver.exited(handle).kind, driver.exited(handle).rc) == ("preempted", 85)
    assert json.loads((run_dir(driver, handle) / "lease.json").read_text())["stop"] is True


def test_a_job_that_leaves_with_a_checkpoint_by_itself_was_preempted(driver: Driver) -> None:
    """As one does whose lease was not renewed."""
    end = driver.exited(driver.launch("j", ("node0", (0, 1)), command=("/bin/sh", "-c", "exit $((85 * (1 - RANK)))")))
    assert (end.kind, end.rc) == ("preempted", 85)


@pytest.mark.parametrize("cgroups", [True, False])
def test_a_killed_supervisor_takes_its_job_along(tmp_path: Path, cgroups: bool) -> None:
    driver = Driver(LocalEngine(cgroups), tmp_path)
    try:
        script = "setsid sleep 1000 & setsid sleep 1000 & echo ready; wait"
        handle = driver.launch("j", ("node0", (0, 1)), command=("/bin/sh", "-c", script))
        until(lambda: len(marked(f"TRINE_RUN_DIR={run_dir(driver, handle)}")) == 6, "two ranks with two children each")
        os.kill(supervisor_pid(driver, handle), signal.SIGKILL)
        end = driver.exited(handle)
        assert (end.kind, end.reason) == ("lost", "its supervisor was killed")
        assert driver.engine.leftovers(driver.state) == []
    finally:
        driver.close()


def test_with_a_cgroup_even_a_child_without_a_mark_goes_with_a_killed_supervisor(driver: Driver) -> None:
    hidden = unique_s()
    handle = driver.launch("j", DAEMON=1, DAEMON_S=hidden, **LONG)
    driver.progress(handle)
    if not json.loads((run_dir(driver, handle) / "pid.json").read_text())["cgroup"]:
        for pid in running(hidden):
            os.kill(pid, signal.SIGKILL)
        pytest.skip("this user may not make control groups here")
    os.kill(supervisor_pid(driver, handle), signal.SIGKILL)
    assert driver.exited(handle).kind == "lost"
    assert running(hidden) == []


def test_a_second_supervisor_on_one_lease_does_nothing(driver: Driver) -> None:
    handle = driver.launch("j", **LONG)
    driver.progress(handle)
    pid, ready = spawn_supervisor(run_dir(driver, handle))
    os.close(ready)
    assert os.waitpid(pid, 0)[1] == 0
    driver.executor.preempt(handle, 20.0)
    assert driver.exited(handle).kind == "preempted"
    assert len([line for line in driver.lines("j") if "start" in line]) == 1


@pytest.mark.parametrize("newer", ["in the lease", "beside it"])
def test_a_rank_with_a_stale_lease_refuses_to_start(driver: Driver, newer: str) -> None:
    """As after a restart by an engine that knows nothing of leases."""
    handle = driver.launch("j", command=("/bin/echo", "ran"))
    driver.exited(handle)
    run = run_dir(driver, handle)
    if newer == "in the lease":
        (run / "lease.json").write_text(json.dumps({"job": "j", "epoch": 2, "deadline_s": None, "stop": False}))
    else:
        run.with_name("2").mkdir()
    command = [sys.executable, "-m", "trine.executor.attempt.rank", str(run), "0", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (STALE_EXIT, "")
    assert "epoch" in done.stderr


def test_a_rank_can_be_started_by_another_engine(driver: Driver) -> None:
    handle = driver.launch("j", command=("/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"))
    driver.exited(handle)
    command = [sys.executable, "-m", "trine.executor.attempt.rank", str(run_dir(driver, handle)), "0", "1"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "rank 0 of 1\n"


def test_a_supervisor_loads_little(tmp_path: Path) -> None:
    """It runs once per job: hundreds of short jobs a minute are the price of what it imports."""
    code = f"import sys; sys.path.append({SRC!r}); import trine.executor.local.supervisor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    heavy = {"typing", "dataclasses", "pathlib", "subprocess", "numpy", "inspect", "threading", "logging", "asyncio"}
    assert heavy.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("what", ["pipe", "link", "directory", "brackets", "words", "numbers", "contradiction", "slow"])
def test_nothing_that_a_job_puts_in_place_of_its_progress_does_harm(driver: Driver, what: str) -> None:
    scripts = {
        "pipe": "mkfifo $F",
        "link": "ln -s /dev/zero $F",
        "directory": "mkdir $F",
        "brackets": "head -c 200000 /dev/zero | tr '\\0' '[' > $F",
        "words": """echo '{"t": "now", "step": "many", "steps_per_s": []}' > $F""",
        "numbers": """echo '{"t": NaN, "step": 1e999, "steps_per_s": -Infinity, "total": true}' > $F""",
        "contradiction": """echo '{"t": 1e9, "step": 100, "total": 1, "steps_per_s": 1}' > $F""",
        "slow": """echo '{"t": 1e9, "step": 1, "total": 100, "steps_per_s": 5e-324}' > $F""",
    }
    script = f"F=$TRINE_PROGRESS_DIR/progress-0.json; {scripts[what]}; while [ ! -e go ]; do sleep 0.02; done"
    bad = driver.launch("bad", command=("/bin/sh", "-c", script), workdir=str(driver.scratch))
    good = driver.launch("good", ("node1", (0,)), **LONG)
    driver.progress(good, step=20)
    (driver.scratch / "go").touch()
    end = driver.exited(bad)
    assert (end.kind, end.step in (None, 1, 100)) == ("done", True)
    assert [type(event).__name__ for event in driver.of(bad)] == ["AttemptStarted", "AttemptExited"], (
        "no report was taken"
    )


_DIES_AFTER_FORK = """
import os, signal, sys
from trine.executor.local import supervisor
fork = os.fork
def fork_and_die():
    me, pid = os.getpid(), fork()
    if pid:
        os.kill(me, signal.SIGKILL)
    while os.getppid() == me:
        pass
    return pid
os.fork = fork_and_die
os.execvpe = lambda *_: open(sys.argv[2], "w").close()
os.dup2(int(sys.argv[3]), supervisor.READY_FD)
supervisor.main([sys.argv[1]])
"""


def test_a_rank_whose_supervisor_is_killed_right_after_the_fork_never_runs(driver: Driver) -> None:
    """By then the attempt counts as lost, and its GPUs are given on."""
    proof = driver.scratch / "proof"
    lease = driver.lease("j")
    state = StateDir(driver.state)
    state.prepare(lease, make_spec(lease, {}, 29_998, "", ""))
    run_dir = state.run_dir(lease.handle)
    ended, held = os.pipe()
    words = [sys.executable, "-c", _DIES_AFTER_FORK, str(run_dir), str(proof), str(held)]
    subprocess.run(words, env={"PYTHONPATH": SRC}, pass_fds=(held,), check=False, timeout=30)
    os.close(held)
    assert os.read(ended, 1) == b"", "the rank, which holds the other end, is gone now"
    os.close(ended)
    assert not proof.exists()
