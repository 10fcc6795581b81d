"""What-if from a recorded simulation: where nothing is uncertain it must say what the recording says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from trine.cli.main import app
from trine.core.errors import InputError, TrineError
from trine.planning import recorded_present
from trine.planning.changes import APPLICABLE, GRAMMAR, INSTEAD
from trine.planning.recorded_present import read_any, whatif_of_run
from trine.report.files import write_run
from trine.sim.scenario import Scenario, run

TRACE = "job_id,submit_s,duration_s,gpus,user\n" + "".join(
    f"{i},{i * 300},{1800 + 700 * (i % 7)},{1 + i % 4},{'ada' if i % 2 else 'ben'}\n" for i in range(80)
)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths are known here, so that more draws say the same."""
    monkeypatch.setattr(recorded_present, "DRAWS", 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    (home / "trace.csv").write_text(TRACE)
    values = {"event_driven": True}
    write_run(
        run(Scenario("4x4", "fifo", "packed-sticky", trace=str(home / "trace.csv"), values=values)), home / "fifo"
    )
    return home / "fifo"


def test_in_order_of_arrival_with_known_lengths_the_future_is_the_recorded_one(folder: Path) -> None:
    recorded = read_any(folder)
    found = whatif_of_run(folder, "", ["submit 1 60"])
    assert found["draws"] >= 10
    middle_s = float(np.median(recorded.submit_s))
    there = {job.id: job.finish_s for job in recorded.jobs if job.submit_s <= middle_s < job.finish_s}
    assert len(there) > 5
    ends = {job_id: job["before"]["end_s"]["median"] for job_id, job in found["jobs"].items() if job["before"]}
    assert ends == pytest.approx(there, abs=1.0)


def test_more_nodes_make_jobs_end_as_if_they_had_been_there(folder: Path) -> None:
    found = whatif_of_run(folder, "", ["add 4x4"])
    assert found["gain"] > 5 and found["lose"] == 0
    assert found["mean_change_s"]["median"] < 0


@pytest.mark.parametrize(
    "change",
    ["policy las", "placement packed", "lose node1", "cancel JOB", "hold JOB", "priority JOB 5", "quota user:x=4"],
)
def test_every_change_of_a_live_state_can_be_asked(folder: Path, change: str) -> None:
    recorded = read_any(folder)
    middle_s = float(np.median(recorded.submit_s))
    present = next(job.id for job in recorded.jobs if job.submit_s <= middle_s < job.finish_s)
    found = whatif_of_run(folder, "", [change.replace("JOB", present)])
    assert found["gain"] + found["lose"] + found["same"] > 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--at", "999d"], "a time of the run"),
        (["--at", "noon"], "such as 12h or 3600"),
        (["--apply"], "cannot be changed any more"),
        (["--run", "/nonexistent"], "no such directory"),
    ],
)
def test_mistakes_are_told_in_a_sentence(folder: Path, options: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["whatif", "cancel 1", "--run", str(folder), *options])
    assert isinstance(done.exception, InputError | SystemExit)
    assert said in (str(done.exception) + done.output)


LAST = """
from trine.policy.base import KeyPolicy

class Last(KeyPolicy):
    name = "last"
    title = "the youngest first"

    def key(self, view):
        return -view.submit_s
"""
LOWEST = """
from trine.placement.base import Placement, too_few

class Lowest(Placement):
    name = "lowest"
    title = "lowest GPU ids first"

    def place(self, ask, pool):
        return pool.gpus()[: ask.job.gpus] if pool.total >= ask.job.gpus else too_few(ask.job, pool)
"""


