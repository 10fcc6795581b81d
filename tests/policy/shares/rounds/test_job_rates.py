"""What is kept of jobs from round to round survives that most of them are forgotten."""

from __future__ import annotations

import pytest

from trine.policy.shares.rounds import job_rates
from trine.policy.shares.rounds.job_rates import JobRateCache


def test_ids_are_those_of_the_jobs_however_many_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was away while the others were forgotten still has its id."""
    monkeypatch.setattr(job_rates, "KEPT_IDS", 3)
    kept = JobRateCache(2)
    for first in range(0, 40, 2):
        assert kept.ids((first, first + 1)) == (str(first), str(first + 1))
    assert kept.ids((0, 39)) == ("0", "39")
