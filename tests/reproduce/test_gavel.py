"""``trine reproduce gavel``: what its bands mean, on generated data; and its cheapest comparison on the public data."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trine.core.errors import InputError
from trine.core.result import RunResult
from trine.inputs.yaml_reader import read_mapping
from trine.report.provenance import InputFile
from trine.reproduce import experiment
from trine.reproduce.checks import Check
from trine.reproduce.experiment import Outcome, attempt, run_all
from trine.reproduce.gavel import EXPERIMENTS, PAPER
from trine.reproduce.gavel_inputs import CONTENDERS, FIGURES, PHYSICAL, GavelData, scenario
from trine.reproduce.gavel_tables import TABLES, TraceTable
from trine.reproduce.reproduction import Panel, Part, Reproduction, write_page
from trine.sim.scenario import Scenario, run

JOBS = (
    ("ResNet-18 (batch size 64)", 200_000, 1, 0.0),
    ("LM (batch size 20)", 150_000, 2, 100.0),
    ("A3C", 30_000, 1, 500.0),
    ("Transformer (batch size 64)", 40_000, 4, 4_000.0),
)
TINY = replace(TABLES[0], quick=("fifo_perf", "isolated"))


@pytest.fixture
def data(tmp_path: Path) -> GavelData:
    """A physical trace of four jobs, where the public one would lie."""
    folder = tmp_path / "data" / PHYSICAL
    folder.mkdir(parents=True)
    rows = [(name, "run %s", "dir", "--steps", 0, steps, gang, 1, -1, at) for name, steps, gang, at in JOBS]
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    for name in ("max_min_fairness", "minimize_makespan"):
        (folder / f"{name}.trace").write_text(text)
    return GavelData.find(str(tmp_path), tmp_path, figures_of(1.0), True)


def outcomes_of(table: TraceTable, data: GavelData) -> dict[Any, Outcome]:
    return run_all(table.runs(data), table.with_segments(), 1)


def figures_of(jct_h: float) -> dict[str, Any]:
    return {"physical_las": {"jct_h": dict.fromkeys(TINY.quick, jct_h)}}


def expecting(data: GavelData, jct_h: float) -> GavelData:
    return replace(data, figures=figures_of(jct_h))


def write_reference(data: GavelData, run: str, finishes_s: dict[str, float]) -> None:
    folder = data.root.parent / "reference/gavel"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{run}.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerows([("job_id", "completion_s"), *finishes_s.items()])


def per_job(found: Part) -> dict[str, bool | None]:
    return {c.what: c.held for c in found.checks if c.what.endswith("per job")}


def test_jobs_are_compared_one_by_one_where_a_solver_has_no_choice(data: GavelData) -> None:
    outcomes = outcomes_of(TINY, data)
    assert [o.failure for o in outcomes.values()] == [""] * 4
    finishes = outcomes["phys_las", "fifo_perf", True].finishes_s
    assert len(finishes) == len(JOBS)
    write_reference(data, "phys_las__fifo_perf", finishes)
    write_reference(data, "phys_las__isolated", outcomes["phys_las", "isolated", True].finishes_s)
    assert per_job(TINY.judge(data, outcomes)) == {"fifo, per job": True, "isolated, per job": True}
    write_reference(data, "phys_las__fifo_perf", finishes | {"2": finishes["2"] + 10})
    assert per_job(TINY.judge(data, outcomes)) == {"fifo, per job": False, "isolated, per job": True}


def test_a_job_that_never_ended_here_is_not_overlooked(data: GavelData) -> None:
    outcomes = outcomes_of(TINY, data)
    finishes = outcomes["phys_las", "fifo_perf", True].finishes_s
    write_reference(data, "phys_las__fifo_perf", finishes | {"99": 60.0})
    assert per_job(TINY.judge(data, outcomes)) == {"fifo, per job": False}


def test_averages_beyond_their_band_are_outside(data: GavelData) -> None:
    outcomes = outcomes_of(TINY, data)
    ours = outcomes["phys_las", "isolated", True].jct_h
    for factor, held in ((1.0, True), (1.01, False), (0.99, False)):
        checks = TINY.judge(expecting(data, ours * factor), outcomes).checks
        assert next(c for c in checks if c.what == "isolated, average JCT h, as published").held is held


def test_without_quirks_only_longer_is_outside(data: GavelData) -> None:
    outcomes = outcomes_of(TINY, data)
    ours = outcomes["phys_las", "isolated", False].jct_h
    for factor, held in ((1.0, True), (1.5, True), (0.9, False)):
        checks = TINY.judge(expecting(data, ours * factor), outcomes).checks
        assert next(c for c in checks if c.what == "isolated, average JCT h, trine").held is held


def test_a_run_that_breaks_is_told_and_the_others_count(data: GavelData, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(asked: Scenario, **more: Any) -> RunResult:
        if asked.policy == "isolated":
            raise RuntimeError("a wheel came off")
        return run(asked, **more)

    monkeypatch.setattr(experiment, "run", broken)
    checks = TINY.judge(data, outcomes_of(TINY, data)).checks
    told = [c for c in checks if c.ours == "failed: RuntimeError: a wheel came off"]
    assert {(c.held, c.counted) for c in told} == {(False, True)}, "a failed run counts"
    assert all(c.what.startswith("isolated") == (c in told) for c in checks)


def test_a_mistake_in_the_input_is_not_taken_for_a_result(data: GavelData) -> None:
    asked = scenario("gavel-physical", "isolated", compat=True, trace="nowhere.trace")
    with pytest.raises(InputError, match=r"nowhere\.trace"):
        attempt(asked)


def test_workers_change_nothing(data: GavelData) -> None:
    one, two = (run_all(TINY.runs(data), TINY.with_segments(), workers) for workers in (1, 2))
    assert [(k, o.jobs) for k, o in one.items()] == [(k, o.jobs) for k, o in two.items()]


def test_every_source_is_named_and_every_contender_known() -> None:
    figures = read_mapping(FIGURES).plain()
    for name, block in figures.items():
        assert "source" in block or all("source" in block[side] for side in ("published", "reference")), name
    for table in TABLES:
        assert set(figures[table.table]["jct_h"]) <= set(CONTENDERS)
        assert set(table.quick) <= set(figures[table.table]["jct_h"])
    assert len({e.name for e in EXPERIMENTS}) == len(EXPERIMENTS)


def drawn() -> Reproduction:
    lines = [("ours", [1.0, 2.0, 4.0], [0.1, 0.2, 0.4]), ("<them>", [1.0, 2.0], [1.0, 2.0])]
    bars = Panel("Bars", "Policy", "Hours", [("ours", [0.0, 1.0], [3.0, 4.0])], ["fifo", "las"])
    curves = Panel("Lines", "Jobs", "Seconds", lines, log=True)
    checks = [
        Check("A", "this", "1", "1", held=True, band="exact"),
        Check("B", "that", "2", "1", held=False, band="1 %"),
    ]
    return Reproduction("Paper", [Part(checks, [bars, curves])], ["A note."])


def test_the_last_sentence_says_what_held_and_what_did_not() -> None:
    found = drawn()
    assert not found.held
    assert found.sentence() == (
        "1 of 2 figures are within tolerance, all of them in A; outside: B: that, 2, expected 1 (1 %)."
    )
    good = replace(found, parts=[Part(found.checks[:1])])
    assert good.held
    assert good.sentence() == "1 of 1 figures are within tolerance, all of them in A; none is out of it."


def test_directions_are_shown_and_not_counted() -> None:
    up, down = (
        Check("C", what, "0.9", held=held, band="at least 1", counted=False)
        for what, held in (("up", True), ("down", False))
    )
    found = replace(drawn(), parts=[Part([Check("A", "this", "1", held=True), up, down])])
    assert found.held, "a direction does not make the command fail"
    assert found.sentence() == (
        "1 of 1 figures are within tolerance, all of them in A; none is out of it. "
        "Not counted: 1 of 2 directions and times are as expected; not: C: down, 0.9 (at least 1)."
    )


def test_figures_that_nothing_is_held_against_are_counted_apart() -> None:
    judged, told = Check("A", "this", "1", held=True), Check("A", "more", "3")
    apart = replace(drawn(), parts=[Part([judged, told])])
    assert apart.sentence().endswith("none is out of it. 1 further figure is shown only.")
    together = replace(apart, parts=[Part([judged, told, told])], grouped=False)
    assert together.sentence().endswith("are within tolerance. 2 further figures are shown only.")


def test_only_figures_that_can_miss_on_both_sides_count(data: GavelData) -> None:
    checks = TINY.judge(data, outcomes_of(TINY, data)).checks
    assert {c.what: c.counted for c in checks if c.what.startswith("isolated")} == {
        "isolated, average JCT h, as published": True,
        "isolated, average JCT h, trine": False,
    }


def test_plots_are_what_plotly_understands() -> None:
    import plotly.graph_objects as go

    for panel in drawn().panels:
        spec = re.sub(r"@c\d", "#000000", json.dumps(panel.figure()))
        figure = go.Figure(json.loads(spec))
        assert [len(trace.y) for trace in figure.data] == [len(y) for _, _, y in panel.lines]
        assert figure.layout.xaxis.title.text == panel.x_title


def test_the_page_holds_tables_plots_and_notes(tmp_path: Path) -> None:
    file = InputFile("data/jobs.csv", 7, "5e88")
    write_page(replace(drawn(), files=[file]), tmp_path / "page", "trine reproduce paper --quick")
    text = (tmp_path / "page/report.html").read_text()
    for word in ("OUT OF TOLERANCE", "A note.", "Bars", "Lines", "1 of 2 figures"):
        assert word in text
    for word in ("How this reproduction was made", "trine reproduce paper --quick", "data/jobs.csv", "5e88"):
        assert word in text
    assert "Read with care" not in text, "what a paper says and what was drawn is no caution"
    assert "<them>" not in text


def test_without_data_it_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trine", "reproduce", "gavel", "--data", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert PHYSICAL in done.stderr


def test_it_counts_its_runs_and_serialises(data: GavelData) -> None:
    counts: list[int] = []
    done: list[int] = []
    small = replace(TINY, quick=("fifo_perf",))

    def progress(runs: int) -> Callable[[], None]:
        counts.append(runs)
        return lambda: done.append(1)

    found = PAPER.reproduce(str(data.root), quick=True, workers=1, progress=progress, experiments=(small,))
    assert {Path(file.path).parent for file in found.files} <= {data.root, *data.root.rglob("*")} and found.files
    assert counts == [2]
    assert len(done) == 2
    assert json.loads(json.dumps(found.as_dict()))["paper"] == "Gavel (OSDI'20)"


@pytest.mark.slow
def test_policies_without_freedom_are_equal_on_the_physical_traces(shared_data: Path, tmp_path: Path) -> None:
    data = GavelData.find(str(shared_data), tmp_path, read_mapping(FIGURES).plain(), True)
    for table in TABLES[:2]:
        own = replace(table, quick=("fifo_perf", "isolated"))
        found = own.judge(data, outcomes_of(own, data))
        assert [c.what for c in found.checks if c.held is False] == []
        assert len(per_job(found)) in (0, 2)
