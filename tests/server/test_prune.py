"""Directories of jobs that ended long ago go, slowly; nothing else does, whatever a job left in its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.server.site import spec
from trine.core.errors import InputError
from trine.executor.attempt.removal import remove_tree
from trine.executor.attempt.storage import DirectoryStorage
from trine.server.live_job import LiveJob
from trine.server.prune import Pruner, Retention, keep_seconds
from trine.server.state import LiveState

NOW = 1e9
DAY_S = 86_400.0


def site(tmp_path: Path, retention: Retention, busy: tuple[str, ...] | None = ()) -> Pruner:
    """Jobs 1 to 5: ended 40, 20 and 10 days ago, running, and not on record since 50 days."""
    jobs = {}
    for number, days in (("1", 40), ("2", 20), ("3", 10)):
        ended_s = NOW - days * DAY_S
        jobs[number] = LiveJob(number, "ada", "default", 1.0, spec(), 0.0, "done", finished_s=ended_s)
    jobs["4"] = LiveJob("4", "ada", "default", 1.0, spec(), 0.0, "running", 1)
    for number in ("1", "2", "3", "4", "5"):
        (tmp_path / "jobs" / number / "1").mkdir(parents=True)
        (tmp_path / "jobs" / number / "log").write_text("hello\n")
    os.utime(tmp_path / "jobs" / "5", (0, NOW - 50 * DAY_S))
    (tmp_path / "jobs" / "notes").mkdir()
    return Pruner(DirectoryStorage(tmp_path), retention, lambda: LiveState(jobs), lambda: busy, lambda: NOW)


def jobs_of(pruner: Pruner) -> Path:
    assert isinstance(pruner.storage, DirectoryStorage)
    return pruner.storage.jobs


def left(pruner: Pruner) -> list[str]:
    asyncio.run(pruner.once())
    return sorted(path.name for path in jobs_of(pruner).iterdir())


def test_what_ended_long_ago_is_removed_and_live_jobs_stay(tmp_path: Path) -> None:
    assert left(site(tmp_path, Retention())) == ["2", "3", "4", "notes"]


def test_checkpoints_are_removed_only_if_the_operator_said_so(tmp_path: Path) -> None:
    for name, retention, kept in (("a", Retention(), True), ("b", Retention(checkpoints=True), False)):
        pruner = site(tmp_path / name, retention)
        (jobs_of(pruner) / "1" / "checkpoints" / "step-100").mkdir(parents=True)
        assert ("1" in left(pruner)) == kept


def test_only_so_many_ended_jobs_are_kept(tmp_path: Path) -> None:
    assert left(site(tmp_path, Retention(None, 1))) == ["3", "4", "notes"]


def test_forever_keeps_all_and_an_end_that_is_not_on_record_keeps_its_job(tmp_path: Path) -> None:
    assert left(site(tmp_path / "a", Retention(None))) == ["1", "2", "3", "4", "5", "notes"]
    assert left(site(tmp_path / "b", Retention(0.0, 0), busy=("2",))) == ["2", "4", "notes"]


def test_nothing_is_removed_while_the_engine_cannot_say_what_runs(tmp_path: Path) -> None:
    assert left(site(tmp_path, Retention(), busy=None)) == ["1", "2", "3", "4", "5", "notes"]


def test_what_would_be_removed_is_counted_and_stays(tmp_path: Path) -> None:
    pruner = site(tmp_path, Retention())
    (jobs_of(pruner) / "1" / "checkpoints" / "step-100").mkdir(parents=True)
    (jobs_of(pruner) / "5" / "away").symlink_to(tmp_path)
    os.utime(jobs_of(pruner) / "5", (0, NOW - 50 * DAY_S))
    before = sorted(jobs_of(pruner).iterdir())
    found = asyncio.run(pruner.once(dry_run=True))
    assert (found.jobs, found.kept_for_checkpoints, found.records, found.more) == (1, 1, 0, False)
    assert 6 <= found.job_bytes < 5_000, "the log, and a link, but not what it leads to"
    assert sorted(jobs_of(pruner).iterdir()) == before
    assert asyncio.run(pruner.once()) == found


def test_what_takes_longer_than_a_caller_waits_is_done_in_parts(tmp_path: Path) -> None:
    pruner = site(tmp_path, Retention())
    found = asyncio.run(pruner.once(within_s=0.0))
    assert (found.jobs, found.more) == (0, True)
    assert asyncio.run(pruner.once()).jobs == 2


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "data").mkdir(parents=True)
    (precious / "data" / "file").write_text("keep")
    job = tmp_path / "jobs" / "7"
    (job / "checkpoints" / "deep").mkdir(parents=True)
    for where in (job / "checkpoints", job / "checkpoints" / "deep", job):
        (where / "away").symlink_to(precious)
        (where / "file").symlink_to(precious / "data" / "file")
    remove_tree(tmp_path / "jobs", "7")
    assert not job.exists()
    assert (precious / "data" / "file").read_text() == "keep"
    (tmp_path / "jobs" / "8").symlink_to(precious)
    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "jobs", "8")
    assert (precious / "data" / "file").read_text() == "keep"


def test_a_tree_deeper_than_there_are_descriptors_is_removed(tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()
    below = os.open(tmp_path / "9", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=below)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        deeper = os.open("d", os.O_RDONLY, dir_fd=below)
        os.close(below)
        below = deeper
    os.close(below)
    remove_tree(tmp_path, "9")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "seconds"), [("12h", 43_200.0), ("30d", 30 * DAY_S), ("90", 90.0), ("forever", None)])
def test_how_long_is_told_in_words(text: str, seconds: float | None) -> None:
    assert keep_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-1d", "a month", "nan", "1e9d", "inf"])
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match=r"--keep-jobs: .*expected a duration such as 12h, 30d or 8w, or forever"):
        keep_seconds(text)
