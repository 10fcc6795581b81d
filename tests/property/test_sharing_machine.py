"""Random selections, alone and in pairs, under a live world that does things late, in any order, and fails.

The world keeps its own book of who holds what: only declared partners share GPUs, never three jobs, and every job ends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.engine.test_selection_planner import PLACEMENTS, ChosenWorld
from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job, Shape
from trine.engine import events as ev
from trine.engine.invariants import check
from trine.engine.job_table import State
from trine.engine.resume import Past, resume
from trine.perf.throughput import ThroughputTable
from trine.placement.topology import never_has_shape

CLUSTER = Cluster(
    (Node("n0", 2, "x", "r0"), Node("n1", 3, "x", "r0"), Node("n2", 1, "y", "r1"), Node("n3", 2, "y", "r1"))
)
TABLE = ThroughputTable(
    rates={(model, gang): {"x": 2.0, "y": 1.0} for model in "pqr" for gang in (1, 2, 3)},
    pairs={("p", "q", gang): {"x": (1.5, 1.2), "y": (0.9, 0.5)} for gang in (1, 2, 3)}
    | {("q", "r", gang): {"x": (0.0, 0.0), "y": (0.5, 0.9)} for gang in (1, 2, 3)},
)
RANDOM = st.integers(0, 2**32).map(random.Random)
SHAPES = (None, None, None, None, None, None, Shape(required=Tier.NODE), Shape(nodes=2))


class SharingWorld(RuleBasedStateMachine):
    """``ChosenWorld`` checks the invariants after every event."""

    placement = "packed"

    @initialize()
    def power_on(self) -> None:
        self.world = ChosenWorld(CLUSTER, self.placement, TABLE)
        self.out: set[str] = set()
        """Jobs held or withdrawn."""
        self.withdrawn: set[str] = set()
        self.cordoned: set[int] = set()
        self.submitted = 0
        for gpus, model in ((1, "p"), (1, "q"), (2, "p"), (2, "q"), (1, "r")):
            self.submit(gpus, 300, model, (), None)

    # -- the world's book ----------------------------------------------------------------------------------------

    def jobs(self, *states: State) -> list[str]:
        table = self.world.engine.table
        return [i for i, job_index in self.world.job_indices.items() if table.state[job_index] in states]

    def live(self) -> list[str]:
        return self.jobs(State.WAITING, State.STARTING, State.RUNNING, State.STOPPING)

    def job(self, job_id: str) -> Job:
        return self.world.engine.table.jobs[self.world.job_indices[job_id]]

    def unconfirmed(self) -> list[str]:
        return [i for i in self.jobs(State.STARTING) if i in self.world.held]

    def tell(self, event: ev.Event, stops: bool = True) -> None:
        before, held = len(self.world.log), dict(self.world.held)
        self.world._heard(self.world.engine.handle(event))
        decided = self.world.log[before:]
        started = {line.split()[1] for line in decided if line.startswith("start")}
        assert stops or len(started) == len(decided), f"filling stops nobody: {decided}"
        assert not started & self.out, f"held or withdrawn: {self.out}"
        for job_id in started:
            assert not self.cordoned & set(self.world.held[job_id]), f"{job_id} starts on GPUs out of service"
        kept = held.keys() & self.world.held.keys()
        assert all(held[i] == self.world.held[i] for i in kept), "who was not stopped did not move"

    # -- what may happen -----------------------------------------------------------------------------------------

    @rule(
        gpus=st.integers(1, 3),
        steps=st.integers(1, 400),
        model=st.sampled_from("pqr"),
        kinds=st.sampled_from(((), (), (), ("x",), ("y",))),
        shape=st.sampled_from(SHAPES),
    )
    def submit(self, gpus: int, steps: int, model: str, kinds: tuple[str, ...], shape: Shape | None) -> None:
        world = self.world
        self.submitted += 1
        job = Job(f"j{self.submitted}", world.now, gpus, steps, None, model, gpu_types=kinds, shape=shape)
        if len(self.live()) < 9 and world.engine.perf.types_for(job) and not never_has_shape(job, world.engine.perf):
            world.job_indices[job.id] = len(world.engine.table)
            self.tell(ev.Submitted(world.now, job))

    def selection(self, rng: random.Random) -> list[str]:
        """Most of the jobs in any order; equal gangs may be told to share."""
        left = [i for i in self.live() if rng.random() < 0.8]
        rng.shuffle(left)
        lines = []
        while left:
            names = left.pop()
            others = [i for i in left if self.job(i).gpus == self.job(names).gpus]
            if others and rng.random() < 0.7:
                other = rng.choice(others)
                left.remove(other)
                names += f"+{other}"
            suitable = (set(self.world.engine.perf.types_for(self.job(i))) for i in names.split("+"))
            pool = rng.choice([-1, -1, *sorted(set.intersection(*suitable))])
            lines.append(names if pool < 0 else f"{names}@{pool}")
        return lines

    @rule(rng=RANDOM, passed=st.integers(1, 60))
    def round(self, rng: random.Random, passed: int) -> None:
        self.world.now += passed
        self.world.policy.choice = self.selection(rng)
        self.tell(ev.Tick(self.world.now))
        self.only_the_chosen_run(self.world.policy.choice)
        if self.placement.endswith("-sticky"):
            before = len(self.world.log)
            self.tell(ev.Tick(self.world.now))
            assert len(self.world.log) == before, "the same selection again changes nothing"

    def only_the_chosen_run(self, lines: Sequence[str]) -> None:
        chosen = {name for line in lines for name in line.split("@")[0].split("+")}
        engine = self.world.engine
        assert {engine.table.jobs[job_index].id for job_index in engine.assigned} <= chosen
        together = {frozenset(line.split("@")[0].split("+")) for line in lines}
        for job_index, co_runner in engine.co_runners.items():
            assert frozenset((engine.table.jobs[job_index].id, engine.table.jobs[co_runner].id)) in together

    @rule(rng=RANDOM)
    def fill(self, rng: random.Random) -> None:
        self.world.policy.choice = self.selection(rng)
        self.tell(ev.Fill(self.world.now), stops=False)

    @rule()
    def the_same_round_again(self) -> None:
        self.tell(ev.Tick(self.world.now))

    @precondition(lambda self: self.unconfirmed())
    @rule(data=st.data())
    def confirm_a_start(self, data: st.DataObject) -> None:
        self.confirm(data.draw(st.sampled_from(self.unconfirmed())))

    @rule()
    def confirm_all(self) -> None:
        for job_id in sorted(self.world.told_to_stop):
            self.let_go(job_id, "stopped")
        for job_id in self.unconfirmed():
            self.confirm(job_id)

    def confirm(self, job_id: str) -> None:
        job_index = self.world.job_indices[job_id]
        speed = self.world.engine.speed(job_index).steps_per_s
        self.tell(ev.Started(self.world.now, job_index, speed, self.world.now))

    @precondition(lambda self: self.world.told_to_stop)
    @rule(data=st.data(), how=st.sampled_from(("stopped", "stopped", "stopped", "finished", "left", "lost")))
    def let_go_as_told(self, data: st.DataObject, how: str) -> None:
        self.let_go(data.draw(st.sampled_from(sorted(self.world.told_to_stop))), how)

    @precondition(lambda self: self.jobs(State.RUNNING))
    @rule(data=st.data(), how=st.sampled_from(("finished", "left", "lost")))
    def end(self, data: st.DataObject, how: str) -> None:
        self.let_go(data.draw(st.sampled_from(self.jobs(State.RUNNING))), how)

    def let_go(self, job_id: str, how: str) -> None:
        world, job_index, now = self.world, self.world.job_indices[job_id], self.world.now
        if job_id in self.withdrawn and how in ("stopped", "lost"):
            how = "left"
        done = float(world.engine.table.done[job_index])
        news: dict[str, ev.Event] = {
            "stopped": ev.Stopped(now, job_index, done),
            "lost": ev.Interrupted(now, job_index, done),
            "finished": ev.Finished(now, job_index),
            "left": ev.Terminated(now, job_index),
        }
        world.held.pop(job_id)
        world.told_to_stop.discard(job_id)
        self.tell(news[how])

    @precondition(lambda self: self.jobs(State.RUNNING))
    @rule(data=st.data(), steps_per_s=st.sampled_from((0.1, 1.0, 30.0)))
    def progress(self, data: st.DataObject, steps_per_s: float) -> None:
        job_index = self.world.job_indices[data.draw(st.sampled_from(self.jobs(State.RUNNING)))]
        done = float(self.world.engine.view(self.world.now)._columns.done[job_index])
        self.tell(ev.Progressed(self.world.now, job_index, done, None, steps_per_s))

    @precondition(lambda self: set(self.live()) - self.out)
    @rule(data=st.data(), withdraw=st.booleans())
    def take_out(self, data: st.DataObject, withdraw: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(set(self.live()) - self.out)))
        self.out.add(job_id)
        job_index = self.world.job_indices[job_id]
        if withdraw:
            self.withdrawn.add(job_id)
        self.tell(ev.CancelRequested(self.world.now, job_index) if withdraw else ev.Held(self.world.now, job_index))

    @precondition(lambda self: self.out - self.withdrawn)
    @rule()
    def release(self) -> None:
        for job_id in sorted(self.out - self.withdrawn):
            self.out.discard(job_id)
            if job_id in self.live():
                self.tell(ev.Released(self.world.now, self.world.job_indices[job_id]))

    @rule(node=st.integers(0, 3))
    def cordon(self, node: int) -> None:
        gpus = tuple(range(CLUSTER.first_gpu[node], CLUSTER.first_gpu[node] + CLUSTER.nodes[node].gpus))
        self.cordoned |= set(gpus)
        self.tell(ev.GpusCordoned(self.world.now, gpus))

    @precondition(lambda self: self.cordoned)
    @rule()
    def restore(self) -> None:
        gpus, self.cordoned = tuple(sorted(self.cordoned)), set()
        self.tell(ev.GpusUncordoned(self.world.now, gpus))

    @rule()
    def restart(self) -> None:
        """The engine is lost and built again from what the world knows."""
        world, old = self.world, self.world.engine
        ends = [i for i in world.job_indices if i not in self.live()]
        states = {i: old.table.state[job_index] for i, job_index in world.job_indices.items()}
        jobs = {i: self.job(i) for i in world.job_indices}
        world.restart(CLUSTER, self.placement, TABLE)
        for job_id in ends:
            del world.job_indices[job_id]
        back: dict[str, int] = {}
        for job_id, job_index in world.job_indices.items():
            gpus = world.held.get(job_id, ())
            state = State.STOPPING if job_id in world.told_to_stop else states[job_id]
            past = Past(
                old.table.epoch[job_index], float(old.table.done[job_index]), 0, 0, 0, gpus, state if gpus else State(0)
            )
            others = [new for i, new in back.items() if gpus and world.held.get(i) == gpus]
            past = replace(past, held=job_id in self.out, co_runner=others[0] if others else -1)
            back[job_id] = world.job_indices[job_id] = resume(world.engine, world.now, jobs[job_id], past)
        self.tell(ev.GpusCordoned(world.now, tuple(sorted(self.cordoned))))
        check(world.engine)

    # -- the end -------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """However it stood: once the world does as it is told, every job ends and every GPU is free."""
        if not hasattr(self, "world"):
            return
        self.release()
        self.restore()
        for turn in range(60):
            self.confirm_all()
            for job_id in self.jobs(State.RUNNING)[:1]:
                self.let_go(job_id, "finished")
            live = self.live()
            self.world.policy.choice = live[turn % max(1, len(live)) :] + live[: turn % max(1, len(live))]
            self.world.now += 1
            self.tell(ev.Tick(self.world.now))
        assert not self.live() and not self.world.held
        engine = self.world.engine
        assert engine.free.total == CLUSTER.gpu_count - len(engine.excluded)
        assert not engine.co_runners and not engine.assigned and not engine.ownership.second_holder


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_selections_and_pairs_in_a_late_world(placement: str) -> None:
    machine: Any = type("Machine", (SharingWorld,), {"placement": placement})
    run_state_machine_as_test(
        machine,
        settings=settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=12,
            stateful_step_count=40,
            phases=(Phase.generate,),
        ),
    )
