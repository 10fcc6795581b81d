"""Accounts of time received outlive the daemon: a round decided after a restart is the round it would have been."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.server.pairs import trains
from trine.core.cluster import Cluster, Node
from trine.core.plugins import discover
from trine.engine.invariants import check
from trine.perf.throughput import ThroughputTable
from trine.policy.shares.base import SharePolicy
from trine.server import records as rec
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState

POLICIES = sorted(discover("trine.policy.shares", SharePolicy))
CLUSTER = Cluster((Node("n0", 2, "v100"), Node("n1", 2, "k80")), prices_per_gpu_h={"v100": 3.0, "k80": 1.0})
MODELS = {"p": (8.0, 2.0), "q": (6.0, 3.0), "r": (2.0, 1.9)}
TABLE = ThroughputTable(
    rates={(m, gang): dict(zip(("v100", "k80"), rates, strict=True)) for m, rates in MODELS.items() for gang in (1, 2)},
    pairs={
        ("p", "q", 1): {"v100": (6.0, 5.0), "k80": (1.5, 2.0)},
        ("q", "r", 1): {"v100": (4.5, 1.5), "k80": (2.0, 1.5)},
    },
)
MODEL = Model(TABLE)
ROUND_S = 60.0


class Live:
    """A controller and an obedient world: starts are up at once, who is told to stop is gone a second later."""

    def __init__(self, policy: str, seed: int, **settings: Any) -> None:
        told = {"aware": "true"} if policy == "fifo" else {}
        self.how = (policy, "packed-sticky", told | {"reset_gap_s": "240"} | settings)
        self.controller, self.now, self.rng = Controller(LiveState(), MODEL), 1000.0, random.Random(seed)
        self.log: list[rec.Record] = []
        self._note(self._configure(self.controller))

    def _configure(self, controller: Controller) -> rec.Record:
        return controller.configure(self.now, "test", CLUSTER, *self.how, round_s=ROUND_S)

    def _note(self, record: rec.Record | None) -> None:
        """As a journal does: what cannot be written as text is not kept."""
        if record is None:
            return
        self.log.append(rec.from_body(record.kind, json.loads(json.dumps(rec.to_body(record)))))
        for stop in record.orders.stops:
            self._note(self.controller.exited(self.now + 1, stop.job, stop.epoch, "preempted", 85, None))
        for start in record.orders.starts:
            self._note(self.controller.started(self.now + 1, start.job, start.epoch))

    def walk(self) -> None:
        """Jobs come, end, are held and released."""
        self.now += 2  # what the last round set in motion is over
        state, draw = self.controller.state, self.rng.random()
        running = [job.id for job in state.live.values() if job.state == "running"]
        if draw < 0.4 and len(state.live) < 9:
            spec = trains(
                self.rng.choice("pqr"), self.rng.choice((1, 1, 2)), steps=float(self.rng.randrange(500, 9000))
            )
            self._note(self.controller.submit(self.now, 1.0 + self.rng.randrange(2), spec))
        elif draw < 0.5 and running:
            job = state.jobs[self.rng.choice(running)]
            self._note(self.controller.exited(self.now, job.id, job.epoch, "done", 0, None))
        elif draw < 0.6 and state.live:
            job = self.rng.choice(list(state.live.values()))
            self._note(self.controller.ask(self.now, job.id, "release" if job.state == "held" else "hold", "somebody"))

    def heard(self) -> list[rec.Heard]:
        """Every running job tells of a pace of its own."""
        running = [job for job in self.controller.state.live.values() if job.state == "running"]
        return [rec.Heard(j.id, j.epoch, self.now - 1, j.done + 50, None, 1.0 + int(j.id) / 7, 40.0) for j in running]

    def restarted(self, by_snapshot: bool) -> Controller:
        """What a daemon would be that was killed and started again now."""
        state = LiveState()
        if by_snapshot:
            state = from_snapshot(json.loads(json.dumps(to_snapshot(self.controller.state))))
        else:
            for record in self.log:
                state.apply(record)
        assert json.dumps(to_snapshot(state)) == json.dumps(to_snapshot(self.controller.state))
        other = Controller(state, MODEL)
        self._configure(other)
        check(other.deciding)
        return other


def chosen(record: rec.Ticked) -> list[Any]:
    starts = [(start.job, start.epoch, start.gpus, start.co_runner) for start in record.orders.starts]
    return [sorted(starts), sorted(stop.job for stop in record.orders.stops)]


@pytest.mark.parametrize("sharing", ["false", "true"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_round_is_the_same_with_and_without_a_restart(policy: str, sharing: str) -> None:
    from trine.core.params import params_of

    takes = "space_sharing" in params_of(discover("trine.policy.shares", SharePolicy)[policy])
    if sharing == "true" and not takes:
        pytest.skip("it does not pair jobs, or always does")
    live = Live(policy, seed=3, **({"space_sharing": sharing} if takes else {}))
    decisions = 0
    for turn in range(24):
        live.walk()
        live.now += ROUND_S
        other = live.restarted(by_snapshot=turn % 4 == 0) if turn % 2 == 0 else None
        reset_s, heard = live.controller.state.accounts.get("reset_s"), live.heard()
        ticked = live.controller.tick(live.now, heard)
        # A program with several optima may be solved to another one from a cold start.
        if other is not None and live.controller.state.accounts.get("reset_s") == reset_s:
            assert chosen(other.tick(live.now, heard)) == chosen(ticked), f"round {turn}"
            assert_alike(*(_of_live(controller) for controller in (other, live.controller)))
            decisions += len(ticked.orders.starts) + len(ticked.orders.stops)
        live._note(ticked)
        live._note(live.controller.refine(live.now + 1))
    assert decisions, "nothing was compared"


def _of_live(controller: Controller) -> dict[str, Any]:
    """Without what a policy remembers of jobs that ended, until it computes shares again."""
    live, found = controller.state.live, dict(controller.state.accounts)
    for name in ("held", "partners", "isolated"):
        found[name] = {job: told for job, told in found.get(name, {}).items() if job in live}
    found["partners"] = {job: co_runner for job, co_runner in found["partners"].items() if co_runner in live}
    return found


def assert_alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert json.dumps(_rounded(found[name])) == json.dumps(_rounded(value)), name


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) + 0.0
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return {name: _rounded(part) for name, part in value.items()} if isinstance(value, dict) else value
