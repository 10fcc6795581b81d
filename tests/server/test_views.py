from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, Site, spec
from trine.server import scheduler
from trine.server.interface import LIVE_STATES, Caller, NotFound, PlacementView
from trine.server.scheduler import Scheduler

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


def test_jobs_are_chosen_by_user_and_name_and_counted(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        ada, eve = Caller("ada"), Caller("eve")
        await daemon.submit([spec(4, user="", name=name) for name in ("Prüfung-1", "Prüfung-2", "x")], ada)
        await daemon.submit([spec(4, user="", name="Prüfung-3")], eve)
        chosen = [job.id for job in daemon.jobs(OWNER, user="ada", name="Pru\u0308fung-*")]
        assert (chosen, daemon.count(OWNER, user="ada", name="Prüfung-*")) == (["1", "2"], 2)
        assert daemon.count(OWNER) == 4
        assert (daemon.count(eve), daemon.count(eve, user="ada"), daemon.count(eve, name="Prüfung-?")) == (1, 0, 1)
        assert [job.id for job in daemon.jobs(OWNER, limit=1, name="x")] == ["3"]

    run(Site(tmp_path), script)


def test_a_job_tells_since_when_it_holds_its_gpus_and_how_long_it_may(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        site.world.obedient = False
        await daemon.submit([spec(4, max_runtime="2:00:00"), spec(4)], OWNER)
        await site.quiet()
        started_s = site.now
        first, second = daemon.jobs(OWNER)
        assert (first.max_runtime_s, second.max_runtime_s, second.run_from_s) == (7_200.0, None, None)
        site.now += 500
        await daemon.hold("1", OWNER)
        await site.quiet()
        stopping = daemon.job("1", OWNER)
        assert stopping.state == "stopping" and stopping.run_from_s is not None
        assert abs(stopping.run_from_s - started_s) < 1
        site.world.let_stop("1")
        await site.quiet()
        assert daemon.job("1", OWNER).run_from_s is None

    run(Site(tmp_path), script)


def test_every_rank_a_job_can_have_has_a_log(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(2)], OWNER)
        (tmp_path / "jobs" / "1").mkdir(parents=True)
        for name in ("log", "log.1"):
            (tmp_path / "jobs" / "1" / name).write_text(name)
        logs = [daemon.job_log("1", OWNER, rank)() for rank in (0, 1)]
        assert [log.read(0, 9) for log in logs if log is not None] == [b"log", b"log.1"]
        for log in logs:
            assert log is not None
            log.close()
        with pytest.raises(NotFound, match="no rank 2"):
            daemon.job_log("1", OWNER, 2)

    run(Site(tmp_path), script)


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


def test_progress_is_shown_before_the_next_round(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1, steps=1000.0)], OWNER)
        await site.quiet()
        site.now += 2
        site.world.now = site.now
        site.world.work("1", 8, rate=4.0)
        await site.quiet()
        assert not daemon.controller.state.jobs["1"].heard_s, "on record only from the next round on"
        for view in (daemon.job("1", OWNER), daemon.explain("1", OWNER).job, daemon.jobs(OWNER)[0]):
            assert view.progress is not None
            assert (view.progress.step, view.progress.total, view.progress.steps_per_s) == (8, 1000, 4.0)

    run(Site(tmp_path), script)


def test_what_a_job_runs_is_told_of_it_alone_and_not_in_lists(tmp_path: Path) -> None:
    async def script(_: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1, workdir="/data")], OWNER)
        view, [listed] = daemon.job("1", OWNER), daemon.jobs(OWNER)
        assert (view.command, view.workdir) == (daemon.controller.state.jobs["1"].spec.run, "/data")
        assert (listed.command, listed.workdir) == (None, None)
        explained = daemon.explain("1", OWNER).job
        assert (explained.command, explained.workdir) == (view.command, view.workdir)

    run(Site(tmp_path), script)


def test_a_name_in_place_of_an_id_is_told_what_is_expected(tmp_path: Path) -> None:
    async def script(_: Site, daemon: Scheduler) -> None:
        with pytest.raises(NotFound, match="there is no job 'resnet'; expected the id of a job"):
            daemon.job("resnet", OWNER)
        with pytest.raises(NotFound, match=r"there is no job '7'$"):
            daemon.job("7", OWNER)

    run(Site(tmp_path), script)


def test_a_loss_of_nothing_is_not_told(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        job = daemon.controller.state.jobs["1"]
        for lost_s, told in ((0.2, False), (3.0, True)):
            job.lost_s = lost_s
            assert any("work was lost" in line for line in daemon.explain("1", OWNER).sentences) is told

    run(Site(tmp_path), script)


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
