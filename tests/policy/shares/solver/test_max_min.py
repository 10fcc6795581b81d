"""The level is optimal, the shares are feasible, and the certificate says so truthfully."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.policy.shares.solver.problems import assert_feasible, random_problem, rate_problems, simplex_value
from trine.policy.shares.solver.interior import Warm
from trine.policy.shares.solver.max_min import solve
from trine.policy.shares.solver.polytope import InfeasibleError, LevelProblem, Solution, UnservableError, certify


def _check(problem: LevelProblem, answer: Solution) -> None:
    assert_feasible(answer.x, problem.gang, problem.capacity)
    rate = (problem.rates * answer.x).sum(axis=1)
    assert (rate >= problem.demand * answer.value * (1 - 1e-9) + problem.floor - 1e-9).all()
    proof = certify(problem, answer.x, answer.duals, answer.prices, "")
    assert proof.value == pytest.approx(answer.value, rel=1e-9)
    assert proof.bound == pytest.approx(answer.bound, rel=1e-9)
    assert answer.duals @ problem.demand == pytest.approx(1.0)
    assert answer.prices.min() >= 0.0
    assert answer.gap <= 1e-6


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rate_problems(most_jobs=120))
def test_random_problems_agree_with_simplex(problem: LevelProblem) -> None:
    answer = solve(problem)
    _check(problem, answer)
    best = simplex_value(problem)
    assert answer.value == pytest.approx(best, rel=1e-6)
    assert answer.bound >= best * (1 - 1e-9)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rate_problems(most_jobs=700))
def test_large_random_problems_carry_their_proof(problem: LevelProblem) -> None:
    _check(problem, solve(problem))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rate_problems(most_jobs=700))
def test_large_random_problems_agree_with_simplex(problem: LevelProblem) -> None:
    assert solve(problem).value == pytest.approx(simplex_value(problem), rel=1e-6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rate_problems(most_jobs=200))
def test_classes_change_nothing_but_the_work(problem: LevelProblem) -> None:
    again = LevelProblem(
        rates=np.tile(problem.rates, (3, 1)),
        demand=np.tile(problem.demand, 3),
        gang=np.tile(problem.gang, 3),
        capacity=problem.capacity,
    )
    merged, full = solve(again), solve(again, classes=False)
    _check(again, merged)
    assert merged.value == pytest.approx(full.value, rel=1e-6)
    n = problem.n_jobs
    assert np.array_equal(merged.x[:n], merged.x[n : 2 * n])


def test_jobs_that_differ_in_demand_alone_are_not_merged() -> None:
    """Together they would reach 1.5, but the first has only one unit of time and makes at most 2 steps a second."""
    problem = LevelProblem(
        rates=np.array([[1.0, 2.0]] * 2), demand=np.array([2.0, 0.0]), gang=np.ones(2), capacity=np.ones(2)
    )
    answer = solve(problem)
    assert answer.value == pytest.approx(1.0, rel=1e-8)
    assert not answer.solver.startswith("classes")


def test_two_jobs_on_three_types() -> None:
    throughput = np.array([[2.0, 1.0, 0.5], [3.0, 2.0, 1.0]])
    capacity = np.array([1.0, 2.0, 3.0])
    rates = throughput / (throughput @ (capacity / capacity.sum()))[:, None]
    answer = solve(LevelProblem(rates=rates, demand=np.ones(2), gang=np.ones(2), capacity=capacity))
    assert answer.value == pytest.approx(1.548387, rel=1e-6)
    assert answer.x == pytest.approx(np.array([[0.41935, 0.58065, 0.0], [0.58065, 0.41935, 0.0]]), abs=1e-4)


def test_three_jobs_on_two_gpus() -> None:
    throughput = np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]])
    rates = throughput / throughput.mean(axis=1)[:, None]
    answer = solve(LevelProblem(rates=rates, demand=np.ones(3), gang=np.ones(3), capacity=np.ones(2)))
    assert (throughput * answer.x).sum(axis=1) == pytest.approx([18.1818, 5.81818, 54.5454], rel=1e-5)


def test_weights_divide() -> None:
    problem = LevelProblem(rates=np.ones((2, 1)), demand=np.array([1.0, 4.0]), gang=np.ones(2), capacity=np.ones(1))
    answer = solve(problem)
    assert answer.solver == "closed-form"
    assert answer.x[:, 0] == pytest.approx([0.2, 0.8])


def test_types_alike_for_everybody_are_shared_in_proportion() -> None:
    problem = LevelProblem(
        rates=np.ones((6, 3)), demand=np.ones(6), gang=np.ones(6), capacity=np.array([1.0, 2.0, 0.0])
    )
    answer = solve(problem)
    assert answer.x == pytest.approx(np.tile([1 / 6, 1 / 3, 0.0], (6, 1)))
    assert answer.gap <= 1e-12


def test_with_gpus_for_everybody_each_job_has_its_fastest_type() -> None:
    problem = random_problem(4, 20, 3, gpus_per_job=100.0)
    answer = solve(problem)
    assert (problem.rates * answer.x).sum(axis=1) == pytest.approx(problem.rates.max(axis=1))


def test_types_without_gpus_are_not_used_and_do_not_spoil_the_proof() -> None:
    problem = random_problem(6, 30, 4)
    capacity = problem.capacity * np.array([1.0, 0.0, 1.0, 0.0])
    less = LevelProblem(rates=problem.rates, demand=problem.demand, gang=problem.gang, capacity=capacity)
    answer = solve(less)
    _check(less, answer)
    assert not answer.x[:, [1, 3]].any()


def test_jobs_that_no_type_can_run_are_named() -> None:
    rates = np.array([[1.0, 1.0], [0.0, 5.0], [1.0, 0.0], [0.0, 5.0]])
    problem = LevelProblem(rates=rates, demand=np.ones(4), gang=np.ones(4), capacity=np.array([2.0, 0.0]))
    with pytest.raises(UnservableError) as caught:
        solve(problem)
    assert caught.value.rows == [1, 3]


@pytest.mark.parametrize("classes", [True, False])
def test_rows_without_demand_keep_their_floor(classes: bool) -> None:
    problem = random_problem(9, 40, 3, demand="different")
    level = solve(problem).value
    floor = np.where(np.arange(40) % 2, problem.demand * level, 0.0)
    fixed = LevelProblem(
        rates=problem.rates,
        demand=np.where(floor > 0, 0.0, problem.demand),
        floor=floor * (1 - 1e-6),
        gang=problem.gang,
        capacity=problem.capacity,
    )
    answer = solve(fixed, classes=classes)
    _check(fixed, answer)
    assert answer.value == pytest.approx(simplex_value(fixed), rel=1e-6)


def test_floors_that_leave_no_room_at_all_are_still_solved() -> None:
    """Every GPU goes into the floors: there is no interior to walk through."""
    rates, ones = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]), np.ones(3)
    floor = np.array([2.0, 2.0, 0.0])
    problem = LevelProblem(rates=rates, demand=np.array([0.0, 0.0, 1.0]), floor=floor, gang=ones, capacity=np.ones(2))
    answer = solve(problem)
    assert answer.value == pytest.approx(0.0, abs=1e-6)
    assert (rates * answer.x).sum(axis=1)[:2] == pytest.approx([2.0, 2.0], rel=1e-6)


def test_floors_beyond_the_cluster_are_refused() -> None:
    problem = LevelProblem(
        rates=np.ones((2, 2)) * [[1.0, 2.0]],
        demand=np.array([0.0, 1.0]),
        floor=np.array([3.0, 0.0]),
        gang=np.ones(2),
        capacity=np.ones(2),
    )
    with pytest.raises(InfeasibleError):
        solve(problem)


@pytest.mark.parametrize(
    "change",
    [{"rates": [[np.nan]]}, {"rates": [[-1.0]]}, {"capacity": [-1.0]}, {"gang": [0.0]}, {"demand": [1.0, 1.0]}],
)
def test_nonsense_is_refused(change: dict[str, list[float]]) -> None:
    good = {"rates": [[1.0]], "demand": [1.0], "gang": [1.0], "capacity": [1.0]}
    with pytest.raises(ValueError, match=r"must|match"):
        LevelProblem(**{name: np.array(value) for name, value in (good | change).items()})


def test_same_input_same_bytes() -> None:
    problem = random_problem(11, 300, 3, demand="different")
    assert solve(problem).x.tobytes() == solve(problem).x.tobytes()


def test_order_of_the_jobs_does_not_matter() -> None:
    problem = random_problem(13, 80, 3, demand="levels")
    order = np.random.default_rng(0).permutation(80)
    other = LevelProblem(
        rates=problem.rates[order], demand=problem.demand[order], gang=problem.gang[order], capacity=problem.capacity
    )
    assert solve(other).x == pytest.approx(solve(problem).x[order], abs=1e-5)


def test_a_warm_start_is_shorter_and_ends_in_the_same_place() -> None:
    rng, warm = np.random.default_rng(3), Warm()
    kinds = random_problem(15, 60, 3)
    present = list(rng.integers(60, size=200))
    spent = [0, 0]
    for _ in range(12):
        present[int(rng.integers(200))] = int(rng.integers(60))
        problem = LevelProblem(
            rates=kinds.rates[present], demand=np.ones(200), gang=kinds.gang[present], capacity=kinds.capacity * 3
        )
        one, other = solve(problem, warm), solve(problem)
        _check(problem, one)
        assert one.value == pytest.approx(other.value, rel=1e-7)
        spent = [spent[0] + one.iterations, spent[1] + other.iterations]
    assert spent[0] < 0.8 * spent[1]


@pytest.mark.parametrize(("jobs", "types"), [(12_000, 3), (2_000, 10)])
def test_thousands_of_different_jobs(jobs: int, types: int) -> None:
    problem = random_problem(23, jobs, types, demand="different")
    _check(problem, solve(problem))
