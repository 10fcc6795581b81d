"""A short soak in the suite; the long one is ``python -m tests.executor.slurm_soak --seed N``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.slurm_cluster import needs_slurm
from tests.executor.slurm_soak import soak


@pytest.mark.slurm
@pytest.mark.slow
@needs_slurm
def test_every_job_ends_once_whatever_breaks(tmp_path: Path) -> None:
    ends, faults = soak(seed=7, jobs=30, faults=6, limit_s=150.0, home=tmp_path)
    assert ends == {"done": 30} and sum(faults.values()) == 6
