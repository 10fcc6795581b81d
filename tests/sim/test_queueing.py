"""A second opinion from queueing theory: waits and completion times of the simulator against closed formulas.

One node of k GPUs, jobs of one GPU, Poisson arrivals: the cluster is an M/G/k queue, whose means are known. A mean of a
simulation is uncertain; its standard error comes from batch means, and a figure may be off by four of them (one draw in
16,000 by chance, and the draws are fixed). A second bound keeps the standard error small, so that the test can fail;
where it can, the FIFO wait of the same jobs, whose mean is known, is a control variate and makes it smaller.
Formulas: Harchol-Balter, Performance Modeling and Design of Computer Systems (2013), chapters 14, 23, 30 and 33.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sim.tiny import Outcome, one_node, simulate
from trine.core.job import Job

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]
MEAN_S = 1000.0
BATCHES, WARM_UP = 25, 0.05
"""Batches of jobs whose means count as independent, and the share of jobs before them that find the cluster empty."""

ServiceTime = Callable[[random.Random], float]


def exponential(rng: random.Random) -> float:
    return rng.expovariate(1.0 / MEAN_S)


SHORT, SHORT_S, LONG_S = 0.8, 500.0, 3000.0


def hyperexponential(rng: random.Random) -> float:
    """Four in five jobs are short: the mean is ``MEAN_S``, the squared coefficient of variation 3."""
    return rng.expovariate(1.0 / (SHORT_S if rng.random() < SHORT else LONG_S))


EXPONENTIAL_SECOND_MOMENT = 2.0 * MEAN_S**2
HYPER_SECOND_MOMENT = 2.0 * (SHORT * SHORT_S**2 + (1 - SHORT) * LONG_S**2)


def poisson_jobs(count: int, load: float, gpus: int, service: ServiceTime, seed: int) -> list[Job]:
    rng, at_s, jobs = random.Random(seed), 0.0, []
    for number in range(count):
        at_s += rng.expovariate(load * gpus / MEAN_S)
        jobs.append(Job(str(number), at_s, 1, max(service(rng), 1e-6)))
    return jobs


def event_driven(jobs: Sequence[Job], gpus: int, policy: str) -> Outcome:
    return simulate(jobs, one_node(gpus), policy, event_driven=True, validate=False)


class Control(NamedTuple):
    """A figure of the same jobs whose mean is known: what it is off by, the figure in question is off by too."""

    values: Sequence[float]
    expected: float


def fifo_waits(jobs: Sequence[Job], load: float, second_moment: float) -> Control:
    """Waits of the jobs in an M/G/1 queue, by Lindley's recursion, and their mean by Pollaczek and Khinchine."""
    free_s, found = 0.0, []
    for job in jobs:
        start_s = max(job.submit_s, free_s)
        found.append(start_s - job.submit_s)
        free_s = start_s + job.steps
    return Control(found, load / MEAN_S * second_moment / (2.0 * (1.0 - load)))


def assert_mean(
    values: Sequence[float], expected: float, largest_error: float, bias: float = 0.0, control: Control | None = None
) -> None:
    """The mean is ``expected`` up to four standard errors (and a known ``bias``), and they are small enough to tell."""
    means = batch_means(values)
    if control is not None:
        known = batch_means(control.values)
        means = means - np.cov(means, known)[0, 1] / known.var(ddof=1) * (known - control.expected)
    standard_error = means.std(ddof=1) / math.sqrt(BATCHES)
    assert standard_error < largest_error * expected
    assert abs(means.mean() - expected) < 4.0 * standard_error + bias


def batch_means(values: Sequence[float]) -> Floats:
    return np.array([batch.mean() for batch in np.array_split(np.array(values[int(len(values) * WARM_UP) :]), BATCHES)])


def waits(outcome: Outcome) -> list[float]:
    return [record.wait_s for record in outcome.records.values()]


def completion_times(outcome: Outcome) -> list[float]:
    return [record.jct_s for record in outcome.records.values()]


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits in M/M/k."""
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1.0 - load)
    return last / (sum(offered**i / math.factorial(i) for i in range(servers)) + last)


@pytest.mark.parametrize(("gpus", "load"), [(1, 0.5), (4, 0.7)])
def test_the_mean_wait_of_fifo_is_that_of_m_m_k(gpus: int, load: float) -> None:
    outcome = event_driven(poisson_jobs(12_000, load, gpus, exponential, seed=1), gpus, "fifo")
    assert_mean(waits(outcome), erlang_c(gpus, load) * MEAN_S / (gpus * (1.0 - load)), largest_error=0.08)


def test_the_mean_wait_of_fifo_is_that_of_pollaczek_and_khinchine() -> None:
    """M/G/1: the wait depends on the second moment of the run times, here twice that of exponential ones."""
    load = 0.6
    outcome = event_driven(poisson_jobs(30_000, load, 1, hyperexponential, seed=2), 1, "fifo")
    assert_mean(waits(outcome), load / MEAN_S * HYPER_SECOND_MOMENT / (2.0 * (1.0 - load)), largest_error=0.06)


@pytest.mark.parametrize("gpus", [1, 3])
def test_every_wait_of_fifo_follows_from_the_arrivals(gpus: int) -> None:
    """Lindley's recursion, for several servers Kiefer's and Wolfowitz': a job starts on the GPU that is free first."""
    jobs = poisson_jobs(3_000, 0.9, gpus, hyperexponential, seed=3)
    outcome = event_driven(jobs, gpus, "fifo")
    free_s = [0.0] * gpus
    for job in jobs:
        start_s = max(job.submit_s, heapq.heappop(free_s))
        assert outcome.start(job.id) == pytest.approx(start_s, abs=1e-4)
        heapq.heappush(free_s, start_s + job.steps)


