"""Random walks through everything that can happen to a live engine, in any order a world may tell it.

The walker keeps its own book of who holds what, so that the engine is judged by what it said, not by what it thinks.
A failure prints the seed and the last steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sim.tiny import build_engine
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job, Shape
from trine.core.plugins import discover
from trine.engine import events as ev
from trine.engine.invariants import check
from trine.engine.job_table import State
from trine.engine.quotas import Quotas
from trine.engine.resume import Past, rate_resumed, resume
from trine.placement.base import Placement
from trine.placement.topology import never_has_shape
from trine.policy.base import Policy

NODES = (
    Node("n0", 3, "x", "r0"),
    Node("n1", 3, "x", "r0"),
    Node("n2", 2, "x", "r1"),
    Node("n3", 2, "y", "r1"),
    Node("n4", 2, "y", "r0"),
)
SLOW_CHIP = 4
CLUSTER = Cluster(NODES, scores={"A": tuple(6.0 if gpu == SLOW_CHIP else 1.0 + gpu / 100 for gpu in range(12))})
QUOTAS = Quotas(by_group={"small": 4}, by_user={"ann": 3})
POLICIES = sorted(discover("trine.policy", Policy))
PLACEMENTS = [p + s for p in sorted(discover("trine.placement", Placement)) for s in ("", "-sticky")]
PAIRS = [(policy, placement) for policy in POLICIES for placement in PLACEMENTS]
STEPS = 110


@dataclass
class Gang:
    """A job as the world knows it."""

    job: Job
    job_index: int
    gpus: tuple[int, ...] = ()
    epoch: int = 0
    confirmed: bool = False
    told_to_stop: bool = False
    held: bool = False
    withdrawn: bool = False
    over: bool = False
    done: float = 0.0


class Walk:
    """One walk. ``quotas`` and ``strict`` as the engine's."""

    def __init__(self, policy: str, placement: str, seed: int, quotas: Quotas | None = None) -> None:
        self.policy, self.placement, self.seed, self.quotas = policy, placement, seed, quotas or Quotas()
        self.rng = random.Random(f"{policy}/{placement}/{seed}")
        self.now = 100.0
        self.gangs: dict[str, Gang] = {}
        self.cordoned: set[int] = set()
        self.log: list[str] = []
        self.decided: list[str] = []
        self.filling = False
        self.engine = self._new_engine()

    def _new_engine(self) -> Any:
        engine = build_engine(CLUSTER, resolve(self.policy, self.placement, {"locality_penalty": 1.3}))
        engine.quotas = self.quotas
        return engine

    # -- the world's book ----------------------------------------------------------------------------------------

    def tell(self, event: ev.Event, note: str) -> None:
        self.log.append(f"{self.now:g}: {note}")
        self.filling = isinstance(event, ev.Fill)
        for decision in self.engine.handle(event):
            gang = next(g for g in self.gangs.values() if g.job_index == decision.job_index and not g.over)
            line = self._started(gang, decision) if isinstance(decision, ev.Start) else self._stop(gang, decision)
            self.log.append(line)
            self.decided.append(line)
        check(self.engine)

    def _started(self, gang: Gang, start: ev.Start) -> str:
        line = f"  start {gang.job.id} #{start.epoch} on {start.gpus}"
        job, taken = gang.job, {gpu: g.job.id for g in self.gangs.values() for gpu in g.gpus}
        assert not gang.gpus, f"{line}: it still holds {gang.gpus}"
        assert not taken.keys() & set(start.gpus), f"{line}: held are {taken}"
        assert not (gang.held or gang.withdrawn), f"{line}: it is held or withdrawn"
        assert not self.cordoned & set(start.gpus), f"{line}: out of service are {sorted(self.cordoned)}"
        assert not self.engine.excluded & set(start.gpus), f"{line}: on excluded GPUs"
        assert start.epoch == gang.epoch + 1, f"{line}: the last epoch was {gang.epoch}"
        assert not job.gpu_types or CLUSTER.type_of(start.gpus[0]) in job.gpu_types, f"{line}: wants {job.gpu_types}"
        self._check_shape(job, start.gpus, line)
        gang.gpus, gang.epoch, gang.confirmed, gang.told_to_stop = start.gpus, start.epoch, False, False
        self._check_quotas(line)
        return line

    def _check_shape(self, job: Job, gpus: tuple[int, ...], line: str) -> None:
        shape = job.shape
        if shape is None:
            return
        parts = [sum(CLUSTER.node_of[gpu] == node for gpu in gpus) for node in {CLUSTER.node_of[g] for g in gpus}]
        if shape.nodes is not None:
            assert len(parts) == shape.nodes and len(set(parts)) == 1, f"{line}: wants {shape}"
        if shape.required is not None:
            assert CLUSTER.tier(gpus) <= max(shape.required, Tier.NODE), f"{line}: wants {shape}"

    def _check_quotas(self, line: str) -> None:
        holders = [g for g in self.gangs.values() if g.gpus]
        for group, limit in self.quotas.by_group.items():
            used = sum(len(g.gpus) for g in holders if g.job.group == group)
            assert used <= limit, f"{line}: group {group} holds {used} GPUs of {limit}"
        for user, limit in self.quotas.by_user.items():
            used = sum(len(g.gpus) for g in holders if g.job.user == user)
            assert used <= limit, f"{line}: user {user} holds {used} GPUs of {limit}"

    def _stop(self, gang: Gang, stop: ev.Stop) -> str:
        line = f"  stop {gang.job.id} #{stop.epoch}{' to move' if stop.moves else ''}"
        assert gang.gpus and stop.epoch == gang.epoch, f"{line}: it holds {gang.gpus} in epoch {gang.epoch}"
        assert not gang.told_to_stop, f"{line}: told before"
        asked = gang.held or gang.withdrawn
        assert asked or not self.filling, f"{line}: filling stops nobody"
        gang.told_to_stop = True
        return line

    def among(self, which: Callable[[Gang], bool]) -> list[Gang]:
        return [gang for gang in self.gangs.values() if not gang.over and which(gang)]

    # -- what may happen -----------------------------------------------------------------------------------------

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, self.submit),
            (8, self.tick),
            (5, self.fill),
            (8, self.confirm_start),
            (7, self.confirm_stop),
            (4, self.end),
            (3, self.progress),
            (2, self.withdraw),
            (2, self.hold),
            (2, self.release),
            (2, self.cordon),
            (2, self.restore),
            (1, self.restart),
        ]
        weights, calls = zip(*actions, strict=True)
        self.rng.choices(calls, weights)[0]()

    def pick(self, which: Callable[[Gang], bool]) -> Gang | None:
        found = self.among(which)
        return self.rng.choice(found) if found else None

    def submit(self) -> None:
        rng = self.rng
        if len(self.among(lambda g: True)) >= 10:
            return
        group, user = rng.choice(("", "small", "large")), rng.choice(("", "ann", "bob"))
        job = Job(
            f"j{len(self.gangs)}",
            self.now,
            rng.choice((1, 1, 2, 2, 3, 4)) if user != "ann" else rng.choice((1, 2, 3)),
            rng.randrange(1, 500),
            app_class=rng.choice(("A", "", "A")),
            user=user,
            group=group,
            priority=rng.choice((0, 0, 0, 1)),
            gpu_types=rng.choice(((), (), (), ("x",), ("y",))),
            shape=self._shape(),
        )
        if not self.engine.perf.types_for(job) or never_has_shape(job, self.engine.perf):
            return
        if SLOW_CHIP in self.engine.excluded and job.shape is not None:
            return  # what has no room without the excluded GPU is not this test's business
        self.gangs[job.id] = Gang(job, len(self.engine.table))
        self.tell(ev.Submitted(self.now, job), f"submit {job.id}: {job.gpus} GPUs, {job.shape or 'any shape'}")
        self.engine.reported.add(self.gangs[job.id].job_index)  # live jobs may come back with less than they told

    def _shape(self) -> Shape | None:
        rng = self.rng
        if rng.random() < 0.7:
            return None
        if rng.random() < 0.3:
            return Shape(nodes=rng.choice((1, 2)))
        preferred = rng.choice((None, Tier.NODE, Tier.RACK))
        return Shape(None, rng.choice((None, Tier.NODE, Tier.RACK)), preferred, self.now + rng.randrange(200))

    def tick(self) -> None:
        self.now += self.rng.randrange(60)
        self.tell(ev.Tick(self.now), "tick")

    def fill(self) -> None:
        self.now += self.rng.random()
        self.tell(ev.Fill(self.now), "fill")

    def confirm_start(self) -> None:
        gang = self.pick(lambda g: bool(g.gpus) and not g.confirmed)
        if gang is not None:
            gang.confirmed = True
            self.tell(ev.Started(self.now, gang.job_index, 1.0, self.now), f"{gang.job.id} runs")

    def confirm_stop(self) -> None:
        gang = self.pick(lambda g: g.told_to_stop)
        if gang is not None:
            self.let_go(gang, self.rng.choice(("stopped", "stopped", "stopped", "lost", "finished", "left")))

    def end(self) -> None:
        gang = self.pick(lambda g: g.confirmed and not g.told_to_stop)
        if gang is not None:
            self.let_go(gang, self.rng.choice(("finished", "finished", "lost", "left")))

    def let_go(self, gang: Gang, how: str) -> None:
        if gang.withdrawn and how in ("stopped", "lost"):
            how = "left"
        gang.gpus, gang.confirmed, gang.told_to_stop = (), False, False
        gang.over = how in ("finished", "left")
        gang.done = self.rng.choice((gang.done, gang.done * self.rng.random()))
        events: dict[str, ev.Event] = {
            "stopped": ev.Stopped(self.now, gang.job_index, gang.done),
            "lost": ev.Interrupted(self.now, gang.job_index, gang.done),
            "finished": ev.Finished(self.now, gang.job_index),
            "left": ev.Terminated(self.now, gang.job_index),
        }
        was_over, gang.over = gang.over, False
        try:
            self.tell(events[how], f"{gang.job.id} {how}")
        finally:
            gang.over = was_over

    def progress(self) -> None:
        table = self.engine.table
        gang = self.pick(lambda g: table.state[g.job_index] is State.RUNNING)
        if gang is None:
            return
        total = self.rng.choice((None, None, float(self.rng.randrange(1, 800))))
        gang.done = self.rng.random() * (total or float(table.steps[gang.job_index])) * 1.2
        rate = self.rng.choice((0.0, 0.1, 1.0, 30.0))
        self.tell(ev.Progressed(self.now, gang.job_index, gang.done, total, rate), f"{gang.job.id} at {gang.done:.1f}")

    def withdraw(self) -> None:
        gang = self.pick(lambda g: not g.withdrawn)
        if gang is not None:
            gang.withdrawn = True
            self.tell(ev.CancelRequested(self.now, gang.job_index), f"withdraw {gang.job.id}")
            gang.over = not gang.gpus

    def hold(self) -> None:
        gang = self.pick(lambda g: not g.withdrawn and not g.held)
        if gang is not None:
            gang.held = True
            self.tell(ev.Held(self.now, gang.job_index), f"hold {gang.job.id}")

    def release(self) -> None:
        gang = self.pick(lambda g: g.held and not g.withdrawn)
        if gang is not None:
            gang.held = False
            self.tell(ev.Released(self.now, gang.job_index), f"release {gang.job.id}")

    def cordon(self) -> None:
        node = self.rng.randrange(len(NODES))
        gpus = tuple(range(CLUSTER.first_gpu[node], CLUSTER.first_gpu[node] + NODES[node].gpus))
        self.cordoned |= set(gpus)
        self.tell(ev.GpusCordoned(self.now, gpus), f"withhold {NODES[node].name} {gpus}")

    def restore(self) -> None:
        gpus = tuple(gpu for gpu in sorted(self.cordoned) if self.rng.random() < 0.7)
        self.cordoned -= set(gpus)
        self.tell(ev.GpusUncordoned(self.now, gpus), f"restore {gpus}")

    def restart(self) -> None:
        """The engine is lost and built again from what the world and the users know."""
        self.log.append(f"{self.now:g}: restart")
        old, self.engine = self.engine.table, self._new_engine()
        for gang in self.among(lambda g: True):
            state = State.STOPPING if gang.told_to_stop else State.RUNNING if gang.confirmed else State.STARTING
            past = Past(
                gang.epoch,
                gang.done,
                float(old.attained_s[gang.job_index]),
                self.now,
                self.now,
                gang.gpus,
                state if gang.gpus else State.WAITING,
                gang.held or gang.withdrawn,
            )
            gang.job_index = resume(self.engine, self.now, gang.job, past)
        rate_resumed(self.engine)
        self.tell(ev.GpusCordoned(self.now, tuple(sorted(self.cordoned))), "built anew")

    # -- the end -------------------------------------------------------------------------------------------------

    def wind_up(self) -> None:
        """Once everything is in service, released, and the world does as it is told, every job ends."""
        for gang in self.among(lambda g: g.held and not g.withdrawn):
            gang.held = False
            self.tell(ev.Released(self.now, gang.job_index), f"release {gang.job.id}")
        gpus, self.cordoned = tuple(sorted(self.cordoned)), set()
        self.tell(ev.GpusUncordoned(self.now, gpus), "restore all")
        for _ in range(120):
            for gang in self.among(lambda g: g.told_to_stop):
                self.let_go(gang, "stopped")
            for gang in self.among(lambda g: bool(g.gpus) and not g.confirmed):
                gang.confirmed = True
                self.tell(ev.Started(self.now, gang.job_index, 1.0, self.now), f"{gang.job.id} runs")
            for gang in self.among(lambda g: g.confirmed and not g.told_to_stop)[:1]:
                self.let_go(gang, "finished")
            self.now += 30
            self.tell(ev.Tick(self.now), "tick")
        left = {g.job.id: self.engine.explain(g.job_index).sentence for g in self.among(lambda g: True)}
        assert not left, f"jobs that never end: {left}"
        assert self.engine.free.total == CLUSTER.gpu_count - len(self.engine.excluded)
        assert not self.engine.ownership.holding and not self.engine.assigned

    def run(self) -> list[str]:
        try:
            for number in range(STEPS):
                self.step()
                if number % 10 == 0:
                    for gang in self.among(lambda g: True):
                        assert gang.job.id in self.engine.explain(gang.job_index).sentence
            self.wind_up()
        except Exception as error:
            story = "\n".join(self.log[-45:])
            raise AssertionError(
                f"seed {self.seed} of {self.policy} with {self.placement}: {error}\n{story}"
            ) from error
        return self.decided


@pytest.mark.parametrize(("policy", "placement"), PAIRS)
def test_whatever_happens_no_gpu_has_two_holders_and_every_job_ends(policy: str, placement: str) -> None:
    first = Walk(policy, placement, 1).run()
    assert len(first) > 3, "the walk led nowhere"
    assert Walk(policy, placement, 1).run() == first, "the same events were decided differently"


FEWER = sorted(
    {(policy, p) for policy in POLICIES for p in ("packed", "packed-sticky")} | {("srtf", p) for p in PLACEMENTS}
)


@pytest.mark.parametrize(("policy", "placement"), FEWER)
def test_quotas_hold_whatever_happens(policy: str, placement: str) -> None:
    Walk(policy, placement, 2, QUOTAS).run()
