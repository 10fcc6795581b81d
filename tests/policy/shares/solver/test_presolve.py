"""Equal jobs are found, whatever their number, and nothing else is merged."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.policy.shares.solver import presolve


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 400), st.integers(1, 5), st.integers(1, 60), st.integers(0, 10_000))
def test_classes_are_those_of_sorting(rows: int, columns: int, kinds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.choice([0.0, -0.0, 1.0, 2.5, 1e-9], (kinds, columns))[rng.integers(kinds, size=rows)]
    found = presolve.equal_rows((table,))
    assert found is not None
    assert len(found) == len(np.unique(table, axis=0))
    assert np.array_equal(table[found.first][found.member_of], table)
    assert np.array_equal(np.bincount(found.member_of), found.size)
    assert (np.diff(found.first) > 0).all()


def test_rows_that_fall_into_one_bucket_stay_apart() -> None:
    """More different rows than there are buckets, so that many must collide."""
    table = np.arange(100_000, dtype=np.float64)[:, None]
    found = presolve.equal_rows((table,))
    assert found is not None
    assert len(found) == 100_000


def test_too_many_classes_are_not_pursued() -> None:
    assert presolve.equal_rows((np.arange(50.0),), at_most=25) is None
    assert presolve.equal_rows((np.arange(50.0) % 25,), at_most=25) is not None
