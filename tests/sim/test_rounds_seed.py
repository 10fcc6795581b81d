"""The run's seed reaches the policies that draw; ``rounds_seed`` holds their draws fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trine.core.result import JobRecord
from trine.sim.scenario import Scenario, run

HEADER = "job_id,job_type,scale_factor,total_steps,duration_s_on_v100,priority_weight,arrival_s"
MODEL = "ResNet-18 (batch size 64)"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = [f"{number},{MODEL},1,{(1 + number % 3) * 100_000},{(1 + number % 3) * 3000},1,0" for number in range(8)]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return str(path)


def jobs_of(trace: str, seed: int, **values: Any) -> list[JobRecord]:
    """FIFO that does not know speeds: each job draws a GPU type."""
    told = {"aware": "false", "round_s": "360", **values}
    return run(
        Scenario(
            "v100=3x1,p100=3x1,k80=3x1", "fifo", trace=trace, throughputs="gavel-simulation", seed=seed, values=told
        )
    ).jobs


def test_seeds_draw_differently_and_each_repeats(trace: str) -> None:
    found = [jobs_of(trace, seed) for seed in range(4)]
    assert any(one != found[0] for one in found[1:])
    assert jobs_of(trace, 3) == found[3]


def test_a_seed_of_their_own_counts_instead(trace: str) -> None:
    fixed = [jobs_of(trace, seed, rounds_seed="7") for seed in range(4)]
    assert all(one == fixed[0] for one in fixed)
    assert jobs_of(trace, 7) == fixed[0]
