"""A job that is stopped leaves with a checkpoint and code 85, and ends like an undisturbed one after it is resumed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.conftest import EXAMPLES, FakeJob, ended, outside, wait_for

TOY = EXAMPLES / "toy_sdk.py"
STEPS = 2000


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    command = [sys.executable, str(TOY), "--steps", str(STEPS), "--step-s", "0"]
    folder = tmp_path_factory.mktemp("undisturbed")
    return subprocess.run(command, cwd=folder, env=outside(), check=True, capture_output=True, text=True).stdout


def _toy(job: FakeJob, *, save_every: int = STEPS, step_s: float = 0.005) -> subprocess.Popen[str]:
    return job.start(TOY, "--steps", STEPS, "--step-s", step_s, "--save-every", save_every)


def _finish(job: FakeJob) -> str:
    job.begin()
    code, out, err = ended(job.start(TOY, "--steps", STEPS, "--step-s", 0))
    assert code == 0, err
    return out


def test_stopped_twice_and_resumed_it_ends_as_if_undisturbed(job: FakeJob, undisturbed: str) -> None:
    for steps_before_stop in (1, 150):
        process = _toy(job)
        job.reached(steps_before_stop, process)
        job.stop(process)
        code, out, err = ended(process)
        assert (code, out) == (85, "")
        # The lease says so first, then comes the signal: whichever the job noticed.
        told = rf"leaving after step {job.progress()['step']} \((SIGTERM|the scheduler asks for the GPUs)\)"
        assert re.search(told, err), err
        assert job.saved_steps()[-1] == job.progress()["step"] == job.progress()["checkpoint_step"] < STEPS
        job.begin()
    assert _finish(job) == undisturbed


def test_the_lease_alone_can_ask_for_a_stop(job: FakeJob, undisturbed: str) -> None:
    process = _toy(job)
    job.reached(1, process)
    job.lease(stop=True)
    code, _, err = ended(process)
    assert code == 85
    assert "the scheduler asks for the GPUs" in err
    assert _finish(job) == undisturbed


def test_a_job_whose_lease_expires_leaves_by_itself(job: FakeJob, undisturbed: str) -> None:
    process = _toy(job)
    job.reached(1, process)
    job.lease(lease_s=0.3)
    code, _, err = ended(process)
    assert code == 85
    assert "the lease is over" in err
    assert _finish(job) == undisturbed


@pytest.mark.parametrize("told", ["how long", "until when"])
def test_the_lease_in_the_environment_counts_where_there_is_no_lease_file(job: FakeJob, told: str) -> None:
    (job.run_dir / "lease.json").unlink()
    until = {"TRINE_LEASE_DEADLINE": str(time.time() + 1.5)}
    end: dict[str, Any] = {"TRINE_LEASE_S": "0.5"} if told == "how long" else until
    code, _, _ = ended(job.start(TOY, "--steps", 10_000, **end))
    assert code == 85
    assert 0 < job.saved_steps()[-1] < 10_000


def test_a_renewed_lease_keeps_the_job_running(job: FakeJob, undisturbed: str) -> None:
    def renew() -> bool:
        job.lease(lease_s=1.0)
        return process.poll() is not None

    process = _toy(job, step_s=0.001)  # all steps take longer than any single lease
    wait_for(renew, "the job has ended")
    code, out, err = ended(process)
    assert code == 0, err
    assert out == undisturbed


def test_an_attempt_that_was_replaced_leaves_without_writing(job: FakeJob) -> None:
    process = _toy(job)
    job.reached(1, process)
    job.lease(epoch=job.attempt + 1)
    assert ended(process)[0] == 85
    assert job.saved_steps() == []


def test_a_lease_left_from_the_attempt_before_is_not_obeyed(job: FakeJob) -> None:
    job.begin()
    job.lease(stop=True, epoch=1)
    assert ended(job.start(TOY, "--steps", 20, "--step-s", 0))[0] == 0


@pytest.mark.parametrize("content", ["", '{"lease_s": "soon"}', '{"lease_s": NaN}', "[1]", '{"stop": '])
def test_a_damaged_lease_changes_nothing(job: FakeJob, content: str) -> None:
    (job.run_dir / "lease.json").write_text(content)
    assert ended(job.start(TOY, "--steps", 20, "--step-s", 0))[0] == 0


def test_killed_without_warning_it_goes_on_from_the_last_regular_checkpoint(job: FakeJob, undisturbed: str) -> None:
    process = _toy(job, save_every=20)
    job.reached(60, process)
    process.kill()
    assert ended(process)[0] == -9
    assert job.saved_steps()[-1] >= 20
    assert _finish(job) == undisturbed


def test_a_torn_checkpoint_is_skipped_for_the_one_before(job: FakeJob, undisturbed: str) -> None:
    code, _, _ = ended(job.start(TOY, "--steps", 200, "--step-s", 0, "--save-every", 50))
    assert (code, job.saved_steps()) == (0, [150, 200])
    newest = max(job.checkpoints.glob("step-*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:-1])
    job.begin()
    code, out, err = ended(job.start(TOY, "--steps", STEPS, "--step-s", 0))
    assert "checkpoint of step 200" in err
    assert (code, out) == (0, undisturbed)


def test_progress_tells_step_total_and_rate(job: FakeJob) -> None:
    process = job.start(TOY, "--steps", 100_000, "--step-s", 0.01)
    job.reached(40, process)
    told = job.progress()
    assert told["total"] == 100_000
    assert 0 < told["steps_per_s"] <= 100
    assert abs(told["t"] - time.time()) < 30
    job.stop(process)
    assert ended(process)[0] == 85


def test_a_lost_progress_folder_does_not_disturb_the_training(job: FakeJob) -> None:
    job.progress_dir.rmdir()
    code, out, err = ended(job.start(TOY, "--steps", 20, "--step-s", 0))
    assert (code, json.loads(out)["steps"]) == (0, 20), err


def test_a_plain_script_is_stopped_by_sigterm_and_goes_on(job: FakeJob) -> None:
    process = job.start("sh", EXAMPLES / "plain.sh", STEPS="1000", STEP_S="0.02")
    state = job.checkpoints / "plain.txt"
    wait_for(job.checkpoints.is_dir, "the script has started", process)
    job.stop(process)
    code, _, err = ended(process)
    assert code == 85, err
    assert 0 < int(state.read_text().split()[0]) < 100
    job.begin()
    code, out, _ = ended(job.start("sh", EXAMPLES / "plain.sh", STEPS="100", STEP_S="0"))
    assert (code, out) == (0, f"steps 100 sum {100 * 101 // 2}\n")


def test_outside_trine_the_same_script_just_runs(tmp_path: Path, undisturbed: str) -> None:
    command = [sys.executable, str(TOY), "--steps", str(STEPS), "--step-s", "0"]
    done = subprocess.run(command, cwd=tmp_path, env=outside(), check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (undisturbed, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]


def test_a_full_disk_of_the_log_does_not_fail_a_job_that_leaves(job: FakeJob, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\n"
        "from trine import sdk\n"
        "for step, _ in sdk.steps(1000, save=lambda done: sdk.save_json(done, done)):\n"
        "    if step == 3: os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    job.begin()
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=job.environment(), stdout=full, stderr=full, check=False, timeout=60)
    assert done.returncode == 85
    assert job.saved_steps() == [4]
