"""The trine policy where there is little to decide with: one GPU, one type, unknown models, slow chips, no costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster, Links, Node
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable

ROUND_S = 300.0
RACKS = Cluster(
    tuple(Node(f"n{i}", 4, ("fast", "slow")[i // 4], rack=f"r{i // 2}") for i in range(8)),
    links=Links(nic_bytes_per_s=1e9, oversubscription=4.0),
    scores={"A": (1.0, 1.6, 1.02, 0.98) * 8, "B": (1.0,) * 32},
)
TABLE = ThroughputTable({("known", gpus): {"fast": 1.0 * gpus, "slow": 0.4 * gpus} for gpus in (1, 2, 4, 8)})


def job(name: str, gpus: int, run_s: float, submit_s: float = 0.0, **more: Any) -> Job:
    return Job(name, submit_s, gpus, run_s, 1.0, **more)


def mixed(count: int, most: int = 8, **more: Any) -> list[Job]:
    sizes = [size for size in (1, 1, 2, 4, 8, 1, 2) if size <= most]
    return [job(str(i), sizes[i % len(sizes)], 400.0 + 977.0 * (i * 7 % 13), 150.0 * i, **more) for i in range(count)]


def trine(jobs: list[Job], cluster: Cluster, **values: Any) -> Outcome:
    return simulate(jobs, cluster, "trine", "trine", **{"round_s": ROUND_S, "restore_s": 30.0} | values)


@pytest.mark.parametrize("durations", ["known", "learned"])
@pytest.mark.parametrize(
    ("cluster", "most"),
    [(Cluster.uniform(1, 1), 1), (Cluster.uniform(1, 8), 8), (Cluster.uniform(8, 1), 8), (RACKS, 8)],
    ids=["one GPU", "one node", "nodes of one", "racks and types"],
)
def test_every_job_ends_on_any_cluster(cluster: Cluster, most: int, durations: str) -> None:
    found = trine(mixed(40, most), cluster, durations=durations)
    assert found.summary.finished == 40


def test_models_that_no_table_knows_run_beside_those_it_does() -> None:
    jobs = mixed(15, model="known") + [
        job(f"u{i}", 2, 2000.0, 100.0 * i, model=f"never seen {i}", app_class="Z") for i in range(15)
    ]
    found = trine(sorted(jobs, key=lambda j: j.submit_s), RACKS, throughputs=TABLE)
    assert found.summary.finished == 30


def test_where_all_chips_are_slow_none_is_waited_for() -> None:
    slow = Cluster(tuple(Node(f"n{i}", 4, rack="r") for i in range(2)), scores={"A": (2.0,) * 8})
    found = trine([job(str(i), 4, 3000.0, app_class="A") for i in range(4)], slow)
    assert sorted(found.start(str(i)) for i in range(4))[:2] == [0.0, 0.0]
    assert found.summary.preemptions + found.summary.migrations <= 4


@pytest.mark.parametrize("durations", ["known", "learned"])
def test_free_restarts_do_not_make_jobs_wander(durations: str) -> None:
    """Moves are many where they cost nothing, but they are for a gain: jobs end no later than with a cost."""
    free, costly = (trine(mixed(60), RACKS, restore_s=s, durations=durations, throughputs=TABLE) for s in (0.0, 30.0))
    assert free.summary.finished == 60
    assert free.summary.jct_mean_s <= costly.summary.jct_mean_s * 1.01


def test_where_none_waits_the_fast_gpu_goes_to_the_job_that_gains_most() -> None:
    """A job close to its end would take it by urgency, although the other type serves it nearly as well."""
    table = ThroughputTable({("even", 1): {"fast": 1.0, "slow": 0.95}, ("uneven", 1): {"fast": 1.0, "slow": 0.3}})
    one_of_each = Cluster((Node("f", 1, "fast"), Node("s", 1, "slow")))
    jobs = [job("short", 1, 6_000.0, model="even"), job("long", 1, 60_000.0, model="uneven")]
    found = trine(jobs, one_of_each, throughputs=table)
    assert found.finish("long") < 60_000 + 2 * ROUND_S
    assert found.finish("short") < 6_000 / 0.95 + 2 * ROUND_S


def test_users_whose_jobs_were_short_are_served_first_though_no_job_says_how_long_it_takes() -> None:
    """Both users submit as many jobs, at the same moments, to a cluster that is too small for both at once."""
    jobs = [
        job(f"{user}{i}", 1, run_s, 1250.0 * i, user=user)
        for i in range(120)
        for user, run_s in (("long", 9_000.0), ("short", 3_000.0))
    ]
    by_user, alike = (
        trine(jobs, Cluster.uniform(1, 8), durations="learned", history=history) for history in ("user", "all")
    )
    assert by_user.summary.jct_mean_s < 0.97 * alike.summary.jct_mean_s


@pytest.mark.parametrize("every_s", [100.0, 150.0], ids=["more than fits", "three quarters of the GPUs"])
def test_a_wide_job_is_not_starved_by_a_stream_of_short_narrow_ones(every_s: float) -> None:
    """Short jobs keep coming; the guard gives the gang what an equal share of the cluster would have given it."""
    narrow = [job(f"n{i}", 1, 900.0, every_s * i) for i in range(600)]
    jobs = sorted([*narrow, job("wide", 8, 20_000.0, 1000.0)], key=lambda j: j.submit_s)
    found = trine(jobs, Cluster.uniform(2, 4))
    assert found.records["wide"].rho < 1.5
    assert found.summary.rho_max < 4


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.floats(60, 40_000)), min_size=2, max_size=30), st.booleans()
)
def test_runs_of_a_job_are_bounded_by_its_length(rows: list[tuple[int, float]], learned: bool) -> None:
    """A job moves for its own good only after two rounds in one place, and is stopped once a round at most."""
    jobs = [job(str(i), gpus, run_s, 200.0 * i, model="known") for i, (gpus, run_s) in enumerate(rows)]
    found = trine(jobs, RACKS, throughputs=TABLE, durations="learned" if learned else "known")
    for record in found.records.values():
        rounds = (record.finish_s - record.submit_s) / ROUND_S + 1
        assert record.preemptions + record.migrations <= rounds


def test_queue_and_job_weights_multiply_what_a_job_is_worth() -> None:
    """Two equal jobs and one GPU: the one that weighs three times as much runs first, whichever came first."""
    equal = [job("light", 1, 5000.0), job("heavy", 1, 5000.0, weight=3.0)]
    found = trine(equal, Cluster.uniform(1, 1))
    assert found.finish("heavy") < found.finish("light")


def test_a_deadline_that_can_be_met_is_met() -> None:
    """The other job is shorter and would go first; its slack lets the urgent one be in time."""
    urgent, other = job("urgent", 1, 6000.0, deadline_s=6700.0), job("other", 1, 4000.0)
    assert trine([other, urgent], Cluster.uniform(1, 1)).finish("urgent") <= 6700.0
    relaxed = trine([other, job("urgent", 1, 6000.0)], Cluster.uniform(1, 1))
    assert relaxed.finish("urgent") > 6700.0


def test_a_deadline_that_is_lost_takes_nothing_from_others() -> None:
    late, other = job("late", 1, 6000.0, deadline_s=3000.0), job("other", 1, 4000.0)
    found = trine([late, other], Cluster.uniform(1, 1))
    assert found.finish("other") < found.finish("late")
