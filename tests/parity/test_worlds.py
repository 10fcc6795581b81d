"""Fixed worlds with a congested network: averages agree with a prototype that shares no code with this one.

Links, duty-weighted sharing and semantics are the world's own; orders of ties and of passes differ, so that single jobs
do too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trine.sim.scenario import Scenario, run

CASES = [
    ("pal-srtf-ns", "srtf", "pal", {}, 0.05),
    ("pal-las-ns", "las", "pal", {"queues": "log2"}, 0.05),
    ("dally-cons", "dally", "consolidate-sticky", {}, 0.10),
    ("dally", "dally", "delay", {}, 0.10),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy", "placement", "values", "within"), CASES, ids=[case[0] for case in CASES])
def test_mean_completion_time_in_a_congested_world(
    shared_data: Path, name: str, policy: str, placement: str, values: dict[str, Any], within: float
) -> None:
    world = shared_data / "worlds" / "N-load0.8-seed1"
    prototype_h = json.loads((world / "prototype_results.json").read_text())[name]["jct"]
    summary = run(Scenario("", policy, placement, world=str(world), values=values), keep_segments=False).summary
    assert summary.jct_mean_s / 3600 == pytest.approx(prototype_h, rel=within)
