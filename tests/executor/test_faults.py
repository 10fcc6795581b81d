"""Faults of the machine: full disks, no descriptors, killed supervisors. None of them is held against a job."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import LONG, Driver, LocalEngine, fill, small_disk, until
from trine.executor import host
from trine.executor.attempt import rundir
from trine.executor.attempt.processes import marked
from trine.executor.attempt.spec import make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import AttemptStarted, Handle, JobLease, LaunchFailed
from trine.executor.faults import is_host_fault
from trine.executor.host import Host
from trine.executor.local import launch
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes

ENGINE = LocalEngine(cgroups=True)
ELSEWHERE = ("node1", (0,))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(ENGINE, tmp_path / "state")
    try:
        yield driver
    finally:
        driver.close()


def not_to_blame(driver: Driver, handle: Handle) -> str:
    """Why an attempt was not launched; the same after a restart, and nothing runs by itself."""
    end = driver.end(handle)
    assert isinstance(end, LaunchFailed) and end.passing, end
    assert marked(f"TRINE_RUN_DIR={driver.state / 'jobs' / handle.job_id / str(handle.epoch)}") == []
    if handle in driver.handles():
        driver.reopen()
        assert driver.end(handle) == end
    return end.reason


def sabotage(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have every supervisor run some code before anything else of its own."""
    before, _, after = launch._SUPERVISOR.partition("sys.exit(")
    monkeypatch.setattr(launch, "_SUPERVISOR", f"{before}\nimport os\n{code}\nsys.exit({after}")


# Disks


@needs_root
@pytest.mark.parametrize(
    ("options", "shortage"),
    [("size=2m", "left; jobs are started again when there are"), ("size=2m,nr_inodes=60", "more files")],
    ids=["no space", "no inodes"],
)
def test_a_full_disk_stops_launches_until_there_is_room(tmp_path: Path, options: str, shortage: str) -> None:
    with small_disk(tmp_path / "small", options) as disk:
        driver = Driver(ENGINE, disk)
        try:
            assert driver.executor.trouble() == ""
            ballast = _take_inodes(disk) if "inodes" in options else fill(disk)
            until(lambda: shortage in driver.executor.trouble(), "the trouble to be told")
            assert str(disk) in driver.executor.trouble()
            lease = JobLease("j", 1, (("node1", (0,)),), ("/bin/true",))
            assert "No space left" in not_to_blame(driver, driver.executor.launch(lease))
            assert not list(disk.glob("active/*")) and not list(disk.glob("jobs/j/*")), "something was half made"
            _remove(ballast)
            until(lambda: not driver.executor.trouble(), "the trouble to be over")
            assert driver.exited(driver.launch("j", ELSEWHERE, epoch=2, command=("/bin/true",))).kind == "done"
        finally:
            driver.close()


def _take_inodes(disk: Path) -> Path:
    ballast = disk / "ballast"
    ballast.mkdir()
    for number in range(100):
        try:
            (ballast / str(number)).touch()
        except OSError:
            return ballast
    raise AssertionError("the disk never ran out of inodes")


def _remove(ballast: Path) -> None:
    for path in ballast.iterdir() if ballast.is_dir() else [ballast]:
        path.unlink()


@needs_root
def test_a_full_disk_of_the_user_fails_the_job(driver: Driver, tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "size=64k,nr_inodes=4") as disk:
        with pytest.raises(OSError, match="No space"):
            for number in range(10):
                (disk / str(number)).touch()
        end = driver.run("j", checkpoint_dir=str(disk / "checkpoints"))
        assert isinstance(end, LaunchFailed) and "No space left" in end.reason
        assert not end.passing


@pytest.mark.parametrize(
    ("code", "path", "expected"),
    [
        (errno.ENOSPC, "/state/jobs/j/log", True),
        (errno.ENOSPC, None, True),
        (errno.ENOSPC, "/home/u/checkpoints", False),
        (errno.EDQUOT, "/state/jobs2", False),
        (errno.EROFS, "/home/u", False),
        (errno.EIO, "/home/u", True),
        (errno.ESTALE, "/home/u", True),
        (errno.EMFILE, "/home/u", True),
        (errno.ENOENT, "/state/jobs/j", False),
        (errno.E2BIG, "python", False),
    ],
)
def test_whose_fault_an_error_is(code: int, path: str | None, expected: bool) -> None:
    assert is_host_fault(OSError(code, os.strerror(code), path), "/state/jobs") is expected


# Descriptors

