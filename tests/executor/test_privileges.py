"""A daemon that is root never does for a user what the user could not do: races for directories, planted files."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.driving import Driver, LocalEngine, until
from trine.executor.attempt import rundir, state_dir
from trine.executor.attempt.removal import BackgroundRemoval, remove_tree
from trine.executor.attempt.state_dir import StateDir, is_below
from trine.executor.base import Handle, JobLease, LaunchFailed
from trine.executor.local import launch
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start jobs of other users")
ENGINE = LocalEngine(cgroups=False)
TRIES = int(os.environ.get("TRINE_RACE_TRIES", "20"))

_RACER = """
import json, os, sys
target, spec, uid, gid = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
print("racing", flush=True)
while True:
    try:
        os.close(os.open(target + "/x", os.O_WRONLY | os.O_CREAT))
        with open(target + "/spec.json", "w") as file:
            file.write(spec)
        print("planted", flush=True)
        break
    except OSError:
        pass
"""


@pytest.fixture
def state() -> Iterator[Path]:
    """A directory that other users can pass through, as a root daemon's is."""
    top = Path(tempfile.mkdtemp(prefix="trine-privileges-"))
    path = top / "state"
    path.mkdir()
    for passable in (top, path):
        passable.chmod(0o711)
    yield path
    shutil.rmtree(top)


@pytest.fixture
def driver(state: Path) -> Iterator[Driver]:
    driver = Driver(ENGINE, state)
    yield driver
    driver.close()


def _planted(job_id: str, proof: Path) -> dict[str, object]:
    """A specification that a user would like the daemon to run with its own rights."""
    return {
        "job": job_id,
        "epoch": 1,
        "command": ["/bin/sh", "-c", f"id -u > {proof}"],
        "env": {"PATH": "/usr/bin:/bin"},
        "workdir": "/",
        "checkpoint_dir": "",
        "run_as": None,
        "grace_s": 1.0,
        "placement": [["node0", [0]]],
        "ranks": [{"node": "node0", "gpus": [0]}],
        "port": 29_999,
        "api": "",
        "cgroup": "",
    }


