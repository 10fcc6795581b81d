"""Contract of every policy with every placement under the live scheduler: all jobs end, and the record is faithful.

A walk through requests and news with a crash in its middle; afterwards the journal is decided again by a new engine,
which must decide the same. Policies and placements are found by name, so that newcomers are covered without a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from trine.core.plugins import discover
from trine.engine.invariants import check
from trine.engine.quotas import Quotas
from trine.placement.base import Placement
from trine.policy.base import Policy
from trine.server import scheduler
from trine.server.build import Model
from trine.server.interface import Refused
from trine.server.replay import redecide
from trine.server.snapshot import to_snapshot
from trine.server.store import Store

POLICIES = sorted(discover("trine.policy", Policy))
PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]
MODEL = Model(quotas=Quotas(by_group={"default": 7}))
SHAPES: tuple[dict[str, object], ...] = (
    {},
    {},
    {},
    {"topology": {"required": "node"}},
    {"topology": {"preferred": "node", "max_wait_s": 40}},
)


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gained by collecting events when each is awaited."""
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


def make_site(home: Path, policy: str, placement: str) -> Site:
    """Two types, chips that differ, one of them so slow that it may be excluded."""
    site = Site(home, "x=4x2,y=2x2", policy, placement, {"locality_penalty": 1.3}, model=MODEL)
    scores = tuple(6.0 if gpu == 1 else 1.0 + gpu / 50 for gpu in range(12))
    site.cluster = replace(site.cluster, scores={"A": scores, "B": tuple(1.0 for _ in range(12))})
    return site


class Walk:
    """A seeded sequence of requests and news."""

    def __init__(self, site: Site, seed: str) -> None:
        self.site, self.rng = site, random.Random(seed)
        self.accepted: list[str] = []

    async def step(self) -> None:
        actions = (self.submit, self.tick, self.work, self.end, self.ask, self.drain, self.obey)
        action = self.rng.choices(actions, (5, 6, 4, 4, 3, 1, 4))[0]
        with contextlib.suppress(Refused):  # it ended in the meantime
            await action()
        await self.site.quiet()
        assert self.site.daemon is not None
        check(self.site.daemon.controller.deciding)

    async def submit(self) -> None:
        daemon, rng = self.site.daemon, self.rng
        assert daemon is not None
        if len(daemon.controller.state.live) > 8:
            return
        gangs = [rng.choice((1, 1, 2, 2, 4)) for _ in range(rng.choice((1, 2, 3)))]
        jobs = [
            spec(
                gpus,
                priority=float(rng.choice((0, 0, 0, 2))),
                model=rng.choice(("", "bert")),
                **{"class": rng.choice("AB")},
                **rng.choice(({}, {"steps": 300.0})),
                **(rng.choice(SHAPES) if gpus == 2 else {}),
            )
            for gpus in gangs
        ]
        self.accepted += await daemon.submit(jobs, OWNER)

    async def tick(self) -> None:
        await self.site.tick(self.rng.choice((1, 30, 60)))

    async def work(self) -> None:
        running = self.site.world.running()
        for job_id in self.rng.sample(sorted(running), len(running) // 2):
            self.site.now += 5
            self.site.world.now = self.site.now
            self.site.world.work(job_id, self.rng.randrange(40), rate=self.rng.choice((0.5, 1.0, 8.0)))

    async def end(self) -> None:
        running = sorted(self.site.world.running())
        if running:
            outcome = self.rng.choice((("done", 0), ("done", 0), ("failed", 1), ("lost", 137)))
            self.site.world.end(self.rng.choice(running), *outcome)

    async def ask(self) -> None:
        daemon = self.site.daemon
        assert daemon is not None
        live = sorted(daemon.controller.state.live)
        if live:
            verb = self.rng.choice((daemon.cancel, daemon.hold, daemon.hold, daemon.release, daemon.release))
            await verb(self.rng.choice(live), OWNER)

    async def drain(self) -> None:
        daemon = self.site.daemon
        assert daemon is not None
        node = self.rng.choice(self.site.cluster.nodes).name
        await (daemon.undrain(node, OWNER) if node in daemon.controller.state.nodes else daemon.drain(node, "", OWNER))

    async def obey(self) -> None:
        """Jobs take their time to stop."""
        world = self.site.world
        world.obedient = False
        told = [job_id for job_id, attempt in world.running().items() if attempt.asked_to_stop]
        if told:
            world.let_stop(self.rng.choice(sorted(told)))

    async def wind_up(self) -> None:
        """From wherever it stands, every job ends."""
        daemon, world = self.site.daemon, self.site.world
        assert daemon is not None
        for node in list(daemon.controller.state.nodes):
            await daemon.undrain(node, OWNER)
        for job in list(daemon.controller.state.live.values()):
            if job.state == "held" or job.requested_action == "hold":
                await daemon.release(job.id, OWNER)
        for _ in range(60):
            await self.site.tick(60)
            for job_id, attempt in list(world.running().items()):
                if attempt.asked_to_stop:
                    world.let_stop(job_id)
            await self.site.quiet()
            for job_id in sorted(world.running())[:4]:
                if not world.running()[job_id].asked_to_stop:
                    world.end(job_id)
            await self.site.quiet()
            if not daemon.controller.state.live:
                return
        left = {job: daemon.explain(job, OWNER).sentences for job in daemon.controller.state.live}
        raise AssertionError(f"jobs that never end: {left}")


async def live_run(site: Site, seed: str) -> Walk:
    walk = Walk(site, seed)
    await site.up()
    try:
        await walk.submit()
        await walk.submit()
        for _ in range(12):
            await walk.step()
        await site.crash()
        await site.up()
        await site.quiet()
        for _ in range(12):
            await walk.step()
        await walk.wind_up()
    finally:
        await site.crash()
    return walk


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_live_run_and_its_record(policy: str, placement: str, tmp_path: Path) -> None:
    walk = asyncio.run(live_run(make_site(tmp_path, policy, placement), f"{policy}/{placement}"))
    store = Store.open(tmp_path / "journal.db")
    state = store.load()
    assert set(walk.accepted) <= set(state.jobs), "acknowledged jobs are gone"
    assert {job.state for job in state.jobs.values()} <= {"done", "failed", "cancelled"}
    agreement, again = redecide(store.records(), MODEL)
    assert agreement.difference == ""
    assert agreement.agreed == agreement.decisions > 5
    assert to_snapshot(again) == to_snapshot(state)
    store.close()
