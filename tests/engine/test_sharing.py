"""Two jobs on the same GPUs, driven by hand: who joins, who stays, who waits for whom, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.test_selection_planner import TWO_TYPES, ChosenWorld, world_of
from tests.sim.tiny import build_engine, one_node
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node, Tier
from trine.core.errors import TrineError
from trine.core.job import Job, Shape
from trine.core.reason import Why
from trine.engine.events import (
    CancelRequested,
    Event,
    GpusCordoned,
    GpusUncordoned,
    Held,
    Interrupted,
    Progressed,
    Start,
    Terminated,
    Tick,
)
from trine.engine.gpu_ownership import GpuOwnership, GpuOwnershipError
from trine.engine.invariants import check
from trine.engine.job_table import State
from trine.engine.resume import Past, rate_resumed, resume
from trine.perf.throughput import ThroughputTable

TABLE = ThroughputTable(
    rates={("big", 1): {"x": 10.0}, ("small", 1): {"x": 4.0}, ("huge", 1): {"x": 1.0}},
    pairs={
        ("big", "small", 1): {"x": (8.0, 3.0)},
        ("big", "big", 1): {"x": (5.0, 5.0)},
        ("big", "huge", 1): {"x": (0.0, 0.0)},
    },
)
ONE = Cluster((Node("n0", 1, "x"),))


def models(*names: str, cluster: Cluster = ONE) -> ChosenWorld:
    """Jobs ``a``, ``b``, ... of these models on one GPU each."""
    world = ChosenWorld(cluster, throughputs=TABLE)
    world.submit(*(Job(i, 0, 1, 1000, None, m) for i, m in zip("abcdef", names, strict=False)))
    return world


def rate(world: ChosenWorld, job_id: str) -> float:
    return float(world.engine.table.rate[world.job_indices[job_id]])


def confirm_starts(world: ChosenWorld) -> None:
    """As the simulator does: the speed is that next to whoever is there."""
    for job_id in world.held:
        if world.state(job_id) == "STARTING":
            world.confirm_start(job_id, world.engine.speed(world.job_indices[job_id]).steps_per_s)


# -- who joins and who stays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["packed", "packed-sticky", "pal"])
def test_two_jobs_start_on_the_same_gpus(placement: str) -> None:
    world = world_of(one_node(4), ("a", 2), ("b", 2), ("c", 2), placement=placement)
    world.run("a+b", "c")
    assert world.held["a"] == world.held["b"]
    assert set(world.held["c"]).isdisjoint(world.held["a"])
    assert world.engine.free.total == 0


def test_joining_a_running_job_does_not_restart_it() -> None:
    world = world_of(one_node(1), ("a", 1), ("b", 1))
    world.run("a")
    assert world.run("a+b") == ["start b 0"]
    assert world.run("b+a") == []


def test_when_a_member_ends_the_other_goes_on_alone_on_its_gpus() -> None:
    world = world_of(one_node(2), ("a", 2), ("b", 2))
    world.run("a+b")
    assert world.finish("a", 10) == []
    assert world.engine.free.total == 0 and world.state("b") == "RUNNING"
    assert world.choose("b") == []
    world.finish("b", 20)
    assert world.engine.free.total == 2


def test_when_a_member_is_not_selected_any_more_only_that_one_stops() -> None:
    world = world_of(one_node(2), ("a", 2), ("b", 2))
    world.run("a+b")
    assert world.choose("b") == ["stop a"]
    assert world.confirm_stop("a") == []
    assert world.engine.free.total == 0


def test_a_job_may_change_partners_without_a_restart_but_the_new_one_waits_for_the_old() -> None:
    """Three on one GPU would be one too many."""
    world = world_of(one_node(1), ("a", 1), ("b", 1), ("c", 1))
    world.run("a+b")
    assert world.choose("a+c") == ["stop b"]
    assert world.explain("c").code is Why.STARTING
    assert world.confirm_stop("b") == ["start c 0"]


def test_both_members_wait_for_who_was_there_before() -> None:
    world = world_of(one_node(2), ("x", 2), ("a", 2), ("b", 2))
    world.run("x")
    assert world.choose("a+b") == ["stop x"]
    assert world.confirm_stop("x") == ["start a 0,1", "start b 0,1"]


def test_a_pair_waits_for_both_of_a_pair() -> None:
    world = world_of(one_node(1), ("x", 1), ("y", 1), ("a", 1), ("b", 1))
    world.run("x+y")
    assert world.choose("a+b") == ["stop x", "stop y"]
    assert world.confirm_stop("y") == []
    assert world.confirm_stop("x") == ["start a 0", "start b 0"]


def test_two_that_ran_apart_meet_where_the_first_is() -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1))
    world.run("a", "b")
    assert world.choose("b+a") == ["move a"]
    assert world.confirm_stop("a") == ["start a 1"]
    assert world.engine.free.total == 1


def test_a_pair_comes_apart_when_there_are_gpus_for_both() -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1))
    world.run("a+b")
    assert world.choose("b", "a") == ["move a"]
    assert world.confirm_stop("a") == ["start a 1"]


def test_pairs_swap_partners() -> None:
    world = world_of(one_node(2), *((i, 1) for i in "abcd"))
    world.run("a+b", "c+d")
    assert world.choose("a+d", "c+b") == ["move b", "move d"]
    assert world.confirm_stop("b") == []  # d is still next to c
    assert world.confirm_stop("d") == ["start d 0", "start b 1"]


def test_a_start_that_waits_next_to_a_partner_waits_for_it_too_once_they_are_no_longer_partners() -> None:
    """c is to join a as soon as b left; then a is to go as well, and d to come: c starts after both are gone."""
    world = world_of(one_node(1), *((i, 1) for i in "abcd"))
    world.run("a+b")
    assert world.choose("a+c") == ["stop b"]
    assert world.choose("c+d") == ["stop a"]
    assert world.confirm_stop("b") == []
    assert sorted(world.confirm_stop("a")) == ["start c 0", "start d 0"]


def test_a_start_that_waits_need_not_wait_for_its_new_partner() -> None:
    """x is told to go for c, and called back as c's partner: c starts at once, x when its old run is over."""
    world = world_of(one_node(1), ("x", 1), ("c", 1))
    world.run("x")
    assert world.choose("c") == ["stop x"]
    assert world.choose("c+x") == ["start c 0"]
    assert world.confirm_stop("x") == ["start x 0"]


