"""The daemon dies at every record while jobs share GPUs: no job is lost, and no GPU gets anybody undeclared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from tests.recovery.test_crashes import ENDED, Book, decide_at_once, finish_everything, until_death
from tests.server.pairs import PAIRED, pair_site, trains
from tests.server.site import OWNER, MortalStore, Site
from trine.server.replay import redecide
from trine.server.snapshot import to_snapshot
from trine.server.store import Store

__all__ = ["decide_at_once"]
"""A fixture that all of them use."""


def look_at_pairs(site: Site) -> int:
    """State, engine and world agree on who is next to whom (``FakeWorld`` refuses a third); returns the pairs."""
    assert site.daemon is not None
    state, engine = site.daemon.controller.state, site.daemon.controller.deciding
    job_indices = site.daemon.controller.job_indices
    holders = list(state.holders())
    for job in holders:
        others = [other for other in holders if other is not job and set(other.gpus) & set(job.gpus)]
        co_runner = state.co_runner_of(job)
        assert others == ([co_runner] if co_runner else [])
        assert engine.ownership.co_runner_of(job_indices[job.id]) == (job_indices[co_runner.id] if co_runner else -1)
    return sum(1 for job in holders if state.co_runner_of(job)) // 2


async def scenario(site: Site, book: Book, seen: list[int]) -> None:
    """Pairs form, are joined late, lose members in every way, are held, moved and drained."""
    daemon, world = site.daemon, site.world
    assert daemon is not None

    async def step(action: Awaitable[object]) -> None:
        result = await action
        await site.quiet()
        if isinstance(result, list):
            book.accepted += result
        book.note_ended(site)
        book.look(site)
        seen.append(look_at_pairs(site))

    await step(daemon.submit([trains("big"), trains("small"), trains("small"), trains("small")], OWNER, "first"))
    await step(site.tick(400))
    await step(daemon.hold("1", OWNER))
    await step(daemon.submit([trains("big"), trains("lone")], OWNER))
    await step(site.tick(2000))
    await step(daemon.release("1", OWNER))
    world.obedient = False
    await step(site.tick(2000))
    await step(site.tick(400))
    world.obedient = True
    for job_id in [job_id for job_id, attempt in world.running().items() if attempt.asked_to_stop]:
        world.let_stop(job_id)
    await step(site.tick(400))
    world.end(sorted(world.running())[0], "failed", 3)
    await step(site.tick(400))
    await step(daemon.drain("node0", "test", OWNER))
    await step(daemon.cancel(sorted(world.running())[-1], OWNER))
    await step(site.tick(2000))
    await step(daemon.undrain("node0", OWNER))
    await step(site.tick(400))


async def one_life(home: Path, policy: str, dies_at: int | None, after_commit: bool) -> tuple[int, int]:
    """Records written before the end, and the most pairs seen at once."""
    site, book, seen = pair_site(home, "2x1", policy), Book(), [0]
    store = MortalStore.open(home / "journal.db")
    await site.up(store=store)
    store.dies_at, store.after_commit = dies_at, after_commit
    await until_death(site, lambda: scenario(site, book, seen))
    written = store.seq
    await site.crash()
    site.world.obedient = True
    daemon = await site.up()
    try:
        for job_id in [job_id for job_id, attempt in site.world.running().items() if attempt.asked_to_stop]:
            site.world.let_stop(job_id)
        await site.quiet()
        book.look(site)
        seen.append(look_at_pairs(site))
        ids = await daemon.submit([trains("big"), trains("small"), trains("small"), trains("small")], OWNER, "first")
        assert ids == ["1", "2", "3", "4"]
        await finish_everything(site)
        book.look(site)
        assert {job.state for job in daemon.controller.state.jobs.values()} <= ENDED
        starts = [(handle.job_id, handle.epoch) for handle in site.world.launches]
        assert len(set(starts)) == len(starts), "a start was carried out twice"
    finally:
        await site.crash()
    return written, max(seen)


def test_killed_at_every_record_while_jobs_share_gpus(tmp_path: Path) -> None:
    async def all_positions() -> tuple[int, int]:
        home = tmp_path / "undisturbed"
        home.mkdir()
        records, pairs = await one_life(home, "max-min-fairness", None, False)
        for position in range(2, records + 1):
            for after_commit in (False, True):
                home = tmp_path / f"{position}-{after_commit}"
                home.mkdir()
                await one_life(home, "max-min-fairness", position, after_commit)
        return records, pairs

    records, pairs = asyncio.run(all_positions())
    assert records > 25 and pairs == 2


@pytest.mark.parametrize("policy", ["max-min-fairness", "gandiva"])
def test_a_recorded_run_with_restarts_and_pairs_is_decided_the_same_again(policy: str, tmp_path: Path) -> None:
    asyncio.run(one_life(tmp_path, policy, None, False))
    store = Store.open(tmp_path / "journal.db")
    agreement, again = redecide(store.records(), PAIRED)
    assert agreement.difference == "" and agreement.decisions > 10
    assert to_snapshot(again) == to_snapshot(store.load())
