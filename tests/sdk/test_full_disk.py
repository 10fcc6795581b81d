"""A full disk costs a checkpoint, not the training."""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import trine.sdk
from tests.sdk.conftest import FakeJob, ended, wait_for

TRAIN = """
import sys, time
import trine.sdk

how, state = sys.argv[1], bytes(200_000)
found = trine.sdk.restore()

def save(done):
    if how == "torch":
        import torch
        with trine.sdk.checkpoint(done) as path:
            torch.save({"state": torch.zeros(50_000)}, path)
    else:
        trine.sdk.save_bytes(done, state)

for step, _ in trine.sdk.steps(1_000_000, save=save, save_every=20):
    time.sleep(0.002)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=False).returncode
    ):
        pytest.skip("no small disk can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill_up(job: FakeJob, process: subprocess.Popen[str]) -> int:
    """Leave no room for another checkpoint; returns the step of the last that found some."""
    while True:
        with suppress(OSError), (job.checkpoints / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        kept = job.saved_steps()[-1]
        job.reached(max(kept, job.progress()["step"]) + 60, process)
        if job.saved_steps()[-1] == kept:  # an old one that was removed meanwhile may have made room
            return kept


@pytest.mark.parametrize("how", ["bytes", pytest.param("torch", marks=pytest.mark.training)])
def test_a_job_on_a_full_disk_goes_on_and_saves_when_there_is_room(job: FakeJob, small_disk: Path, how: str) -> None:
    if how == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (make training)")
    job.checkpoints = small_disk
    (job.folder / "train.py").write_text(TRAIN)
    process = job.start("train.py", how)
    wait_for(job.saved_steps, "the first checkpoint", process)
    kept = fill_up(job, process)
    assert job.progress()["checkpoint_step"] == kept, "only what is on disk is told"
    (small_disk / "ballast").unlink()
    wait_for(lambda: job.saved_steps()[-1] > kept, "a checkpoint after there was room again", process)
    kept = fill_up(job, process)
    job.stop(process)
    code, _, err = ended(process)
    assert code == 85, err
    assert err.count("No space left on device); checkpoint at step") == 2, "said once each time"
    assert f"checkpoint at step {kept}, the newest that could be written (No space left on device)" in err
    assert not [path.name for path in small_disk.iterdir() if path.name.endswith(".tmp")]
    found = trine.sdk.checkpoints.CheckpointFolder(small_disk).newest()
    assert found is not None and found.step == kept


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_next_try_comes_with_the_next_regular_checkpoint(number: int, capsys: Any) -> None:
    tried: list[int] = []

    def save(done: int) -> None:
        tried.append(done)
        if 4 <= done <= 8:
            raise OSError(number, os.strerror(number))

    assert len(list(trine.sdk.steps(12, start=0, save=save, save_every=2))) == 12
    assert tried == [2, 4, 6, 8, 10, 12]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no checkpoint after step 4" in said and "checkpoint at step 2 counts" in said


def test_other_trouble_still_ends_the_training() -> None:
    def save(done: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        list(trine.sdk.steps(12, start=0, save=save, save_every=2))
