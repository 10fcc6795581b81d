"""Policies that are a sort key: smallest first, ties by arrival, priority before all; anything but numbers is a bug."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.views import Seen, view
from trine.policy.base import KeyPolicy, PolicyError
from trine.policy.view import Floats, View


@dataclass
class ByColumns(KeyPolicy):
    """Keys as given."""

    name: ClassVar[str] = "by-columns"
    title: ClassVar[str] = "keys as given"
    columns: tuple[tuple[float, ...], ...]

    def key(self, view: View) -> Floats | tuple[Floats, ...]:
        found = tuple(np.array(column, dtype=np.float64) for column in self.columns)
        return found[0] if len(found) == 1 else found


numbers = st.sampled_from([-math.inf, -1.0, 0.0, 1.0, 2.0, math.inf])


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.integers(0, 12), st.integers(1, 3), st.booleans(), st.data())
def test_order_is_by_priority_then_key_then_arrival(jobs: int, keys: int, urgent: bool, data: st.DataObject) -> None:
    column = st.tuples(*[numbers] * jobs)
    columns = tuple(data.draw(column) for _ in range(keys))
    priority = data.draw(st.tuples(*[st.sampled_from([0.0, 1.0, 5.0])] * jobs)) if urgent else (0.0,) * jobs
    seen = view(0.0, [Seen(str(i), priority=p) for i, p in enumerate(priority)])
    expected = sorted(range(jobs), key=lambda i: (-priority[i], *[c[i] for c in columns], i))
    assert ByColumns(columns).rank(seen).order.tolist() == expected


@pytest.mark.parametrize("priority", [0.0, 3.0])
@pytest.mark.parametrize("columns", [((1.0, math.nan, 2.0),), ((1.0, 2.0, 3.0), (math.nan, 0.0, 0.0)), ((1.0, 2.0),)])
def test_a_key_that_is_not_one_number_per_job_is_refused(
    columns: tuple[tuple[float, ...], ...], priority: float
) -> None:
    seen = view(0.0, [Seen("a"), Seen("b", priority=priority), Seen("c")])
    with pytest.raises(PolicyError, match=r"policy by-columns: .* one number per job"):
        ByColumns(columns).rank(seen)
