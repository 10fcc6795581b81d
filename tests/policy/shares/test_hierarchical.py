"""Hierarchical fairness: the published example in both modes, weights of entities, and two roads to the same levels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tests.policy.shares.problems import assert_valid, random_problem
from trine.policy.shares.hierarchical import Hierarchical, weights_of
from trine.policy.shares.problem import Entity, Problem, proportional
from trine.policy.shares.program import polytope_of
from trine.policy.shares.solver.highs import HighsSession
from trine.policy.shares.solver.water_filling import fill_pairs
from trine.policy.view import Floats

TYPES = ("k80", "p100", "v100")
MODELS = (
    *("Transformer 128", "A3C", "Transformer 256", "ResNet-18 32", "ResNet-50 128", "LM 20", "LM 10"),
    *("Transformer 128", "CycleGAN", "Transformer 16", "LM 10", "Transformer 64", "LM 80", "ResNet-50 32"),
    *("LM 20", "ResNet-18 256", "Transformer 16", "ResNet-18 256"),
)
FAIR = [x for weight in (1, 2, 3) for x in [0.19367 * weight, 0.38733 * weight] * 3]
"""Jobs of weight 1 and 2 in turn, six in each of three entities of weight 1, 2 and 3."""
IN_ORDER = [
    *(0.509, 0.56, 0.453, 0.004, 0, 0),
    *(1.019, 1.119, 0.905, 0.008, 0, 0),
    *(1.528, 1.679, 1.358, 0.012, 0, 0),
]
IN_ORDER_EXACT = [
    *(1.048, 0.402, 0, 0, 0, 0),
    *(1.342, 0.97, 0.438, 0.148, 0, 0),
    *(1.528, 1.615, 0.984, 0.141, 0.082, 0),
]
FOUR = [1.72, 1.321, 1.349, 1.473]


@pytest.fixture(scope="module")
def rates(shared_data: Path) -> Floats:
    """Steps per second of the 18 jobs of the example, from the public throughput table."""
    path = shared_data / "hardware" / "gavel_throughputs" / "simulation_throughputs.json.gz"
    table = json.loads(gzip.decompress(path.read_bytes()))
    words = [name.split() for name in MODELS]
    full = [f"{w[0]} (batch size {w[1]})" if len(w) > 1 else w[0] for w in words]
    return np.array([[table[t][str((name, 1))]["null"] for t in TYPES] for name in full])


def example(rates: Floats, jobs: int, rule: str) -> Problem:
    weight = [(i % 2) + 1.0 if rule == "fairness" else 1.0 for i in range(jobs)]
    entities = [Entity(str(e), e + 1.0, rule) for e in range(3)]
    entity = [i // 6 for i in range(jobs)]
    return Problem.of(dict.fromkeys(TYPES, 3), rates[:jobs], weight=weight, entity=entity, entities=entities)


@pytest.mark.parametrize(
    ("jobs", "rule", "finalise_all", "levels"),
    [
        (4, "fairness", True, [0.661, 1.321, 0.661, 1.321]),
        (4, "fairness", False, FOUR),
        (4, "fifo", True, FOUR),
        (4, "fifo", False, FOUR),
        (18, "fairness", True, FAIR),
        (18, "fairness", False, FAIR),
        (18, "fifo", True, IN_ORDER),
        (18, "fifo", False, IN_ORDER_EXACT),
    ],
)
def test_the_published_example(jobs: int, rule: str, finalise_all: bool, levels: list[float], rates: Floats) -> None:
    problem = example(rates, jobs, rule)
    found = Hierarchical(finalise_all=finalise_all).allocate(problem)
    assert_valid(problem, found)
    np.testing.assert_allclose(found.levels, levels, atol=6e-4)
    assert (found.effective / proportional(problem.rates, problem.capacity) >= found.levels * (1 - 1e-6)).all()
    assert found.gap <= 1e-6


@pytest.mark.parametrize(("jobs", "rule", "levels"), [(4, "fifo", [1.0] * 4), (18, "fairness", None)])
def test_the_published_example_without_speeds(jobs: int, rule: str, levels: list[float] | None, rates: Floats) -> None:
    problem = example(rates, jobs, rule)
    wanted = levels or [x * e / 6 for e in (1, 2, 3) for x in (1, 2) * 3]
    found = Hierarchical(aware=False, finalise_all=True).allocate(problem)
    np.testing.assert_allclose(found.levels, wanted, atol=1e-6)


@pytest.mark.parametrize("finalise_all", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_two_roads_to_the_same_levels(seed: int, finalise_all: bool) -> None:
    """Interior-point duals and linear programs that ask who can still rise agree on every level."""
    problem = random_problem(seed, 5 + 2 * seed, **({"entity": -1} if seed % 3 == 0 else {}))
    found = Hierarchical(finalise_all=finalise_all).allocate(problem)
    polytope = polytope_of(problem, problem.rates, with_pairs=False).divided(
        proportional(problem.rates, problem.capacity)
    )
    other = fill_pairs(polytope, weights_of(problem, np.arange(len(problem))), HighsSession(), finalise_all)
    np.testing.assert_allclose(found.levels, other.levels, rtol=1e-5, atol=1e-6)


def test_what_an_entity_gets_follows_its_weight() -> None:
    """One GPU, three jobs in an entity of weight 1 and one in another of weight 3."""
    entities = (Entity("many", 1.0), Entity("one", 3.0))
    problem = Problem.of({"v100": 1}, np.ones((4, 1)), entity=[0, 0, 0, 1], entities=entities)
    found = Hierarchical().allocate(problem)
    np.testing.assert_allclose(found.shares[:, 0], [1 / 12, 1 / 12, 1 / 12, 3 / 4], atol=1e-6)


def test_inside_fifo_the_first_is_served_in_full_before_the_next() -> None:
    """Two GPUs for one entity of three jobs; the list is not in order of arrival."""
    problem = Problem.of({"v100": 2}, np.ones((3, 1)), entity=0, entities=[Entity("a", rule="fifo")], arrival=[2, 0, 1])
    found = Hierarchical().allocate(problem)
    np.testing.assert_allclose(found.shares[:, 0], [0.0, 1.0, 1.0], atol=1e-6)


def test_a_job_without_entity_counts_for_itself() -> None:
    problem = Problem.of({"v100": 1}, np.ones((3, 1)), weight=[1, 1, 2], entity=[0, 0, -1], entities=[Entity("a", 2.0)])
    np.testing.assert_allclose(Hierarchical().allocate(problem).shares[:, 0], [0.25, 0.25, 0.5], atol=1e-6)
