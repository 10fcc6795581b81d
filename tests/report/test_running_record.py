"""The record of a run that goes on: a reader always sees all that happened, and nothing is left of it at the end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.experiment.onlooker import Recording, recorded
from trine.planning.recorded_present import read_any
from trine.report.recorded_run import RecordedRun
from trine.report.running_record import RunningRecord, RunningRunReader, found_record, is_running
from trine.server.dashboard.recorded_board import RecordedBoard
from trine.server.dashboard.view_app import RunFolder
from trine.sim.recorder import Recorder
from trine.sim.scenario import Scenario, run

JOBS = {"workload.jobs": 60, "workload.load": 1.2, "workload.max_gpus": 8}
SCENARIO = Scenario("v100=2x4,k80=2x4", "las", "packed-sticky", workload="helios", values=JOBS)


class Reader:
    """Writes the record as often as it can, reads it back each time, and compares."""

    def __init__(self, out: Path) -> None:
        self.recording = Recording(RunningRecord(out), first_s=0.0, every_s=0.0, rest=0.0)
        self.out, self.reader = out, RunningRunReader(Path(), "")
        self.seen = 0

    def begin(self, settings: dict[str, Any], cluster: Cluster, recorder: Recorder) -> None:
        self.recorder = recorder
        self.recording.begin(settings, cluster, recorder)

    def look(self, now: float) -> None:
        self.recording.look(now)
        path = found_record(self.out)
        assert path is not None and is_running(path)
        if self.reader.path != path:
            self.reader = RunningRunReader(path, self.out.name)
        found = self.reader.read()
        if found.now_s == now:
            self.compare(found, now)
            self.seen += 1

    def compare(self, found: RecordedRun, now: float) -> None:
        lives = self.recorder.lives
        shown = RecordedBoard(found).board(now)
        holders = {gpu: life.job.id for life in lives if life.run is not None for gpu in life.run.gpus}
        assert {gpu: jobs[0] for gpu, jobs in enumerate(shown.gpu_jobs) if jobs} == holders
        ended = {life.job.id: life.finish_s for life in lives if life.finish_s >= 0}
        assert {job.id: job.finish_s for job in found.jobs if math.isfinite(job.finish_s)} == ended
        assert found.last_s == now and len(found.jobs) == len(lives)


def test_whenever_it_is_read_it_says_what_has_happened(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "deep" / "las")
    result = run(SCENARIO, onlooker=reader)
    assert reader.seen > 20
    assert result.summary.finished == 60
    board = RecordedBoard(reader.reader.read())
    assert board.usage().hours and board.shares(board.run.last_s)
    assert board.explain(board.run.jobs[0].id, board.run.last_s)["story"]
    reader.recording.record.remove()
    assert not (tmp_path / "deep").exists(), "what was made for it goes with it"


def test_half_a_line_is_left_for_the_next_time(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "las")
    run(SCENARIO, onlooker=reader)
    path = found_record(tmp_path / "las")
    assert path is not None
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    growing = tmp_path / "growing"
    follower = RunningRunReader(growing, "las")
    with pytest.raises(InputError):
        follower.read()
    first, second = b"".join(lines[:2]), lines[2]
    growing.write_bytes(first + second[:20])
    before = follower.read()
    assert follower.read() is before, "nothing new is nothing to do"
    places = {job: list(stretches) for job, stretches in before.stretches_of.items()}
    growing.write_bytes(first + second)
    after = follower.read()
    assert before.stretches_of == places, "an answer that is being made from it does not change"
    assert after.now_s is not None and before.now_s is not None and after.now_s > before.now_s
    growing.write_bytes(whole)
    found, at_once = follower.read(), RunningRunReader(growing, "las").read()
    assert found.now_s == reader.reader.read().now_s
    for stretch in range(len(at_once.start_s)):
        assert found.gpus_of(stretch) == at_once.gpus_of(stretch)
    assert found.stretches_of == at_once.stretches_of and found.jobs == at_once.jobs
    assert (found.end_s == at_once.end_s).all() and found.ended == at_once.ended
    reader.recording.record.remove()


def test_a_second_run_to_the_same_place_is_refused_and_a_killed_one_is_taken_over(tmp_path: Path) -> None:
    out = tmp_path / "las"
    out.mkdir()
    one, two = RunningRecord(out), RunningRecord(out)
    one.begin({}, Cluster(()))
    with pytest.raises(InputError, match="another run writes its results there"):
        two.begin({}, Cluster(()))
    path = found_record(out)
    assert path is not None and path.parent == out and is_running(path)
    one.remove()
    assert found_record(out) is None
    path.write_text("left behind by a run that was killed")
    assert not is_running(path)
    two.begin({}, Cluster(()))
    assert path.read_text().startswith('{"settings"')
    two.remove()


def test_before_its_first_line_it_is_a_run_that_has_just_begun(tmp_path: Path) -> None:
    out = tmp_path / "las"
    with recorded(out):
        with pytest.raises(InputError, match="las: a run that has just begun"):
            RunFolder(out).board()
        with pytest.raises(InputError, match="las: a run that has just begun"):
            read_any(out)
    with pytest.raises(InputError, match="no such directory, and no run that goes on"):
        RunFolder(out).board()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), recorded(tmp_path / "a" / "b") as record:
        assert record is not None
        record.record.begin({}, Cluster(()))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
