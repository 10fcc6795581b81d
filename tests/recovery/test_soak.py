"""A short soak by seed: nothing promised is broken while everything around the daemon fails. Longer ones by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.live import daemon, end_jobs
from tests.executor.driving import fill, small_disk
from tests.executor.test_faults import needs_root
from tests.recovery.soak import Soak


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7])
def test_a_short_soak(tmp_path: Path, seed: int) -> None:
    soak = Soak(tmp_path, seed, 25.0)
    report = soak.run()
    assert not report.broken, "\n".join(report.broken)
    assert report.counts["jobs"] > 5 and report.counts["daemon starts"] > 1


@needs_root
def test_a_start_without_room_is_one_that_may_be_tried_again(tmp_path: Path) -> None:
    """Exit code 2 would tell a service manager that it is of no use."""
    with small_disk(tmp_path / "small", "size=2m") as disk:
        state = disk / "state"
        command = [sys.executable, "-m", "trine", "up", "--state", str(state), "--gpus", "1", "--port", "0"]
        for known in (False, True):
            ballast = fill(disk)
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert (done.returncode, done.stdout) == (1, ""), done.stderr
            assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, f"{known}: {done.stderr}"
            ballast.unlink()
            with daemon(state, "--gpus", "1", "--port", "0") as found:
                found.up()
        end_jobs(state)
