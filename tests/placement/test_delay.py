"""Delay scheduling: who waits for which tier, for how long, and when not to."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.test_skipping import Restless
from tests.sim.tiny import Outcome, simulate
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Tier
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.reason import Reason, Why
from trine.engine.engine import Engine
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.variability import VariabilityTable
from trine.placement.base import Ask, Placement, has_room
from trine.placement.delay import Delay
from trine.placement.free_index import FreePool
from trine.placement.timers import DEFAULT_S, Timers

CLUSTER = Cluster.uniform(4, 2, nodes_per_rack=2)
"""Two racks of two nodes of two GPUs."""
PENALTY = LocalityPenalty(1.0, 1.5, 3.0)
FIXED: dict[str, Any] = {"machine_timer_s": 1_000.0, "rack_timer_s": 2_000.0}


def delay(penalty: LocalityPenalty = PENALTY, slow: list[float] | None = None, **values: Any) -> Delay:
    placement = Delay(**values)
    table = VariabilityTable(8, {"A": slow or [1.0] * 8})
    placement.prepare(PerfModel(CLUSTER, table, penalty), random.Random(0))
    return placement


def pool_of(*free: int) -> FreePool:
    pool = FreePool(CLUSTER, "gpu")
    pool.take(sorted(set(range(8)) - set(free)))
    return pool


def asked(gpus: int, now: float = 0.0, work_s: float = 1e6, widest: Tier = Tier.NETWORK, **values: Any) -> Ask:
    return Ask(Job("j", 0.0, gpus, work_s, app_class="A", **values), now=now, widest=widest)


def refused(found: list[int] | Reason) -> Reason:
    assert isinstance(found, Reason), found
    return found


def test_a_node_first_then_a_rack_then_anywhere() -> None:
    """One GPU free on each of nodes 0, 1 (rack 0) and 2 (rack 1)."""
    placement = delay(**FIXED)
    told = refused(placement.place(asked(2, 999.9), pool_of(0, 2, 4)))
    assert (told.code, told.wakes_s) == (Why.WAITS, 1_000.0)
    assert told.sentence.startswith("job j waits for 2 GPUs within one node; the 3 that are free are further apart")
    assert told.change == (
        "It takes GPUs within one rack once it has waited 1000 s, anywhere once it has waited 3000 s."
    )
    assert placement.place(asked(2, 1_000.0), pool_of(0, 2, 4)) == [0, 2]
    told = refused(placement.place(asked(2, 1_000.0), pool_of(0, 4)))
    assert (told.code, told.wakes_s) == (Why.WAITS, 3_000.0)
    assert placement.place(asked(2, 3_000.0), pool_of(0, 4)) == [0, 4]


def test_the_better_tier_is_taken_first_however_long_it_waited() -> None:
    placement = delay(**FIXED)
    assert placement.place(asked(2, 9e9), pool_of(0, 2, 4, 5)) == [4, 5]
    assert placement.place(asked(3, 9e9), pool_of(0, 1, 4, 5, 6)) == [4, 5, 6]


def test_what_never_fits_a_node_waits_for_a_rack_only() -> None:
    placement = delay(**FIXED)
    told = refused(placement.place(asked(3, 10.0), pool_of(0, 1, 4, 5)))
    assert (told.code, told.wakes_s) == (Why.WAITS, 2_000.0)
    assert "within one rack" in told.sentence
    assert placement.place(asked(5), pool_of(0, 1, 2, 4, 5)) == [0, 1, 2, 4, 5]


def test_a_job_of_one_gpu_never_waits() -> None:
    assert delay(**FIXED).place(asked(1), pool_of(7)) == [7]


def test_gpus_out_of_service_are_nothing_to_wait_for() -> None:
    """With one GPU of each node withheld no node will ever hold two."""
    placement, pool = delay(**FIXED), FreePool(CLUSTER, "gpu")
    for gpu in (1, 3, 5, 7):
        pool.cordon(gpu)
    assert placement.place(asked(2), pool) == [0, 2]
    pool.restore(1, in_use=False)
    assert placement.place(asked(2), pool) == [0, 1]


def test_the_placement_inside_chooses_the_chips() -> None:
    slow = [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert delay(slow=slow, **FIXED).place(asked(2), pool_of(0, 1, 2, 3)) == [0, 1]
    assert delay(slow=slow, inner="pal", **FIXED).place(asked(2), pool_of(0, 1, 2, 3)) == [2, 3]
    # A slow chip in one node rather than fast ones apart: the better tier first.
    assert delay(slow=slow, inner="pal", **FIXED).place(asked(2), pool_of(0, 1, 2, 4)) == [0, 1]


def test_within_the_shape_of_the_job() -> None:
    placement = delay(**FIXED)
    told = refused(placement.place(asked(2, 10.0, widest=Tier.RACK), pool_of(0, 2)))
    assert told.change == "It takes GPUs within one rack once it has waited 1000 s."
    assert refused(placement.place(asked(2, 10.0, widest=Tier.RACK), pool_of(0, 4))).code is Why.TOPOLOGY
    assert refused(placement.place(asked(2, 10.0, widest=Tier.NODE), pool_of(0, 2))).code is Why.TOPOLOGY


@pytest.mark.parametrize("inner", ["delay", "nothing", "packed-sticky"])
def test_what_cannot_be_inside(inner: str) -> None:
    with pytest.raises(InputError, match="inner"):
        resolve("fifo", "delay", {"inner": inner})


# -- when waiting pays ---------------------------------------------------------------------------------------------


def waits(placement: Placement, ask: Ask) -> bool:
    found = placement.place(ask, pool_of(0, 2, 4))
    return isinstance(found, Reason) and found.code is Why.WAITS


def test_it_may_wait_only_if_the_worse_tier_costs_more_than_the_wait() -> None:
    """A rack adds half: 2 h of work lose 1 h, twice that with the harm to others; a node is expected in 1 h."""
    assert not waits(delay(tuner="pays"), asked(2, work_s=3_600.0))
    assert waits(delay(tuner="pays"), asked(2, work_s=3_700.0))
    assert not waits(delay(tuner="pays", externality=1.0), asked(2, work_s=7_200.0))


@pytest.mark.parametrize("tuner", ["auto", "pays"])
def test_tiers_that_cost_nothing_are_never_waited_for(tuner: str) -> None:
    assert not waits(delay(LocalityPenalty(), tuner=tuner), asked(2, work_s=1e9))


def test_by_itself_it_waits_however_little_work_is_left() -> None:
    """Short jobs that take what there is leave nodes in pieces for all others."""
    assert waits(delay(), asked(2, work_s=60.0))


def test_a_tier_that_costs_nothing_is_not_waited_for_but_the_next_one_may_be() -> None:
    placement = delay(LocalityPenalty(1.0, 1.0, 3.0))
    assert placement.place(asked(2), pool_of(0, 2)) == [0, 2]
    assert refused(placement.place(asked(2), pool_of(0, 4))).wakes_s == DEFAULT_S[Tier.RACK]


def test_work_that_nobody_knows_is_what_it_attained_or_the_prior() -> None:
    assert not waits(delay(tuner="pays"), asked(2, open_ended=True))
    assert waits(delay(tuner="pays", prior_work_s=4_000.0), asked(2, open_ended=True))


def test_the_tuner_learns_from_starts_and_the_others_do_not() -> None:
    for tuner, expected_s in (("auto", 0.0), ("mean", 0.0), ("fixed", DEFAULT_S[Tier.NODE])):
        placement = delay(tuner=tuner)
        placement.place(asked(2), pool_of(0, 1))
        for _ in range(30):
            placement.started(asked(2, 0.0), (0, 1))
        assert placement._timer_s(asked(2), Tier.NODE) == expected_s


# -- whole runs ----------------------------------------------------------------------------------------------------


def run(jobs: list[Job], engine: type[Engine] = Engine, policy: str = "fifo", **values: Any) -> Outcome:
    placement = values.pop("placement", "delay")
    told: dict[str, Any] = {"locality_penalty": 1.5, "rack_penalty": 3, "round_s": 30} | values
    return simulate(jobs, CLUSTER, policy, placement, engine=engine, **told)


def test_the_wait_ends_with_the_timer_or_with_a_better_offer() -> None:
    """Three GPUs of each rack taken by jobs that end at 500 s or 50,000 s: one GPU per rack is free."""
    for end_s, start_s, tier in ((500.0, 500.0, "node"), (50_000.0, 3_000.0, "network")):
        taken = [Job(f"t{i}", 0, 3, end_s) for i in range(2)]
        out = run([*taken, Job("w", 0, 2, 1e5)], event_driven=True, round_s=300, locality_penalty=1.0, **FIXED)
        assert (out.start("w"), out.records["w"].tier) == (start_s, tier)


def test_it_runs_on_every_policy_and_is_sticky_by_itself() -> None:
    jobs = [Job(f"j{i}", 10.0 * i, 1 + i % 4, 500 + 90 * (i % 5)) for i in range(30)]
    one, other = (run(jobs, policy="las", placement=name, **FIXED) for name in ("delay", "delay-sticky"))
    assert one.records == other.records
    assert one.summary.migrations == other.summary.migrations


rows = st.tuples(st.integers(0, 4_000), st.integers(1, 6), st.integers(50, 6_000))
workloads = st.lists(rows, min_size=2, max_size=12).map(
    lambda told: [Job(f"j{i}", at, gpus, work) for i, (at, gpus, work) in enumerate(sorted(told))]
)
tuners = st.sampled_from(
    (
        FIXED,
        {"machine_timer_s": 77.7},
        {"machine_timer_s": 333.3, "rack_timer_s": 0.1},
        {},
        {"tuner": "mean", "externality": 50.0},
        {"externality": 50.0},
    )
)
modes = st.sampled_from(({}, {"event_driven": True}, {"fill": True}))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "fifo-backfill", "max-min-fairness"])
@pytest.mark.parametrize("inner", ["packed", "pal", "random"])
@settings(derandomize=True, database=None, deadline=None, max_examples=6)
@given(jobs=workloads, told=tuners, mode=modes, strict=st.sampled_from((None, True, False)))
def test_skipping_changes_nothing(
    policy: str, inner: str, jobs: list[Job], told: dict[str, Any], mode: dict[str, Any], strict: bool | None
) -> None:
    runs = [run(jobs, engine, policy, inner=inner, strict=strict, **told, **mode) for engine in (Engine, Restless)]
    assert runs[0].records == runs[1].records
    assert runs[0].segments == runs[1].segments


LONGEST_S = FIXED["machine_timer_s"] + FIXED["rack_timer_s"]


class Watched(Engine):
    """After a round only capacity keeps a job waiting whose timers are over."""

    def decide(self, now: float, fill: bool = False) -> list[Any]:
        decisions = super().decide(now, fill)
        since_s, jobs = self.table.idle_from_s, self.table.jobs
        overdue = [
            s
            for s in self.active_jobs.job_indices().tolist()
            if s not in self.assigned and now >= since_s[s] + LONGEST_S
        ]
        assert all(jobs[job_index].gpus > self.free.total for job_index in overdue)
        return decisions


@settings(derandomize=True, database=None, deadline=None, max_examples=30)
@given(jobs=workloads, mode=modes)
def test_no_wait_beyond_the_timers_and_no_refusal_without_an_offer(jobs: list[Job], mode: dict[str, Any]) -> None:
    refusals = 0

    def watched(self: Delay, ask: Ask, pool: FreePool, allowed: Tier, ends_s: dict[Tier, float]) -> Reason:
        nonlocal refusals
        refusals += 1
        told = wait(self, ask, pool, allowed, ends_s)
        assert pool.total >= ask.job.gpus, "there was nothing to refuse"
        assert not has_room(ask.job.gpus, allowed, pool), "what it waits for is there"
        assert ask.now < told.wakes_s <= ask.idle_from_s + LONGEST_S
        return told

    wait = Delay._wait
    taken = [Job(f"t{i}", 0, 3, 50_000) for i in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delay, "_wait", watched)
        run([*taken, Job("w", 0, 2, 1e5), *jobs], Watched, "srtf", strict=False, **FIXED, **mode)
    assert refusals


def test_the_clock_of_a_job_is_not_reset_by_others() -> None:
    """Small jobs start and end all the time; the one that waits starts when its timer ends."""
    taken = [Job(f"t{i}", 0, 3, 50_000) for i in range(2)]
    small = [Job(f"s{i}", 10.0 + 40 * i, 1, 30) for i in range(80)]
    out = run([*taken, Job("w", 5.0, 2, 1e5), *small], event_driven=True, machine_timer_s=1_000.0, rack_timer_s=500.0)
    assert 1_505.0 <= out.start("w") <= 1_535.0, "at the first moment from then on at which both GPUs are free"


def test_timers_over_time_are_told() -> None:
    jobs = [Job(f"j{i}", 300.0 * i, 2, 100) for i in range(40)]
    out = run(jobs)
    placement = out.engine.placement
    assert isinstance(placement, Delay)
    assert [(change.gpus, change.tier, change.timer_s) for change in placement.timer_changes] == [(2, Tier.NODE, 0.0)]


def test_a_run_continues_from_its_state() -> None:
    one, other = delay(), delay()
    one.place(asked(2), pool_of(0, 1))
    for i in range(25):
        one.started(asked(2, 10.0 * i), (0, 1) if i % 2 else (0, 4))
    other.restore(one.state())
    for at_s in (0.0, 300.0, 5_000.0):
        assert one.place(asked(2, at_s), pool_of(0, 4)) == other.place(asked(2, at_s), pool_of(0, 4))
    assert isinstance(other.timers, Timers) and other.state() == one.state()
