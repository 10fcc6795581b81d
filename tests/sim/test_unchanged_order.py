"""Not placing again what did not change is exact: placing everybody in every round gives the same GPUs always."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.sim.test_skipping import CLUSTER, POLICIES, costs, workloads
from tests.sim.tiny import simulate
from trine.core.job import Job
from trine.core.plugins import discover
from trine.engine.ranking_planner import RankingPlanner
from trine.placement.base import Placement

ANEW = sorted(name for name, cls in discover("trine.placement", Placement).items() if cls.repeatable)


@pytest.mark.parametrize("placement", ANEW)
@pytest.mark.parametrize("policy", POLICIES)
@settings(derandomize=True, database=None, deadline=None, max_examples=5)
@given(jobs=workloads(), values=costs())
def test_an_unchanged_beginning_of_the_order_keeps_its_gpus(
    policy: str, placement: str, jobs: list[Job], values: dict[str, Any]
) -> None:
    remembering = simulate(jobs, CLUSTER, policy, placement, round_s=30, **values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RankingPlanner, "_same_as_last", lambda *_: 0)
        anew = simulate(jobs, CLUSTER, policy, placement, round_s=30, **values)
    assert remembering.segments == anew.segments
    assert remembering.records == anew.records
