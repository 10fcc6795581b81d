"""What people copy from ``deploy/`` and from the pages on operations is accepted as it is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from tests.cli.live.command import trine
from tests.docs.pages import PAGES, ROOT, blocks, table_spans
from trine.inputs.job_file import read_job_file
from trine.server.access import Queue, UserLimits, read_access
from trine.server.api.serve import SOCKET
from trine.server.metrics import TABLE
from trine.server.predictions import SCORE_FILE
from trine.server.sessions import SESSIONS_FILE
from trine.server.state_directory import JOURNAL
from trine.server.usage import USAGE_FILE

DEPLOY = ROOT / "deploy"


def _options() -> list[str]:
    """What the environment file tells ``trine up``, with the configuration that lies beside it."""
    found = re.search(r"^TRINE_OPTIONS=(.*)$", (DEPLOY / "trine.env").read_text(), re.MULTILINE)
    assert found is not None
    return [word.replace("/etc/trine", str(DEPLOY)) for word in shlex.split(found.group(1))]


def test_the_options_and_the_configuration_start_a_daemon(tmp_path: Path) -> None:
    done = trine("up", *_options(), "--gpus", "1x4", "--state", tmp_path / "state", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "Policy srtf, placement packed-sticky, rounds of 60 s." in done.out


def test_the_configuration_shows_every_key_and_its_limits_hold() -> None:
    access = read_access(DEPLOY / "trine.yaml")
    assert access.default_queue == "research"
    assert access.queues["production"].users == frozenset({"ada", "grace"})
    assert (access.queues["nightly"].max_gpus, access.limits("ada").max_waiting) == (4, 1000)


def test_the_configuration_on_the_page_is_one_and_its_keys_are_all_there_are(tmp_path: Path) -> None:
    page = ROOT / "docs/operations.md"
    [text] = [text for text in blocks(page, "yaml") if text.startswith("default_queue")]
    (tmp_path / "trine.yaml").write_text(text)
    access = read_access(tmp_path / "trine.yaml")
    assert access.queues["nightly"].max_gpus == 4 and access.limits("ada").max_gpus == 8
    assert set(table_spans(page, "Queues, users and limits", 0)) == {each.name for each in fields(Queue)} - {"name"}
    assert {"max_gpus", "max_waiting"} == {each.name for each in fields(UserLimits)}


def test_every_file_of_the_state_directory_is_in_the_table() -> None:
    named = set(table_spans(ROOT / "docs/operations.md", "The state directory", 0))
    files = {JOURNAL, SESSIONS_FILE, SCORE_FILE, USAGE_FILE, SOCKET, "token", "tokens.json", "api.json", "daemon.lock"}
    assert files <= named


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "trine.service").read_text()
    unit = tmp_path / "trine.service"
    unit.write_text(text.replace("/opt/trine/.venv/bin/trine", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stop_of_the_service_leaves_jobs_alone() -> None:
    unit = (DEPLOY / "trine.service").read_text().splitlines()
    assert {"KillMode=process", "Delegate=yes", "OOMPolicy=continue"} <= set(unit)


def test_job_files_on_the_pages_are_job_files(tmp_path: Path) -> None:
    jobs = [text for page in PAGES for text in blocks(page, "yaml") if re.search("^run:", text, re.MULTILINE)]
    assert jobs
    for text in jobs:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        assert read_job_file(path)


def test_the_scraper_and_the_alerts_name_what_exists() -> None:
    page = ROOT / "docs/operations.md"
    [scraper] = [text for text in blocks(page, "yaml") if "scrape_configs" in text]
    [target] = yaml.safe_load(scraper)["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.endswith(f":{_options()[_options().index('--port') + 1]}")
    assert set(re.findall(r"trine_[a-z]+_[a-z_]+", page.read_text())) <= set(TABLE)