GRID: Floats = np.linspace(0.0, 40.0 * MEAN_S, 400_001)
"""Run times over which the formulas of SRPT and foreground-background integrate; beyond it exp(-40) of them."""


def integral(values: Floats) -> Floats:
    """From 0 to each point of the grid, by the trapezoidal rule."""
    steps = (values[1:] + values[:-1]) / 2.0 * np.diff(GRID)
    return np.concatenate(([0.0], np.cumsum(steps)))


def srpt_mean_s(load: float) -> float:
    """Mean completion time of M/M/1 under SRPT (Schrage and Miller 1966)."""
    rate, density = load / MEAN_S, np.exp(-GRID / MEAN_S) / MEAN_S
    busy = 1.0 - rate * integral(GRID * density)
    waiting = rate * (integral(GRID**2 * density) + GRID**2 * np.exp(-GRID / MEAN_S)) / (2.0 * busy**2)
    return float(integral((waiting + integral(1.0 / busy)) * density)[-1])


def test_srtf_on_one_gpu_is_srpt() -> None:
    load = 0.8
    jobs = poisson_jobs(10_000, load, 1, exponential, seed=4)
    outcome, control = event_driven(jobs, 1, "srtf"), fifo_waits(jobs, load, EXPONENTIAL_SECOND_MOMENT)
    assert_mean(completion_times(outcome), srpt_mean_s(load), largest_error=0.02, control=control)


def foreground_background_mean_s(load: float) -> float:
    """Mean completion time of M/G/1 when the jobs with the least service share the server, hyperexponential times."""
    rate = load / MEAN_S
    parts = ((SHORT, SHORT_S), (1.0 - SHORT, LONG_S))
    tail: Floats = np.sum([share * np.exp(-GRID / mean_s) for share, mean_s in parts], axis=0)
    density: Floats = np.sum([share / mean_s * np.exp(-GRID / mean_s) for share, mean_s in parts], axis=0)
    busy = 1.0 - rate * integral(tail)
    second_moment = 2.0 * integral(GRID * tail)  # of run times cut at each point
    return float(integral((rate * second_moment / (2.0 * busy**2) + GRID / busy) * density)[-1])


def test_las_in_short_rounds_is_foreground_background() -> None:
    """A job that arrives waits for the next round, which adds a round at most: that is the bias allowed for."""
    load, round_s = 0.5, 25.0
    jobs = poisson_jobs(2_500, load, 1, hyperexponential, seed=5)
    outcome = simulate(jobs, one_node(1), "las", round_s=round_s, fill=True, validate=False)
    control = fifo_waits(jobs, load, HYPER_SECOND_MOMENT)
    expected_s = foreground_background_mean_s(load)
    assert_mean(completion_times(outcome), expected_s, largest_error=0.04, bias=round_s, control=control)


def test_exponential_jobs_fare_alike_under_every_policy_that_knows_no_durations() -> None:
    """What is left of an exponential job is the same whatever it has had: the mean is 1 / (1 - load) run times."""
    load = 0.5
    jobs = poisson_jobs(3_000, load, 1, exponential, seed=6)
    outcome = simulate(jobs, one_node(1), "las", round_s=100.0, fill=True, validate=False)
    control = fifo_waits(jobs, load, EXPONENTIAL_SECOND_MOMENT)
    assert_mean(completion_times(outcome), MEAN_S / (1.0 - load), largest_error=0.04, control=control)


def test_the_formulas_agree_where_one_is_a_special_case_of_the_other() -> None:
    """M/M/1 is M/M/k with k = 1, and SRPT beats every policy that knows less."""
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert srpt_mean_s(0.8) < MEAN_S / (1.0 - 0.8)
    assert srpt_mean_s(1e-9) == pytest.approx(MEAN_S, rel=1e-6)
    assert foreground_background_mean_s(1e-9) == pytest.approx(MEAN_S, rel=1e-4)
