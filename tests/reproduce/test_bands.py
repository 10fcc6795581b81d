"""Counted figures of ``trine reproduce`` can fail: each, moved by twice its band up or down, lies outside of it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from trine.core.result import JobRecord, Segment, Summary
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.checks import Band, Check, no_worse, ratios, within
from trine.reproduce.experiment import HOUR_S, Experiment, Outcome, Outcomes, run_all
from trine.reproduce.gavel_inputs import FIGURES, GavelData
from trine.reproduce.gavel_mechanism import ORACLE, Estimator
from trine.reproduce.gavel_objectives import MAKESPAN, Entities, Static
from trine.reproduce.gavel_tables import DETERMINED, TABLES, Bill, TraceTable
from trine.reproduce.pal import PAPER, LoadOn256, LocalitySweep, Published64
from trine.reproduce.pal_inputs import PLACEMENTS, WORKLOADS, PalData

ZERO: dict[str, Any] = dict.fromkeys((field.name for field in fields(Summary)), 0)
FINISH_S = {"0": 360.0, "1": 720.0}


def outcome(jct_h: float = 1.0, makespan_h: float = 1.0, cost: float = 1.0) -> Outcome:
    """Two jobs, and these averages."""
    summary = Summary(**(ZERO | {"jct_mean_s": HOUR_S * jct_h, "makespan_s": HOUR_S * makespan_h, "cost": cost}))
    jobs = [JobRecord(name, 0, 0, at, at, 0, 1, "", "", 0, 0, "gpu", 1.0) for name, at in FINISH_S.items()]
    segments = [Segment(name, 0.0, at, (0,), "gpu", 1.0, "fits", "finished") for name, at in FINISH_S.items()]
    return Outcome("", replace(summary, utilization=0.8), jobs, segments)


def moved_checks(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment[Any], data: Any, outcomes: Outcomes, bands: float
) -> list[Check]:
    """The counted lines of an experiment whose figures all lie ``bands`` half widths of their bands further up."""
    with monkeypatch.context() as patch:
        holds = Band.holds
        patch.setattr(Band, "holds", lambda band, value: holds(band, value + bands * band.half_width))
        found = experiment.judge(data, outcomes).checks
    return [check for check in found if check.held is not None and check.counted]


def assert_two_sided(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment[Any], data: Any, outcomes: Outcomes
) -> list[Check]:
    as_it_is = moved_checks(monkeypatch, experiment, data, outcomes, 0.0)
    assert [c.what for c in as_it_is if not c.held] == []
    for bands in (2.0, -2.0):
        moved = moved_checks(monkeypatch, experiment, data, outcomes, bands)
        assert [c.what for c in moved if c.held] == [], f"not noticed when moved by {bands:g} bands"
    return as_it_is


# -- Gavel -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gavel(tmp_path: Path) -> GavelData:
    """The figures of the paper, and reference runs of two jobs."""
    folder = tmp_path / "reference/gavel"
    folder.mkdir(parents=True)
    for table in TABLES:
        for name in DETERMINED:
            lines = [f"{job},{at}" for job, at in FINISH_S.items()]
            (folder / f"{table.run}__{name}.csv").write_text("\n".join(["job_id,completion_s", *lines]) + "\n")
    return GavelData(tmp_path / "data", tmp_path, read_mapping(FIGURES).plain())


def as_referenced(table: TraceTable, data: GavelData) -> dict[Any, Outcome]:
    """Outcomes in which every figure is that of the authors' code."""
    figures = data.figures[table.table]
    return {
        (table.run, name, compat): outcome(
            jct_h, figures.get("makespan_h", {}).get(name, 1.0), figures.get("cost_usd", {}).get(name, 1.0)
        )
        for name, jct_h in figures["jct_h"].items()
        for compat in (True, False)
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.table)
def test_traces_of_gavel(monkeypatch: pytest.MonkeyPatch, gavel: GavelData, table: TraceTable) -> None:
    checks = assert_two_sided(monkeypatch, table, gavel, as_referenced(table, gavel))
    assert {"per job" in c.what for c in checks} == {True, False}