_WITHOUT_DESCRIPTORS = """
import json, os, resource, signal, sys, time
from pathlib import Path
from trine.executor.base import AttemptExited, AttemptStarted, JobLease, LaunchFailed
from trine.executor.local.inventory import virtual_nodes
from trine.executor.local.executor import LocalExecutor

state, go = Path(sys.argv[1]), sys.argv[2]
executor = LocalExecutor(state, virtual_nodes("4x1"), progress_s=0.05)
seen = []

def until(wanted, what):
    deadline = time.monotonic() + 30
    while not wanted():
        assert time.monotonic() < deadline, f"waited in vain for {what}: {seen}"
        seen.extend(executor.wait_events(0.1))

def launch(job, node, command, epoch=1):
    return executor.launch(JobLease(job, epoch, ((node, (0,)),), ("/bin/sh", "-c", command)))

def end(handle):
    return next((e for e in seen if isinstance(e, (AttemptExited, LaunchFailed)) and e.handle == handle), None)

runs = launch("runs", "node0", f"while [ ! -e {go} ]; do sleep 0.02; done")
dies = launch("dies", "node1", "sleep 1000")
until(lambda: len([e for e in seen if isinstance(e, AttemptStarted)]) == 2, "the starts")
pids = [json.loads((state / f"jobs/{job}/1/pid.json").read_text())["pid"] for job in ("runs", "dies")]
Path(go + ".aside").touch()
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # those numbers are taken: nothing more can be opened
until(lambda: "RLIMIT_NOFILE" in executor.trouble(), "the trouble")
fails = launch("fails", "node2", "true")
until(lambda: end(fails), "the failed launch")
assert end(fails).passing and "Too many open files" in end(fails).reason, end(fails)

def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

os.rename(go + ".aside", go)
os.kill(pids[1], signal.SIGKILL)
until(lambda: not any(map(is_there, pids)), "the executor to see both supervisors end")
seen.extend(executor.events())
assert end(dies) is None, "said to be lost although nobody could look for its processes"
assert end(runs) is None, f"nobody could read how it ended: {end(runs)}"
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
until(lambda: end(dies) and end(runs), "the ends")
assert end(dies).kind == "lost" and end(runs).kind == "done", seen
until(lambda: not executor.trouble(), "the end of the trouble")
again = launch("fails", "node2", "true", epoch=2)
until(lambda: end(again), "the second attempt")
assert end(again).kind == "done"
assert not list(state.glob("jobs/fails/.new-*")), "something was half made"
"""


