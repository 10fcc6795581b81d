"""Contract of policies that pair jobs under the live scheduler: a walk with a crash, and a record that is faithful.

The world refuses anybody undeclared on a GPU; invariants are checked after every step.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.contract.test_live_policies import Walk
from tests.server.site import OWNER, Site, spec
from trine.engine.quotas import Quotas
from trine.perf.throughput import ThroughputTable
from trine.server import scheduler
from trine.server.build import Model
from trine.server.replay import redecide
from trine.server.snapshot import to_snapshot
from trine.server.store import Store

TABLE = ThroughputTable(
    rates={(model, gang): {"x": 2.0, "y": 1.0} for model in "pqr" for gang in (1, 2)},
    pairs={("p", "q", gang): {"x": (1.5, 1.7), "y": (0.9, 0.5)} for gang in (1, 2)}
    | {("q", "r", gang): {"x": (0.0, 0.0), "y": (0.8, 0.9)} for gang in (1, 2)}
    | {("p", "p", 1): {"x": (1.4, 1.4), "y": (0.7, 0.7)}},
)
MODEL = Model(TABLE, Quotas(by_group={"default": 12}))


class PairWalk(Walk):
    async def submit(self) -> None:
        daemon, rng = self.site.daemon, self.rng
        assert daemon is not None
        if len(daemon.controller.state.live) > 9:
            return
        jobs = [
            spec(rng.choice((1, 1, 1, 2)), model=rng.choice("pqr"), steps=float(rng.randrange(50, 900)), user=user)
            for user in rng.choices(("ada", "ada", "bob"), k=3)
        ]
        self.accepted += await daemon.submit(jobs, OWNER)

    async def tick(self) -> None:
        await self.site.tick(self.rng.choice((1, 60, 60, 300)))


async def live_run(site: Site, seed: str) -> PairWalk:
    walk = PairWalk(site, seed)
    await site.up()
    try:
        await walk.submit()
        for turn in range(45):
            await walk.step()
            if turn % 15 == 14:
                await site.crash()
                await site.up()
                await site.quiet()
        await walk.wind_up()
    finally:
        await site.crash()
    return walk


@pytest.mark.parametrize("policy", ["max-min-fairness", "gandiva", "max-throughput", "makespan"])
def test_live_run_with_pairs_and_its_record(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)
    settings = {"reset_gap_s": "120"} | ({} if policy == "gandiva" else {"space_sharing": "true"})
    site = Site(tmp_path, "x=1x2,y=1x2", policy, settings=settings, round_s=60.0, model=MODEL)
    walk = asyncio.run(live_run(site, policy))
    store = Store.open(tmp_path / "journal.db")
    state = store.load()
    assert set(walk.accepted) <= set(state.jobs), "acknowledged jobs are gone"
    assert {job.state for job in state.jobs.values()} <= {"done", "failed", "cancelled"}
    paired = {
        (order.job, order.co_runner) for record in store.records() for order in record.orders.starts if order.co_runner
    }
    assert paired, "nobody shared anything"
    assert all(state.jobs[one].user == state.jobs[other].user for one, other in paired)
    agreement, again = redecide(store.records(), MODEL)
    assert agreement.difference == ""
    assert to_snapshot(again) == to_snapshot(state)
    store.close()
