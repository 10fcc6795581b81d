"""Rounds of the trine policy, end to end in small clusters: who runs where, for whom room is made, what moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster, Links, Node
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Decision
from trine.perf.throughput import ThroughputTable

HOUR = 3600.0
TWO_TYPES = Cluster((*(Node(f"f{i}", 2, "fast") for i in range(2)), *(Node(f"s{i}", 2, "slow") for i in range(2))))


def job(name: str, gpus: int, run_s: float, submit_s: float = 0.0, **more: Any) -> Job:
    return Job(name, submit_s, gpus, run_s, 1.0, **more)


def trine(jobs: list[Job], cluster: Cluster, **values: Any) -> Outcome:
    return simulate(jobs, cluster, "trine", "trine", **{"round_s": 300.0, "restore_s": 30.0} | values)


def table(**speeds: tuple[float, float]) -> ThroughputTable:
    rates = {
        (model, gpus): {"fast": fast, "slow": slow} for model, (fast, slow) in speeds.items() for gpus in (1, 2, 4)
    }
    return ThroughputTable(rates)


def test_the_short_job_goes_first_and_the_long_one_resumes() -> None:
    found = trine([job("long", 4, 50_000.0), job("short", 4, 900.0, 600.0)], Cluster.uniform(1, 4))
    assert found.finish("short") == pytest.approx(1500.0, abs=301)
    assert found.records["long"].preemptions == 1
    assert found.finish("long") > 50_900


def test_a_job_that_does_not_care_leaves_the_fast_type_to_one_that_does() -> None:
    """Both would rather have the fast type; only the second gains much from it."""
    speeds = table(easy=(1.0, 0.9), hard=(1.0, 0.1))
    jobs = [job(f"easy{i}", 2, 5000.0, model="easy") for i in range(2)]
    jobs += [job(f"hard{i}", 2, 5000.0, model="hard") for i in range(2)]
    found = simulate(jobs, TWO_TYPES, "trine", "trine", throughputs=speeds, round_s=300.0)
    where = {s.job_id: TWO_TYPES.type_of(s.gpus[0]) for s in found.segments if s.start_s == 0}
    assert where == {"easy0": "slow", "easy1": "slow", "hard0": "fast", "hard1": "fast"}


def test_room_is_made_for_a_gang_that_would_be_split() -> None:
    """Two GPUs are free on each of two nodes: the gang of four gets a node, and the jobs in its way move."""
    cluster = Cluster(tuple(Node(f"n{i}", 4, rack="r0") for i in range(2)), links=Links(nic_bytes_per_s=1e8))
    lengths_s = (20 * HOUR, 20 * HOUR, 900.0, 900.0, 20 * HOUR, 20 * HOUR, 300.0, 300.0)
    single = [job(f"s{i}", 1, run_s, 300.0 * (i // 2), model="ResNet-50") for i, run_s in enumerate(lengths_s)]
    gang = job("gang", 4, 2 * HOUR, 2000.0, model="VGG-16")
    found = trine([*single, gang], cluster)
    assert found.summary.preemptions == 0
    assert found.summary.migrations == 2
    (first, *_) = [s for s in found.segments if s.job_id == "gang"]
    assert len({cluster.node_of[g] for g in first.gpus}) == 1
    without = trine([*single, gang], cluster, make_room=False, relocate=False)
    assert found.finish("gang") < 0.7 * without.finish("gang")


def test_a_running_job_moves_to_a_faster_type_that_came_free() -> None:
    speeds = table(m=(1.0, 0.25))
    jobs = [job("a", 4, 3000.0, model="m"), job("b", 4, 20_000.0, model="m")]
    found = simulate(jobs, TWO_TYPES, "trine", "trine", throughputs=speeds, round_s=300.0, restore_s=30.0)
    kinds = [TWO_TYPES.type_of(s.gpus[0]) for s in found.segments if s.job_id == "b"]
    assert kinds == ["slow", "fast"]
    assert found.records["b"].migrations == 1


def test_slow_chips_are_for_jobs_that_do_not_feel_them() -> None:
    cluster = Cluster((Node("n0", 2), Node("n1", 2)), scores={"A": (1.0, 2.0, 1.0, 2.0), "D": (1.0, 1.0, 1.0, 1.0)})
    jobs = [job("d0", 1, 9000.0, app_class="D"), job("d1", 1, 9000.0, app_class="D")]
    jobs += [job("a0", 1, 9000.0, app_class="A"), job("a1", 1, 9000.0, app_class="A")]
    found = trine(jobs, cluster)
    assert all(found.finish(name) == pytest.approx(9000.0, abs=301) for name in ("a0", "a1", "d0", "d1"))


def test_jobs_of_unknown_length_are_learned_about() -> None:
    """Many short jobs and one long one: without a word on durations the long one does not hold the others up."""
    jobs = [job("long", 4, 40 * HOUR)] + [job(f"s{i}", 4, 600.0, 1800.0 * i) for i in range(1, 40)]
    found = trine(jobs, Cluster.uniform(1, 4), durations="learned")
    late = [found.records[f"s{i}"].wait_s for i in range(10, 40)]
    assert sum(late) / len(late) < 900


def test_deadlines_and_weights_raise_a_job() -> None:
    """Of two equal jobs the one with the weight goes first, and of two others the one whose deadline comes closer."""
    weighty = trine([job("a", 4, 3000.0), job("b", 4, 3000.0, weight=3.0)], Cluster.uniform(1, 4))
    assert weighty.start("b") < weighty.start("a")
    dated = trine([job("a", 4, 3000.0), job("b", 4, 3000.0, deadline_s=4000.0)], Cluster.uniform(1, 4))
    assert dated.finish("b") <= 4000.0


def test_the_makespan_dial_starts_the_longest_first() -> None:
    jobs = [job("short", 4, 1000.0), job("long", 4, 9000.0)]
    assert trine(jobs, Cluster.uniform(1, 4), alpha=-1.0, guard=0.0).start("long") == 0.0


class WorkConserving(Engine):
    """After every round: a waiting job that fits free GPUs of a type on which it can run is a fault."""

    def decide(self, now: float, fill: bool = False) -> list[Decision]:
        decisions = super().decide(now, fill)
        for job_index in self.active_jobs.job_indices().tolist():
            if job_index not in self.assigned:
                free = max(self.free.pools[t].total for t in self.table.types[job_index])
                assert free < self.table.jobs[job_index].gpus, f"job {job_index} waits beside {free} free GPUs"
        return decisions


workloads = st.lists(
    st.tuples(st.floats(0, 20_000), st.sampled_from([1, 1, 2, 4]), st.floats(200, 30_000), st.sampled_from(["x", "y"])),
    min_size=1,
    max_size=25,
)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(workloads, st.sampled_from(["known", "learned"]), st.sampled_from([{}, {"fill": True}]))
def test_no_gpu_idles_every_job_ends_and_moves_are_bounded(
    rows: list[tuple[float, int, float, str]], durations: str, mode: dict[str, Any]
) -> None:
    jobs = [job(str(i), gpus, run_s, at_s, model=model) for i, (at_s, gpus, run_s, model) in enumerate(sorted(rows))]
    found = simulate(
        jobs,
        TWO_TYPES,
        "trine",
        "trine",
        throughputs=table(x=(1.0, 0.3), y=(1.0, 0.8)),
        engine=WorkConserving,
        round_s=300.0,
        restore_s=30.0,
        durations=durations,
        **mode,
    )
    assert found.summary.finished == len(jobs)
    assert max(r.preemptions + r.migrations for r in found.records.values()) <= 3 * len(jobs) + 5


def test_a_thousand_equal_jobs_hardly_take_turns() -> None:
    """Nothing is gained by stopping one of two equal jobs for the other; the guard does so where one is far behind."""
    jobs = [job(str(i), 1, 1800.0) for i in range(1000)]
    guarded, free = trine(jobs, Cluster.uniform(4, 8)).summary, trine(jobs, Cluster.uniform(4, 8), guard=0.0).summary
    assert free.preemptions + free.migrations == 0
    assert guarded.preemptions + guarded.migrations <= 1000
    assert guarded.rho_max < 1.5
