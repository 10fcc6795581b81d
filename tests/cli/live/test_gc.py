"""``trine gc``: all that the daemon removes in parts is added up, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon
from trine.client import Client


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setenv("TRINE_STATE", str(state))


def _answers(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, int, int, int, bool]) -> list[bool]:
    """The daemon answers so, one after the other; which of the requests were dry runs."""
    left, asked = list(answers), list[bool]()

    def collect(_: Client, dry_run: bool = False) -> dict[str, Any]:
        asked.append(dry_run)
        return dict(zip(("jobs", "job_bytes", "kept_for_checkpoints", "records", "more"), left.pop(0), strict=True))

    monkeypatch.setattr(Client, "collect", collect)
    return asked


def test_it_goes_on_until_nothing_is_left_and_adds_up(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _answers(monkeypatch, (3, 2_000_000, 1, 0, True), (1, 500, 2, 7, False))
    done = trine("gc")
    assert (done.code, done.err, asked) == (0, "", [False, False])
    assert done.out.splitlines() == [
        "Directories of 4 ended jobs (2.0 MB) removed.",
        "7 records of the journal removed.",
        "Directories of 2 jobs as old stay. "
        "There are checkpoints in them; `trine up --keep-jobs T` removes those, too.",
    ]


def test_a_dry_run_asks_once_and_says_that_there_is_more(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _answers(monkeypatch, (1, 900, 0, 1, True))
    done = trine("gc", "--dry-run")
    assert done.err == ""
    assert done.out.splitlines() == [
        "Directories of 1 ended job (900 bytes) would be removed so far, and there is more.",
        "1 record of the journal would be removed so far, and there is more.",
    ]
    assert asked == [True]


def test_without_a_daemon_it_says_so(tmp_path: Path) -> None:
    done = trine("gc", "--state", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "no daemon" in done.err
