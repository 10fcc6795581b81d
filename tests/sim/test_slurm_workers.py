"""``trine sim compare --workers slurm`` with a real Slurm: the same bytes as on one machine, and resumable."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.executor.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm
COMPARE = [
    *(sys.executable, "-m", "trine", "sim", "compare", "--workload", "philly", "--cluster", "4x4", "--seeds", "0..2"),
    *("--policies", "fifo,srtf", "--set", "workload.jobs=60"),
]


def compare(slurm: SlurmCluster, cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*COMPARE, *options]
    return subprocess.run(command, cwd=cwd, env=slurm.environ, capture_output=True, text=True, timeout=120, check=False)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_results_are_the_same_bytes_as_on_one_machine(slurm: SlurmCluster, tmp_path: Path) -> None:
    here = compare(slurm, tmp_path, "--workers", "1", "--out", "here")
    there = compare(slurm, tmp_path, "--workers", "slurm", "--out", "there")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert here.stdout == there.stdout
    assert set(files(tmp_path / "here")) == set(files(tmp_path / "there"))
    differ = [name for name, data in files(tmp_path / "here").items() if files(tmp_path / "there")[name] != data]
    assert differ == [], "not the same bytes"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "there"], "nothing else is left"
    assert slurm.jobs() == []


def test_a_comparison_that_was_interrupted_goes_on_where_it_was(slurm: SlurmCluster, tmp_path: Path) -> None:
    command = [*COMPARE, "--workers", "slurm", "--json"]
    first = subprocess.Popen(
        command, cwd=tmp_path, env=slurm.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".trine-sweep-*/*.result")):
        assert time.monotonic() < deadline and first.poll() is None, "no simulation ended"
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    slurm.wait_for(lambda: not slurm.jobs(), "the jobs of the sweep to end")
    kept, before = len(list(tmp_path.glob(".trine-sweep-*/*.result"))), tasks(slurm)
    assert kept > 0, "what was done is kept"
    again = compare(slurm, tmp_path, "--workers", "slurm", "--json")
    assert again.returncode == 0, again.stderr
    assert len(tasks(slurm) - before) == 5 - kept, "the first of six runs here, and what was done is not done again"
    assert again.stdout == compare(slurm, tmp_path, "--workers", "1", "--json").stdout
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def tasks(slurm: SlurmCluster) -> set[str]:
    """Tasks of arrays that Slurm knows, ended ones too."""
    return set(slurm.run("squeue", "-h", "-t", "all", "--array", "-o", "%i").split())


def test_a_mistake_in_the_input_is_told_before_anything_is_submitted(slurm: SlurmCluster, tmp_path: Path) -> None:
    for options, sentence in (
        (["--workers", "slrum"], "did you mean 'slurm'"),
        (["--workers", "2", "--set", "engine.partition=main"], "engine.partition beside --workers 2"),
        (["--workers", "slurm", "--set", "engine.colour=red"], "unknown parameter of slurm 'colour'"),
        (["--workers", "slurm", "--set", "workload.jobs=-1"], "workload.jobs"),
    ):
        refused = compare(slurm, tmp_path, *options)
        assert refused.returncode == 2 and sentence in refused.stderr, refused.stderr
    assert list(tmp_path.iterdir()) == []
