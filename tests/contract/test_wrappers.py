"""The contract of placements around other placements: what they do not change themselves comes from the one inside."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job
from trine.core.plugins import discover
from trine.core.reason import Reason
from trine.core.result import TimerChange
from trine.perf.model import PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask, Placement
from trine.placement.delay import Delay
from trine.placement.free_index import FreePool
from trine.placement.wrapper import Sticky, Wrapper

CLUSTER = Cluster.uniform(2, 4)
POOL = FreePool(CLUSTER, "gpu")
ASK = Ask(Job("j", 0.0, 1, 100.0))
CHANGE = TimerChange(1.0, 2, Tier.NODE, 3.0)


class Inside(Placement):
    """Answers every call in a way of its own, and keeps what it was given."""

    name = "inside"
    relocates = False

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:
        self.heard.append((perf, rng))

    @property
    def wakes_s(self) -> float:
        return 17.0

    def excluded(self) -> frozenset[int]:
        return frozenset({3})

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:
        return f"{job.id} on {gpus} of {pool.gpu_type}"

    def started(self, ask: Ask, gpus: tuple[int, ...]) -> None:
        self.heard.append((ask, gpus))

    def timer_changes_since(self, seen: int) -> list[TimerChange]:
        return [CHANGE] * seen

    def state(self) -> dict[str, Any]:
        return {"a": 1}

    def restore(self, kept: dict[str, Any]) -> None:
        self.heard.append(kept)

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        return pool.gpus()[-ask.job.gpus :]


class Plain(Wrapper):
    """Changes nothing."""

    def __init__(self, within: Placement) -> None:
        self.wrap(within)


def delayed(within: Placement) -> Delay:
    made = Delay()
    made.wrap(within)
    return made


@pytest.mark.parametrize("wrapped", [Plain, Sticky, delayed], ids=["wrapper", "sticky", "delay"])
def test_what_a_wrapper_does_not_change_comes_from_inside(wrapped: Any) -> None:
    inside = Inside()
    placement: Placement = wrapped(inside)
    perf, rng = PerfModel(CLUSTER, VariabilityTable.flat(8)), random.Random(0)
    placement.prepare(perf, rng)
    placement.started(ASK, (7,))
    assert inside.heard == [(perf, rng), (ASK, (7,))]
    assert (placement.chooses, placement.wakes_s, placement.relocates) == (inside, 17.0, False)
    assert placement.excluded() == {3}
    assert placement.explain(ASK.job, (1,), POOL) == "j on (1,) of gpu"
    assert placement.place(ASK, POOL) == [7]


def test_a_wrapper_passes_on_everything_that_a_placement_may_be_asked() -> None:
    """What is added to the interface of a placement has to be passed on by the wrapper, too."""
    asked = {
        name for name, value in vars(Placement).items() if name[0] != "_" and (callable(value) or _is_property(value))
    }
    assert asked <= vars(Wrapper).keys()


def test_what_is_kept_goes_around_and_back() -> None:
    inside = Inside()
    placement = Sticky(inside)
    placement.restore(placement.state())
    assert inside.heard == [{"a": 1}] and placement.timer_changes_since(2) == [CHANGE] * 2


@pytest.mark.parametrize("name", sorted(discover("trine.placement", Placement)))
def test_two_wrappers_around_any_placement_choose_as_it_does_where_none_has_to_wait(name: str) -> None:
    cls = discover("trine.placement", Placement)[name]
    perf = PerfModel(CLUSTER, VariabilityTable.flat(8))
    alone, around = cls(), Sticky(Sticky(cls()))
    for placement in (alone, around):
        placement.prepare(perf, random.Random(0))
    assert around.place(ASK, POOL) == alone.place(ASK, POOL)
    assert around.sticky and around.chooses.name == alone.chooses.name


def _is_property(value: Any) -> bool:
    return isinstance(value, property)
