"""What of the submitter's environment goes with a job, and what never does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import TOKEN, FakeDaemon
from trine.cli.live.export import DEFAULT
from trine.inputs.job_spec import parse_jobs

MINE = {
    "PATH": "/my/env/bin:/usr/bin",
    "VIRTUAL_ENV": "/my/env",
    "LC_TIME": "de_DE.UTF-8",
    "MY_SETTING": "7",
    "HOME": "/home/me",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "TRINE_TOKEN": TOKEN,
    "RANK": "3",
    "PET_NNODES": "9",
    "HF_TOKEN": "hf_secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "DB_PASSWORD": "secret",
    "NCCL_AUTH_COOKIE": "secret",
    "MY_INDEX": "https://me:secret@example.org/simple",
    "TOKENIZERS_PARALLELISM": "false",
    "BASH_FUNC_ml%%": "() { :; }",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> None:
    for name in os.environ:
        if not name.startswith("PYTEST"):
            monkeypatch.delenv(name)
    for name, value in MINE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRINE_STATE", str(state))
    monkeypatch.chdir(tmp_path)


def passed(daemon: FakeDaemon, *options: str) -> dict[str, str]:
    done = trine("submit", *options, "--", "true")
    assert (done.code, done.err) == (0, "")
    found: dict[str, str] = daemon.specs[done.out.strip()].get("env", {})
    return found


def only(*names: str) -> dict[str, str]:
    return {name: MINE[name] for name in names}


def test_a_job_finds_the_programs_of_its_submitter_and_no_secrets(daemon: FakeDaemon) -> None:
    assert passed(daemon) == only("PATH", "VIRTUAL_ENV", "LC_TIME")


def test_the_documentation_names_every_variable_that_is_passed_by_default() -> None:
    page = Path(__file__).parents[3] / "docs" / "live.md"
    assert [name for name in DEFAULT if f"`{name}`" not in page.read_text()] == []


def test_all_is_without_secrets_and_without_what_belongs_to_the_session_or_to_trine(daemon: FakeDaemon) -> None:
    found = passed(daemon, "--export", "all")
    extra = {name: value for name, value in found.items() if name.startswith("PYTEST")}
    assert found == extra | only("PATH", "VIRTUAL_ENV", "LC_TIME", "MY_SETTING", "TOKENIZERS_PARALLELISM")


def test_names_and_patterns_choose_and_none_is_nothing(daemon: FakeDaemon) -> None:
    assert passed(daemon, "--export", "none") == {}
    assert passed(daemon, "--export", "PATH,MY_*") == only("PATH", "MY_SETTING")
    assert passed(daemon, "--export", "default, MY_SETTING") == passed(daemon) | only("MY_SETTING")
    assert passed(daemon, "--export", "HF_*") == {}, "a pattern passes no secret"


def test_a_secret_goes_with_a_job_only_when_it_is_named_alone(daemon: FakeDaemon) -> None:
    done = trine("submit", "--export", "PATH,HF_TOKEN", "--", "true")
    assert (done.code, daemon.requests) == (2, [])
    assert "--export: HF_TOKEN looks like a secret; expected --env HF_TOKEN" in done.err
    assert passed(daemon, "--export", "none", "--env", "HF_TOKEN") == only("HF_TOKEN")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("NOT_SET", "--export: NOT_SET is not set here; expected none, all, default, or names"),
        ("PATH,none", "--export: found 'none'"),
        ("A-B", "--export: found 'A-B'"),
        ("", "--export: found ''"),
    ],
)
def test_what_cannot_be_passed_is_refused_in_a_sentence(daemon: FakeDaemon, choice: str, message: str) -> None:
    done = trine("submit", "--export", choice, "--", "true")
    assert (done.code, daemon.requests) == (2, []) and message in done.err


def test_what_the_file_and_env_say_goes_over_it(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: a\nenv: {VIRTUAL_ENV: /file, LC_TIME: C}\n---\nrun: b\n")
    assert trine("submit", "--env", "LC_TIME=fr", "job.yaml").code == 0
    assert daemon.specs["1"]["env"] == {"PATH": MINE["PATH"], "VIRTUAL_ENV": "/file", "LC_TIME": "fr"}
    assert daemon.specs["2"]["env"] == {"PATH": MINE["PATH"], "VIRTUAL_ENV": "/my/env", "LC_TIME": "fr"}


def test_more_than_a_job_may_carry_is_told_and_nothing_is_left_out(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARGE", "x" * 70_000)
    done = trine("submit", "--export", "all", "--", "true")
    assert (done.code, daemon.requests) == (2, [])
    assert "with those of --export all; expected at most 128 variables and 64 kB in all" in done.err
    for number in range(130):
        monkeypatch.setenv(f"NCCL_{number}", "1")
    done = trine("submit", "--", "true")
    assert done.code == 2 and "env: found 133 variables of" in done.err and "--export default" in done.err
    assert trine("submit", "--export", "PATH", "--", "true").code == 0


def test_bytes_that_are_no_text_are_named(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "\udcff")
    done = trine("submit", "--", "true")
    assert (done.code, daemon.requests) == (2, [])
    assert "--export: LC_ALL is not text in UTF-8" in done.err


def test_a_thousand_jobs_carry_their_common_environment_once(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    answer = FakeDaemon.submit

    def submit(self: FakeDaemon, body: Any, request_id: str) -> dict[str, Any]:
        sent.append(json.dumps(body))
        return answer(self, body, request_id)

    monkeypatch.setattr(FakeDaemon, "submit", submit)
    monkeypatch.setenv("PATH", "/a/long/way/to/programs:" * 200)
    (tmp_path / "sweep.yaml").write_text("".join(f"---\nrun: train --seed {i}\n" for i in range(1_000)))
    assert trine("submit", "sweep.yaml").code == 0
    assert len(sent[0]) < 300_000, "the daemon takes a megabyte"
    specs = parse_jobs(sent[0])
    assert len(specs) == 1_000 and all(spec.env["PATH"] == "/a/long/way/to/programs:" * 200 for spec in specs)
