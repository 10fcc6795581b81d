"""A short soak in the suite; the long one is ``python -m tests.executor.kubernetes_soak --seed N``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.kubernetes_cluster import needs_kubernetes
from tests.executor.kubernetes_soak import soak


@pytest.mark.kubernetes
@pytest.mark.slow
@needs_kubernetes
def test_every_job_ends_once_whatever_breaks(tmp_path: Path) -> None:
    ends, faults = soak(seed=7, jobs=30, faults=6, limit_s=200.0, home=tmp_path)
    assert ends == {"done": 30} and sum(faults.values()) == 6
