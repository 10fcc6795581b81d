"""Water filling: no level can rise without taking from a job that has no more."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tests.policy.shares.solver.problems import assert_feasible, random_problem
from trine.policy.shares.solver.highs import minimise, rate_program
from trine.policy.shares.solver.polytope import Array, LevelProblem, Solution
from trine.policy.shares.solver.water_filling import fill
from trine.policy.shares.solver.weights import EntityWeights, JobWeights, WeightRule

PRECISION = 1e-6
"""Relative precision that is asked of every level."""


def _most_rise(problem: LevelProblem, levels: Array, weights: Array, row: int) -> float:
    """How far one job can rise if those with less or as much keep it, and the others at least as much as it has."""
    height = levels * problem.gang / weights
    least = np.where(height <= height[row], levels, np.minimum(levels, height[row] * weights / problem.gang))
    demand = np.zeros(len(levels))
    demand[row] = 1.0
    alone = LevelProblem(
        rates=problem.rates, demand=demand, floor=least * (1 - 1e-9), gang=problem.gang, capacity=problem.capacity
    )
    return -minimise(rate_program(alone)).value


@pytest.mark.parametrize("seed", range(40))
def test_levels_are_lexicographically_highest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind, gpus = ("smooth", "ties", "few")[seed % 3], (0.2, 0.6, 1.5)[seed // 3 % 3]
    problem = random_problem(
        seed, int(rng.integers(1, 25)), int(rng.integers(2, 5)), kind, gpus_per_job=gpus, zeros=0.2
    )
    weights = rng.choice([1.0, 2.0, 5.0], problem.n_jobs)
    found = fill(problem.rates, problem.gang, problem.capacity, weights)
    assert_feasible(found.x, problem.gang, problem.capacity)
    assert ((problem.rates * found.x).sum(axis=1) >= found.levels * (1 - 1e-7)).all()
    assert found.gap <= 1e-6
    _assert_levels_exact(problem, found.levels, weights)
    # One job may collect what all others lack at that precision, and turn it into rate by the best exchange.
    exchange = problem.rates.max() / problem.rates[problem.rates > 0].min()
    noise = PRECISION * found.levels.sum() * exchange
    for row in range(problem.n_jobs):
        assert _most_rise(problem, found.levels, weights, row) <= noise


def _assert_levels_exact(problem: LevelProblem, levels: Array, weights: Array) -> None:
    """Every height is what simplex finds as the highest for all jobs at or above it, those below keeping theirs."""
    height = levels * problem.gang / weights
    for one in np.unique(np.round(height, 4)):
        rest = height >= one - 1e-4
        floor = np.where(rest, 0.0, levels * (1 - 1e-9))
        demand = np.where(rest, weights / problem.gang, 0.0)
        open_problem = LevelProblem(
            rates=problem.rates, demand=demand, floor=floor, gang=problem.gang, capacity=problem.capacity
        )
        assert height[rest].min() == pytest.approx(-minimise(rate_program(open_problem)).value, rel=PRECISION)


def _entities(seed: int, n: int) -> EntityWeights:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    weight = rng.integers(1, 4, count).astype(np.float64)
    return EntityWeights(rng.integers(count, size=n), weight, rng.random(count) < 0.5, rng.choice([1.0, 2.0], n))


def _filled_job_by_job(problem: LevelProblem, rule: WeightRule) -> tuple[Array, int]:
    """Levels and passes by the definition: after each pass every active job is asked by itself whether it can rise."""
    levels, done, passes = np.zeros(problem.n_jobs), np.zeros(problem.n_jobs, dtype=bool), 0
    while (demand := rule.weights(done) / problem.gang).any():
        passes += 1
        levels = levels + demand * max(_rise(problem, levels, demand), 0.0)
        least = 1e-5 * max(float(levels.max()), 1e-9)
        for row in np.flatnonzero(demand > 0).tolist():
            done[row] = _rise(problem, levels, np.eye(problem.n_jobs)[row]) < least
    return levels, passes


def _rise(problem: LevelProblem, levels: Array, demand: Array) -> float:
    """The largest t for which ``levels + demand * t`` can be reached."""
    floor = levels * (1 - 1e-8)  # what rounding made of earlier passes must not make it infeasible
    higher = LevelProblem(rates=problem.rates, demand=demand, floor=floor, gang=problem.gang, capacity=problem.capacity)
    return -minimise(rate_program(higher), tolerance=1e-10).value


@pytest.mark.parametrize("seed", range(24))
def test_duals_find_the_bottlenecks_that_asking_every_job_finds(seed: int) -> None:
    problem = random_problem(seed, 4 + seed % 13, 2 + seed % 3, ("smooth", "ties")[seed % 2], gpus_per_job=0.7)
    rule = _entities(seed, problem.n_jobs)
    by_duals = fill(problem.rates, problem.gang, problem.capacity, rule)
    assert by_duals.levels == pytest.approx(_filled_job_by_job(problem, rule)[0], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("n", [60, 400])
def test_classes_and_jobs_agree(n: int, fifo: bool) -> None:
    kinds = random_problem(7, 12, 3, gpus_per_job=20.0)
    rng = np.random.default_rng(n)
    member = rng.integers(12, size=n)
    rates, gang, capacity = kinds.rates[member], kinds.gang[member], np.full(3, n / 5.0)
    rule: WeightRule = EntityWeights(
        rng.integers(3, size=n), np.array([1.0, 2.0, 3.0]), np.array([fifo, False, False]), np.ones(n)
    )
    merged, full = fill(rates, gang, capacity, rule), fill(rates, gang, capacity, rule, classes=False)
    assert merged.levels == pytest.approx(full.levels, rel=1e-6, abs=1e-6)
    assert max(merged.gap, full.gap) <= 1e-6


def test_one_job_per_entity_is_filling_by_weights() -> None:
    problem = random_problem(3, 15, 3)
    weights = np.random.default_rng(0).choice([1.0, 2.0, 5.0], 15)
    alone = fill(problem.rates, problem.gang, problem.capacity, JobWeights(weights))
    rule = EntityWeights(np.arange(15), weights, np.zeros(15, dtype=bool), np.ones(15))
    inside = fill(problem.rates, problem.gang, problem.capacity, rule)
    assert inside.levels == pytest.approx(alone.levels, rel=1e-6)


def test_first_come_first_served_inside_an_entity() -> None:
    """One GPU: the first job in line takes all that its entity can have."""
    rule = EntityWeights(np.zeros(3, dtype=np.intp), np.ones(1), np.ones(1, dtype=bool), np.ones(3))
    found = fill(np.ones((3, 1)), np.ones(3), np.ones(1), rule)
    assert found.levels == pytest.approx([1.0, 0.0, 0.0], abs=1e-7)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_many_jobs_at_full_speed_cost_few_passes_and_no_exactness(seed: int) -> None:
    """Enough GPUs for most: dozens of jobs end at their own full speed, one after the other, before GPUs run out."""
    problem = random_problem(2 * seed, 32, 3, gpus_per_job=0.9)
    rng = np.random.default_rng(seed)
    rule = EntityWeights(rng.integers(3, size=32), np.array([1.0, 2.0, 3.0]), np.zeros(3, dtype=bool), np.ones(32))
    quick = fill(problem.rates, problem.gang, problem.capacity, rule)
    levels, passes = _filled_job_by_job(problem, rule)
    assert quick.levels == pytest.approx(levels, rel=2e-6, abs=2e-6)
    assert quick.iterations <= passes


def test_with_gpus_for_everybody_all_run_at_full_speed() -> None:
    problem = random_problem(4, 50, 3, gpus_per_job=100.0)
    found = fill(problem.rates, problem.gang, problem.capacity, np.ones(50))
    assert found.levels == pytest.approx(problem.rates.max(axis=1))
    assert found.iterations == 1


_PUBLISHED_JOBS = (
    *("Transformer 128", "A3C", "Transformer 256", "ResNet-18 32", "ResNet-50 128", "LM 20"),
    *("LM 10", "Transformer 128", "CycleGAN", "Transformer 16", "LM 10", "Transformer 64"),
    *("LM 80", "ResNet-50 32", "LM 20", "ResNet-18 256", "Transformer 16", "ResNet-18 256"),
)
_FAIR = [0.194, 0.387] * 3 + [0.387, 0.775] * 3 + [0.581, 1.162] * 3
_FIFO = [1.048, 0.402, 0, 0, 0, 0, 1.342, 0.97, 0.438, 0.148, 0, 0, 1.528, 1.615, 0.984, 0.141, 0.082, 0]
_FIFO_PUBLISHED = [0.509, 0.56, 0.453, 0.004, 0, 0, 1.019, 1.119, 0.905, 0.008, 0, 0, 1.528, 1.679, 1.358, 0.012, 0, 0]


def _published(data: Path, jobs: int, fifo: bool, finalise_all: bool) -> Solution:
    """Three entities of weight 1, 2, 3 on three GPUs of each type, from the measured throughputs."""
    path = data / "hardware/gavel_throughputs/simulation_throughputs.json.gz"
    table = json.loads(gzip.decompress(path.read_bytes()))
    rates = np.array(
        [[table[kind][_key(name)]["null"] for kind in sorted(table)[::2]] for name in _PUBLISHED_JOBS[:jobs]]
    )
    entity = np.arange(jobs) // 6
    inner = np.where(fifo, 1.0, np.arange(jobs) % 2 + 1.0)
    count = int(entity.max()) + 1
    rule = EntityWeights(entity, np.arange(1.0, count + 1), np.full(count, fifo), inner)
    rates = rates / rates.mean(axis=1)[:, None]
    return fill(rates, np.ones(jobs), np.full(3, 3.0), rule, finalise_all=finalise_all)


def _key(name: str) -> str:
    model, _, batch = name.rpartition(" ")
    return f"('{model} (batch size {batch})', 1)" if model else f"('{name}', 1)"


@pytest.mark.parametrize(
    ("jobs", "fifo", "finalise_all", "expected"),
    [
        (4, False, False, [1.72, 1.321, 1.349, 1.473]),
        (4, False, True, [0.661, 1.321, 0.661, 1.321]),
        (4, True, False, [1.72, 1.321, 1.349, 1.473]),
        (18, False, False, _FAIR),
        (18, False, True, _FAIR),
        (18, True, False, _FIFO),
        (18, True, True, _FIFO_PUBLISHED),
    ],
)
def test_published_hierarchies(
    shared_data: Path, jobs: int, fifo: bool, finalise_all: bool, expected: list[float]
) -> None:
    found = _published(shared_data, jobs, fifo, finalise_all)
    assert found.levels == pytest.approx(expected, abs=6e-4)
