from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, Site, spec
from trine.server import scheduler
from trine.server.scheduler import Scheduler
from trine.server.service import LIVE_STATES, PlacementView

ALL = frozenset({*LIVE_STATES, "done", "failed", "cancelled"})


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


def run(site: Site, script: Callable[[Site, Scheduler], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await script(site, await site.up())
        finally:
            await site.crash()

    asyncio.run(whole())


def test_the_queue_shows_holders_then_ranks_then_held_then_ended_newest_first(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4), spec(4), spec(4), spec(4), spec(4), spec(4, priority=9.0)], OWNER)
        await site.quiet()
        await daemon.hold("3", OWNER)
        await daemon.cancel("2", OWNER)
        site.now += 10
        await daemon.cancel("4", OWNER)
        await site.tick(1)
        order = [(job.id, job.state, job.position) for job in daemon.jobs(OWNER, ALL)]
        running = next(iter(site.world.running()))
        waiting = [job_id for job_id in ("6", "1", "5") if job_id != running]
        assert order[0] == (running, "running", None)
        assert order[1:3] == [(job_id, "waiting", place) for place, job_id in enumerate(waiting, start=1)]
        assert order[3:] == [("3", "held", None), ("4", "cancelled", None), ("2", "cancelled", None)]
        assert [job.id for job in daemon.jobs(OWNER, ALL, limit=2)] == [running, waiting[0]]
        assert all(daemon.job(job_id, OWNER).position == place for place, job_id in enumerate(waiting, start=1))

    run(Site(tmp_path, policy="srtf"), script)


def test_whatever_a_job_does_there_is_a_sentence_that_names_it_and_says_what_would_change_it(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        site.world.obedient = False
        await daemon.submit([spec(2, steps=100.0), spec(2), spec(3), spec(1)], OWNER)
        await site.quiet()
        await daemon.hold("2", OWNER)
        await daemon.hold("4", OWNER)
        await daemon.drain("node1", "fan", OWNER)
        told = {job_id: daemon.explain(job_id, OWNER) for job_id in "1234"}
        assert {job_id: t.job.state for job_id, t in told.items()} == {
            "1": "running",
            "2": "stopping",
            "3": "waiting",
            "4": "held",
        }
        for job_id, explanation in told.items():
            assert f"job {job_id} " in explanation.sentences[0]
            assert explanation.story[0].what == "submitted"
        assert "Out of service: node1." in told["3"].sentences
        assert "trine release 4" in " ".join(told["4"].sentences)
        assert "is held" in told["2"].sentences[0]

    run(Site(tmp_path), script)


def test_a_preempted_job_says_how_often_and_from_where_it_resumes(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4, steps=100.0)], OWNER)
        await site.quiet()
        site.world.work("1", 40)
        await daemon.submit([spec(4, priority=5.0)], OWNER)
        await site.tick(60)
        assert "It was preempted once and resumes from step 40." in daemon.explain("1", OWNER).sentences

    run(Site(tmp_path, policy="srtf"), script)


def test_a_running_job_shows_where_how_fast_and_until_when(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        values: dict[str, Any] = {"class": "A"}
        await daemon.submit([spec(3, steps=1000.0, **values)], OWNER)
        await site.quiet()
        assert daemon.job("1", OWNER).expected_end_s is None, "nobody knows yet"
        site.now += 60
        site.world.now = site.now
        site.world.work("1", 200, rate=4.0)
        await site.quiet()
        await site.tick()
        view = daemon.job("1", OWNER)
        assert view.placement == (PlacementView("node0", (0, 1)), PlacementView("node1", (0,)))
        assert view.progress is not None and (view.progress.step, view.progress.total) == (200, 1000)
        assert view.expected_end_s == pytest.approx(view.progress.at_s + 200)
        text = " ".join(daemon.explain("1", OWNER).sentences)
        assert "counts 1.30x the median" in text and "costs 1.50x" in text and "runs at 4 steps/s" in text
        site.world.end("1")
        await site.quiet()
        ended = daemon.job("1", OWNER)
        assert ended.progress is not None and ended.progress.step == 1000 and ended.expected_end_s is None

    site = Site(tmp_path, settings={"locality_penalty": 1.5})
    site.cluster = replace(site.cluster, scores={"A": (1.0, 1.3, 1.0, 1.0)})
    run(site, script)


def test_nodes_show_who_holds_each_gpu_and_its_score(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(3)], OWNER)
        await daemon.drain("node1", "fan", OWNER)
        await site.quiet()
        nodes = daemon.nodes()
        assert [(n.name, n.state, n.reason) for n in nodes] == [("node0", "up", ""), ("node1", "drained", "fan")]
        assert [[gpu.job for gpu in node.gpus] for node in nodes] == [["1", "1"], ["1", None]]
        assert [gpu.scores for gpu in nodes[0].gpus] == [{"A": 1.0}, {"A": 1.25}]

    site = Site(tmp_path)
    site.cluster = replace(site.cluster, scores={"A": (1.0, 1.25, 1.0, 1.0)})
    run(site, script)


def test_views_hold_right_after_a_restart(tmp_path: Path) -> None:
    """The new engine has not decided anything yet."""

    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4), spec(4), spec(2)], OWNER)
        await site.quiet()
        await daemon.hold("3", OWNER)
        await site.crash()
        daemon = await site.up()
        assert [(job.id, job.state, job.position) for job in daemon.jobs(OWNER)] == [
            ("1", "running", None),
            ("2", "waiting", 1),
            ("3", "held", None),
        ]
        for job_id in "123":
            assert f"job {job_id} " in daemon.explain(job_id, OWNER).sentences[0]

    run(Site(tmp_path), script)
