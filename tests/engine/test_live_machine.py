"""The engine under a live world that does things late and in any order: no GPU has two holders, no job is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.engine.live import LiveWorld
from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.plugins import discover
from trine.engine.job_table import State
from trine.placement.base import Placement
from trine.policy.base import Policy

CLUSTER = Cluster((Node("n0", 2, "x"), Node("n1", 3, "x"), Node("n2", 1, "y"), Node("n3", 2, "y")))


class LateWorld(RuleBasedStateMachine):
    """``LiveWorld`` checks the invariants after every event and that no GPU is handed out while it is held."""

    policy, placement = "srtf", "packed"

    @initialize()
    def power_on(self) -> None:
        self.world = LiveWorld(CLUSTER, self.policy, self.placement)

    def jobs(self, *states: State) -> list[str]:
        table = self.world.engine.table
        return [i for i, job_index in self.world.job_indices.items() if table.state[job_index] in states]

    @rule(gpus=st.integers(1, 5), steps=st.integers(1, 400), priority=st.sampled_from((0, 0, 0, 1)))
    def submit(self, gpus: int, steps: int, priority: int) -> None:
        if len(self.world.job_indices) < 12:
            self.world.submit(Job(f"j{len(self.world.job_indices)}", self.world.now, gpus, steps, priority=priority))

    @rule(passed=st.integers(1, 60))
    def tick(self, passed: int) -> None:
        self.world.tick(self.world.now + passed)

    @precondition(lambda self: self.unconfirmed())
    @rule(data=st.data())
    def confirm_a_start(self, data: st.DataObject) -> None:
        self.world.confirm_start(data.draw(st.sampled_from(self.unconfirmed())))

    def unconfirmed(self) -> list[str]:
        return [i for i in self.jobs(State.STARTING) if i in self.world.held]

    @precondition(lambda self: self.world.told_to_stop)
    @rule(data=st.data())
    def confirm_a_stop(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.world.told_to_stop)))
        job_index = self.world.job_indices[job_id]
        self.world.confirm_stop(job_id, done=float(self.world.engine.table.done[job_index]))

    @precondition(lambda self: self.jobs(State.RUNNING, State.STOPPING))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.world.finish(data.draw(st.sampled_from(self.jobs(State.RUNNING, State.STOPPING))))

    def teardown(self) -> None:
        """However it stood: once the world does as it is told, every job ends and every GPU is free."""
        if not hasattr(self, "world"):
            return
        for _ in range(200):
            for job_id in sorted(self.world.told_to_stop):
                self.world.confirm_stop(
                    job_id, done=float(self.world.engine.table.done[self.world.job_indices[job_id]])
                )
            for job_id in self.unconfirmed():
                self.world.confirm_start(job_id)
            for job_id in self.jobs(State.RUNNING):
                self.world.finish(job_id)
                break
            self.world.tick(self.world.now + 1)
        assert set(self.jobs(State.FINISHED)) == set(self.world.job_indices)
        assert not self.world.held and self.world.engine.free.total == CLUSTER.gpu_count


POLICIES = sorted(discover("trine.policy", Policy))
PLACEMENTS = [p + s for p in sorted(discover("trine.placement", Placement)) for s in ("", "-sticky")]
PAIRS = {(policy, placement) for policy in POLICIES for placement in ("packed", "packed-sticky")}
PAIRS |= {("srtf", placement) for placement in PLACEMENTS}


@pytest.mark.parametrize(("policy", "placement"), sorted(PAIRS))
def test_late_worlds(policy: str, placement: str) -> None:
    machine: Any = type("Machine", (LateWorld,), {"policy": policy, "placement": placement})
    run_state_machine_as_test(
        machine,
        settings=settings(derandomize=True, database=None, deadline=None, max_examples=8, stateful_step_count=25),
    )
