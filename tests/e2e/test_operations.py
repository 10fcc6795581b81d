"""A real daemon with real processes: a pipeline with an array, notices to a webhook, its history, and ``trine gc``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.cli.live.command import trine
from tests.e2e.live import daemon, until
from tests.server.test_webhook import SECRET, receiving
from trine.server.webhook import signature

PIPELINE = """\
name: prepare
run: sh -c 'echo prepared > data'
workdir: {home}
---
name: train
run: sh -c 'cat data; echo element $TRINE_ARRAY_INDEX of $TRINE_ARRAY_COUNT; test $TRINE_ARRAY_INDEX != 2'
workdir: {home}
array: 0-2%2
after: prepare
---
name: report
run: sh -c 'echo all ended'
workdir: {home}
after: any:train
---
name: publish
run: sh -c 'echo only if all went well'
workdir: {home}
after: train
"""


def _configuration(home: Path, url: str) -> Path:
    (home / "secret").write_bytes(SECRET)
    (home / "secret").chmod(0o600)
    config = home / "trine.yaml"
    config.write_text(f"webhook:\n  url: {url}\n  secret_file: {home / 'secret'}\n  internal: true\n")
    return config


def test_a_pipeline_runs_in_order_over_a_kill_of_the_daemon_and_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(PIPELINE.format(home=tmp_path))
    state = tmp_path / "state"
    with receiving(503) as receiver:
        options = ("--gpus", "1x2", "--config", str(_configuration(tmp_path, receiver.url)), "--keep-journal", "90d")
        with daemon(state, *options) as running:
            running.up()
            submitted = trine("submit", "--state", state, tmp_path / "jobs.yaml")
            assert submitted.out.split() == ["1", "2", "3", "4", "5", "6"]
            running.kill()
            client = running.up()
            ends = {job_id: client.wait(job_id, 60.0)["state"] for job_id in submitted.out.split()}
            assert ends == {"1": "done", "2": "done", "3": "done", "4": "failed", "5": "done", "6": "cancelled"}
            jobs = {job_id: client.job(job_id) for job_id in ends}
            first_end_s = jobs["1"]["finished_s"]
            assert first_end_s is not None and all((jobs[i]["started_s"] or 0) >= first_end_s for i in "234")
            assert (jobs["5"]["started_s"] or 0) >= max(jobs[i]["finished_s"] or 0 for i in "234")
            assert "Job 4, which had to end well first, failed." in jobs["6"]["reason"]["sentence"]
            assert b"".join(client.log_bytes("3")).decode() == "prepared\nelement 1 of 3\n"
            until(lambda: {"5", "6"} <= {notice["job"]["id"] for notice in receiver.notices}, "the last notices")
            assert trine("history", "--state", state, "--out", tmp_path / "h.csv").code == 0
            told = trine("gc", "--dry-run", "--state", state)
            assert (told.code, told.out) == (0, "Directories of 0 ended jobs (0 bytes) would be removed.\n")
            assert "GPUs   2: 0 held" in trine("top", "--once", "--state", state).out
    for headers, body in receiver.got:
        assert headers["X-Trine-Signature"] == signature(SECRET, headers["X-Trine-Timestamp"], body)
    assert {json.loads(body)["job"]["state"] for _, body in receiver.got} <= {"done", "failed", "cancelled"}
    rows = {row["id"]: row for row in csv.DictReader((tmp_path / "h.csv").read_text().splitlines())}
    assert [rows[i]["array_index"] for i in ("1", "2", "3", "4")] == ["", "0", "1", "2"]
    assert rows["6"]["started_s"] == "" and float(rows["2"]["eligible_s"]) >= first_end_s