def test_a_policy_and_a_placement_of_ones_own_can_be_tried(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "last.py").write_text(LAST)
    (tmp_path / "lowest.py").write_text(LOWEST)
    found = whatif_of_run(folder, "", [f"policy {tmp_path / 'last.py'}", f"placement {tmp_path / 'lowest.py'}-sticky"])
    starts = {job_id: job["after"]["start_s"]["median"] for job_id, job in found["jobs"].items()}
    assert starts["38"] == found["made_at_s"] < starts["24"], "the youngest go first"
    (tmp_path / "last.py").write_text(LAST.replace("view.submit_s", "view.submitted"))
    with pytest.raises(TrineError, match=r"last.py:9: AttributeError: a view of the jobs has no 'submitted'"):
        whatif_of_run(folder, "", [f"policy {tmp_path / 'last.py'}"])


def test_a_run_of_a_policy_of_ones_own_can_be_asked(tmp_path: Path) -> None:
    (tmp_path / "last.py").write_text(LAST)
    (tmp_path / "trace.csv").write_text(TRACE)
    scenario = Scenario("4x4", str(tmp_path / "last.py"), "packed-sticky", trace=str(tmp_path / "trace.csv"))
    write_run(run(scenario), tmp_path / "out")
    found = whatif_of_run(tmp_path / "out", "", ["policy fifo"])
    assert found["gain"] > 0 and found["lose"] > 0


def test_the_command_tells_times_from_then_on(folder: Path) -> None:
    done = CliRunner().invoke(app, ["whatif", "add 4x4", "--run", str(folder)])
    assert done.exit_code == 0 and "jobs gain, 0 lose" in done.stdout and "in " in done.stdout
    assert done.stdout.startswith("After 3h17m of the run:\n")
    as_json = CliRunner().invoke(app, ["whatif", "add 4x4", "--run", str(folder), "--output", "json"])
    assert json.loads(as_json.stdout)["gain"] > 5


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs of both nodes and jobs of one GPU in turn."""
    home = tmp_path_factory.mktemp("wide")
    rows = "".join(f"{i},{i * 60},1800,{8 if i % 2 else 1}\n" for i in range(12))
    (home / "trace.csv").write_text(f"job_id,submit_s,duration_s,gpus\n{rows}")
    values = {"event_driven": True}
    write_run(
        run(Scenario("2x4", "fifo-backfill", "packed", trace=str(home / "trace.csv"), values=values)), home / "run"
    )
    return home / "run"


def test_jobs_that_could_not_run_any_more_lose_by_the_change(wide_folder: Path) -> None:
    found = whatif_of_run(wide_folder, "", ["lose node1"])
    never = {job_id for job_id, job in found["jobs"].items() if job["never_runs"]}
    assert never == {job_id for job_id, job in found["jobs"].items() if job["before"] and int(job_id) % 2} != set()
    assert found["lose"] >= len(never)
    counted = found["gain"] + found["lose"] + found["same"]
    assert counted == len(found["jobs"])
    done = CliRunner().invoke(app, ["whatif", "lose node1", "--run", str(wide_folder)])
    assert f"{len(never)} of those that lose could not run at all" in done.stdout and "would not run" in done.stdout
    cancelled = whatif_of_run(wide_folder, "", [f"cancel {min(never)}"])
    assert not any(job["never_runs"] for job in cancelled["jobs"].values()), "that it ends is what was asked for"


@pytest.mark.parametrize("change", ["submit 9 60", "submit 8"])
def test_a_job_that_can_never_run_is_refused_with_the_reason(change: str, wide_folder: Path) -> None:
    if change == "submit 8":
        assert whatif_of_run(wide_folder, "", [change])["draws"] >= 10
        return
    with pytest.raises(InputError, match="can never run: it asks for 9 GPUs"):
        whatif_of_run(wide_folder, "", [change])
    assert whatif_of_run(wide_folder, "", ["add 1x4", change])["draws"] >= 10, "nodes that come with it count"


@pytest.mark.parametrize("kind", sorted(GRAMMAR.keys() - set(APPLICABLE)))
def test_what_a_daemon_does_not_carry_out_comes_with_what_to_do_instead(kind: str) -> None:
    done = CliRunner().invoke(app, ["whatif", GRAMMAR[kind], "--apply"])
    assert INSTEAD[kind] in (str(done.exception) + done.output)
