"""The end of the last job: what the prices of the makespan program are worth, and a batch that is to end early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable
from trine.policy.common_end import CommonEnd

HOUR = 3600.0
TWO_TYPES = Cluster(tuple(Node(f"n{i}", 1, ("fast", "slow")[i % 2]) for i in range(4)))
TABLE = ThroughputTable({("steep", 1): {"fast": 1.0, "slow": 0.2}, ("flat", 1): {"fast": 1.0, "slow": 0.9}})


def batch(**values: Any) -> Outcome:
    """Two long jobs that hardly care for the type, and many short ones that do."""
    jobs = [Job(f"long{i}", 0.0, 1, 20 * HOUR, 1.0, model="flat") for i in range(2)]
    jobs += [Job(f"s{i}", 0.0, 1, 2 * HOUR, 1.0, model="steep") for i in range(20)]
    settings: dict[str, Any] = {"round_s": 360.0, "restore_s": 0.0, "throughputs": TABLE, "alpha": -1.0, "guard": 0.0}
    return simulate(jobs, TWO_TYPES, "trine", "trine", **settings | values)


def test_long_jobs_leave_the_fast_gpus_to_those_that_gain_more() -> None:
    """With the long jobs on slow GPUs all can have ended after 22 hours; on the fast ones it takes 50."""
    found = batch()
    assert found.summary.makespan_s == pytest.approx(22.2 * HOUR, rel=0.03)


def test_short_jobs_do_not_wait_for_the_common_end() -> None:
    found = batch()
    assert found.summary.jct_mean_s < 0.6 * found.summary.makespan_s


def test_between_throughput_and_makespan_every_job_ends() -> None:
    found = batch(alpha=-0.5)
    assert found.summary.finished == 22


def test_a_job_that_must_run_all_the_time_is_worth_most() -> None:
    speed, left_s, gangs = np.ones((3, 1)), np.array([10.0, 5.0, 5.0]) * HOUR, np.ones(3, dtype=np.int64)
    end = CommonEnd()
    end.update(0.0, np.arange(3), speed, left_s, gangs, np.array([2]))
    worth, _ = end.worth(0.0, speed, left_s, gangs)
    assert end.ends_s == pytest.approx(10 * HOUR, rel=1e-4)
    assert worth[0] > 4 * worth[1]
    assert end.explain(1) == "It has to run for 50% of the time until all jobs can have ended."
    assert end.explain(7) == ""


def test_jobs_that_nothing_can_hold_do_not_stop_the_others() -> None:
    """GPUs were taken out of service: a gang that is too wide now, and one without any type."""
    speed, left_s = np.array([[1.0, 0.5], [1.0, 0.5], [0.0, 0.0]]), np.full(3, HOUR)
    gangs, end = np.array([1, 8, 1]), CommonEnd()
    end.update(0.0, np.arange(3), speed, left_s, gangs, np.array([2, 0]))
    worth, cost_s = end.worth(0.0, speed, left_s, gangs)
    assert np.isfinite(worth).all()
    assert np.isfinite(cost_s).all()
    assert end.ends_s == pytest.approx(HOUR, rel=1e-4)


def test_a_restarted_scheduler_goes_on_with_the_same_prices() -> None:
    rng = np.random.default_rng(1)
    speed, left_s = rng.uniform(0.1, 1.0, (20, 2)), rng.uniform(1.0, 50.0, 20) * HOUR
    gangs, indices, gpus = np.ones(20, dtype=np.int64), np.arange(20), np.array([4, 4])
    first, second = CommonEnd(), CommonEnd()
    first.update(0.0, indices, speed, left_s, gangs, gpus)
    second.restore(first.state({i: f"j{i}" for i in range(20)}), {f"j{i}": i for i in range(20)})
    for end in (first, second):
        end.update(360.0, indices, speed, left_s * 0.9, gangs, gpus)
    found = [end.worth(360.0, speed, left_s * 0.9, gangs)[0] for end in (first, second)]
    assert found[0].tolist() == found[1].tolist()
