from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.site import spec
from trine.executor.attempt.storage import DirectoryStorage
from trine.executor.base import AttemptProgress, Handle
from trine.server.interface import PlacementView
from trine.server.leases import Leases
from trine.server.live_job import LiveJob
from trine.server.state import LiveState


def job(job_id: str = "1", **values: object) -> LiveJob:
    made = LiveJob(job_id, "ann", "default", 1.0, spec(2, steps=100.0), 0.0, "running", 3, (0, 1), run_from_s=100.0)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def progress(
    at_s: float, step: int, epoch: int = 3, job_id: str = "1", checkpoint: int | None = None
) -> AttemptProgress:
    return AttemptProgress(Handle(job_id, epoch), at_s, step, 2.0, None, checkpoint)


@pytest.fixture
def leases() -> Leases:
    return Leases(900.0, "http://127.0.0.1:1", lambda user: f"unix-{user}")


def test_a_lease_says_all_that_a_start_needs(leases: Leases, tmp_path: Path) -> None:
    made = leases.lease(job(), (PlacementView("node0", (0, 1)),))
    assert made.handle == Handle("1", 3)
    assert made.placement == (("node0", (0, 1)),)
    assert (made.run_as, made.lease_s, made.env["TRINE_API"]) == ("unix-ann", 900.0, "http://127.0.0.1:1")
    placed = DirectoryStorage(tmp_path).with_directories(made)
    assert placed.checkpoint_dir == str(tmp_path / "jobs" / "1" / "checkpoints") == placed.workdir


def test_news_is_used_once_and_covers_the_time_since_the_last(leases: Leases) -> None:
    state = LiveState({"1": job(), "2": job("2")})
    leases.hear(progress(130.0, 60))
    leases.hear(progress(160.0, 120))
    (heard,) = leases.news(state)
    assert (heard.job, heard.epoch, heard.step, heard.seconds) == ("1", 3, 120, 60.0)
    assert leases.news(state) == []
    leases.hear(progress(160.0, 121))
    assert leases.news(state) == [], "the same moment again is no news"
    leases.hear(progress(190.0, 180))
    assert [heard.seconds for heard in leases.news(state)] == [30.0]


def test_news_of_other_epochs_of_stopping_and_of_unknown_jobs_is_not_used(leases: Leases) -> None:
    state = LiveState({"1": job(state="stopping"), "2": job("2"), "3": job("3", state="waiting", gpus=())})
    for news in (progress(130.0, 1), progress(130.0, 1, 2, "2"), progress(130.0, 1, 3, "3"), progress(1.0, 1, 1, "9")):
        leases.hear(news)
    assert leases.news(state) == []


def test_news_from_before_the_start_is_not_used(leases: Leases) -> None:
    """A clock that went back, or a file left over."""
    state = LiveState({"1": job()})
    leases.hear(progress(99.0, 60))
    assert leases.news(state) == []


def test_only_a_checkpoint_counts_as_safe(leases: Leases) -> None:
    assert leases.safe_step(Handle("1", 3)) is None
    leases.hear(progress(130.0, 60))
    assert leases.safe_step(Handle("1", 3)) is None
    leases.hear(progress(140.0, 80, checkpoint=50))
    assert leases.safe_step(Handle("1", 3)) == 50.0
    assert leases.safe_step(Handle("1", 2)) is None


def test_a_checkpoint_told_before_the_last_news_counts(leases: Leases) -> None:
    leases.hear(progress(140.0, 80, checkpoint=50))
    leases.hear(progress(150.0, 90))
    assert leases.safe_step(Handle("1", 3)) == 50.0