@pytest.mark.parametrize("how", ["withdrawn", "held", "lost", "left"])
def test_however_a_member_goes_the_other_stays(how: str) -> None:
    world = world_of(one_node(2), ("a", 2), ("b", 2))
    world.run("a+b")
    job_index = world.job_indices["a"]
    event: dict[str, Event] = {
        "withdrawn": CancelRequested(5, job_index),
        "held": Held(5, job_index),
        "lost": Interrupted(5, job_index, 0),
        "left": Terminated(5, job_index),
    }
    if how in ("lost", "left"):
        world.held.pop("a")
    world._heard(world.engine.handle(event[how]))
    if how in ("withdrawn", "held"):
        assert world.confirm_stop("a") == []
    assert world.engine.free.total == 0 and world.held["b"] == (0, 1)
    world.finish("b", 6)
    assert world.engine.free.total == 2


def test_when_a_member_leaves_a_start_that_waits_goes_on_waiting_for_it() -> None:
    """c waits for b to make room next to a; a is withdrawn: c starts when both are gone."""
    world = world_of(one_node(1), ("a", 1), ("b", 1), ("c", 1))
    world.run("a+b")
    world.choose("a+c")
    world._heard(world.engine.handle(CancelRequested(1, world.job_indices["a"])))
    assert world.confirm_stop("b") == []
    held = world.held.pop("a")
    world._heard(world.engine.handle(Terminated(2, world.job_indices["a"])))
    assert world.held == {"c": held}


def test_gpus_out_of_service_take_no_partner() -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1), ("c", 1))
    world.run("a+b")
    world.choose("a+c")
    world._heard(world.engine.handle(GpusCordoned(1, (0,))))
    assert world.confirm_stop("b") == [] and world.state("c") == "WAITING"
    world._heard(world.engine.handle(GpusUncordoned(2, (0,))))
    assert world.run("a+c") == ["start c 0"]


def test_between_rounds_pairs_are_placed_but_nobody_joins_who_runs() -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1), ("c", 1), ("d", 1))
    world.run("a")
    assert world.fill("a+b", "c+d") == ["start c 1", "start d 1"]
    assert "job b" in world.explain("b").sentence


# -- who may not -------------------------------------------------------------------------------------------------


def test_two_that_do_not_fit_together_are_not_put_together() -> None:
    world = models("big", "huge")
    assert world.run("a+b") == ["start a 0"]
    assert "the two do not fit on them together" in world.explain("b").sentence


def test_where_the_world_cannot_share_gpus_the_second_of_a_pair_waits() -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1), ("c", 1))
    world.engine.space_sharing = False
    assert world.run("a+b", "c") == ["start a 0", "start c 1"]
    assert "jobs cannot share GPUs here" in world.explain("b").sentence


