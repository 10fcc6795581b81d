"""The engine ``ray`` from its settings to running jobs: what is bad input, and a daemon that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.executor.driving import TRAINER, job_log, marked_processes, until
from tests.executor.pipeline import check_pipeline
from tests.executor.ray_cluster import RayCluster
from tests.executor.ray_driving import ray_engine, ray_settings
from trine.client import Client
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.attempt.processes import identity
from trine.executor.base import Unreachable

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("0" * 64, "--engine ray: Ray says: the token of the cluster is missing or wrong"),
        ("", "--engine ray: Ray says: .*"),
    ],
    ids=["wrong", "empty"],
)
def test_a_token_that_is_not_the_clusters_is_bad_input(
    ray: RayCluster, tmp_path: Path, token: str, sentence: str
) -> None:
    path = tmp_path / "token"
    path.write_text(token)
    with pytest.raises(InputError, match=sentence):
        ray_engine(ray, token_path=str(path)).find_nodes(None)


def test_an_address_where_no_ray_is_does_not_answer(ray: RayCluster) -> None:
    found = ray_engine(ray, address="127.0.0.1:1", timeout_s=20.0).find_nodes(None)
    assert isinstance(found, Unreachable) and found.reason


def test_another_version_of_ray_is_bad_input(ray: RayCluster, tmp_path: Path) -> None:
    older = tmp_path / "python"
    pretend = "import runpy, sys, ray; ray.__version__ = '2.1.0'; runpy.run_path(sys.argv[-1], run_name='__main__')"
    older.write_text(f'#!/bin/sh\nexec {ray.python} -c "{pretend}" "$@"\n')
    older.chmod(0o755)
    with pytest.raises(InputError, match=r"Ray says: Version mismatch: .*2\.1\.0.*; expected engine.ray_python"):
        ray_engine(ray, ray_python=str(older)).find_nodes(None)


def test_a_cluster_file_with_other_nodes_is_bad_input(ray: RayCluster) -> None:
    with pytest.raises(InputError, match="unknown node of the Ray cluster 'gpu7'"):
        ray_engine(ray).find_nodes(Cluster((Node("gpu7", 2, "v100"),)))
    with pytest.raises(InputError, match="node node0 has 2 GPUs in Ray; expected 2 GPUs, not 3"):
        ray_engine(ray).find_nodes(Cluster((Node("node0", 3, "v100"),)))


def test_a_described_node_that_is_away_is_down(ray: RayCluster) -> None:
    nodes = ray_engine(ray).find_nodes(Cluster((Node("node0", 2, "h100"), Node("gpu7", 2, "h100"))))
    assert not isinstance(nodes, Unreachable)
    assert [(node.name, node.up, node.gpus[0].type) for node in nodes] == [
        ("node0", True, "h100"),
        ("gpu7", False, "h100"),
    ]


def test_labels_that_do_not_tell_nodes_apart_are_bad_input(ray: RayCluster) -> None:
    with pytest.raises(InputError, match=r"two nodes are called rack\d; expected a label rack=NAME of its own"):
        ray_engine(ray, node_label="rack").find_nodes(None)


def command(ray: RayCluster, state: Path, *options: str) -> list[str]:
    settings = {**ray_settings(ray), "poll_s": 0.5}
    chosen = [word for name, value in settings.items() for word in ("--set", f"engine.{name}={value}")]
    return [sys.executable, "-m", "trine", "up", "--engine", "ray", "--state", str(state), *chosen, *options]


def test_wrong_settings_end_with_code_2_one_sentence_and_nothing_written(ray: RayCluster, tmp_path: Path) -> None:
    for setting, sentence in (
        ("engine.address=127.0.0.1:1", "it does not answer"),
        ("engine.address=ray://127.0.0.1:1", "ray://127.0.0.1:1 is Ray's client"),
        ("engine.ray_python=/no/python", "/no/python cannot be run"),
        ("engine.pending_s=-1", "engine.pending_s: '-1'; expected at least 0.1"),
    ):
        options = ["--set", setting, "--set", "engine.timeout_s=20"]
        done = subprocess.run(
            command(ray, tmp_path, *options), capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and sentence in done.stderr, done.stderr
    assert list(tmp_path.glob("*.db")) == [], "nothing is half-written"


def test_an_array_runs_after_its_job_and_the_next_after_all_of_it(ray: RayCluster, tmp_path: Path) -> None:
    with daemon(ray, tmp_path / "state"), Client(state=tmp_path / "state") as client:
        check_pipeline(client, tmp_path)


@contextmanager
def daemon(ray: RayCluster, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    options = ["--quiet", "--round", "5"]
    process = subprocess.Popen(command(ray, state, *options), stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(state, process.pid), "the daemon")
        yield process
    finally:
        process.kill()
        process.wait(10)


def _answers(state: Path, pid: int) -> bool:
    try:
        return bool(json.loads((state / "api.json").read_text())["pid"] == pid)
    except (OSError, ValueError, KeyError):
        return False


def _step(client: Client, job_id: str) -> int:
    progress = client.job(job_id)["progress"]
    return int(progress["step"]) if progress else 0


def test_a_daemon_that_is_killed_finds_its_jobs_with_the_same_processes(ray: RayCluster, tmp_path: Path) -> None:
    spec = {"run": [*TRAINER], "gpus": 3, "ranks": "gpu", "env": {"STEPS": "300", "STEP_S": "0.05"}}
    with daemon(ray, tmp_path), Client(state=tmp_path) as client:
        [job_id] = client.submit([spec])
        until(lambda: _step(client, job_id) > 3, "progress of the job")
        ranks = [identity(pid) for pid in marked_processes(tmp_path)]
    assert len(ranks) == 3
    with daemon(ray, tmp_path), Client(state=tmp_path) as client:
        until(lambda: _step(client, job_id) > 60, "more progress of the job")
        assert [identity(pid) for pid in marked_processes(tmp_path)] == ranks, "it runs on in the same processes"
        deadline = time.monotonic() + 60
        while client.job(job_id)["state"] != "done":
            assert time.monotonic() < deadline, client.explain(job_id)
            time.sleep(0.1)
    assert job_log(tmp_path, job_id, 0).count('"start"') == 1
