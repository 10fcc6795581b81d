"""Completion times with an equal fluid share: cases that can be worked out by hand, and bounds that always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim.fair_share import fair_completion_s


def perf(cluster: Cluster, table: ThroughputTable | None = None) -> PerfModel:
    return PerfModel(cluster, VariabilityTable(cluster.gpu_count, {}), throughputs=table or ThroughputTable())


def job(name: str, submit_s: float, gpus: int, run_s: float, model: str = "") -> Job:
    return Job(name, submit_s, gpus, run_s, 1.0, model=model)


def test_a_job_alone_takes_its_run_time() -> None:
    assert fair_completion_s([job("a", 5.0, 2, 100.0)], perf(Cluster.uniform(1, 4))) == {"a": 100.0}


def test_two_gangs_as_large_as_the_cluster_share_it() -> None:
    """Half speed until the shorter one ends, then all of it."""
    found = fair_completion_s([job("a", 0.0, 4, 100.0), job("b", 0.0, 4, 40.0)], perf(Cluster.uniform(1, 4)))
    assert found == pytest.approx({"a": 140.0, "b": 80.0})


def test_a_small_job_needs_no_more_than_its_gang() -> None:
    """Of four GPUs two are its share, and it has one: full speed beside a gang that gets half."""
    found = fair_completion_s([job("a", 0.0, 1, 100.0), job("b", 0.0, 4, 100.0)], perf(Cluster.uniform(1, 4)))
    assert found == pytest.approx({"a": 100.0, "b": 150.0})


def test_types_count_in_proportion_to_their_gpus() -> None:
    """Three quarters of the GPUs at half speed: a share of the cluster is worth 0.25 + 0.375 of the fast type."""
    cluster = Cluster((Node("a", 1, "fast"), Node("b", 3, "slow")))
    table = ThroughputTable({("m", 1): {"fast": 1.0, "slow": 0.5}})
    assert fair_completion_s([job("a", 0.0, 1, 100.0, "m")], perf(cluster, table)) == pytest.approx({"a": 160.0})


arrivals = st.lists(
    st.tuples(st.floats(0, 1000), st.sampled_from([1, 2, 4, 8]), st.floats(1, 500)), min_size=1, max_size=12
)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(arrivals)
def test_no_job_is_faster_than_alone_and_the_cluster_is_never_overbooked(
    rows: list[tuple[float, int, float]],
) -> None:
    jobs = [job(str(i), *row) for i, row in enumerate(rows)]
    found = fair_completion_s(jobs, perf(Cluster.uniform(1, 8)))
    assert all(found[j.id] >= j.steps * (1 - 1e-9) for j in jobs)
    last_s = max(j.submit_s + found[j.id] for j in jobs)
    assert sum(j.gpus * j.steps for j in jobs) <= 8 * last_s * (1 + 1e-9)
