"""Benchmarks of the allocation solver: our processor time, and that of ECOS and HiGHS on the same problem in one run."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Measured
from trine.policy.shares.solver import max_min
from trine.policy.shares.solver.class_pairs import PairSolver
from trine.policy.shares.solver.finish_time import solve_finish_time
from trine.policy.shares.solver.highs import minimise, rate_program
from trine.policy.shares.solver.interior import Warm
from trine.policy.shares.solver.polytope import Array, LevelProblem, Polytope
from trine.policy.shares.solver.water_filling import fill
from trine.policy.shares.solver.weights import EntityWeights

KINDS = 83
"""As many kinds of jobs as the public throughput tables have."""
GANGS = np.repeat([1.0, 2.0, 4.0, 8.0], [26, 19, 19, 19])


def _kinds(seed: int = 0) -> tuple[Array, Array]:
    """Steps per second (k80, p100, v100) and gang of each kind: faster on newer GPUs, by very different factors."""
    rng = np.random.default_rng(seed)
    gain = np.cumprod(np.concatenate((np.ones((KINDS, 1)), rng.uniform(1.1, 3.5, (KINDS, 2))), axis=1), axis=1)
    return gain * rng.lognormal(0.0, 1.0, (KINDS, 1)), GANGS


def _jobs(n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Throughputs and gangs of the jobs, and a cluster with 0.2 n GPUs of each of three types."""
    throughput, gang = _kinds(seed)
    kind = np.random.default_rng(seed + 1).integers(KINDS, size=n)
    return throughput[kind], gang[kind], np.full(3, max(1.0, 0.2 * n))


def _max_min(n: int, different: bool) -> LevelProblem:
    throughput, gang, capacity = _jobs(n)
    rng = np.random.default_rng(2)
    if different:
        throughput = throughput * rng.lognormal(0.0, 0.1, throughput.shape)
    mean = throughput @ (capacity / capacity.sum())
    demand = rng.uniform(0.5, 5.0, n) if different else np.ones(n)
    rates = gang[:, None] * throughput / mean[:, None]
    return LevelProblem(rates=rates, demand=demand, gang=gang, capacity=capacity)


def _best(work: Callable[[], Any], repeats: int = 7) -> tuple[float, Any]:
    """Least processor time of several runs, and the last result."""
    spent, found = [], None
    for _ in range(repeats):
        start = time.process_time()
        found = work()
        spent.append(time.process_time() - start)
    return min(spent), found


def ecos_value(problem: LevelProblem) -> float:
    """Form (P) by ECOS, its sparse standard form built directly."""
    import ecos
    from scipy import sparse

    program = rate_program(problem)
    columns, n = len(program.cost), problem.n_jobs
    shape = (len(program.row_lower), columns)
    matrix = sparse.csc_matrix((program.value, program.index, program.start), shape=shape).tocsr()
    rows = sparse.vstack((-matrix[:n], matrix[n:], -sparse.identity(columns))).tocsc()
    right = np.concatenate((-problem.floor, program.row_upper[n:], np.zeros(columns)))
    options = {"abstol": 1e-8, "reltol": 1e-8, "feastol": 1e-8}
    found = ecos.solve(program.cost, rows, right, {"l": len(right), "q": [], "e": 0}, verbose=False, **options)
    return -float(found["info"]["pcost"])


def _side_by_side(problem: LevelProblem, ours_s: float, simplex: bool = True) -> str:
    said = []
    ecos_s, _ = _best(lambda: ecos_value(problem), 2)
    said.append(f"ECOS {ecos_s:.3g} s = {ecos_s / ours_s:.0f}x")
    if simplex:
        highs_s, _ = _best(lambda: minimise(rate_program(problem)), 1)
        said.append(f"HiGHS {highs_s:.3g} s = {highs_s / ours_s:.0f}x")
    return ", ".join(said)


def _measured(spent_s: float, gap: float, more: str = "") -> Measured:
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(spent_s * 1e3, peak_mb, f"gap {gap:.0e}" + (f"; {more}" if more else ""))


def _different(n: int, references: bool) -> Measured:
    problem = _max_min(n, different=True)
    spent, found = _best(lambda: max_min.solve(problem), 7 if references else 3)
    return _measured(
        spent, found.gap, _side_by_side(problem, spent) if references else f"{found.iterations} iterations"
    )


def _classes(n: int) -> Measured:
    problem = _max_min(n, different=False)
    spent, found = _best(lambda: max_min.solve(problem))
    return _measured(spent, found.gap, "finding the classes included")


def _rounds(n: int) -> Measured:
    """One job of n leaves and another comes: the solve of a round, warm."""
    throughput, gang, capacity = _jobs(n)
    rates = gang[:, None] * throughput / (throughput @ (capacity / capacity.sum()))[:, None]
    rng, warm, spent, gap = np.random.default_rng(4), Warm(), [], 0.0
    present = list(range(n))
    for _ in range(40):
        present[int(rng.integers(n))] = int(rng.integers(n))
        rows = np.array(present)
        problem = LevelProblem(rates=rates[rows], demand=np.ones(n), gang=gang[rows], capacity=capacity)
        start = time.process_time()
        gap = max(gap, max_min.solve(problem, warm).gap)
        spent.append(time.process_time() - start)
    return _measured(float(np.median(spent)), gap, "median of 40 rounds")


