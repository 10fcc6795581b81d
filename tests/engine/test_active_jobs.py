"""The roster against a plain list: who is there, how many, and what happened since it was last asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import stable
from trine.core.job import Job
from trine.engine.job_table import ActiveJobs, JobTable

STEPS = st.lists(st.tuples(st.sampled_from("aaaeothnl"), st.integers(0, 30)), max_size=60)
"""Arrive, end, out, back (told of), news, look; with the job meant, as far as there is one."""


class Plain:
    """The same, kept without haste."""

    def __init__(self) -> None:
        self.here: list[int] = []
        self.away: list[int] = []
        self.came: list[int] = []
        self.left: list[int] = []
        self.in_turn = False


@given(STEPS)
@stable(200)
def test_it_is_a_sorted_list_that_knows_its_news(steps: list[tuple[str, int]]) -> None:
    table, plain = JobTable(), Plain()
    active_jobs = ActiveJobs(table)
    for what, number in steps:
        here = plain.here[number % len(plain.here)] if plain.here else None
        away = plain.away[number % len(plain.away)] if plain.away else None
        if what == "a":
            job_index = table.add(Job(str(len(table)), 0.0, 1, 1.0), 1.0, (0,), (1.0,))
            active_jobs.arrive(job_index)
            plain.here.append(job_index)
            plain.came.append(job_index)
        elif what == "e" and here is not None:
            table.finished[here] = True
            active_jobs.end(here)
            plain.here.remove(here)
            plain.left.append(here)
        elif what == "o" and here is not None:
            active_jobs.take_out(here)
            plain.here.remove(here)
            plain.away.append(here)
            plain.in_turn = False
        elif what == "t" and away is not None:
            active_jobs.put_back(away)
            plain.away.remove(away)
            plain.here = sorted([*plain.here, away])
            plain.in_turn = False
        elif what == "h" and away is not None:  # one that was held ends by itself
            table.finished[away] = True
            active_jobs.end(away)
            plain.away.remove(away)
        elif what == "n":
            assert active_jobs.news() == ((plain.came, plain.left) if plain.in_turn else None)
            plain.came, plain.left, plain.in_turn = [], [], True
        elif what == "l":
            assert active_jobs.job_indices().tolist() == plain.here
            assert active_jobs.job_indices() is active_jobs.job_indices()
        assert len(active_jobs) == len(plain.here)
    assert active_jobs.job_indices().tolist() == plain.here
