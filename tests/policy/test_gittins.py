"""The Gittins index on samples whose index can be worked out on paper, and the policy around it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.views import Seen, order
from trine.core.job import Job
from trine.policy.base import FinishedJob, Policy
from trine.policy.gittins import Gittins, gittins_index


def ended(gpu_time_s: float) -> FinishedJob:
    return FinishedJob(Job("a", 0.0, 1, 1.0), gpu_time_s, gpu_time_s)


def index_at(sizes: list[float], age: float, quantum: float | None = None) -> float:
    ages, index = gittins_index(np.array(sizes), quantum)
    return float(index[np.searchsorted(ages, age, side="right") - 1])


def test_constant_sizes() -> None:
    """Everything ends at 50: the best look-ahead is 50, and beyond it nothing is known to end."""
    assert index_at([50.0] * 7, 0) == pytest.approx(1 / 50)
    assert index_at([50.0] * 7, 50) == 0
    assert index_at([50.0] * 7, 60) == 0


@pytest.mark.parametrize(
    ("sizes", "age", "expected"),
    [
        ([1, 9], 0, 0.5),  # look 1 ahead: 1/2 per 1; 9 ahead: 1 per 5
        ([1, 9], 1, 1 / 8),  # surely the long one: 8 to go
        ([8, 10], 0, 1 / 9),  # 8 ahead: 1/2 per 8; 10 ahead: 1 per 9
        ([8, 10], 8, 1 / 2),
        ([1, 1, 1, 9], 0, 0.75),
        ([2, 4, 30], 0, 0.2),  # 2 ahead: 1/6; 4 ahead: 2/10; 30 ahead: 3/36
    ],
)
def test_few_sizes(sizes: list[float], age: float, expected: float) -> None:
    assert index_at(sizes, age) == pytest.approx(expected)


def test_a_fixed_quantum_replaces_the_best_look_ahead() -> None:
    assert index_at([1, 9], 0, quantum=2) == pytest.approx(0.5 / 1.5)
    assert index_at([1, 9], 0, quantum=10) == pytest.approx(1 / 5)
    assert index_at([1, 9], 1, quantum=2) == 0  # nothing ends within 2 of age 1
    assert index_at([1, 9], 1, quantum=8) == pytest.approx(1 / 8)


def test_exponential_sizes_have_no_age() -> None:
    """The memoryless distribution: the index is 1/mean at every age that the sample covers well."""
    sizes = [-100.0 * np.log(1 - i / 501) for i in range(1, 501)]
    found = [index_at(sizes, age) for age in (0, 20, 50, 100, 150, 200)]
    assert found == pytest.approx([1 / 100] * 6, rel=0.15)


def test_heavy_tails_serve_the_young_first_and_known_sizes_the_old() -> None:
    heavy = [10.0 * (1 - (i + 0.5) / 200) ** -1.5 for i in range(200)]
    at = [index_at(heavy, age) for age in (0, 30, 100, 300)]
    assert at == sorted(at, reverse=True) and at[0] > 2 * at[-1]
    narrow = [float(s) for s in range(90, 111)]
    assert index_at(narrow, 0) < index_at(narrow, 95) < index_at(narrow, 105)


def naive_index(sizes: list[float], age: float) -> float:
    """Straight from the definition, every possible look-ahead tried."""
    left = [s - age for s in sizes if s > age]
    rates = [sum(x <= d for x in left) / sum(min(x, d) for x in left) for d in left]
    return max(rates, default=0.0)


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=25))
def test_index_is_the_definition(sizes: list[int]) -> None:
    values = [float(s) for s in sizes]
    for age in {0.0, *values}:
        assert index_at(values, age) == pytest.approx(naive_index(values, age))


def test_a_large_sample_is_thinned_without_changing_the_picture() -> None:
    few = [float(v) for v in range(1, 501)]
    many = list(np.repeat(few, 20))
    for age in (0.0, 100.0, 250.0, 400.0):
        assert index_at(many, age) == pytest.approx(index_at(few, age), rel=0.05)


def test_a_given_sample_ranks_by_index_of_attained_gpu_seconds() -> None:
    """Sizes 10 and 1000: at age 0 the index is 1/20, from age 10 on 1/990; 6 s on two GPUs are past 10."""
    policy = Gittins(sample=(10.0, 1000.0))
    jobs = [Seen("a", ran_s=6, gpus=2), Seen("b", ran_s=9, submit_s=1), Seen("c", ran_s=2000, submit_s=2)]
    assert order(policy, 3, jobs) == "bac"


def test_equal_index_keeps_what_runs_running() -> None:
    policy = Gittins(sample=(1000.0,))
    assert order(policy, 50, [Seen("a"), Seen("b", submit_s=1, running_since_s=40)]) == "ba"


def test_a_given_sample_is_not_replaced_by_what_finishes() -> None:
    jobs = [Seen("a", ran_s=20), Seen("b", submit_s=1)]
    policy = Gittins(sample=(10.0, 1000.0), min_finished=1)
    for _ in range(50):
        policy.finished(ended(21.0))
    assert order(policy, 3, jobs) == "ba"


def test_it_learns_from_what_finishes() -> None:
    """Jobs here end at 1000 or just after: once that is known, the job that is nearly there goes first."""
    jobs = [Seen("a"), Seen("b", ran_s=950, submit_s=1)]
    policy = Gittins()
    assert order(policy, 3, jobs) == "ab"  # the prior favours the young
    for i in range(300):
        policy.finished(ended(980.0 + i % 40))
    assert order(policy, 3, jobs) == "ba"


def test_jobs_that_have_not_ended_count() -> None:
    """All that ended took 100 or 1,000; of the many that passed 100 lately none ended, so 100 is no end in sight."""
    known, crowd = Gittins(), Gittins()
    for policy in (known, crowd):
        for i in range(40):
            policy.finished(ended(100.0 if i % 2 else 1000.0))
    order(crowd, 3, [Seen(f"{i}", ran_s=200, submit_s=i) for i in range(500)])
    order(known, 3, [Seen("0")])
    young = np.array([0.0])
    assert crowd._index_of(young)[0] < known._index_of(young)[0] / 2


def test_a_learned_sample_replaces_the_prior_of_a_fixed_look_ahead_but_not_too_soon() -> None:
    jobs = [Seen("a"), Seen("b", ran_s=950, submit_s=1)]
    policy = Gittins(min_finished=30, quantum_gpu_s=200.0)
    for i in range(29):
        policy.finished(ended(900.0 + 10 * i))
    assert order(policy, 3, jobs) == "ab"
    policy.finished(ended(1000.0))
    assert order(policy, 3, jobs) == "ba"


def test_before_anything_is_known_it_favours_the_young() -> None:
    jobs = [Seen("a", ran_s=7200), Seen("b", ran_s=600), Seen("c", submit_s=1), Seen("d", ran_s=3600, gpus=8)]
    assert order(Gittins(), 2, jobs) == "cbad"


def test_a_policy_file_of_an_earlier_version_learns_all_the_same() -> None:
    with pytest.warns(FutureWarning, match=r"Older\.finished\(gpu_time_s\) is finished\(ended\) now"):

        class Older(Gittins):
            def finished(self, gpu_time_s: float) -> None:  # type: ignore[override]
                self._finished.append(2 * gpu_time_s)

    older = Older()
    policy: Policy = older
    policy.finished(ended(21.0))
    assert older._finished == [42.0]
