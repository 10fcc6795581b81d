"""The walk of compat.centre_of_optima ends where a conic interior point ends, and where the optimum is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from trine.parity.hsd_ipm import ConeProgram, walk

Floats = NDArray[np.float64]
NEAR = 2e-4
"""Other optima are farther away. The end depends a little on how exactly the first step is solved."""


class Case:
    """Random jobs on three types; every second pair makes nothing."""

    def __init__(self, seed: int, jobs: int, with_pairs: bool) -> None:
        rng = np.random.default_rng(seed)
        self.rates = rng.uniform(1.0, 10.0, (jobs, 3)) * np.exp(rng.normal(0.0, 1.0, (jobs, 1)))
        self.rates[0, 0] = 0.0
        self.gang = np.ones(jobs) if with_pairs else rng.integers(1, 3, jobs).astype(np.float64)
        self.capacity = np.array([jobs / 6, jobs / 6, jobs / 4])
        self.pairs = np.argwhere(np.triu(np.ones((jobs, jobs)), 1))[:: 1 if with_pairs else jobs**2]
        self.pairs = self.pairs if with_pairs else self.pairs[:0]
        self.pair_rates = self.rates[self.pairs] * rng.uniform(0.3, 0.8, (len(self.pairs), 2, 1))
        self.pair_rates[::2] = 0.0

    @property
    def shape(self) -> tuple[Floats, Floats, Floats, NDArray[np.int64], Floats]:
        return self.rates, self.gang, self.capacity, self.pairs, self.pair_rates

    def rows(self) -> tuple[Floats, Floats, Floats]:
        """GPUs, time and throughput as dense rows, unit by unit and type by type."""
        n, units = len(self.rates), len(self.rates) + len(self.pairs)
        gpus, time, rate = np.zeros((3, units, 3)), np.zeros((n, units, 3)), np.zeros((n, units, 3))
        members = [[m] for m in range(n)] + self.pairs.tolist()
        for u, jobs in enumerate(members):
            gpus[np.arange(3), u, np.arange(3)] = self.gang[jobs[0]]
            for side, m in enumerate(jobs):
                time[m, u] = 1.0
                rate[m, u] = self.rates[m] if u < n else self.pair_rates[u - n, side]
        flat = [part.reshape(len(part), -1) for part in (gpus, time, rate)]
        return flat[0], flat[1], flat[2]


class ClassCase(Case):
    """Twenty jobs of five classes: what two jobs make together depends on their classes alone."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 5, False)
        rng = np.random.default_rng(seed)
        member = rng.permutation(np.repeat(np.arange(5), [7, 6, 4, 2, 1]))
        slowdown = rng.uniform(0.3, 0.8, (5, 5)) * rng.choice([0.0, 1.0], (5, 5), p=[0.2, 0.8])
        slowdown = (slowdown + slowdown.T) / 2
        self.rates, self.gang = self.rates[member], np.ones(20)
        self.capacity = np.array([4.0, 3.0, 5.0])
        self.pairs = np.argwhere(np.triu(np.ones((20, 20)), 1))
        one, other = member[self.pairs].T
        self.pair_rates = self.rates[self.pairs] * slowdown[one, other][:, None, None]


def conic(cost: Floats, rows: Floats, limit: Floats, free: int) -> Floats:
    ecos = pytest.importorskip("ecos", reason="the conic solver for comparison is not installed")
    bounds = -np.eye(len(cost))[: len(cost) - free]
    every = np.concatenate((bounds, rows))
    right = np.concatenate((np.zeros(len(bounds)), limit))
    found: dict[str, Any] = ecos.solve(cost, csc_matrix(every), right, {"l": len(right)}, verbose=False)
    assert found["info"]["exitFlag"] == 0
    return np.asarray(found["x"][: len(bounds)].reshape(-1, 3), np.float64)


CASES = [Case(0, 5, False), Case(1, 30, False), Case(2, 12, True), ClassCase(3)]
cases = pytest.mark.parametrize("case", CASES, ids=["few", "many", "pairs", "classes"])


@cases
def test_of_the_highest_levels_the_one_a_conic_solver_finds(case: Case) -> None:
    found = walk(ConeProgram.raising(*case.shape))
    gpus, time, rate = case.rows()
    n = len(case.rates)
    last = np.concatenate((np.zeros(3 + n), np.ones(n)))
    rows = np.column_stack((np.concatenate((gpus, time, -rate)), last))
    cost = np.append(np.zeros(gpus.shape[1]), -1.0)
    expected = conic(cost, rows, np.concatenate((case.capacity, np.ones(n), np.zeros(n))), free=1)
    assert found.done
    np.testing.assert_allclose(found.shares, expected, atol=NEAR)


@cases
def test_of_the_shares_that_suffice_the_ones_a_conic_solver_finds(case: Case) -> None:
    need = 0.3 * case.rates.mean(axis=1)
    found = walk(ConeProgram.of(*case.shape, need))
    gpus, time, rate = case.rows()
    limit = np.concatenate((case.capacity, np.ones(len(need)), -need))
    expected = conic(np.zeros(gpus.shape[1]), np.concatenate((gpus, time, -rate)), limit, free=0)
    assert found.done
    assert (rate @ found.shares.ravel() >= need * (1 - 1e-7)).all()
    np.testing.assert_allclose(found.shares, expected, atol=NEAR)


def test_equal_jobs_get_equal_bits() -> None:
    rates = np.repeat(np.array([[1.0, 2.0, 4.0], [3.0, 3.5, 5.0]]), 6, axis=0)
    found = walk(
        ConeProgram.raising(rates, np.ones(12), np.array([2.0, 2.0, 3.0]), np.zeros((0, 2), int), np.zeros((0, 2, 3)))
    )
    assert found.done
    assert (found.shares[:6] == found.shares[0]).all()
    assert (found.shares[6:] == found.shares[6]).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_need", [False, True])
def test_merging_equal_jobs_changes_the_walk_by_rounding_only(
    seed: int, with_need: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ClassCase(seed)

    def found() -> tuple[int, int, Floats]:
        need = 0.2 * case.rates.mean(axis=1)
        program = ConeProgram.of(*case.shape, need) if with_need else ConeProgram.raising(*case.shape)
        end = walk(program)
        assert end.done
        return len(program.size), end.iterations, end.shares

    merged = found()
    monkeypatch.setattr("trine.parity.hsd_ipm.cone_program.MOST_CLASSES", 0.0)
    full = found()
    assert (merged[0], full[0]) == (5, 20)
    assert merged[1] == full[1]
    np.testing.assert_allclose(merged[2], full[2], atol=1e-5)


def test_equal_jobs_that_pair_differently_are_not_merged() -> None:
    case = ClassCase(0)
    case.pair_rates[3] *= 1.5
    assert len(ConeProgram.raising(*case.shape).size) == 20
