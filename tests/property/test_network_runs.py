"""What holds in every run in which gangs share links, whatever the jobs, the policy and the placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import Case, cases, stable
from tests.sim.tiny import Outcome, simulate
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.reason import Why
from trine.engine.engine import Engine
from trine.engine.job_table import State

MODELS = ("VGG-16", "ResNet-18", "Recommendation", "BERT")
TIMERS: dict[str, Any] = {"machine_timer_s": 70.0, "rack_timer_s": 50.0}
QUANTUM_S = 60.0


class Watched(Engine):
    """Whenever speeds were settled: links carry what they can, jobs run as the model says of what they have."""

    def settle_speeds(self, now: float) -> None:
        super().settle_speeds(now)
        assert self.traffic is not None
        if self.perf.link_sharing == "max-min":
            assert all(share <= 1 + 1e-9 for share in self.traffic.load().values())
        for job_index in self.assigned:
            if self.table.state[job_index] is State.RUNNING:
                assert float(self.table.rate[job_index]) == pytest.approx(self.speed(job_index).steps_per_s)


class Patient(Watched):
    """After a round, only capacity keeps a job waiting whose timers are over, or a reservation under backfilling."""

    def decide(self, now: float, fill: bool = False) -> list[Any]:
        decisions = super().decide(now, fill)
        longest_s, table = sum(TIMERS.values()), self.table
        for job_index in self.active_jobs.job_indices().tolist():
            if job_index not in self.assigned and now >= table.idle_from_s[job_index] + longest_s:
                free = [self.free.pools[index].total for index in table.types[job_index]]
                reserved = self.explain(job_index).code is Why.RESERVED  # EASY backfilling keeps them for the first job
                assert max(free) < table.jobs[job_index].gpus or reserved
        return decisions


def sending(case: Case) -> Case:
    """The same jobs, each of a model that the table of traffic knows."""
    return Case(case.cluster, [replace(job, model=MODELS[i % 4]) for i, job in enumerate(case.jobs)])


def run(case: Case, policy: str, placement: str, engine: type[Engine] = Watched, **values: Any) -> Outcome:
    network: dict[str, Any] = {"network": "cloud-tcp", "oversubscription": 4.0, "congestion": 0.3, "round_s": 30}
    return simulate(sending(case).jobs, case.cluster, policy, placement, engine=engine, **network | values)


def values(**more: Any) -> st.SearchStrategy[dict[str, Any]]:
    told = {"link_sharing": ("max-min", "max-min", "duty"), "event_driven": (True, False), "restore_s": (0, 5)} | more
    return st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in told.items()})


@pytest.mark.parametrize("placement", ["packed-sticky", "pal", "random", "consolidate-sticky", "skew"])
@stable(10)
@given(case=cases(), policy=st.sampled_from(("dally", "fifo", "las", "srtf", "max-min-fairness")), told=values())
def test_links_carry_what_they_can_and_jobs_run_as_the_model_says(
    placement: str, case: Case, policy: str, told: dict[str, Any]
) -> None:
    out = run(case, policy, placement, **told)
    assert len(out.records) == len(case.jobs)


def test_the_property_tests_see_shared_links_waits_and_moves() -> None:
    """Not vacuous: gangs slow each other down, one waits by choice, one moves."""
    jobs = [Job("a", 0, 1, 200), Job("b", 0, 3, 900), Job("c", 0, 3, 2000), Job("d", 10, 2, 3000), Job("e", 20, 3, 300)]
    case = Case(Cluster.uniform(4, 2, nodes_per_rack=2), jobs)
    out = run(case, "dally", "delay", Patient, quantum_s=QUANTUM_S, event_driven=True, **TIMERS)
    speeds, runs = sum(life.leg for life in out.lives.values()), len(out.segments)
    assert speeds > runs, "speeds change within a run"
    assert "moved" in {segment.ended for segment in out.segments}
    assert any(record.wait_s > 0 for record in out.records.values())


@pytest.mark.parametrize("policy", ["fifo-backfill", "srtf", "dally"])
@stable(40)
@given(case=cases(), told=values(fill=(True, False)))
def test_no_wait_beyond_timers_and_what_capacity_forces(policy: str, case: Case, told: dict[str, Any]) -> None:
    run(case, policy, "delay", Patient, strict=False, **TIMERS, **told)


@stable(60)
@given(case=cases(), placement=st.sampled_from(("delay", "packed-sticky", "consolidate-sticky")), told=values())
def test_moves_and_stops_of_a_job_are_bounded_by_its_quanta(case: Case, placement: str, told: dict[str, Any]) -> None:
    """Every run but the last lasts a quantum at least, however often traffic makes another place the better one."""
    timers = TIMERS if placement == "delay" else {}
    out = run(case, "dally", placement, quantum_s=QUANTUM_S, **timers, **told)
    for segment in out.segments:
        assert segment.ended == "finished" or segment.end_s - segment.start_s >= QUANTUM_S - 1e-6