def test_no_descriptors_delay_launches_and_ends_but_change_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_DESCRIPTORS, str(tmp_path / "state"), str(tmp_path / "go")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_supervisor_that_cannot_be_watched_yet_runs_once_and_is_found(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pidfd_open, iter(range(3))

    def scarce(pid: int) -> int:
        if next(calls, None) is not None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", scarce)
    handle = driver.launch("j", **LONG)
    driver.executor.preempt(handle, 20.0)  # heard although nobody watches it yet
    assert driver.exited(handle).kind == "preempted"


def test_an_attempt_that_cannot_be_read_keeps_others_off_its_gpus(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = driver.launch("runs", **LONG)
    driver.progress(runs)
    real = rundir.read_json

    def broken(path: str, *, raising: bool = False) -> dict[str, Any] | None:
        if raising and "/runs/" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, raising=raising)

    with monkeypatch.context() as patch:
        patch.setattr(rundir, "read_json", broken)
        driver.reopen()
        trouble = driver.executor.trouble()
        assert "job runs cannot be read" in trouble and "Input/output error" in trouble
        assert "cannot be read" in not_to_blame(driver, driver.launch("other", STEPS=1))
    driver.started(runs)
    assert driver.executor.trouble() == ""
    driver.executor.preempt(runs, 20.0)
    assert driver.exited(runs).kind == "preempted"
    assert driver.exited(driver.launch("other", epoch=2, STEPS=1)).kind == "done"


def test_what_was_never_started_stays_so_even_if_nothing_could_be_written(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_spawn", fail)
        patch.setattr(rundir, "write_exit", fail)
        handle = driver.launch("j", STEPS=1)
        end = driver.end(handle)
    assert isinstance(end, LaunchFailed) and end.passing
    driver.reopen()
    again = driver.end(handle)
    assert isinstance(again, LaunchFailed) and again.passing, "started by itself after it was said to have failed"
    assert driver.engine.log(driver.state, "j", 0) == ""
    assert driver.exited(driver.launch("j", epoch=2, STEPS=1)).kind == "done"


def test_a_user_is_not_unknown_for_want_of_descriptors(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    monkeypatch.setattr("trine.executor.attempt.rank.os.open", fail)
    assert "Too many open files" in not_to_blame(driver, driver.launch("j", run_as="no-such-user"))


# Supervisors


def test_a_supervisor_that_is_killed_before_it_began_is_not_the_jobs_fault(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "dies"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(script))
        handle = driver.launch("j", STEPS=1)
        driver.end(handle)
    assert "its supervisor was killed before it began" in not_to_blame(driver, handle)
    assert driver.exited(driver.launch("j", epoch=2, STEPS=1)).kind == "done"


_FORKS_ONCE = """
forks = iter([os.fork])
def fork():
    for real in forks:
        return real()
    raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = fork
"""
_FAILS = """
import trine.executor.{module} as module
def fail(*_):
    raise {error}
module.{name} = fail
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (_FORKS_ONCE, "no process for rank 1: Resource temporarily unavailable"),
        (
            _FAILS.format(module="attempt.rundir", name="claim", error="OSError(28, 'No space left on device')"),
            "did not start",
        ),
        (
            _FAILS.format(module="local.supervisor", name="Part", error="OSError(24, 'Too many')"),
            "could not begin: Too",
        ),
        (_FAILS.format(module="attempt.part", name="Part._read_all", error="ValueError('a bug')"), "failed: a bug"),
        (
            _FAILS.format(module="attempt.part", name="make_log", error="OSError(28, 'No space left on device', _[0])"),
            ": No space left on device",  # whichever rank says so first
        ),
        (_FAILS.format(module="attempt.rank", name="check_lease", error="MemoryError"), "out of memory"),
        (
            _FAILS.format(module="attempt.mailbox", name="_thread.start_new_thread", error="RuntimeError('no thread')"),
            "failed: no thread",
        ),
        ("def pipe(): raise OSError(24, 'Too many')\nos.pipe = pipe", "failed: Too many"),
    ],
    ids=[
        "no process",
        "no room for the claim",
        "no descriptor",
        "a bug",
        "no room for the log",
        "no memory",
        "no thread",
        "no pipe",
    ],
)
def test_a_supervisor_in_trouble_ends_what_it_began_and_does_not_blame_the_job(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    with monkeypatch.context() as patch:
        sabotage(patch, code)
        handle = driver.launch("j", ("node0", (0, 1)), **LONG)
        driver.end(handle)
    assert reason in not_to_blame(driver, handle)
    assert driver.exited(driver.launch("j", ("node0", (0, 1)), epoch=2, STEPS=1)).kind == "done"


def test_what_the_job_got_wrong_weighs_more_than_what_the_machine_lacked(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch, _FORKS_ONCE)
    end = driver.run("j", ("node0", (0, 1)), command=("/no/such/command",))
    assert isinstance(end, LaunchFailed) and not end.passing and "/no/such/command" in end.reason


def test_a_start_is_told_although_the_disk_had_no_room_for_its_record(driver: Driver) -> None:
    lease = driver.lease("j", STEPS=5)
    StateDir(driver.state).prepare(lease, make_spec(lease, os.environ, 20_000, "", ""))
    (driver.state / "jobs/j/1/status").mkdir()
    driver.executor.launch(lease)
    assert driver.exited(lease.handle).kind == "done"
    assert isinstance(driver.of(lease.handle)[0], AttemptStarted)


# What the executor says about the machine


def test_the_reserve_can_be_chosen(tmp_path: Path) -> None:
    with LocalExecutor(tmp_path, virtual_nodes("1x1"), reserve_bytes=1 << 60) as executor:
        trouble = executor.trouble()
        assert trouble.startswith(f"the disk of {tmp_path} has ") and "1,073,741,824 GiB" in trouble


def test_memory_is_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo, now = tmp_path / "meminfo", [0.0]
    monkeypatch.setattr(host, "_MEMINFO", meminfo)
    machine = Host(tmp_path / "not" / "made" / "yet", monotonic=lambda: now[0])
    meminfo.write_text("MemTotal: 1000000 kB\nMemAvailable: 10240 kB\n")
    expected = "the machine has 10 MiB of memory left; jobs are started again when there are 64 MiB"
    assert machine.trouble() == expected
    meminfo.write_text("MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n")
    assert machine.trouble() == expected
    now[0] = 1.5
    assert machine.trouble() == ""


def test_a_limit_that_is_no_limit_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert Host(tmp_path).trouble() == ""


def test_the_fault_of_a_launch_is_on_record(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        driver.end(driver.launch("j", STEPS=1))
    record = json.loads((driver.state / "jobs/j/1/exit.json").read_text())
    assert (record["kind"], record["host"]) == ("unlaunched", True)


# What a job makes of its own directories


@pytest.mark.parametrize(
    "made",
    [
        'mkfifo "$p"',
        'ln -s /etc "$p"',
        'touch "$p"',
        'mkdir "$p"; cd "$p"; i=0; while [ $i -lt 1500 ]; do mkdir d; cd -P d 2>/dev/null || exit 0; i=$((i+1)); done',
        "true",
    ],
    ids=["pipe", "link", "file", "deep", "nothing"],
)
def test_nothing_in_the_place_of_its_progress_holds_up_the_executor(driver: Driver, made: str) -> None:
    command = ("/bin/sh", "-c", f'p="$TRINE_PROGRESS_DIR"; rmdir "$p"; {made}')
    handle = driver.launch("j", command=command)
    assert driver.exited(handle).kind == "done"
    forgetting = threading.Thread(target=driver.executor.forget, args=(handle,), daemon=True)
    forgetting.start()
    forgetting.join(10)
    assert not forgetting.is_alive(), "it waits for whoever writes into the pipe"
    assert not os.path.lexists(driver.state / "jobs" / "j" / "1" / rundir.PROGRESS)
    driver.removed()
    assert Path("/etc/passwd").exists()
