"""The files of a run, read back: who holds which GPU at any time, as the result says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.core.result import RunResult
from trine.report.data_files import write_timeline
from trine.report.files import write_run
from trine.report.recorded_run import TIMELINE, read_run, version_of
from trine.server.dashboard.recorded_board import RecordedBoard
from trine.sim.scenario import Scenario, run


@pytest.fixture(scope="module")
def result() -> RunResult:
    values = {"workload.jobs": 60, "workload.load": 1.2, "workload.max_gpus": 8}
    return run(Scenario("v100=2x4,k80=2x4", "las", "packed-sticky", workload="helios", values=values))


@pytest.fixture(scope="module")
def folder(result: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs") / "one"
    write_run(result, made)
    return made


def test_at_every_time_the_board_shows_who_held_what(result: RunResult, folder: Path) -> None:
    board = RecordedBoard(read_run(folder))
    last_s = max(segment.end_s for segment in result.segments)
    for part in range(41):
        at_s = last_s * part / 40
        held = {gpu: s.job_id for s in result.segments if s.start_s <= at_s < s.end_s for gpu in s.gpus}
        shown = board.board(at_s)
        assert {gpu: jobs[0] for gpu, jobs in enumerate(shown.gpu_jobs) if jobs} == held
        arrived = {job.job_id for job in result.jobs if job.submit_s <= at_s}
        states = {job_id: row[4] for job_id, row in shown.rows.items()}
        assert states.keys() == arrived
        assert {job_id for job_id, state in states.items() if state == "running"} == set(held.values())
        assert set(shown.order) == {job_id for job_id, state in states.items() if state == "waiting"}


def test_nodes_racks_and_types_come_back(result: RunResult, folder: Path) -> None:
    cluster = read_run(folder).cluster
    assert [(node.name, node.gpus, node.gpu_type, node.rack) for node in cluster.nodes] == [
        (node.name, node.gpus, node.gpu_type, node.rack) for node in result.cluster.nodes
    ]


def test_history_and_shares_agree_with_the_summary(result: RunResult, folder: Path) -> None:
    board = RecordedBoard(read_run(folder))
    held = board.usage().columns["GPUs held"]
    mean = sum(held) / len(held) / result.cluster.gpu_count
    assert mean == pytest.approx(result.summary.utilization, abs=0.05)
    shares = board.shares(board.run.last_s)
    assert sum(share.received for share in shares) == pytest.approx(mean, abs=0.05)


def test_a_job_has_its_story_up_to_now(result: RunResult, folder: Path) -> None:
    board = RecordedBoard(read_run(folder))
    job = max(result.jobs, key=lambda job: job.preemptions)
    story = board.explain(job.job_id, job.finish_s)["story"]
    starts = [line for line in story if line["what"] == "started"]
    assert len(starts) == sum(segment.job_id == job.job_id for segment in result.segments)
    assert story[0]["what"] == "submitted" and story[-1]["what"] == "done"
    assert len(board.explain(job.job_id, job.start_s)["story"]) < len(story)


def test_files_of_older_versions_are_shown_without_their_nodes(result: RunResult, folder: Path, tmp_path: Path) -> None:
    for name in ("jobs.csv", TIMELINE):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / TIMELINE)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"cluster"}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / TIMELINE)
    assert RecordedBoard(read_run(tmp_path)).board(0.0).nodes


@pytest.mark.parametrize("case", ["no directory", "nothing in it", "not parquet"])
def test_a_directory_without_a_run_gets_one_sentence(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "runs"
    if case != "no directory":
        folder.mkdir()
    if case == "not parquet":
        (folder / TIMELINE).write_text("no")
        (folder / "jobs.csv").write_text("job_id\n")
    with pytest.raises(InputError, match="expected the directory of a run"):
        read_run(folder)


def test_another_run_in_the_directory_is_another_version(result: RunResult, folder: Path, tmp_path: Path) -> None:
    write_timeline(tmp_path / TIMELINE, result.segments, result.settings, result.cluster)
    first = version_of(tmp_path)
    write_timeline(tmp_path / TIMELINE, result.segments[:-5], result.settings, replace(result.cluster))
    assert version_of(tmp_path) not in ("", first) and version_of(tmp_path / "none") == ""


def test_a_job_that_waits_beside_free_gpus_says_what_may_keep_it(tmp_path: Path) -> None:
    """c could have the second GPU, but b, which needs both, goes first."""
    (tmp_path / "trace.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,1,100\nb,0,2,50\nc,10,1,20\n")
    for event_driven, rounds in ((False, "Jobs start at rounds, here every 300 s."), (True, "")):
        values, out = {"event_driven": event_driven}, tmp_path / f"out-{event_driven}"
        write_run(run(Scenario("1x2", "fifo", "packed-sticky", trace=str(tmp_path / "trace.csv"), values=values)), out)
        board = RecordedBoard(read_run(out))
        waits = "job c waits for 1 GPU; 1 GPU of the cluster is free. 1 job submitted before it waits as well."
        assert board.reason("c", 50.0) == f"{waits} {rounds}".rstrip()
        assert board.reason("b", 50.0) == "job b waits for 2 GPUs; 1 GPU of the cluster is free."
