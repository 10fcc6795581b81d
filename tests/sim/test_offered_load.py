"""Offered load: what jobs need of the GPUs while they arrive, and that a window of an overloaded stream says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trine.sim import scenario
from trine.sim.jct_bound import PooledJobs
from trine.sim.offered_load import offered_load
from trine.sim.scenario import Scenario


def pooled(speed: list[list[float]], work_s: list[float], gangs: list[int], pool: list[float]) -> PooledJobs:
    """Jobs that arrive evenly over 1,000 s."""
    arrivals = np.linspace(0.0, 1000.0, len(work_s))
    speeds = np.array(speed)
    return PooledJobs(
        arrivals, np.array(work_s), np.array(gangs), speeds, np.ones_like(speeds), np.array(pool, dtype=np.float64)
    )


def test_on_one_type_it_is_work_over_time() -> None:
    assert offered_load(pooled([[1.0]] * 2, [1000.0, 3000.0], [1, 2], [10.0])) == pytest.approx(0.7)


def test_jobs_go_where_they_have_the_advantage() -> None:
    """The first is as fast on both types, the second ten times slower on the second: each has a type of its own."""
    assert offered_load(pooled([[1.0, 1.0], [1.0, 0.1]], [1000.0, 1000.0], [1, 1], [1.0, 1.0])) == pytest.approx(1.0)
    assert offered_load(pooled([[1.0, 0.1], [1.0, 0.1]], [1000.0, 1000.0], [1, 1], [1.0, 1.0])) == pytest.approx(
        2 / 1.1
    )


def test_a_type_that_cannot_hold_a_job_does_none_of_its_work() -> None:
    assert offered_load(pooled([[1.0, 0.0], [1.0, 0.0]], [1000.0, 1000.0], [1, 1], [1.0, 9.0])) == pytest.approx(2.0)


def test_jobs_that_all_come_at_once_have_no_load() -> None:
    assert offered_load(pooled([[1.0]], [1000.0], [1], [1.0])) == 0.0


@pytest.mark.parametrize(("per_h", "said"), [(20.0, True), (0.2, False)])
def test_a_window_of_an_overloaded_stream_is_told(per_h: float, said: bool) -> None:
    values: dict[str, Any] = {"window": "5:15", "workload.jobs": 40, "workload.jobs_per_h": per_h}
    found = scenario.run(
        Scenario(cluster="v100=8x1", workload="gavel-continuous-single", throughputs="gavel-simulation", values=values)
    )
    assert any("as fast as any schedule could serve them" in note for note in found.notes) == said
