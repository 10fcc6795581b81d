"""How time passes: rounds or events, completions at their own time or at the boundary, and skipped stretches."""

from __future__ import annotations

import pytest

from tests.sim.tiny import one_node, simulate
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Decision, Event, Tick
from trine.perf.throughput import ThroughputTable

TWO = [Job("a", 10, 1, 100), Job("b", 10, 1, 100)]


def test_event_driven_decides_at_arrivals_and_completions() -> None:
    assert simulate(TWO, one_node(1), event_driven=True).times == {"a": (10, 110), "b": (110, 210)}


def test_rounds_decide_at_boundaries_and_hold_gpus_to_the_end_of_the_round() -> None:
    """Submitted at 10, seen at 300; a ends at 400 exactly, but its GPU is given on at 600."""
    assert simulate(TWO, one_node(1), round_s=300).times == {"a": (300, 400), "b": (600, 700)}


def test_finish_round_books_the_completion_at_the_boundary() -> None:
    assert simulate(TWO, one_node(1), round_s=300, finish="round").times == {"a": (300, 600), "b": (600, 900)}


@pytest.mark.parametrize("finish", ["exact", "round"])
def test_a_completion_on_a_boundary_counts_there(finish: str) -> None:
    jobs = [Job("a", 0, 1, 300), Job("b", 0, 1, 600), Job("c", 0, 1, 1)]
    out = simulate(jobs[:2], one_node(1), round_s=300, finish=finish)
    assert out.times == {"a": (0, 300), "b": (300, 900)}


@pytest.mark.parametrize("round_s", [0.1, 0.3, 1 / 3, 0.7, 7.1])
def test_boundaries_are_met_whatever_the_rounding_of_floats(round_s: float) -> None:
    """Jobs that last a whole number of rounds follow each other without a gap."""
    jobs = [Job(f"j{i}", 0, 1, (1 + i % 3) * round_s) for i in range(40)]
    out = simulate(jobs, one_node(1), round_s=round_s)
    rounds = 0
    for i, job in enumerate(jobs):
        assert out.start(job.id) == pytest.approx(rounds * round_s)
        rounds += 1 + i % 3
        assert out.finish(job.id) == pytest.approx(rounds * round_s)


def test_a_submission_on_a_boundary_is_seen_there_and_a_later_one_at_the_next() -> None:
    jobs = [Job("a", 600, 1, 1), Job("b", 600.5, 1, 1)]
    assert simulate(jobs, one_node(2), round_s=300).times == {"a": (600, 601), "b": (900, 901)}


def test_rounds_are_counted_from_time_zero_including_those_skipped() -> None:
    """Decisions at 0, 300, ... 1200: the last job ends in the fourth round, seen at the fifth boundary."""
    out = simulate([Job("a", 0, 1, 100), Job("b", 850, 1, 250)], one_node(1), round_s=300)
    assert (out.finish("b"), out.summary.rounds) == (1150, 5)


class Counting(Engine):
    ticks = 0

    def handle(self, event: Event) -> list[Decision]:
        self.ticks += isinstance(event, Tick)
        return super().handle(event)


@pytest.mark.parametrize(
    ("policy", "placement"), [("fifo", "packed"), ("fifo", "packed-sticky"), ("las", "packed-sticky")]
)
def test_stretches_in_which_nothing_can_change_cost_nothing(policy: str, placement: str) -> None:
    """A job of a thousand years in rounds of a second: a handful of decisions."""
    out = simulate([Job("a", 0, 1, 3e10)], one_node(2), policy, placement, round_s=1, engine=Counting)
    assert out.finish("a") == 3e10
    assert isinstance(out.engine, Counting) and out.engine.ticks <= 4


def test_the_slowest_chip_sets_the_pace() -> None:
    cluster = Cluster((Node("n0", 2),), scores={"A": (1.0, 1.5), "B": (1.0, 3.0)})
    jobs = [Job("a", 0, 2, 100, app_class="A"), Job("b", 0, 2, 100, app_class="B")]
    assert simulate(jobs, cluster, event_driven=True).times == {"a": (0, 150), "b": (150, 450)}


def test_a_gang_over_nodes_or_racks_pays_once() -> None:
    cluster = Cluster.uniform(4, 1, nodes_per_rack=2)
    jobs = [Job("one", 0, 1, 100), Job("rack", 0, 2, 100), Job("network", 1000, 3, 100)]
    out = simulate(jobs, cluster, event_driven=True, locality_penalty=1.5, rack_penalty=2)
    assert [out.records[j.id].tier for j in jobs] == ["gpu", "rack", "network"]
    assert [out.finish(j.id) for j in jobs] == [100, 150, 1200]


def test_jobs_go_to_the_fastest_type_that_has_room() -> None:
    cluster = Cluster((Node("n0", 1, "slow"), Node("n1", 1, "fast")))
    table = ThroughputTable({("m", 1): {"slow": 1.0, "fast": 4.0}})
    jobs = [Job(i, 0, 1, 400, step_s=None, model="m") for i in ("a", "b")]
    out = simulate(jobs, cluster, event_driven=True, throughputs=table)
    assert out.times == {"a": (0, 100), "b": (0, 400)}
    assert out.records["b"].slowdown == 4.0


def test_event_driven_still_gives_everybody_a_turn_under_policies_that_change_with_time() -> None:
    out = simulate([Job("a", 0, 1, 250), Job("b", 0, 1, 150)], one_node(1), "las", event_driven=True, round_s=100)
    assert out.stretches("a") == [(0, 100), (200, 300), (350, 400)]
    assert out.stretches("b") == [(100, 200), (300, 350)]