def _lease(job_id: str, **changes: object) -> JobLease:
    fields = {"command": ("/bin/true",), "run_as": "nobody", **changes}
    return JobLease(job_id, 1, (("node0", (0,)),), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("refusing", [True, False], ids=["as it is", "without the check of paths"])
def test_the_race_for_the_directory_of_an_attempt_is_never_won(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, refusing: bool
) -> None:
    """The checkpoint directory that the user names is the directory of the job's first attempt."""
    if not refusing:  # each defence has to hold on its own
        monkeypatch.setattr(StateDir, "check_paths", lambda *_: None)
    proof, nobody = driver.state / "proof", pwd.getpwnam("nobody")
    for number in range(TRIES):
        job_id = f"job{number}"
        target = driver.state / "jobs" / job_id / "1"
        words = [str(target), json.dumps(_planted(job_id, proof)), str(nobody.pw_uid), str(nobody.pw_gid)]
        racer = subprocess.Popen([sys.executable, "-I", "-S", "-c", _RACER, *words], stdout=subprocess.PIPE, text=True)
        assert racer.stdout is not None and racer.stdout.readline() == "racing\n"
        try:
            lease = _lease(job_id, checkpoint_dir=str(target))
            driver.executor.launch(lease)
            end = driver.end(lease.handle)
        finally:
            racer.kill()
            told, _ = racer.communicate()
        assert "planted" not in told, f"try {number}: the user could write into the daemon's directory"
        assert not proof.exists(), f"try {number}: the user's own specification ran as uid {proof.read_text()}"
        assert isinstance(end, LaunchFailed) == refusing, end


def test_a_directory_of_somebody_else_is_no_attempt(driver: Driver) -> None:
    proof = driver.state / "proof"
    run_dir = driver.state / "jobs" / "j" / "1"
    run_dir.mkdir(parents=True)
    rundir.write_json(str(run_dir / rundir.SPEC), _planted("j", proof))
    nobody = pwd.getpwnam("nobody")
    for path in (run_dir, run_dir / rundir.SPEC):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    driver.executor.launch(_lease("j"))
    end = driver.end(Handle("j", 1))
    assert isinstance(end, LaunchFailed) and "belongs to another user" in end.reason
    assert not proof.exists()


def test_an_executor_that_starts_does_not_adopt_a_planted_attempt(driver: Driver) -> None:
    proof = driver.state / "proof"
    run_dir = driver.state / "jobs" / "j" / "1"
    run_dir.mkdir(parents=True)
    rundir.write_json(str(run_dir / rundir.SPEC), _planted("j", proof))
    os.chown(run_dir, pwd.getpwnam("nobody").pw_uid, -1)
    (driver.state / "active").mkdir(exist_ok=True)
    (driver.state / "active" / "j@1").touch()
    driver.reopen()
    assert isinstance(driver.end(Handle("j", 1)), LaunchFailed)
    assert not proof.exists()


def test_a_supervisor_runs_nothing_from_a_directory_that_others_may_write_to(state: Path) -> None:
    proof, run_dir = state / "proof", state / "run"
    run_dir.mkdir()
    rundir.write_json(str(run_dir / rundir.SPEC), _planted("j", proof))
    run_dir.chmod(0o777)
    _, ready = launch.spawn_supervisor(run_dir)
    assert os.read(ready, 100) == b"", "the supervisor said that the job has started"
    os.close(ready)
    assert not proof.exists()


def test_a_specification_of_another_user_is_not_read(state: Path) -> None:
    path = state / rundir.SPEC
    rundir.write_json(str(path), {"run_as": None})
    assert rundir.read_json(str(path)) == {"run_as": None}
    os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    assert rundir.read_json(str(path)) is None
    assert rundir.read_job_json(str(path)) == {"run_as": None}


def test_a_report_that_takes_long_to_read_is_not_read(state: Path) -> None:
    path = state / "progress-0.json"
    path.write_text(json.dumps({"step": 1, "x": [{}] * 1_000}))
    assert (rundir.read_job_json(str(path)) or {}).get("step") == 1
    path.write_text(json.dumps({"step": 1, "x": [{}] * 10_000}))
    assert rundir.read_job_json(str(path)) is None


def test_the_log_is_opened_with_the_rights_of_the_user(driver: Driver) -> None:
    """A log that the user could not write is not written for the user."""
    job_dir = driver.state / "jobs" / "j"
    job_dir.mkdir(parents=True)
    (job_dir / "log").write_text("of root\n")
    (job_dir / "log").chmod(0o600)
    driver.executor.launch(_lease("j", command=("/bin/echo", "mine")))
    end = driver.end(Handle("j", 1))
    assert isinstance(end, LaunchFailed) and "Permission denied" in end.reason
    assert (job_dir / "log").read_text() == "of root\n"


@pytest.mark.parametrize("key", ["checkpoint_dir", "workdir"])
@pytest.mark.parametrize("inside", [".", "jobs/j/1", "active", "jobs/../jobs/j/2"])
def test_directories_inside_the_state_directory_are_refused(driver: Driver, key: str, inside: str) -> None:
    driver.executor.launch(_lease("j", **{key: f"{driver.state}/{inside}"}))
    end = driver.end(Handle("j", 1))
    assert isinstance(end, LaunchFailed) and "inside the daemon's state directory" in end.reason


def test_what_is_inside_the_state_directory_is_seen_from_the_path_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    assert is_below(tmp_path / "state" / "jobs", tmp_path / "link"), "the operator may have named a link"
    assert is_below(f"{tmp_path}//state/./jobs/1/..", tmp_path / "state")
    assert not is_below(tmp_path / "states", tmp_path / "state")
    assert not is_below("/", tmp_path / "state")


def test_links_without_end_are_followed_by_the_job_alone(driver: Driver) -> None:
    """A chain longer than Python's stack, put in place of a harmless directory after the submission."""
    links = driver.scratch / "links"
    links.mkdir()
    links.chmod(0o711)
    before = "/"
    for number in range(1_500):
        (links / str(number)).symlink_to(before)
        before = str(links / str(number))
    for key in ("workdir", "checkpoint_dir"):
        assert not is_below(before, driver.state)
        driver.executor.launch(_lease(key, **{key: before}))
        end = driver.end(Handle(key, 1))
        assert isinstance(end, LaunchFailed) and not end.passing, end
        assert before in end.reason


_BURROW = """
import os
os.chdir(os.environ["TRINE_PROGRESS_DIR"])
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""


def test_what_a_job_leaves_in_its_progress_directory_holds_nobody_up(driver: Driver) -> None:
    """Directories nested deeper than Python's stack, and more files than anybody should go through."""
    handle = driver.executor.launch(_lease("j", command=(sys.executable, "-I", "-S", "-c", _BURROW), run_as=None))
    assert driver.exited(handle).kind == "done"
    progress = driver.state / "jobs" / "j" / "1" / rundir.PROGRESS
    (progress / "progress-0.json").write_text("{}")
    driver.executor.forget(handle)
    assert not progress.exists()
    driver.removed()


def test_what_a_daemon_did_not_get_to_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "removing" / "left"
    (left / "deep" / "er").mkdir(parents=True)
    (left / "file").touch()
    link = left / "link"
    link.symlink_to(tmp_path)
    with LocalExecutor(tmp_path, virtual_nodes("4x1")):
        removal = BackgroundRemoval(tmp_path / "removing")
        removal.start()
        removal.join()
        until(lambda: not left.exists(), "the executor's own removal, which may have begun first")
    assert not left.exists() and tmp_path.exists()


def test_what_resists_removal_keeps_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(parent: Path, name: str) -> None:
        if (parent / name / "resists").exists():
            raise PermissionError(name)
        remove_tree(parent, name)

    monkeypatch.setattr("trine.executor.attempt.removal.remove_tree", removed)
    removal = BackgroundRemoval(tmp_path / "removing")
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "resists").touch()
    for name in ("a", "b", "c"):
        removal.add(tmp_path / name)
    removal.join()
    assert [list(path.iterdir()) != [] for path in (tmp_path / "removing").iterdir()] == [True]


def test_very_many_files_are_removed_in_the_background(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_dir, "_MOST_PROGRESS_FILES", 10)
    handle = driver.executor.launch(_lease("j"))
    progress = driver.state / "jobs" / "j" / "1" / rundir.PROGRESS
    driver.end(handle)
    for number in range(30):
        (progress / str(number)).touch()
    driver.executor.forget(handle)
    assert not progress.exists()
    driver.removed()
