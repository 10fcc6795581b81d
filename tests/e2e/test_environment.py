"""The environment of a job: the submitter's programs, variables and directory, not the daemon's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.live import daemon


@pytest.mark.slow
def test_a_job_runs_with_the_programs_and_in_the_directory_of_its_submitter(tmp_path: Path) -> None:
    mine, here = tmp_path / "env" / "bin", tmp_path / "here"
    mine.mkdir(parents=True)
    here.mkdir()
    program = mine / "train"
    program.write_text('#!/bin/sh\necho "$VIRTUAL_ENV|$HF_TOKEN|$MY_SETTING|$HOME|$(pwd)"\n')
    program.chmod(0o755)
    environ = {
        **{"PATH": f"{mine}:/usr/bin:/bin", "VIRTUAL_ENV": str(mine.parent), "HF_TOKEN": "secret", "MY_SETTING": "7"},
        "HOME": "/no/home",
    }

    def submit(*words: str) -> str:
        command = [sys.executable, "-m", "trine", "submit", "--state", str(tmp_path / "state"), *words]
        done = subprocess.run(command, env=environ, cwd=here, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with daemon(tmp_path / "state", "--gpus", "1x1", "--event-driven") as site:
        client = site.up()

        def said(job_id: str) -> str:
            ended = client.wait(job_id, 60)
            assert ended["state"] == "done", ended
            return "".join(client.logs(job_id)).strip()

        home = os.environ.get("HOME", "")
        assert said(submit("--", "train")) == f"{mine.parent}|||{home}|{here}"
        (tmp_path / "job.yaml").write_text("run: train\n")
        assert said(submit("--export", "default,MY_SETTING", str(tmp_path / "job.yaml"))).split("|")[2:] == [
            *("7", home, str(here)),
        ]
        missing = client.wait(submit("--export", "none", "--", "train"), 60)
        assert missing["state"] == "failed", "the daemon's PATH does not have it"
