"""A short soak in the suite; the long one is ``python -m tests.executor.ray_soak --seed N``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.ray_cluster import missing
from tests.executor.ray_soak import soak


@pytest.mark.ray
@pytest.mark.slow
def test_every_job_ends_once_whatever_breaks(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    ends, faults = soak(seed=7, jobs=24, faults=5, limit_s=240.0, home=tmp_path)
    assert ends == {"done": 24} and sum(faults.values()) == 5
