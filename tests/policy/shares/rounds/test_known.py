"""What is kept of jobs from round to round survives that most of them are forgotten."""

from __future__ import annotations

import pytest

from trine.policy.shares.rounds import known
from trine.policy.shares.rounds.known import Known


def test_names_are_those_of_the_jobs_however_many_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was away while the others were forgotten still has its name."""
    monkeypatch.setattr(known, "MANY", 3)
    kept = Known(2)
    for first in range(0, 40, 2):
        assert kept.names((first, first + 1)) == (str(first), str(first + 1))
    assert kept.names((0, 39)) == ("0", "39")
