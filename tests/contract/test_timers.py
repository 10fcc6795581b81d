"""Waiting that ends by itself: noticed on time in every mode, at the same times with and without skipping.

The first user is the preference of a job for GPUs close together (``Shape.preferred`` until ``prefer_until_s``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.live import LiveWorld
from tests.sim.test_skipping import Restless
from tests.sim.tiny import simulate
from trine.core.cluster import Cluster, Tier
from trine.core.job import Job, Shape
from trine.core.reason import Why
from trine.engine.engine import Engine

CLUSTER = Cluster.uniform(2, 2)
SPREAD = Job("spread", 0, 2, 10_000, shape=Shape(nodes=2))
"""One GPU of each node: no node has two free ones."""
PATIENT = Job("patient", 0, 2, 100, shape=Shape(None, None, Tier.NODE, 1_000.0))


@pytest.mark.parametrize("placement", ["packed", "packed-sticky", "pal", "random-sticky"])
@pytest.mark.parametrize(
    ("mode", "noticed_s"),
    [
        ({"event_driven": True, "round_s": 300}, 1_000.0),
        ({"event_driven": True, "round_s": 50_000}, 1_000.0),
        ({"fill": True, "round_s": 300}, 1_000.0),
        ({"fill": True, "round_s": 50_000}, 1_000.0),
        ({"round_s": 300}, 1_200.0),
        ({"round_s": 250}, 1_000.0),
    ],
)
def test_a_preference_ends_on_time(placement: str, mode: dict[str, Any], noticed_s: float) -> None:
    """Arrivals and ends in between make no difference."""
    others = [Job("late", 10.0, 1, 200, shape=Shape(None, Tier.NODE)), Job("later", 910.0, 1, 5)]
    for jobs in ([SPREAD, PATIENT], [SPREAD, PATIENT, *others]):
        out = simulate(jobs, CLUSTER, "fifo", placement, **mode)
        assert out.start("patient") == noticed_s


def test_a_round_that_changes_nothing_is_skipped_until_then() -> None:
    out = simulate([SPREAD, PATIENT], CLUSTER, "fifo", "packed-sticky", event_driven=True, round_s=1)
    assert out.world.rounds < 10


shapes = st.builds(
    lambda preferred, until, required: Shape(None, required, preferred, until),
    st.sampled_from((None, Tier.NODE, Tier.RACK)),
    st.sampled_from((95.0, 100.0, 333.3, 700.0)),
    st.sampled_from((None, None, Tier.RACK)),
)
rows = st.tuples(st.integers(0, 300), st.integers(1, 5), st.integers(1, 400), st.none() | shapes)


@pytest.mark.parametrize("placement", ["packed", "packed-sticky", "pal", "random-sticky"])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "fifo-backfill", "las"])
@settings(derandomize=True, database=None, deadline=None, max_examples=15)
@given(
    told=st.lists(rows, min_size=1, max_size=8),
    mode=st.sampled_from(({}, {"event_driven": True}, {"fill": True})),
    strict=st.sampled_from((None, True, False)),
)
def test_skipping_changes_nothing(
    policy: str, placement: str, told: list[tuple[int, int, int, Shape | None]], mode: dict[str, Any], strict: bool
) -> None:
    told = sorted(told, key=lambda row: row[0])
    jobs = [Job(f"j{i}", at, gpus, steps, shape=shape) for i, (at, gpus, steps, shape) in enumerate(told)]
    cluster = Cluster.uniform(4, 2, nodes_per_rack=2)
    jobs = [job for job in jobs if job.shape is None or job.shape.required is None or job.gpus <= 4]
    runs = [
        simulate(jobs, cluster, policy, placement, round_s=30, engine=engine, strict=strict, **mode)
        for engine in (Engine, Restless)
    ]
    assert runs[0].records == runs[1].records
    assert runs[0].segments == runs[1].segments


CURFEW = """
from dataclasses import dataclass
from typing import ClassVar

from trine.core.reason import Reason, Why
from trine.placement.packed import Packed


@dataclass
class Curfew(Packed):
    name: ClassVar[str] = "curfew"
    title: ClassVar[str] = "nothing starts before a time"

    @property
    def wakes_s(self):
        return 700.0

    def place(self, ask, pool):
        return super().place(ask, pool) if ask.now >= 700.0 else Reason(Why.REFUSED, "not yet")
"""


@pytest.mark.parametrize("sticky", ["", "-sticky"])
@pytest.mark.parametrize(
    ("mode", "start_s"),
    [({"round_s": 300}, 900.0), ({"round_s": 9_000, "event_driven": True}, 700.0), ({"fill": True}, 700.0)],
)
def test_a_placement_says_itself_when_its_answers_change(
    tmp_path: Path, sticky: str, mode: dict[str, Any], start_s: float
) -> None:
    path = tmp_path / "curfew.py"
    path.write_text(CURFEW)
    out = simulate([Job("a", 0, 2, 100)], CLUSTER, "fifo", f"{path}{sticky}", **mode)
    assert out.start("a") == start_s


# -- waiting by choice --------------------------------------------------------------------------------------------


def waiting_world(policy: str, placement: str, *running: Job) -> LiveWorld:
    live = LiveWorld(CLUSTER, policy, placement)
    live.submit(*running)
    live.start_all(0)
    live.submit(PATIENT)
    return live


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_who_waits_by_choice_does_not_hold_up_a_strict_order(placement: str) -> None:
    live = waiting_world("fifo", placement, SPREAD)
    live.submit(Job("behind", 1, 1, 10))
    assert live.tick(2) == ["start behind 1"]
    told = live.explain("patient")
    assert told.code is Why.WAITS
    assert "within one node" in told.sentence and "1000 s after its submission" in told.change


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
def test_who_is_forced_to_wait_still_does(placement: str) -> None:
    live = LiveWorld(CLUSTER, "fifo", placement)
    live.submit(Job("all", 0, 3, 1_000))
    live.start_all(0)
    live.submit(PATIENT, Job("behind", 1, 1, 10))
    assert live.tick(2) == []
    assert live.explain("behind").code is Why.HEAD_OF_LINE


def test_nothing_is_stopped_for_who_waits_by_choice() -> None:
    """Stopping the job of low rank would make room on one node."""
    low = Job("low", 0, 2, 10_000, shape=Shape(nodes=2))
    live = LiveWorld(CLUSTER, "srtf", "packed-sticky")
    live.submit(low)
    live.start_all(0)
    live.submit(PATIENT)
    assert live.tick(1) == []
    assert live.explain("patient").code is Why.WAITS
    assert live.tick(1_000) == ["start patient 1,3"]


def test_who_lacks_gpus_may_have_others_stopped_and_is_not_said_to_wait_by_choice() -> None:
    live = LiveWorld(CLUSTER, "srtf", "packed-sticky")
    live.submit(Job("low", 0, 3, 10_000))
    live.start_all(0)
    live.submit(PATIENT)
    assert live.tick(1) == ["stop low"]
