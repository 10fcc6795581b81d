"""Dally: log2 queues of attained service, victims by queue and sensitivity, and long waits that are forgiven."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.live import LiveWorld
from tests.policy.views import Seen, order, view
from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.engine.events import Stop, Tick
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.policy.base import Ranking
from trine.policy.dally import Dally

HOUR_S = 3600.0


class Sensitive:
    """A performance model that knows only sensitivities, by job id."""

    def __init__(self, by_id: dict[str, float]) -> None:
        self.by_id = by_id

    def sensitivity(self, job: Job) -> float:
        return self.by_id.get(job.id, 1.0)


def dally(by_id: dict[str, float] | None = None, **values: Any) -> Dally:
    policy = Dally(**values)
    policy.prepare(Sensitive(by_id or {}))  # type: ignore[arg-type]
    return policy


def ranked(policy: Dally, now: float, jobs: list[Seen]) -> Ranking:
    return policy.rank(view(now, jobs))


def levels(policy: Dally, now: float, jobs: list[Seen]) -> dict[str, float]:
    ranking = ranked(policy, now, jobs)
    assert ranking.level is not None
    return {jobs[i].id: level for i, level in zip(ranking.order.tolist(), ranking.level.tolist(), strict=True)}


def victims(policy: Dally, now: float, jobs: list[Seen]) -> str:
    """Ids in the order in which they would be stopped."""
    ranking = ranked(policy, now, jobs)
    assert ranking.victim_order is not None
    keys = zip(ranking.victim_order.tolist(), ranking.order.tolist(), strict=True)
    return "".join(jobs[i].id for _, i in sorted(keys))


def test_queues_double_from_an_hour_of_gpu_time() -> None:
    """GPU-hours 0, just below 1, 1, just below 3, 3 and 7 on two GPUs."""
    hours = {"a": 0.0, "b": 0.99, "c": 1.0, "d": 2.99, "e": 3.0, "f": 7.0}
    jobs = [Seen(i, 1e6, 2, ran_s=h * HOUR_S / 2, submit_s=0) for i, h in hours.items()]
    assert levels(dally(promote_after=0), 0, jobs) == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2, "f": 3}


def test_inside_a_queue_the_oldest_goes_first_or_the_most_sensitive() -> None:
    jobs = [Seen("a", submit_s=3), Seen("b", submit_s=1), Seen("c", submit_s=2)]
    assert order(dally(), 10, jobs) == "bca"
    assert order(dally({"a": 2.0, "c": 1.5}, tie="sensitivity"), 10, jobs) == "acb"


def test_priority_goes_before_queues_and_stops_lower_ones() -> None:
    jobs = [Seen("a", 1e6, ran_s=0), Seen("b", 1e6, ran_s=9 * HOUR_S, priority=1)]
    policy = dally(promote_after=0)
    assert order(policy, 0, jobs) == "ba"
    found = levels(policy, 0, jobs)
    assert found["a"] >= found["b"] + policy.gap


def test_sensitivity_weighs_the_score_only_if_asked_to() -> None:
    jobs = [Seen("a", 1e6, ran_s=7 * HOUR_S)]
    assert levels(dally({"a": 4.0}, promote_after=0), 0, jobs) == {"a": 3}
    assert levels(dally({"a": 4.0}, promote_after=0, beta=0.5), 0, jobs) == {"a": 2}


def test_work_counts_what_was_done_not_what_was_held() -> None:
    """Seven hours on GPUs at half the speed are 3.5 hours of work."""
    jobs = [Seen("a", 1e6, running_since_s=0, rate=0.5)]
    assert levels(dally(promote_after=0), 7 * HOUR_S, jobs) == {"a": 3}
    assert levels(dally(promote_after=0, service="work"), 7 * HOUR_S, jobs) == {"a": 2}


def test_victims_are_deep_then_insensitive_then_young() -> None:
    now = 100 * HOUR_S
    jobs = [
        Seen("a", 1e7, ran_s=3 * HOUR_S, running_since_s=now - 1000),
        Seen("b", 1e7, ran_s=3 * HOUR_S, running_since_s=now - 2000),
        Seen("c", 1e7, ran_s=3 * HOUR_S, running_since_s=now - 500),
        Seen("d", 1e7, ran_s=9 * HOUR_S, running_since_s=now - 9000),
    ]
    sensitive = {"c": 3.0, "d": 5.0}
    assert victims(dally(sensitive), now, jobs) == "dabc"
    assert victims(dally(sensitive, victims="age"), now, jobs) == "dcab"


def test_a_job_that_starves_counts_as_new_from_then_on_also_after_a_restart() -> None:
    """It ran 4 hours and has waited 32: from now on only what it runs next counts."""
    policy = dally()
    waits = Seen("a", 1e7, ran_s=4 * HOUR_S, idle_since_s=0)
    assert levels(policy, 31.9 * HOUR_S, [waits]) == {"a": 2}
    assert levels(policy, 32 * HOUR_S, [waits]) == {"a": 0}
    runs = Seen("a", 1e7, ran_s=4 * HOUR_S, running_since_s=32 * HOUR_S)
    assert levels(policy, 32.5 * HOUR_S, [runs]) == {"a": 0}
    again = dally()
    again.restore(policy.state(view(33 * HOUR_S, [runs])), view(33 * HOUR_S, [runs]), stale=False)
    assert levels(again, 33.5 * HOUR_S, [runs]) == {"a": 1}
    assert levels(dally(promote_after=0), 99 * HOUR_S, [waits]) == {"a": 2}


def test_equals_do_not_stop_each_other_and_a_new_job_waits_for_the_quantum() -> None:
    """One GPU. old is in queue 1 from 3600 s on: new takes over then, since its quantum is long over; peer waits."""
    jobs = [Job("old", 0, 1, 7000), Job("new", 1800, 1, 600), Job("peer", 1800, 1, 600)]
    out = simulate(jobs, one_node(1), "dally", round_s=300)
    assert out.stretches("old")[0] == (0, 3600)
    assert out.start("new") == 3600 and out.start("peer") == 4200
    late = simulate([Job("a", 0, 1, 9000), Job("new", 3700, 1, 10)], one_node(1), "dally", round_s=300, quantum_s=6000)
    assert late.start("new") == 6000


def test_the_least_sensitive_is_stopped_and_the_decision_says_for_which_job() -> None:
    cluster = Cluster.uniform(2, 2)
    world = LiveWorld(cluster, "dally")
    penalty = LocalityPenalty(by_class={"A": (3.0, 3.0)})
    world.engine.policy.prepare(PerfModel(cluster, VariabilityTable.of_cluster(cluster), penalty))
    world.submit(Job("a", 0, 2, 1e6, app_class="A"), Job("b", 0, 2, 1e6, app_class="B"))
    world.start_all()
    world.submit(Job("new", 1, 2, 50))
    (stop,) = world.engine.handle(Tick(2 * HOUR_S))
    assert isinstance(stop, Stop) and stop.job_index == 1
    assert world.engine.reason(stop).sentence == "job b is stopped for job new, which has had less service."


def test_a_gang_that_started_apart_moves_together() -> None:
    """Nodes of three: gang gets a GPU here and one there, at a third of the speed, until a ends."""
    jobs = [Job("a", 0, 2, 3000), Job("b", 0, 2, 90000), Job("gang", 0, 2, 20000)]
    out = simulate(jobs, Cluster.uniform(2, 3), "dally", round_s=300, locality_penalty=3.0, restore_s=60)
    assert out.records["gang"].migrations == 1
    assert out.stretches("gang")[0] == (0, 3000)
    stays = simulate(
        jobs, Cluster.uniform(2, 3), "dally", round_s=300, locality_penalty=3.0, restore_s=60, relocate=False
    )
    assert stays.finish("gang") == pytest.approx(60000) and out.finish("gang") < 30000
