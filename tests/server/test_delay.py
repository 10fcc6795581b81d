"""The timers of ``delay`` outlive the daemon, a refined model and a replay of the journal."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import Site, run_site, spec
from tests.server.test_scheduler import states, submit, view
from trine.core.cluster import Cluster
from trine.engine.invariants import check
from trine.placement.delay import Delay
from trine.server import records as rec
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState

CLUSTER = Cluster.uniform(4, 2, nodes_per_rack=2)
SETTINGS = {"locality_penalty": "20", "rack_penalty": "90"}


class Live:
    """A controller, its journal, and a world that does what it is told at once."""

    def __init__(self, seed: int) -> None:
        self.controller, self.now, self.rng = Controller(LiveState(), Model()), 1_000.0, random.Random(seed)
        self.log: list[rec.Record] = []
        self.note(self.configure(self.controller))

    def configure(self, controller: Controller, placement: str = "delay") -> rec.Record:
        return controller.configure(self.now, "test", CLUSTER, "srtf", placement, SETTINGS, round_s=60.0)

    def note(self, record: rec.Record | None) -> None:
        if record is None:
            return
        self.log.append(rec.from_body(record.kind, json.loads(json.dumps(rec.to_body(record)))))
        for stop in record.orders.stops:
            self.note(self.controller.exited(self.now + 1, stop.job, stop.epoch, "preempted", 85, None))
        for start in record.orders.starts:
            self.note(self.controller.started(self.now + 1, start.job, start.epoch))

    def step(self) -> rec.Ticked:
        """Some jobs come, some end, then a round."""
        self.now += self.rng.choice((20, 60, 4_000))
        for _ in range(self.rng.choice((0, 1, 2))):
            limit_s = float(self.rng.randrange(500, 90_000))
            wanted = spec(self.rng.choice((1, 2, 2, 3, 4)), max_runtime=limit_s)
            self.note(self.controller.submit(self.now, 1.0, wanted))
        for job in list(self.controller.state.live.values()):
            if job.state == "running" and self.rng.random() < 0.3:
                self.note(self.controller.exited(self.now, job.id, job.epoch, "done", 0, None))
        ticked = self.controller.tick(self.now, fill=self.rng.random() < 0.3)
        self.note(ticked)
        return ticked

    def restarted(self, by_snapshot: bool) -> Controller:
        state = LiveState()
        if by_snapshot:
            state = from_snapshot(json.loads(json.dumps(to_snapshot(self.controller.state))))
        else:
            for record in self.log:
                state.apply(record)
        other = Controller(state, Model())
        self.configure(other)
        check(other.deciding)
        return other


def timers(controller: Controller) -> dict[str, Any]:
    assert isinstance(controller.deciding.placement, Delay)
    return controller.deciding.placement.state()


@pytest.mark.parametrize("seed", range(3))
def test_timers_are_as_before_after_a_restart(seed: int) -> None:
    live, started = Live(seed), 0
    for turn in range(40):
        started += len(live.step().orders.starts)
        other = live.restarted(by_snapshot=turn % 2 == 0)
        assert timers(other) == timers(live.controller)
        live.now += 30
        ticked = live.controller.tick(live.now)
        assert other.tick(live.now).orders == ticked.orders
        assert other.wakes_s == live.controller.wakes_s
        live.note(ticked)
    assert started > 10 and timers(live.controller)


def test_a_refined_model_keeps_them() -> None:
    live = Live(1)
    for _ in range(30):
        live.step()
    before = timers(live.controller)
    live.note(live.controller._enter(rec.ModelRefined(live.now)))
    assert before and timers(live.controller) == before


def test_a_replay_decides_the_same() -> None:
    live, again = Live(2), Controller(LiveState(), Model())
    for _ in range(40):
        live.step()
    for record in live.log:
        assert again.again(record).orders == record.orders
    assert timers(again) == timers(live.controller) != {}


def test_another_placement_begins_without_them() -> None:
    live = Live(3)
    while not timers(live.controller):
        live.step()
    live.note(live.configure(live.controller, "packed-sticky"))
    assert not live.controller.state.accounts
    live.note(live.configure(live.controller))
    assert timers(live.controller) == {}


def test_a_timer_ends_between_two_rounds(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 2, nodes=2)
        await submit(site, 2)
        assert states(site) == {"1": "running", "2": "waiting"}
        told = view(site, "2").reason
        assert told.code == "waits-for-a-better-place" and "once it has waited 100 s" in told.change
        assert daemon._wake is not None, "nobody would look before the next round"
        site.now += 100.0
        daemon._woken()
        await site.quiet()
        assert states(site)["2"] == "running"

    settings = {"machine_timer_s": "100", "rack_timer_s": "0"}
    run_site(Site(tmp_path, placement="delay", settings=settings), script)
