"""``trine sim compare --workers ray://...`` with a real Ray: the same bytes as on one machine, and resumable."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.executor.ray_cluster import RayCluster
from tests.executor.ray_driving import ray_settings
from tests.sim.test_slurm_workers import COMPARE, files
from trine.executor.attempt.processes import marked

pytestmark = pytest.mark.ray


def on_ray(ray: RayCluster, workers: str) -> list[str]:
    settings = {name: value for name, value in ray_settings(ray).items() if name != "address" or workers == "ray"}
    return [
        "--workers",
        workers,
        *(word for each in settings.items() for word in ("--set", "engine.{}={}".format(*each))),
    ]


def compare(cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMPARE, *options], cwd=cwd, capture_output=True, text=True, timeout=180, check=False)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the comparison prints on this machine alone, and where its files are."""
    home = tmp_path_factory.mktemp("here")
    done = compare(home, "--workers", "1", "--out", "out")
    assert done.returncode == 0, done.stderr
    return done.stdout, home / "out"


@pytest.mark.parametrize("address", ["ray", RayCluster.client_address])
def test_the_results_are_the_same_bytes_as_on_one_machine(
    ray: RayCluster, tmp_path: Path, address: str, here: tuple[str, Path]
) -> None:
    there = compare(tmp_path, *on_ray(ray, address), "--out", "out")
    assert there.returncode == 0, there.stderr
    assert there.stdout == here[0]
    assert files(tmp_path / "out") == files(here[1]), "not the same bytes"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing else is left"


def test_a_comparison_that_was_interrupted_goes_on_where_it_was(ray: RayCluster, tmp_path: Path) -> None:
    command = [*COMPARE, *on_ray(ray, "ray"), "--json"]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".trine-sweep-*/*.result")):
        assert time.monotonic() < deadline and first.poll() is None, "no simulation ended"
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    ray.wait_for(lambda: not marked(f"PWD={tmp_path}"), "the tasks of the sweep to end")
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob(".trine-sweep-*/*.result")}
    assert kept, "what was done is kept"
    again = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while again.poll() is None:
        assert all(not path.exists() or path.stat().st_mtime_ns == at for path, at in kept.items()), "done again"
        time.sleep(0.02)
    stdout, stderr = again.communicate(timeout=30)
    assert again.returncode == 0, stderr
    assert stdout == compare(tmp_path, "--workers", "1", "--json").stdout
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_mistake_is_told_in_one_sentence_before_anything_is_submitted(ray: RayCluster, tmp_path: Path) -> None:
    away = [word.replace(ray.address, "127.0.0.1:1") for word in on_ray(ray, "ray")]
    for options, sentence in (
        (["--workers", "rya"], "did you mean 'ray'"),
        ([*away, "--set", "engine.timeout_s=20"], "Ray at 127.0.0.1:1 does not answer"),
        (["--workers", "ray", "--set", f"engine.ray_python={sys.executable}x"], "there is no Ray here"),
        ([*on_ray(ray, "ray"), "--set", "workload.jobs=-1"], "workload.jobs"),
    ):
        refused = compare(tmp_path, *options)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1) and sentence in refused.stderr, refused.stderr
    assert list(tmp_path.iterdir()) == []
