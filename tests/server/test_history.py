"""The history of ended jobs: what they used, page by page, to those who may see it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from trine.server import scheduler
from trine.server.interface import Caller, HistoryQuery
from trine.server.scheduler import Scheduler


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


async def _with_past(site: Site) -> Scheduler:
    """Jobs 1 (done, two GPUs for 100 s), 2 (failed), 3 (cancelled before it started), 4 (runs)."""
    daemon = await site.up()
    await daemon.submit([spec(2), spec(1, user="ada"), spec(4), spec(1)], OWNER)
    await site.quiet()
    await daemon.cancel("3", OWNER)
    site.now += 100.0
    site.world.end("1")
    site.world.end("2", "failed", 3)
    await site.quiet()
    return daemon


def test_ended_jobs_are_listed_with_the_time_they_held_gpus(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await _with_past(site)
        rows = {row.id: row for row in daemon.history(HistoryQuery(), OWNER)}
        assert list(rows) == ["1", "2", "3"], "4 has not ended"
        assert rows["1"].held_s == pytest.approx(100, abs=1)
        assert rows["1"].gpu_h == pytest.approx(200 / 3600, rel=0.02)
        assert (rows["2"].state, rows["2"].exit_code, rows["2"].attempts) == ("failed", 3, 1)
        assert (rows["3"].started_s, rows["3"].held_s, rows["3"].attempts) == (None, 0.0, 0)
        await site.crash()

    asyncio.run(script())


def test_pages_users_states_and_times_choose_among_them(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await _with_past(site)

        def ids(caller: Caller = OWNER, **query: object) -> list[str]:
            return [row.id for row in daemon.history(HistoryQuery(**query), caller)]  # type: ignore[arg-type]

        assert ids(limit=2) == ["1", "2"]
        assert ids(limit=2, after="2") == ["3"]
        assert ids(state="failed") == ["2"]
        assert ids(Caller("ada")) == ["2"]
        assert ids(Caller("ada"), user="owner") == [], "not hers to see"
        middle_s = site.now - 50
        assert (ids(until_s=middle_s), ids(since_s=middle_s)) == (["3"], ["1", "2"])
        await site.crash()

    asyncio.run(script())