def test_the_bill_of_gavel(monkeypatch: pytest.MonkeyPatch, gavel: GavelData) -> None:
    outcomes = {key: one for table in TABLES for key, one in as_referenced(table, gavel).items()}
    assert assert_two_sided(monkeypatch, Bill(), gavel, outcomes)


def test_the_other_counted_lines_of_gavel(monkeypatch: pytest.MonkeyPatch, gavel: GavelData) -> None:
    makespan_h = gavel.figures["static"]["makespan_h"][MAKESPAN]
    static = {key: outcome(makespan_h=makespan_h) for key in Static().runs(gavel)}
    assert assert_two_sided(monkeypatch, Static(), gavel, static)
    estimates = {ORACLE: outcome(10.0), **{("estimate", seed): outcome(10.1) for seed in range(5)}}
    assert len(assert_two_sided(monkeypatch, Estimator(), gavel, estimates)) == 5


def test_the_entities_of_gavel(monkeypatch: pytest.MonkeyPatch, gavel: GavelData) -> None:
    entities = Entities()
    outcomes = run_all(entities.runs(gavel), entities.with_segments(), 1)
    assert len(assert_two_sided(monkeypatch, entities, gavel, outcomes)) == 8


# -- PAL -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pal(tmp_path: Path) -> PalData:
    return PalData(tmp_path / "data", tmp_path, read_mapping(PAPER.figures).plain())


def write_reference(data: PalData, name: str) -> None:
    folder = data.root.parent / "reference/pal"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{job},0,{at}" for job, at in FINISH_S.items()]
    (folder / name).write_text("\n".join(["job_id,start_s,finish_s", *lines]) + "\n")


def test_the_64_gpus_of_pal(monkeypatch: pytest.MonkeyPatch, pal: PalData) -> None:
    write_reference(pal, "sia-w4-PAL-fifo-lf1.7.csv")
    table = pal.figures["reference"]
    outcomes = {
        ("A1", p, w): outcome(table["jct_h"][p][w - 1], table["makespan_h"][p][w - 1])
        for p in PLACEMENTS
        for w in WORKLOADS
    }
    checks = assert_two_sided(monkeypatch, Published64(), pal, outcomes)
    assert len(checks) == 2 * 32 + 1 + 4
    shown = [c for c in Published64().judge(pal, outcomes).checks if c.held is None]
    assert [c.what.split(",")[1].strip() for c in shown] == ["GPUs busy against packed-sticky"] * 2


def test_the_sweeps_of_pal(monkeypatch: pytest.MonkeyPatch, pal: PalData) -> None:
    table = pal.figures["locality"]
    outcomes: dict[Any, Outcome] = {}
    for key in LocalitySweep().runs(pal):
        _, workload, placement, penalty = key
        gains = table["gain_percent"][str(workload)].get(placement)
        gain = 0.0 if gains is None else gains[table["penalties"].index(penalty)]
        outcomes[key] = outcome(100 * (1 - gain / 100))
    assert len(assert_two_sided(monkeypatch, LocalitySweep(), pal, outcomes)) == 9
    loads = LoadOn256()
    jct_h = pal.figures["synergy"]["jct_h"]
    swept = {key: outcome(jct_h[key[2]]) for key in loads.runs(pal)}
    assert len(assert_two_sided(monkeypatch, loads, pal, swept)) == 2


# -- the bands themselves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "held"), [(97.0, True), (96.9, False), (103.0, True), (103.1, False)])
def test_a_band_ends_on_both_sides(value: float, held: bool) -> None:
    assert within("e", "w", lambda: value, 100.0, 0.03).held is held


def test_directions_do_not_count() -> None:
    assert not no_worse("e", "w", lambda: 1.0, 2.0).counted
    assert not ratios("e", "w", lambda: [1.5]).counted
