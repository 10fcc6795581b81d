"""Gangs that share links in the engine and the simulated world: speeds change once per moment, and lose no work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from tests.sim.tiny import build_engine, simulate
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Links
from trine.core.job import Job, Shape
from trine.engine.engine import Engine
from trine.engine.events import Finished, Start, Stop, Submitted, Tick
from trine.engine.invariants import check
from trine.engine.job_table import State
from trine.engine.resume import Past, rate_resumed, resume
from trine.perf.model import Neighbours, Speed

LINKS = Links(20e9, NIC := 0.2e9, uplink_bytes_per_s=0.1e9)
PAIRS = replace(Cluster.uniform(2, 4, "v100"), links=LINKS)


def wide(name: str, steps: float = 1000.0, gpus: int = 2) -> Job:
    """A gang over two nodes whatever is free; a model that sends all the time over such links."""
    return Job(name, 0.0, gpus, steps, model="VGG-16", shape=Shape(nodes=2))


def put_back(engine: Engine, jobs: Sequence[tuple[Job, tuple[int, ...], float]]) -> Engine:
    """Running since 0 on these GPUs, with observed rates (0: none)."""
    for job, gpus, rate in jobs:
        resume(engine, 0.0, job, Past(epoch=1, gpus=gpus, state=State.RUNNING, rate=rate))
    rate_resumed(engine)
    check(engine)
    return engine


def new_engine(cluster: Cluster, policy: str = "fifo", placement: str = "packed-sticky") -> Engine:
    return build_engine(cluster, resolve(policy, placement, {}))


def rates(engine: Engine) -> dict[str, float]:
    return {job.id: float(engine.table.rate[i]) for i, job in enumerate(engine.table.jobs)}


ON_BOTH = {"a": (0, 4), "b": (1, 5), "c": (2, 6)}
"""Gangs of two on one GPU of each node: all of them over the same two NICs."""


def speed(sharers: int) -> Speed:
    """Of a gang on both nodes of ``PAIRS`` next to so many others."""
    return new_engine(PAIRS).perf.speed(wide("a"), ON_BOTH["a"], Neighbours(bandwidth=NIC / (1 + sharers)))


# -- once per moment ---------------------------------------------------------------------------------------------


def test_jobs_that_start_in_one_moment_are_rated_once() -> None:
    """Each is rated at its start as if alone, and once more when all are there."""
    run = simulate([wide("a"), wide("b"), wide("c")], PAIRS, round_s=10)
    assert [(life.leg, life.migrations, life.preemptions) for life in run.lives.values()] == [(2, 0, 0)] * 3
    assert run.finish("a") == pytest.approx(1000 / speed(2).steps_per_s)


def test_decisions_rate_running_jobs_when_the_moment_is_over_and_not_start_by_start() -> None:
    engine = put_back(new_engine(PAIRS), [(wide("a"), ON_BOTH["a"], 0.0)])
    alone = rates(engine)["a"]
    engine.handle(Submitted(1.0, wide("b", gpus=6)))
    starts = engine.handle(Tick(1.0))
    assert [type(decision) for decision in starts] == [Start]
    assert rates(engine)["a"] == alone and not engine.rerated
    engine.settle_speeds(1.0)
    assert rates(engine)["a"] < alone and list(engine.rerated) == [0]
    engine.rerated.clear()
    engine.settle_speeds(1.0)
    assert not engine.rerated, "nothing came or left since"


def test_work_done_so_far_is_the_same_before_and_after() -> None:
    engine = put_back(new_engine(PAIRS), [(wide("a"), ON_BOTH["a"], 0.0), (wide("b"), ON_BOTH["b"], 0.0)])
    table = engine.table
    before = 100.0 * float(table.rate[0])
    engine.handle(Finished(100.0, 1))
    engine.settle_speeds(100.0)
    assert rates(engine)["a"] == pytest.approx(speed(0).steps_per_s)
    assert (100.0 - float(table.work_from_s[0])) * float(table.rate[0]) == pytest.approx(before)


# -- in the simulated world --------------------------------------------------------------------------------------


def test_a_job_that_runs_part_of_its_time_next_to_another_loses_no_work() -> None:
    """300 steps of ``long`` are done next to ``short``, the others alone."""
    co_runner_of, alone = speed(1), speed(0)
    run = simulate([wide("long"), wide("short", 300)], PAIRS, event_driven=True)
    shared_s = 300 / co_runner_of.steps_per_s
    assert run.finish("short") == pytest.approx(shared_s, rel=1e-12)
    assert run.finish("long") == pytest.approx(shared_s + 700 / alone.steps_per_s, rel=1e-12)


def test_a_changed_speed_is_no_move_and_the_one_segment_has_the_mean_slowdown() -> None:
    co_runner_of, alone = speed(1), speed(0)
    run = simulate([wide("long"), wide("short", 300)], PAIRS, event_driven=True)
    assert (run.summary.migrations, run.summary.preemptions) == (0, 0)
    (segment,) = [s for s in run.segments if s.job_id == "long"]
    shared_s = run.finish("short")
    mean = (shared_s * co_runner_of.network + (segment.end_s - shared_s) * alone.network) / segment.end_s
    assert segment.slowdown == pytest.approx(mean)
    assert alone.network < mean < co_runner_of.network


def test_communication_is_counted_inside_nodes_too() -> None:
    inside = Job("a", 0, 4, 1000, model="VGG-16")
    run = simulate([inside], PAIRS)
    exposed = run.engine.perf.speed(inside, (0, 1, 2, 3)).exposed
    assert exposed > 0
    assert run.summary.comm_gpu_s == pytest.approx(exposed * 1000.0 * 4)


# -- jobs put back -----------------------------------------------------------------------------------------------


def three(observed: dict[str, float]) -> list[tuple[Job, tuple[int, ...], float]]:
    return [(wide(name), gpus, observed.get(name, 0.0)) for name, gpus in ON_BOTH.items()]


def test_jobs_put_back_in_any_order_have_the_same_rates() -> None:
    expected = rates(put_back(new_engine(PAIRS), three({})))
    assert expected["a"] == pytest.approx(speed(2).steps_per_s)
    for order in permutations(three({})):
        assert rates(put_back(new_engine(PAIRS), order)) == expected


def test_an_observed_rate_is_that_of_a_job_next_to_others() -> None:
    """``a`` was seen at half of what the model says of three gangs on the links: it needs twice as long anywhere."""
    predicted = rates(put_back(new_engine(PAIRS), three({})))["a"]
    for order in permutations(three({"a": predicted / 2})):
        engine = put_back(new_engine(PAIRS), order)
        at = {job.id: i for i, job in enumerate(engine.table.jobs)}
        assert rates(engine)["a"] == predicted / 2
        assert engine.table.ideal_s[at["a"]] == pytest.approx(2 * engine.table.ideal_s[at["b"]])


# -- relocation --------------------------------------------------------------------------------------------------


def test_a_place_that_was_not_better_is_looked_at_again_when_traffic_left_it() -> None:
    """``spread`` could go on in one rack, but ``loud`` fills the NICs there. When that ends, jobs of one GPU that send
    nothing take its GPUs in the same round: as many GPUs are free as before, and yet it pays to move."""
    engine = new_engine(replace(Cluster.uniform(4, 4, "v100", nodes_per_rack=2), links=LINKS), "dally")
    singles = [(Job(f"s{gpu}", 0, 1, 1e6), (gpu,), 0.0) for gpu in (2, 3, 4, 5, 6, 7)]
    gangs = [(wide("spread", 1e6, 4), (0, 1, 8, 9), 0.0), (wide("loud", 1e6, 4), (10, 11, 12, 13), 0.0)]
    put_back(engine, [*gangs, *singles])
    assert engine.handle(Tick(50_000.0)) == []
    engine.handle(Finished(50_010.0, 1))
    for i in range(4):
        engine.handle(Submitted(50_010.0, Job(f"t{i}", 50_010.0, 1, 1e6)))
    decisions = engine.handle(Tick(50_010.0))
    assert sorted(d.gpus for d in decisions if isinstance(d, Start)) == [(10,), (11,), (12,), (13,)]
    assert [(d.job_index, d.moves) for d in decisions if isinstance(d, Stop)] == [(0, True)]