def test_a_type_that_holds_only_one_of_them_is_no_place_for_both() -> None:
    world = ChosenWorld(TWO_TYPES)
    world.submit(Job("a", 0, 1, 10), Job("b", 0, 1, 10, gpu_types=("y",)))
    assert world.run("a+b") == ["start a 4", "start b 4"]


def test_a_partner_gets_the_shape_it_asks_for() -> None:
    """a lies across two nodes; b, which wants one, does not join it there: they meet elsewhere or not at all."""
    near = Shape(required=Tier.NODE)
    world = ChosenWorld(Cluster.uniform(3, 2))
    world.submit(Job("x", 0, 1, 10), Job("y", 0, 1, 10), Job("z", 0, 2, 10), Job("a", 0, 2, 10, shape=Shape(nodes=2)))
    world.submit(Job("b", 0, 2, 10, shape=near), Job("c", 0, 2, 10))
    world.run("z", "a")
    assert len({gpu // 2 for gpu in world.held["a"]}) == 2
    world.run("a+b", "z")
    assert "b" not in world.held and "do not fit" in world.explain("b").sentence
    world.run("a+c")
    assert world.held["c"] == world.held["a"]
    world.run("c+b")
    assert world.held["b"] == world.held["c"] and len({gpu // 2 for gpu in world.held["b"]}) == 1


def test_the_book_of_holders_refuses_strangers_and_thirds() -> None:
    book = GpuOwnership(2)
    book.take(0, (0, 1))
    with pytest.raises(GpuOwnershipError, match="GPU 0 is still held by job number 0, wanted by 7"):
        book.take(7, (0, 1), co_runner=3)
    book.take(1, (0, 1), co_runner=0)
    assert (book.co_runner_of(0), book.co_runner_of(1), book.co_runner_of(5)) == (1, 0, -1)
    with pytest.raises(GpuOwnershipError, match="held by job numbers 0 and 1, wanted by 7 next to 1"):
        book.take(7, (0, 1), co_runner=1)
    assert book.release(0) == [] and book.co_runner_of(1) == -1
    assert book.holder == [1, 1]


def break_partner(world: ChosenWorld) -> None:
    del world.engine.co_runners[0]


def break_assignment(world: ChosenWorld) -> None:
    world.engine.assigned[1] = (1,)


def break_second_holder(world: ChosenWorld) -> None:
    world.engine.ownership.second_holder.clear()


def break_pairing(world: ChosenWorld) -> None:
    world.engine.co_runners.clear()


@pytest.mark.parametrize("damage", [break_partner, break_assignment, break_second_holder, break_pairing])
def test_the_invariants_notice(damage: object) -> None:
    world = world_of(one_node(2), ("a", 1), ("b", 1))
    world.run("a+b")
    check(world.engine)
    assert callable(damage)
    damage(world)
    with pytest.raises(TrineError, match="invariant broken"):
        check(world.engine)


# -- what is said of it ------------------------------------------------------------------------------------------


def test_decisions_and_explanations_name_the_partner() -> None:
    world = models("big", "small")
    world.policy.choice = ["a+b"]
    one, other = world.engine.handle(Tick(0))
    assert isinstance(one, Start) and isinstance(other, Start)
    assert (one.co_runner, other.co_runner) == (other.job_index, one.job_index)
    reason = world.engine.reason(other)
    assert (
        reason.sentence == "job b starts on 1 GPU on node n0. It shares its GPU with job a: together 1.6x of one alone."
    )
    assert reason.counts["gain"] == pytest.approx(0.8 + 0.75)
    assert "shares its GPU with job b" in world.explain("a").sentence


def test_a_start_alone_names_no_partner() -> None:
    world = models("big")
    world.policy.choice = ["a"]
    (start,) = world.engine.handle(Tick(0))
    assert isinstance(start, Start) and start.co_runner == -1
    assert "shares" not in world.engine.reason(start).sentence


# -- how fast they are -------------------------------------------------------------------------------------------


def test_speeds_change_when_a_partner_comes_and_goes() -> None:
    """Steps done so far stay what they are: 10 s at 10 steps/s, 10 s at 8, then 10 again."""
    world = models("big", "small")
    world.choose("a", now=0)
    confirm_starts(world)
    world.choose("a+b", now=10)
    confirm_starts(world)
    assert (rate(world, "a"), rate(world, "b")) == (8, 3)
    assert list(world.engine.rerated) == [world.job_indices["a"]]
    assert world.engine.view(10).done[0] == pytest.approx(100)
    assert world.engine.view(20).done[0] == pytest.approx(180)
    world.finish("b", 20)
    assert rate(world, "a") == pytest.approx(10)
    assert world.engine.view(20).done[0] == pytest.approx(180)
    assert world.engine.view(25).done[0] == pytest.approx(230)


def test_what_was_seen_of_a_job_still_counts_when_its_partner_leaves() -> None:
    """a does half of what the table says, next to b as well as alone."""
    world = models("big", "small")
    world.choose("a+b")
    confirm_starts(world)
    world.engine.handle(Progressed(10, world.job_indices["a"], 40, None, 4.0))
    world.finish("b", 10)
    assert rate(world, "a") == pytest.approx(5)
    assert world.engine.table.ideal_s[world.job_indices["a"]] == pytest.approx(200)


def test_a_pair_nobody_measured_is_taken_to_take_turns() -> None:
    world = models("small", "huge")
    world.choose("a+b")
    confirm_starts(world)
    assert (rate(world, "a"), rate(world, "b")) == (2, 0.5)


# -- orders that know no pairs, and restarts ---------------------------------------------------------------------


def resumed(policy: str, placement: str, *pasts: tuple[Job, Past]) -> ChosenWorld:
    """A world that finds jobs where an earlier engine left them."""
    world = ChosenWorld(Cluster((Node("n0", 2, "x"),)), placement, TABLE)
    world.engine = build_engine(world.engine.cluster, resolve(policy, placement, {}), throughputs=TABLE)
    for job, past in pasts:
        there = [world.job_indices[other] for other, gpus in world.held.items() if gpus == past.gpus]
        world.job_indices[job.id] = resume(world.engine, 100, job, replace(past, co_runner=there[0] if there else -1))
        if past.gpus:
            world.held[job.id] = past.gpus
    rate_resumed(world.engine)
    check(world.engine)
    return world


def running(name: str, model: str, observed: float = 0.0) -> tuple[Job, Past]:
    past = Past(1, 50, 10, 0, 0, (0,), State.RUNNING, rate=observed, work_from_s=100)
    return Job(name, 0, 1, 1000, None, model), past


def test_a_pair_survives_a_restart_of_the_scheduler() -> None:
    world = resumed("fifo-backfill", "packed-sticky", running("a", "big"), running("b", "small"))
    assert (rate(world, "a"), rate(world, "b")) == (8, 3)
    assert world.tick(100) == []
    world.finish("b", 110)
    assert rate(world, "a") == pytest.approx(10) and world.engine.free.total == 1


def test_speeds_seen_next_to_a_partner_are_not_taken_for_speeds_alone() -> None:
    """a was seen at 4 steps/s next to b, where 8 were expected: alone it does 5."""
    world = resumed("fifo", "packed-sticky", running("a", "big", 4.0), running("b", "small"))
    assert rate(world, "a") == 4 and world.engine.table.ideal_s[0] == pytest.approx(200)
    world.finish("b", 110)
    assert rate(world, "a") == pytest.approx(5)


def test_a_third_on_the_same_gpus_is_refused_at_a_restart() -> None:
    with pytest.raises(GpuOwnershipError, match="GPU 0 is still held by job numbers 0 and 1"):
        resumed("fifo", "packed-sticky", *(running(i, "big") for i in "abc"))


def test_two_that_were_not_declared_partners_are_refused_at_a_restart() -> None:
    world = resumed("fifo", "packed-sticky", running("a", "big"))
    with pytest.raises(GpuOwnershipError, match="GPU 0 is still held by job number 0"):
        resume(world.engine, 100, *running("b", "small"))


def test_who_stays_gets_its_own_speed_when_a_partner_that_was_leaving_is_gone_after_a_restart() -> None:
    job, past = running("b", "small")
    world = resumed("fifo", "packed-sticky", running("a", "big"), (job, replace(past, state=State.STOPPING)))
    assert rate(world, "a") == 8
    world.confirm_stop("b", done=60)
    assert rate(world, "a") == pytest.approx(10)


@pytest.mark.parametrize("placement", ["packed", "packed-sticky"])
@pytest.mark.parametrize("policy", ["srtf", "fifo-backfill", "las"])
def test_a_policy_without_pairs_lets_them_end_or_takes_them_apart(policy: str, placement: str) -> None:
    world = resumed(policy, placement, running("a", "big"), running("b", "small"))
    decided = world.tick(101)
    if policy == "fifo-backfill" and placement == "packed-sticky":  # it stops nobody
        assert decided == []
    else:
        assert len(decided) == 1 and decided[0].startswith("move")
        world.confirm_stop(decided[0].split()[1], done=60)
        assert sorted(world.held.values()) == [(0,), (1,)]
    assert world.tick(102) == []
