"""The sticky wrapper: new jobs are placed by the placement inside, running ones stay."""

from __future__ import annotations

import random

import pytest

from tests.sim.tiny import simulate
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask
from trine.placement.free_index import FreePool
from trine.placement.packed import Packed
from trine.placement.wrapper import Sticky

JOBS = [Job("a", 0, 1, 100), Job("b", 0, 2, 500), Job("c", 0, 1, 1000)]


def test_it_places_as_the_placement_inside_does() -> None:
    pool = FreePool(Cluster.uniform(2, 4), "gpu")
    pool.take([0, 5])
    for count in range(1, 8):
        ask = Ask(Job("j", 0, count, 1))
        assert Sticky(Packed()).place(ask, pool) == Packed().place(ask, pool)


def test_without_it_jobs_move_when_others_leave() -> None:
    """Nodes of two: a and c share node 0, b has node 1; when a ends, b comes first in line and moves to node 0.

    So does c, out of its way, and back to node 0 when b ends.
    """
    out = simulate(JOBS, Cluster.uniform(2, 2), "fifo", "packed", round_s=100)
    assert {s.gpus for s in out.segments if s.job_id == "b"} == {(2, 3), (0, 1)}
    assert (out.records["b"].migrations, out.records["c"].migrations, out.summary.preemptions) == (1, 2, 0)


@pytest.mark.parametrize("placement", ["packed-sticky", "random-sticky"])
def test_with_it_they_stay(placement: str) -> None:
    out = simulate(JOBS, Cluster.uniform(2, 2), "fifo", placement, round_s=100)
    assert out.summary.migrations == 0
    assert len(out.segments) == len(JOBS)


def test_random_without_it_moves_jobs_every_round() -> None:
    out = simulate([Job("a", 0, 1, 1000)], Cluster.uniform(4, 4), "fifo", "random", round_s=10)
    assert out.summary.migrations > 80
    assert len({s.gpus for s in out.segments}) == 16


def test_a_file_written_for_three_arguments_is_prepared_all_the_same() -> None:
    with pytest.warns(FutureWarning, match=r"Older\.prepare\(perf, rng, compat\) is prepare\(perf, rng\) now"):

        class Older(Packed):
            def prepare(self, perf, rng, compat):  # type: ignore[no-untyped-def, override]
                self.seen = (perf, rng, compat)

    placement, rng = Older(), random.Random(0)
    perf = PerfModel(Cluster.uniform(1, 2), VariabilityTable.flat(2))
    Sticky(placement).prepare(perf, rng)
    assert placement.seen == (perf, rng, None)
