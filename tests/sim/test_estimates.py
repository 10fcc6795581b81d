"""Policies that know pairs of jobs from estimates alone, in the simulated world: what they decide and what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.perf.pairs import made_up
from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.result import RunResult
from trine.perf.pair_estimates import References
from trine.perf.throughput import ThroughputTable
from trine.sim.scenario import Scenario, run

MIXED = Cluster(
    (Node("n0", 1, "v100"), Node("n1", 1, "p100"), Node("n2", 1, "k80")),
    prices_per_gpu_h={"v100": 3.0, "p100": 2.0, "k80": 1.0},
)
TABLE = made_up()
JOBS = [
    Job(f"j{at}", 300.0 * at, 1, 3000.0 * (1 + at % 4) * TABLE.rates[model, 1]["v100"], None, model)
    for at, model in enumerate(TABLE.models)
]
SHARING = ["max-min-fairness", "hierarchical", "makespan", "finish-time-fairness", "max-throughput", "min-cost", "fifo"]


def estimated(policy: str, **values: Any) -> Outcome:
    told = {} if policy == "gandiva" else {"space_sharing": True}
    return simulate(JOBS, MIXED, policy, throughputs=TABLE, **({"round_s": 300.0} | told | values))


@pytest.mark.parametrize("policy", [*SHARING, "gandiva"])
def test_who_has_measured_everything_decides_as_who_knows(policy: str) -> None:
    knows, measured = estimated(policy), estimated(policy, references=len(TABLE.models), profiled=1.0)
    assert measured.records == knows.records and measured.segments == knows.segments
    guesses = estimated(policy, references=2, profiled=0.0)
    assert set(guesses.records) == set(knows.records)
    (note,) = guesses.engine.policy.notes()
    assert "2 models measured in full and 0%" in note and "ran and were observed" in note


def test_the_draw_follows_the_seed() -> None:
    one, same, other = (estimated("max-min-fairness", references=2, rounds_seed=seed) for seed in (1, 1, 2))
    assert one.records == same.records and one.engine.policy.notes() == same.engine.policy.notes()
    assert one.engine.policy.notes() != other.engine.policy.notes()


# -- what is told and learnt, by hand --------------------------------------------------------------------------------

ONE_GPU = Cluster((Node("n0", 1, "x"),))


def two_models(beside_itself: float, a_beside_b: float, b_beside_a: float) -> ThroughputTable:
    """a makes 1 step per second alone and 0.9 beside itself, b makes 2 alone; the rest as parts of that."""
    pairs = {("a", "a", 1): (0.9, 0.9), ("a", "b", 1): (a_beside_b, 2 * b_beside_a)}
    pairs["b", "b", 1] = (2 * beside_itself, 2 * beside_itself)
    return ThroughputTable(
        {("a", 1): {"x": 1.0}, ("b", 1): {"x": 2.0}}, {key: {"x": rates} for key, rates in pairs.items()}
    )


def a_stands_for_all(jobs: list[Job], table: ThroughputTable, **values: Any) -> Outcome:
    """The only reference is a: every pair is taken to run as two of it do."""
    seed = next(seed for seed in range(20) if References.of(table, 1, seed).models == ("a",))
    told = {"space_sharing": True, "references": 1, "profiled": 0.0, "rounds_seed": seed, "round_s": 100.0}
    return simulate(jobs, ONE_GPU, "max-min-fairness", throughputs=table, **(told | values))


def test_the_error_is_that_of_the_first_estimates() -> None:
    """a beside b keeps 0.8 and b beside a 0.6, b beside b 0.5; all were taken to keep 0.9."""
    jobs = [
        Job("a", 0.0, 1, 400.0, None, "a"),
        Job("b0", 0.0, 1, 800.0, None, "b"),
        Job("b1", 0.0, 1, 800.0, None, "b"),
    ]
    (note,) = a_stands_for_all(jobs, two_models(0.5, 0.8, 0.6)).engine.policy.notes()
    mean = (0.1 + 0.3 + 0.4 + 0.4) / 4
    assert f"the 2 pairs by GPU type that came up and were estimated are off by {mean:.3f}" in note
    assert "by 0.400 at most, and 2 of them ran and were observed" in note


def test_jobs_make_what_they_make_whatever_was_estimated() -> None:
    """Taken to keep 0.9 each, they keep 0.6: 1,200 steps of 2 per second take 1,000 s together."""
    jobs = [Job(name, 0.0, 1, 1200.0, None, "b") for name in ("b0", "b1")]
    out = a_stands_for_all(jobs, two_models(0.6, 0.8, 0.6))
    assert [out.finish("b0"), out.finish("b1")] == pytest.approx([1000.0, 1000.0])


def test_a_pair_that_does_not_fit_is_tried_once() -> None:
    """Then shares are computed again as soon as the gap allows, and the two take turns: nobody waits for a partner."""
    jobs = [Job(name, 0.0, 1, 4000.0, None, "b") for name in ("b0", "b1")]
    out = a_stands_for_all(jobs, two_models(0.0, 0.8, 0.6), reset_gap_s=300.0)
    assert out.summary.makespan_s == pytest.approx(4000.0)
    got_s = {name: sum(min(e, 2000.0) - s for s, e in out.stretches(name) if s < 2000.0) for name in ("b0", "b1")}
    assert abs(got_s["b0"] - got_s["b1"]) <= 500.0
    assert "1 of them ran and were observed" in out.engine.policy.notes()[0]


# -- bad values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"references": -1}, "references: -1; expected at least 0"),
        ({"references": 1.5}, "references: 1.5; expected whole number"),
        ({"references": 99}, "99 references; expected from 1 to 12, the models with pairs"),
        ({"references": 2, "profiled": 1.5}, "profiled: 1.5; expected at most 1"),
        ({"references": 2, "profiled": -0.1}, "profiled: -0.1; expected at least 0"),
        ({"references": 2, "ideal": True}, "references with ideal; expected one of the two"),
    ],
)
def test_wrong_values_get_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        estimated("max-min-fairness", **values)
    assert words in str(caught.value)


def test_a_table_without_pairs_leaves_nothing_to_learn_from() -> None:
    alone = ThroughputTable(TABLE.rates)
    with pytest.raises(InputError, match="a table without pairs"):
        simulate(JOBS, MIXED, "gandiva", throughputs=alone, references=2)


def test_references_without_pairs_are_not_passed_over_in_silence() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [("isolated", {}), ("max-min-fairness", {"space_sharing": False})]
    for policy, told in cases:
        out = simulate(JOBS[:3], MIXED, policy, throughputs=TABLE, references=2, **told)
        assert out.engine.policy.notes() == [f"references=2 changed nothing: {policy} formed no pairs of jobs."]


# -- with the rates of real models -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(shared_data: Path) -> str:
    return str(shared_data / "hardware/gavel_throughputs/simulation_throughputs.json.gz")


def generated(table: str, **values: Any) -> RunResult:
    told = {"round_s": 360, "workload.jobs": 30, "workload.jobs_per_h": 2.0, "space_sharing": True}
    return run(
        Scenario(
            cluster="v100=2x1,p100=2x1,k80=2x1",
            policy="max-min-fairness",
            workload="gavel-continuous-single",
            throughputs=table,
            values=told | values,
        ),
        keep_segments=False,
    )


def test_real_models_all_measured_or_some_estimated(measured: str) -> None:
    """GPUs are short here: sharing them is worth a lot, and estimates keep most of it."""
    knows = generated(measured)
    assert generated(measured, references=26, profiled=1.0).jobs == knows.jobs
    found = generated(measured, references=16, profiled=0.6)
    assert found.summary.jct_mean_s == pytest.approx(knows.summary.jct_mean_s, rel=0.1)
    assert any("16 models measured in full" in note for note in found.notes)