def _steps(n: int, throughput: Array) -> Array:
    return throughput[:, -1] * 60.0 * 10.0 ** np.random.default_rng(3).uniform(1.5, 4.0, n)


def _makespan(n: int) -> Measured:
    throughput, gang, capacity = _jobs(n)
    steps = _steps(n, throughput)
    problem = LevelProblem(rates=throughput, demand=steps, gang=gang, capacity=capacity)
    spent, found = _best(lambda: max_min.solve(problem))
    return _measured(spent, found.gap, _side_by_side(problem, spent))


def _finish_time(n: int) -> Measured:
    throughput, gang, capacity = _jobs(n)
    steps, rng = _steps(n, throughput), np.random.default_rng(5)
    isolated = capacity / (n * gang[:, None])
    isolated /= np.maximum(1.0, isolated.sum(axis=1))[:, None]
    elapsed = rng.uniform(0.0, 20_000.0, n)
    ideal = elapsed * rng.uniform(0.3, 1.2, n) + steps / (throughput * isolated).sum(axis=1)
    spent, found = _best(lambda: solve_finish_time(throughput, steps, elapsed, ideal, gang, capacity))
    demand = steps / (found.value * ideal - elapsed)
    problem = LevelProblem(rates=throughput, demand=demand, gang=gang, capacity=capacity)
    one = _side_by_side(problem, spent, simplex=False)
    return _measured(spent, found.gap, f"{found.iterations} iterations; one of the problems alone by {one}")


def _hierarchical(n: int) -> Measured:
    """Single-GPU jobs on n/4 GPUs of each type, so that fast types are scarce, slow ones are not, and levels differ."""
    throughput, _ = _kinds()
    rng, capacity = np.random.default_rng(6), np.full(3, n / 4.0)
    throughput = throughput[rng.integers(26, size=n)]
    rates = throughput / (throughput @ (capacity / capacity.sum()))[:, None]
    inside = rng.choice([1.0, 2.0], n)
    entities = EntityWeights(rng.integers(6, size=n), np.array([1.0, 2, 3, 1, 2, 3]), np.zeros(6, dtype=bool), inside)
    spent, found = _best(lambda: fill(rates, np.ones(n), capacity, entities))
    return _measured(spent, found.gap, f"{found.iterations} passes")


def _sharing_kinds(n: int) -> Polytope:
    """Pairs slow each other down by what both ask of a GPU; those that do not fit together make nothing."""
    throughput, gang = _kinds()
    rng, capacity = np.random.default_rng(7), np.full(3, 0.25 * n)
    rates = throughput * (gang / (throughput @ (capacity / capacity.sum())))[:, None]
    ask, memory = rng.uniform(0.2, 1.0, KINDS), rng.uniform(0.1, 0.8, KINDS)
    first, second = np.triu_indices(KINDS)
    fits = (gang[first] == gang[second]) & (memory[first] + memory[second] <= 1.0)
    first, second = first[fits], second[fits]
    factor = 1.0 / (1.0 + ask[first] * ask[second] * 1.3)
    made = np.stack((rates[first], rates[second]), axis=1) * factor[:, None, None]
    return Polytope(rates, gang, capacity, np.stack((first, second), axis=1), made)


def _space_sharing(n: int, warm: bool) -> Measured:
    kinds, rng = _sharing_kinds(n), np.random.default_rng(8)
    size = np.bincount(rng.integers(KINDS, size=n), minlength=KINDS).astype(np.float64)
    kept = PairSolver(kinds)
    kept.max_min(size, np.ones(KINDS))

    def once() -> Any:
        size[rng.integers(KINDS)] += 1.0
        return (kept if warm else PairSolver(kinds)).max_min(size, np.ones(KINDS))

    spent, found = _best(once, 5)
    return _measured(spent, found.gap, f"{len(kinds.pairs)} pairs of kinds, {found.iterations} simplex iterations")


# Reference times are those of the published code and its solver (ECOS) for the same work, in seconds.
_ALL = (
    Case("solve-2k", "max-min, 2,048 different jobs", 15, lambda: _different(2048, True), unit="ms", reference_s=0.06),
    Case("solve-100k", "max-min, 100,000 different jobs", 1000, lambda: _different(100_000, False), unit="ms", reference_s=19.6),
    Case("solve-classes", "max-min, 100,000 jobs in 83 classes", 20, lambda: _classes(100_000), unit="ms", reference_s=19.6),
    Case("solve-round", "max-min, 1,000 jobs, next round", 5, lambda: _rounds(1000), unit="ms"),
    Case("solve-ftf", "finish-time fairness, 1,024 jobs", 30, lambda: _finish_time(1024), unit="ms", reference_s=4.15),
    Case("solve-makespan", "makespan, 1,024 jobs", 10, lambda: _makespan(1024), unit="ms", reference_s=0.177),
    Case("solve-hierarchical", "hierarchical, 1,024 jobs", 30, lambda: _hierarchical(1024), unit="ms", reference_s=12.2),
    Case("solve-pairs", "space sharing, 2,048 jobs, from scratch", 30, lambda: _space_sharing(2048, False), unit="ms"),
    Case("solve-pairs-round", "space sharing, 2,048 jobs, next round", 10, lambda: _space_sharing(2048, True), unit="ms"),
)  # fmt: skip
SOLVER_CASES = {case.name: case for case in _ALL}
