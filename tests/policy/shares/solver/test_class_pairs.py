"""Space sharing: classes lose nothing against all pairs of jobs, and class time can be handed to jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.policy.shares.solver import linear
from trine.policy.shares.solver.class_pairs import PairSolver
from trine.policy.shares.solver.pair_split import split
from trine.policy.shares.solver.polytope import Index, LevelProblem, Polytope, Solution, UnservableError


def _kinds(seed: int, kinds: int, capacity: float) -> Polytope:
    rng = np.random.default_rng(seed)
    gang = rng.choice([1.0, 2.0], kinds)
    rates = rng.uniform(0.5, 4.0, (kinds, 3))
    first, second = np.triu_indices(kinds)
    same = gang[first] == gang[second]
    first, second = first[same], second[same]
    factor = rng.choice([0.0, 0.4, 0.6, 0.9], (len(first), 1, 3))
    made = np.stack((rates[first], rates[second]), axis=1) * factor
    return Polytope(rates, gang, np.full(3, capacity), np.stack((first, second), axis=1), made)


def _members(seed: int, kinds: int, n: int) -> tuple[Index, np.ndarray]:
    member = np.random.default_rng(seed).integers(kinds, size=n)
    return member, np.bincount(member, minlength=kinds).astype(np.float64)


def _every_pair(kinds: Polytope, member: Index) -> Polytope:
    """The same with every job a row of its own and all pairs of jobs listed."""
    row = {(a, b): k for k, (a, b) in enumerate(kinds.pairs.tolist())}
    pairs, rates = [], []
    for one, two in zip(*np.triu_indices(len(member), 1), strict=True):
        a, b = int(member[one]), int(member[two])
        if (min(a, b), max(a, b)) in row:
            made = kinds.pair_rates[row[min(a, b), max(a, b)]]
            pairs.append((one, two))
            rates.append(made if a <= b else made[::-1])
    found, made = np.array(pairs, np.intp).reshape(-1, 2), np.array(rates).reshape(-1, 2, 3)
    return Polytope(kinds.rates[member], kinds.gang[member], kinds.capacity, found, made)


@pytest.mark.parametrize("seed", range(8))
def test_classes_of_pairs_equal_all_pairs_of_jobs(seed: int) -> None:
    kinds = _kinds(seed, 5, 3.0)
    member, size = _members(seed, 5, 14)
    demand = np.random.default_rng(seed).choice([1.0, 2.0], 5)
    one, every = PairSolver(kinds), _every_pair(kinds, member)
    level, full = one.max_min(size, demand), linear.highest_level(LevelProblem.over(every, demand[member]))
    assert level.value == pytest.approx(full.value, rel=1e-8)
    assert max(level.gap, full.gap) <= 1e-8
    total, full_total = one.max_sum(size), linear.highest_sum(every, linear.Worth(np.ones(14), np.ones(3)))
    assert total.value == pytest.approx(full_total.value, rel=1e-8)
    assert max(total.gap, full_total.gap) <= 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_pairs_of_jobs_get_the_time_of_their_classes(seed: int) -> None:
    kinds = _kinds(seed, 5, 3.0)
    member, size = _members(seed, 5, 14)
    answer = PairSolver(kinds).max_min(size, np.ones(5))
    jobs, shares = split(answer, kinds, member)
    together = np.zeros((14, 3))
    for (one, two), share in zip(jobs, shares, strict=True):
        assert one < two
        together[one] += share
        together[two] += share
    busy = (answer.x[member] + together).sum(axis=1)
    assert busy.max() <= 1 + 1e-9
    used = kinds.gang[member] @ answer.x[member] + kinds.gang[member[jobs[:, 0]]] @ shares
    assert (used <= kinds.capacity * (1 + 1e-9)).all()


def _made(kinds: Polytope, member: Index, answer: Solution, jobs: Index, shares: np.ndarray) -> np.ndarray:
    """Steps per second of every job, alone and next to the jobs it shares GPUs with."""
    every = _every_pair(kinds, member)
    row = {(int(a), int(b)): k for k, (a, b) in enumerate(every.pairs)}
    made: np.ndarray = (kinds.rates[member] * answer.x[member]).sum(axis=1)
    for pair, share in zip(jobs.tolist(), shares, strict=True):
        made[pair] += (every.pair_rates[row[tuple(pair)]] * share).sum(axis=1)
    return made


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 12), st.sampled_from((1.0, 3.0, 8.0)))
@stable(60)
def test_no_job_is_worse_off_than_if_all_pairs_of_jobs_were_columns(
    seed: int, kinds: int, jobs: int, capacity: float
) -> None:
    """Level and, at that level, the sum of throughputs over demand; every job has what its class was to have."""
    classes, (member, size) = _kinds(seed, kinds, capacity), _members(seed, kinds, jobs)
    demand = np.random.default_rng(seed).uniform(0.5, 2.0, kinds)
    found = PairSolver(classes).max_min(size, demand, most_rate=True)
    made = _made(classes, member, found, *split(found, classes, member))
    every, wanted = _every_pair(classes, member), demand[member]
    level = linear.highest_level(LevelProblem.over(every, wanted)).value
    assert made / wanted == pytest.approx(np.maximum(made / wanted, level), rel=1e-7)
    most = linear.highest_sum(every, linear.Worth(1.0 / wanted, np.ones(3)), wanted * level * (1 - 1e-8)).value
    assert (made / wanted).sum() == pytest.approx(most, rel=1e-6)


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 30))
@stable(60)
def test_equal_jobs_share_gpus_for_equally_long_in_few_pairs(seed: int, kinds: int, jobs: int) -> None:
    classes, (member, size) = _kinds(seed, kinds, 2.0), _members(seed, kinds, jobs)
    found = PairSolver(classes).max_min(size, np.ones(kinds), most_rate=True)
    pairs, shares = split(found, classes, member)
    rate = PairSolver(classes).rate(found.x, classes.pair_time(found), size)
    assert _made(classes, member, found, pairs, shares) == pytest.approx(rate[member], rel=1e-9, abs=1e-12)
    used = classes.pairs[classes.pair_time(found).sum(axis=1) > 1e-12]
    assert len(pairs) <= sum(size[a] + size[b] for a, b in used)


def test_jobs_that_shared_gpus_go_on_together() -> None:
    """Two classes of three; then one job of the first leaves, and pairs of the others stay."""
    time, member = np.array([[3.0, 0.0, 0.0]]), np.array([0, 0, 0, 1, 1, 1])
    classes = Polytope(np.ones((2, 3)), np.ones(2), np.ones(3), np.array([[0, 1]]), np.ones((1, 2, 3)))
    found = replace(PairSolver(classes).max_min(np.full(2, 3.0), np.ones(2)), y=time)
    crossed = [(0, 5), (1, 4), (2, 3)]
    jobs, shares = split(found, classes, member, crossed)
    assert sorted(map(tuple, jobs.tolist())) == crossed and shares[:, 0].tolist() == [1.0, 1.0, 1.0]
    fewer, _ = split(replace(found, y=time * 2 / 3), classes, member[1:], [(0, 3), (1, 2)])
    assert {(0, 3), (1, 2)} < set(map(tuple, fewer.tolist()))


def test_a_program_of_other_classes_starts_from_the_last_and_finds_the_same() -> None:
    rng, everything, solver = np.random.default_rng(5), _kinds(7, 14, 6.0), None
    for _ in range(12):
        there = np.sort(rng.choice(14, rng.integers(3, 12), replace=False))
        size, demand = rng.integers(1, 9, len(there)).astype(np.float64), np.ones(len(there))
        place = {int(kind): row for row, kind in enumerate(there)}
        kept = [k for k, (a, b) in enumerate(everything.pairs.tolist()) if a in place and b in place]
        pairs = np.array([[place[a], place[b]] for a, b in everything.pairs[kept].tolist()])
        classes = Polytope(
            everything.rates[there], everything.gang[there], everything.capacity, pairs, everything.pair_rates[kept]
        )
        solver = PairSolver(classes, there.tolist(), solver)
        warm, cold = (each.max_min(size, demand, most_rate=True) for each in (solver, PairSolver(classes)))
        assert warm.value == pytest.approx(cold.value, rel=1e-8) and warm.gap <= 1e-7
        total = [
            each.rate(found.x, classes.pair_time(found), size) @ size
            for each, found in ((solver, warm), (solver, cold))
        ]
        assert total[0] == pytest.approx(total[1], rel=1e-6)


def test_two_jobs_that_share_without_loss() -> None:
    throughput = np.array([[2.0, 1.0, 0.5], [3.0, 2.0, 1.0]])
    mean = throughput.mean(axis=1)
    made = (throughput / mean[:, None])[None]
    kinds = Polytope(throughput / mean[:, None], np.ones(2), np.ones(3), np.array([[0, 1]]), made)
    answer = PairSolver(kinds).max_min(np.ones(2), np.ones(2))
    assert answer.value == pytest.approx(1.5)
    total = PairSolver(kinds).max_sum(np.ones(2), throughput, np.array([[5.0, 3.0, 1.5]]))
    assert total.value == pytest.approx(5.0)
    assert total.y == pytest.approx(np.array([[1.0, 0.0, 0.0]]))


def test_a_kept_solver_agrees_with_a_new_one_round_after_round() -> None:
    kinds = _kinds(3, 8, 20.0)
    _, size = _members(1, 8, 100)
    kept, rng = PairSolver(kinds), np.random.default_rng(0)
    for _ in range(10):
        size[rng.integers(8)] += 1.0
        busy = np.flatnonzero(size > 1)
        size[busy[rng.integers(len(busy))]] -= 1.0
        warm, cold = kept.max_min(size, np.ones(8)), PairSolver(kinds).max_min(size, np.ones(8))
        assert warm.value == pytest.approx(cold.value, rel=1e-8)
        assert warm.gap <= 1e-8


def test_a_job_does_not_share_with_itself() -> None:
    """Alone of its kind: the pair of the kind with itself must not be used, however good it looks."""
    made = np.full((1, 2, 1), 10.0)
    kinds = Polytope(np.ones((1, 1)), np.ones(1), np.ones(1), np.array([[0, 0]]), made)
    assert PairSolver(kinds).max_min(np.ones(1), np.ones(1)).value == pytest.approx(1.0)
    assert PairSolver(kinds).max_min(np.full(1, 2.0), np.ones(1)).value == pytest.approx(10.0)


def test_bad_pairs_and_stuck_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="equal gang"):
        PairSolver(Polytope(np.ones((2, 1)), np.array([1.0, 2.0]), np.ones(1), np.array([[0, 1]]), np.ones((1, 2, 1))))
    kinds = Polytope(
        np.array([[1.0], [0.0]]), np.ones(2), np.ones(1), np.zeros((0, 2), dtype=np.intp), np.zeros((0, 2, 1))
    )
    with pytest.raises(UnservableError) as caught:
        PairSolver(kinds).max_min(np.ones(2), np.ones(2))
    assert caught.value.rows == [1]
