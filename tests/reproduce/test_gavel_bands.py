"""Bands of ``trine reproduce gavel`` that name a direction, and the bill, on made-up outcomes."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from trine.core.result import JobRecord, Summary
from trine.reproduce.checks import Check
from trine.reproduce.experiment import Outcome
from trine.reproduce.gavel_inputs import AWARE, BLIND, FIFO_AWARE, GavelData
from trine.reproduce.gavel_objectives import Priorities
from trine.reproduce.gavel_sweeps import MEASURED, FullContinuous, Multiple
from trine.reproduce.gavel_tables import Bill
from trine.trace import load

CLAIMS = {"claims": {"objectives_times": 3.5}}
ZERO: dict[str, Any] = dict.fromkeys((field.name for field in fields(Summary)), 0)
NOTHING = Summary(**ZERO)


def outcome(jct_h: float, **more: Any) -> Outcome:
    return Outcome("", replace(NOTHING, jct_mean_s=3600 * jct_h, **more))


@pytest.fixture
def data(tmp_path: Path) -> GavelData:
    return GavelData(tmp_path / "data", tmp_path, CLAIMS)


def judged(checks: list[Check], words: str) -> Check:
    return next(c for c in checks if words in c.what and c.held is not None)


# -- gangs -----------------------------------------------------------------------------------------------------------


def gangs(data: GavelData, blind: dict[float, float], aware: float = 10.0) -> dict[Any, Outcome]:
    """All policies alike but max-min-fairness without speeds, as published, by load."""
    asked = Multiple().runs(data)
    return {key: outcome(blind[key[3]] if key[1:3] == (BLIND, True) else aware) for key in asked}


def gain(data: GavelData, blind: dict[float, float]) -> Check:
    found = Multiple().judge(data, gangs(data, blind))
    return judged(found.checks, "JCT of max-min-fairness, not aware (as published)")


@pytest.mark.parametrize(
    ("blind", "held"),
    [
        ({0.5: 12.0, 1.5: 11.0, 2.0: 15.0, 2.5: 30.0}, True),
        ({0.5: 12.0, 1.5: 11.0, 2.0: 9.9, 2.5: 30.0}, False),
        ({0.5: 14.0, 1.5: 13.0, 2.0: 12.0, 2.5: 11.0}, True),
    ],
)
def test_knowing_speeds_is_never_slower_at_any_load(data: GavelData, blind: dict[float, float], held: bool) -> None:
    assert gain(data, blind).held is held


def test_the_published_claim_is_told_and_loads_are_drawn(data: GavelData) -> None:
    assert "3.5" in gain(data, {0.5: 12.0, 1.5: 11.0, 2.0: 15.0, 2.5: 30.0}).published
    found = Multiple().judge(data, gangs(data, {0.5: 12.0, 1.5: 11.0, 2.0: 15.0, 2.5: 30.0}))
    bars, curves = found.panels
    assert bars.labels
    assert {len(x) for _, x, _ in curves.lines} == {4}


def test_the_public_trace_is_taken_where_it_is_and_drawn_otherwise(data: GavelData) -> None:
    key = ("multiple", AWARE, True, 2.0)
    drawn = Multiple().runs(replace(data, quick=True))[key]
    assert (drawn.trace, drawn.workload) == ("", "gavel-continuous-multiple")
    folder = data.root / "traces/gavel_generated"
    folder.mkdir(parents=True)
    (folder / "multi_seed0_lam1800.csv.gz").touch()
    read = Multiple().runs(replace(data, quick=True))[key]
    assert (read.trace, read.workload) == (data.multiple, "")


def test_a_failed_run_is_told(data: GavelData) -> None:
    outcomes = gangs(data, {0.5: 12.0, 1.5: 11.0, 2.0: 15.0, 2.5: 30.0})
    outcomes["multiple", FIFO_AWARE, True, 2.5] = Outcome("a wheel came off")
    found = Multiple().judge(data, outcomes)
    assert ["a wheel came off" in c.ours for c in found.checks].count(True) == 1


def test_times_are_judged_in_the_window_of_the_reference_only(data: GavelData) -> None:
    figures = {"continuous_single": {"cpu_s": {AWARE: 10.0}}}
    for quick in (True, False):
        own = replace(data, figures=figures, quick=quick)
        asked = FullContinuous().runs(own)
        outcomes = {key: outcome(12.0 if key[1] == BLIND else 10.0, sim_cpu_s=11.0) for key in asked}
        checks = FullContinuous().judge(own, outcomes).checks
        assert {key[3] for key in asked} == {"300:400" if quick else MEASURED}
        assert [c.held for c in checks if c.reference != "-"] == ([] if quick else [False, False])
        assert judged(checks, "JCT of").ours == "1.20"


# -- priorities ------------------------------------------------------------------------------------------------------


def test_jobs_with_and_without_weights_are_the_same(data: GavelData) -> None:
    example = Priorities(jobs=40)
    asked = example.runs(data)
    with_weights, equal = (load(asked["priorities", example.modes[0], weighed].trace).jobs for weighed in (True, False))
    assert {job.weight for job in with_weights} == {1.0, 5.0}
    assert [replace(job, weight=1.0) for job in with_weights] == equal


def by_class(data: GavelData, heavy_h: float, light_h: float) -> list[Check]:
    """Hours where weights count; otherwise every job takes 10."""
    example = Priorities(jobs=40)
    outcomes = {}
    for key, asked in example.runs(data).items():
        jobs = load(asked.trace).jobs
        hours = [(heavy_h if job.weight > 1 else light_h) if key[2] else 10.0 for job in jobs]
        records = [
            JobRecord(job.id, 0, 0, 0, 3600 * h, 0, 1, "", "", 0, 0, "gpu", 1.0)
            for job, h in zip(jobs, hours, strict=True)
        ]
        outcomes[key] = replace(outcome(10.0), records=records)
    return example.judge(data, outcomes).checks


@pytest.mark.parametrize(("heavy_h", "held"), [(5.0, True), (10.5, False)])
def test_a_weight_must_not_slow_its_job(data: GavelData, heavy_h: float, held: bool) -> None:
    checks = [c for c in by_class(data, heavy_h, 20.0) if "weights heeded, all weights 1" in c.what]
    assert {c.held for c in checks if "weight 5, average" in c.what} == {held}
    assert {c.held for c in checks if "weight 1, average" in c.what} == {None}


# -- the bill --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "jct_h", "cost", "held"),
    [
        ("max_min_fairness_perf", 10.0, 102.0, True),
        ("max_min_fairness_perf", 10.0, 104.0, False),
        ("max_min_fairness_perf", 11.0, 104.0, None),
        ("isolated", 10.0, 102.0, False),
        ("isolated", 10.0, 100.05, True),
    ],
)
def test_the_bill_is_judged_where_the_jct_is_right(
    data: GavelData, name: str, jct_h: float, cost: float, held: bool | None
) -> None:
    table = {"jct_h": {name: 10.0}, "cost_usd": {name: 100.0}}
    figures = {"physical_las": table, "physical_makespan": {"jct_h": {}, "cost_usd": {}}}
    outcomes = {("phys_las", name, compat): outcome(jct_h, cost=cost) for compat in (True, False)}
    found = Bill().judge(replace(data, figures=figures), outcomes)
    assert [c.held for c in found.checks] == [held]
    assert len(found.panels) == 1
