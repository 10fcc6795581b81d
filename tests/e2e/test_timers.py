"""What ends or changes by itself is noticed by a real daemon, although no job says a word."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.live import daemon, until

SILENT = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.mark.slow
def test_two_silent_jobs_take_turns_on_one_gpu(tmp_path: Path) -> None:
    with daemon(tmp_path / "state", "--gpus", "1x1", "--round", "1", "--policy", "max-min-fairness") as site:
        client = site.up()
        ids = client.submit([{"run": SILENT, "checkpoint": {"grace_s": 0.1}} for _ in range(2)])
        until(lambda: all(client.job(job_id)["attempt"] >= 2 for job_id in ids), "each to have had the GPU twice")


@pytest.mark.slow
def test_a_preference_ends_between_two_rounds(tmp_path: Path) -> None:
    with daemon(tmp_path / "state", "--gpus", "2x2", "--round", "600") as site:
        client = site.up()
        [spread] = client.submit({"run": SILENT, "gpus": 2, "nodes": 2})
        until(lambda: client.job(spread)["state"] == "running", "a GPU of each node to be taken")
        [patient] = client.submit({"run": SILENT, "gpus": 2, "topology": {"preferred": "node", "max_wait_s": 5.0}})
        until(lambda: client.job(patient)["reason"]["code"] == "waits-for-a-better-place", "a decision")
        assert "5 s after its submission" in " ".join(client.explain(patient)["sentences"])
        until(lambda: client.job(patient)["state"] == "running", "the preference to end")
        job = client.job(patient)
        assert (job["started_s"] or 0.0) - job["submitted_s"] >= 5.0
