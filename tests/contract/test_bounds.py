"""Contract of every placement, present and future: it keeps within the widest tier it is asked for, and is complete.

Complete: if any free GPUs lie within the bound, the placement finds some.
"""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiny import simulate
from trine.core.cluster import Cluster, Node, Tier
from trine.core.errors import InputError
from trine.core.job import Job, Shape
from trine.core.plugins import discover, find
from trine.core.reason import Reason, Why
from trine.parity.flags import Compat
from trine.parity.pal import configured
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask, Placement
from trine.placement.free_index import FreePool

PLACEMENTS = discover("trine.placement", Placement)
every = pytest.mark.parametrize("cls", PLACEMENTS.values(), ids=PLACEMENTS)
clusters = st.builds(
    lambda sizes: Cluster(tuple(Node(f"n{i}", gpus, rack=f"r{rack}") for i, (gpus, rack) in enumerate(sizes))),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=5),
)


def prepared(cls: type[Placement], cluster: Cluster, slow: list[float], compat: Compat) -> Placement:
    placement = configured(cls(), compat)
    penalty = LocalityPenalty(1.0, 1.3, 1.7)
    perf = PerfModel(cluster, VariabilityTable(cluster.gpu_count, {"A": slow}), penalty)
    placement.prepare(perf, random.Random(0))
    return placement


@every
@settings(derandomize=True, max_examples=70, deadline=None)
@given(cluster=clusters, widest=st.sampled_from((Tier.NODE, Tier.RACK, Tier.NETWORK)), data=st.data())
def test_it_keeps_within_the_bound_and_finds_what_there_is(
    cls: type[Placement], cluster: Cluster, widest: Tier, data: st.DataObject
) -> None:
    count = cluster.gpu_count
    slow = data.draw(st.lists(st.sampled_from([0.9, 1.0, 1.3, 1.9]), min_size=count, max_size=count))
    placement = prepared(cls, cluster, slow, Compat(pal_multi_node=data.draw(st.booleans())))
    pool = FreePool(cluster, "gpu")
    for gpu in placement.excluded():
        pool.cordon(gpu)
    taken = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    pool.take(sorted(taken - placement.excluded()))
    gang = data.draw(st.integers(1, max(1, pool.total)))
    ask = Ask(Job("j", 0.0, gang, 1000.0, app_class="A"), now=10.0**9, widest=widest)
    found = placement.place(ask, pool)
    fits = any(gang == 1 or cluster.tier(gpus) <= widest for gpus in combinations(pool.gpus(), gang))
    if isinstance(found, Reason):
        assert not fits, f"{pool.gpus()} has room within one {widest.label}, but: {found}"
    else:
        assert set(found) <= set(pool.gpus()) and len(set(found)) == gang == len(found)
        assert gang == 1 or cluster.tier(found) <= widest


@every
def test_a_refusal_names_the_bound(cls: type[Placement]) -> None:
    cluster = Cluster.uniform(4, 2, nodes_per_rack=2)
    placement, pool = prepared(cls, cluster, [1.0] * 8, Compat()), FreePool(cluster, "gpu")
    for widest, gang in ((Tier.NODE, 3), (Tier.RACK, 5)):
        found = placement.place(Ask(Job("j", 0.0, gang, 1000.0), now=10.0**9, widest=widest), pool)
        assert isinstance(found, Reason) and found.code is Why.TOPOLOGY
        assert f"within one {widest.label}" in found.sentence


LOWEST = """
from dataclasses import dataclass
from typing import ClassVar

from trine.placement.base import Placement


@dataclass
class Lowest(Placement):
    name: ClassVar[str] = "lowest"
    title: ClassVar[str] = "lowest GPU ids first"

    def place(self, {first}, pool):
        return pool.gpus()[: {first}.{count}]
"""


def test_a_placement_with_the_signature_of_old_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "lowest.py"
    path.write_text(LOWEST.format(first="job", count="gpus"))
    with pytest.raises(InputError, match=r"place\(ask, pool\) now; the job is ask.job"):
        find("trine.placement", Placement, "placement", str(path), "--placement")


def test_the_shape_of_a_job_holds_under_a_file_that_takes_no_notice_of_bounds(tmp_path: Path) -> None:
    path = tmp_path / "lowest.py"
    path.write_text(LOWEST.format(first="ask", count="job.gpus"))
    shape = Shape(None, Tier.NODE)
    jobs = [Job("a", 0.0, 1, 100.0, shape=shape), Job("b", 0.0, 2, 100.0, shape=shape)]
    out = simulate(jobs, Cluster.uniform(2, 2), "fifo", str(path))
    assert {s.job_id: s.gpus for s in out.segments} == {"a": (0,), "b": (2, 3)}
