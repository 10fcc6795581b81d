"""Clocks that are wrong: jobs and daemon need not agree on the time of day."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.live import EXAMPLES, daemon, until

AHEAD = """
import time
time.time = lambda real=time.time: real() + 3600.0
"""


@pytest.mark.slow
def test_a_job_whose_clock_is_an_hour_ahead_runs_once_and_ends(tmp_path: Path) -> None:
    """Its lease of a few seconds would be over before it begins if it were a point in time."""
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    (ahead / "sitecustomize.py").write_text(AHEAD)
    run = [sys.executable, str(EXAMPLES / "toy_sdk.py"), "--steps", "300", "--step-s", "0.01"]
    spec = {"run": run, "workdir": str(EXAMPLES), "env": {"PYTHONPATH": str(ahead)}}
    with daemon(tmp_path / "state", "--gpus", "1x1", "--round", "1", "--lease", "2") as site:
        client = site.up()
        [job_id] = client.submit(spec)
        ended = client.wait(job_id, 90)
        said = "".join(client.logs(job_id))
        assert (ended["state"], ended["attempt"]) == ("done", 1), said
        assert "leaving" not in said


@pytest.mark.slow
def test_a_job_still_leaves_when_no_daemon_renews_its_lease_and_resumes_later(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run = [sys.executable, str(EXAMPLES / "toy_sdk.py"), "--steps", "800", "--step-s", "0.01"]
    with daemon(state, "--gpus", "1x1", "--round", "1", "--lease", "4") as site:
        client = site.up()
        [job_id] = client.submit({"run": run, "workdir": str(EXAMPLES)})
        until(lambda: client.job(job_id)["progress"], "the first steps")
        site.kill()
        until((state / "jobs" / job_id / "1" / "exit.json").exists, "the end of its lease")
        client = site.up()
        ended = client.wait(job_id, 90)
        assert (ended["state"], ended["attempt"]) == ("done", 2)
        story = [line["sentence"] for line in client.explain(job_id)["story"]]
        assert "its lease was not renewed in time" in story
