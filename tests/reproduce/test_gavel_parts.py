"""Parts of ``trine reproduce gavel`` that need no trace: entities over time, time to solve, estimated pairs."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from trine.policy.shares.base import SharePolicy
from trine.policy.shares.problem import Problem
from trine.reproduce import gavel_mechanism
from trine.reproduce.experiment import Contender, attempt, run_all
from trine.reproduce.gavel_inputs import CONTENDERS, GavelData, scenario
from trine.reproduce.gavel_mechanism import SolveTime
from trine.reproduce.gavel_objectives import ENTITIES, KEPT, Cost, Entities, received

MODELS = {"A3C": (1.0, 2.0, 4.0), "CycleGAN": (0.2, 0.5, 1.0), "LM (batch size 20)": (5.0, 8.0, 30.0)}
TYPES = ("k80", "p100", "v100")
SLOWED = {"A3C": 0.9, "CycleGAN": 0.4, "LM (batch size 20)": 0.7}


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """Rates of three models alone and together, where each slows down by a factor of its own."""
    lines = ["model,gpus,gpu_type,placement,steps_per_s,other,other_steps_per_s"]
    for model, rates in MODELS.items():
        lines += [f"{model},1,{t},,{rate},," for t, rate in zip(TYPES, rates, strict=True)]
    for one, other in combinations_with_replacement(MODELS, 2):
        for j, t in enumerate(TYPES):
            co_runner_of = (MODELS[one][j] * SLOWED[one], MODELS[other][j] * SLOWED[other])
            lines.append(f"{one},1,{t},,{co_runner_of[0]},{other},{co_runner_of[1]}")
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = ["job_id,job_type,scale_factor,total_steps,duration_s_on_v100,priority_weight,arrival_s"]
    for number in range(12):
        model = list(MODELS)[number % 3]
        rate = MODELS[model][2]
        rows.append(f"{number},{model},1,{rate * 7200 * (1 + number % 4)},{7200 * (1 + number % 4)},1.0,{number * 600}")
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def shared(contender: Contender, pairs: str, trace: str) -> Any:
    found = attempt(
        scenario(
            "gavel-continuous-single",
            contender,
            compat=False,
            throughputs=pairs,
            trace=trace,
            cluster="v100=1x1,p100=1x1,k80=1x1",
            values={"window": ""},
        )
    )
    assert found.failure == ""
    return found


def guessing(**values: Any) -> Contender:
    return Contender("guessing", "max-min-fairness", values={"space_sharing": True, **values})


def test_who_has_measured_everything_decides_as_who_knows(pairs: str, trace: str) -> None:
    knows = shared(CONTENDERS["max_min_fairness_packed"], pairs, trace)
    measured = shared(guessing(references=3, profiled=1.0), pairs, trace)
    assert measured.jobs == knows.jobs


def test_jobs_run_at_their_true_rates_whatever_is_guessed(pairs: str, trace: str) -> None:
    for seed in range(3):
        found = shared(guessing(references=1, profiled=0.0, rounds_seed=seed), pairs, trace)
        assert len(found.jobs) == 12
        assert min(job.jct_s for job in found.jobs) >= 7200


def test_three_entities_receive_what_was_computed_for_them(tmp_path: Path) -> None:
    levels = {"published": 10.458, "bottlenecks": 10.458, "not_aware": 9.0}
    in_order = {"published": 9.154, "bottlenecks": 8.697}
    example = Entities()
    data = GavelData(tmp_path, tmp_path, {"hierarchy": {"fairness": levels, "fifo": in_order}})
    outcomes = run_all(example.runs(data), example.with_segments(), 1)
    found = example.judge(data, outcomes)
    assert [c.what for c in found.checks if not c.held] == []
    lines = received(next(iter(outcomes.values())))
    assert len(lines) == ENTITIES
    assert sum(values[-1] for _, values in lines.values()) > 9  # what the policy gets that does not know speeds


def test_times_to_solve_are_judged_only_where_there_is_a_reference(tmp_path: Path) -> None:
    table = {
        "jobs": [32, 64],
        "published": {"hierarchical": [0.08]},
        "reference": {"max-min-fairness": [None, 1e-9], "hierarchical": [60.0, 60.0]},
    }
    measured = SolveTime(("max-min-fairness", "hierarchical"))
    found = measured.judge(GavelData(tmp_path, tmp_path, {"solve_s": table}), {})
    assert [c.held for c in found.checks] == [None, False, True, True]
    assert [c.published for c in found.checks] == ["-", "-", "80.0 ms (figure)", "-"]


def test_the_time_of_the_hierarchical_policy_is_that_with_entities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without entities it fills levels of single jobs, which is another and smaller problem."""
    asked: list[Problem] = []

    def at_once(_policy: SharePolicy, problem: Problem) -> float:
        asked.append(problem)
        return 0.001

    monkeypatch.setattr(gavel_mechanism, "_cpu_s", at_once)
    table: dict[str, Any] = {"jobs": [32], "published": {}, "reference": {}}
    SolveTime(("hierarchical",)).judge(GavelData(tmp_path, tmp_path, {"solve_s": table}), {})
    assert {entity.weight for entity in asked[0].entities} == {1.0, 2.0, 3.0}
    assert set(asked[0].entity.tolist()) == {0, 1, 2}


def test_costs_and_deadlines_come_from_the_run(tmp_path: Path) -> None:
    data = GavelData(tmp_path, tmp_path, {"claims": {"cost_times": 1.4}})
    outcomes = run_all(Cost(jobs=25).runs(data), workers=1)
    found = Cost(jobs=25).judge(data, outcomes)
    assert next(c for c in found.checks if c.what.startswith(KEPT)).ours.startswith("$")
    assert [c.what for c in found.checks if c.held is False] == []
    missed, cost = found.panels
    assert len(missed.labels) == len(cost.lines[0][2]) == 4
    assert all(0 <= y <= 100 for _, _, values in missed.lines for y in values)
    assert all(y > 0 for _, _, values in cost.lines for y in values)
