"""The trine policy and placement in a daemon: preemption, what is on record, and the same decisions again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from tests.server.test_replay import records_of
from trine.policy.trine import Trine
from trine.server import records as rec
from trine.server import scheduler
from trine.server.build import Model
from trine.server.replay import redecide


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


def stops(home: Path) -> list[rec.StopOrder]:
    return [stop for record in records_of(home) if isinstance(record, rec.Ticked) for stop in record.orders.stops]


async def walk(site: Site) -> None:
    """Long jobs fill the cluster, a short one comes and takes GPUs of one; the daemon dies in between."""
    daemon = await site.up()
    await daemon.submit([spec(2, steps=50_000.0, model="long"), spec(2, steps=40_000.0, model="long")], OWNER)
    await site.quiet()
    for job_id in list(site.world.running()):
        site.world.work(job_id, 60, total=50_000)
    await site.tick(60)
    await daemon.submit([spec(2, steps=30.0, model="short")], OWNER)
    await site.tick(60)
    await site.crash()
    other = Site(site.home, policy="trine", placement="trine")
    other.world, other.now = site.world, site.now
    await other.up()
    await other.tick(60)
    for job_id in ("3", "1", "2"):
        if job_id in other.world.running():
            other.world.end(job_id)
            await other.quiet()
        await other.tick(60)
    await other.crash()


def test_a_short_job_takes_gpus_of_a_long_one_and_the_run_is_decided_the_same_again(tmp_path: Path) -> None:
    asyncio.run(walk(Site(tmp_path, policy="trine", placement="trine")))
    (stop, *_) = stops(tmp_path)
    assert stop.why == "preempted"
    assert "times the price at which the type is full" in stop.sentence
    assert 0 < stop.weighed["cost"] < stop.weighed["gain"], "it offers less than others do for its GPUs"
    agreement, _ = redecide(records_of(tmp_path), Model())
    assert agreement.difference == "" and agreement.decisions >= 4


def lengths_learned(site: Site) -> dict[str, float]:
    """Of each set of jobs, how many ended, and those in bins up to a minute."""
    assert site.daemon is not None
    policy = site.daemon.controller.deciding.policy
    assert isinstance(policy, Trine)
    counts = policy._work.ended
    short = sum(1 for edge in policy._work.edges if edge < 60.0)
    return {"ended": sum(map(sum, counts.values())), "short": sum(sum(row[:short]) for row in counts.values())}


async def short_jobs(site: Site, count: int) -> None:
    """Jobs that say nothing of their length, each of which runs for 20 seconds."""
    assert site.daemon is not None
    for _ in range(count):
        [job_id] = await site.daemon.submit([spec(4)], OWNER)
        await site.tick(1)
        site.now += 20
        site.clock()
        site.world.end(job_id)
        await site.quiet()


def test_lengths_of_silent_jobs_are_learned_as_they_ran_and_counted_once(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="trine", placement="trine")
        await site.up()
        await short_jobs(site, 5)
        assert lengths_learned(site) == {"ended": 5, "short": 5}
        await site.tick(60)
        await site.crash()
        await site.up()
        assert lengths_learned(site) == {"ended": 5, "short": 5}
        await site.crash()

    asyncio.run(script())


def test_where_silent_jobs_were_short_a_new_one_takes_the_gpus_of_one_that_has_run_for_hours(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="trine", placement="trine")
        await site.up()
        assert site.daemon is not None
        await short_jobs(site, 30)
        [old] = await site.daemon.submit([spec(4)], OWNER)
        await site.tick(1)
        for _ in range(10):
            await site.tick(1800)
        [new] = await site.daemon.submit([spec(4)], OWNER)
        for _ in range(3):
            await site.tick(60)
        assert set(site.world.running()) == {new}, f"job {old} still runs"
        await site.crash()

    asyncio.run(script())
