"""What the end of an attempt means: who is to blame, what follows, and what is said about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, Site, run_site, spec
from tests.server.test_scheduler import states, submit, view
from trine.executor.base import Handle, JobLease, LaunchFailed
from trine.server import records as rec
from trine.server.live_job import LiveJob
from trine.server.outcome import MAX_PASSING, MAX_VAIN, state_after_exit
from trine.server.store import StoreError


def job(state: Any = "running", requested_action: str = "", **values: Any) -> LiveJob:
    made = LiveJob("1", "me", "default", 1.0, spec(1, **values.pop("spec", {})), 0.0, state, 1, (0,), requested_action)
    made.run_from_s = made.attempt_from_s = 100.0
    for name, value in values.items():
        setattr(made, name, value)
    return made


def end(outcome: str, rc: int | None = 1, step: float | None = None, at_s: float = 1_000.0) -> rec.ExitReported:
    return rec.ExitReported(at_s, "1", 1, outcome, rc, step)


@pytest.mark.parametrize(
    ("outcome", "state", "requested_action", "vain", "expected"),
    [
        ("done", "running", "", 0, "done"),
        ("done", "stopping", "cancel", 0, "done"),
        ("done", "stopping", "timeout", 0, "done"),
        ("failed", "running", "", 0, "failed"),
        ("failed", "stopping", "", 0, "waiting"),
        ("failed", "stopping", "hold", 0, "held"),
        ("preempted", "stopping", "cancel", 0, "cancelled"),
        ("preempted", "stopping", "timeout", 0, "timed out"),
        ("preempted", "running", "", 0, "waiting"),
        ("lost", "running", "", 0, "waiting"),
        ("lost", "stopping", "cancel", 9, "cancelled"),
        ("host-fault", "starting", "", MAX_PASSING - 2, "waiting"),
        ("host-fault", "starting", "", MAX_PASSING - 1, "held"),
        ("host-fault", "starting", "cancel", 0, "cancelled"),
    ],
)
def test_where_a_job_goes_when_its_processes_are_gone(
    outcome: str, state: Any, requested_action: str, vain: int, expected: str
) -> None:
    assert state_after_exit(job(state, requested_action, vain=vain), end(outcome)).state == expected


def test_pauses_grow_and_have_an_end() -> None:
    pauses = [state_after_exit(job("starting", vain=vain), end("host-fault", None)).pause_s for vain in range(12)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0] and pauses[-1] == 300.0
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("rc", "step", "said", "lost_s"),
    [
        (137, None, "did not leave within its grace of 30 s and was killed. It restarts from step 0; 15 min", 900.0),
        (143, None, "ended at once on SIGTERM, without saving. It restarts from step 0; 15 min", 900.0),
        (85, None, "", 0.0),
        (85, 40.0, "It resumes from step 40.", 0.0),
        (137, 40.0, "was killed. It restarts from step 40; 30 s of work is lost.", 30.0),
    ],
)
def test_what_a_stop_cost_is_said(rc: int, step: float | None, said: str, lost_s: float) -> None:
    after = state_after_exit(job("stopping", done=70.0, rate=1.0), end("preempted", rc, step))
    assert said in after.sentence
    assert after.lost_s == lost_s


def test_a_job_that_leaves_at_once_again_and_again_pauses_and_is_held_at_last(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2)
        for count in range(MAX_VAIN - 1):
            site.world.end("1", "preempted", 85)
            await submit(site, 4)
            assert view(site, "1").reason.code == "paused", count
            assert states(site)[str(count + 2)] == "running", "the others go on meanwhile"
            site.world.end(str(count + 2))
            await site.tick(after_s=301)
            assert states(site)["1"] == "running"
        site.world.end("1", "preempted", 85)
        await site.quiet()
        assert states(site)["1"] == "held"
        assert "without progress, so it is held" in view(site, "1").reason.sentence
        assert view(site, "1").attempt == MAX_VAIN

    run_site(Site(tmp_path), script)


def test_a_job_that_fails_by_itself_is_tried_again_as_often_as_it_says(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 1, retries=2)
        for retry in (1, 2):
            site.world.end("1", "failed", 7)
            await site.quiet()
            assert f"Retry {retry} of 2 in" in view(site, "1").reason.sentence
            await site.tick(after_s=301)
            assert states(site)["1"] == "running"
        site.world.end("1", "failed", 7)
        await site.quiet()
        assert (states(site)["1"], view(site, "1").exit_code) == ("failed", 7)

    run_site(Site(tmp_path), script)


def test_a_host_that_cannot_start_a_job_does_not_fail_it(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 1)
        site.world.attempts.clear()
        site.world.tell(LaunchFailed(Handle("1", 1), site.now, "no space left on the disk", passing=True))
        await site.quiet()
        told = view(site, "1")
        assert (told.state, told.reason.code) == ("waiting", "paused")
        assert "no space left on the disk" in told.reason.sentence
        await site.daemon.release("1", OWNER)  # type: ignore[union-attr]
        await site.quiet()
        assert states(site)["1"] == "running", "whoever knows that it is over need not wait"

    run_site(Site(tmp_path), script)


def test_nothing_is_started_while_the_host_cannot(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        daemon.executor.host_trouble = "the disk has 12 MB left"  # type: ignore[attr-defined]
        await daemon.submit([spec(1), spec(2)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "waiting", "2": "waiting"}
        assert "the disk has 12 MB left" in daemon.daemon().problems
        assert "the disk has 12 MB left" in " ".join(daemon.explain("1", OWNER).sentences)
        assert b"trine_host_trouble 1.0" in daemon.metrics()
        daemon.executor.host_trouble = ""  # type: ignore[attr-defined]
        daemon._woken()
        await site.quiet()
        assert states(site) == {"1": "running", "2": "running"}

    run_site(Site(tmp_path), script)


def test_programs_without_checkpoints_get_through_under_a_policy_of_time_slices(tmp_path: Path) -> None:
    """Each attempt that was stopped in vain earns the next one twice its time."""

    async def script(site: Site) -> None:
        need_s, round_s = 400.0, 60.0
        await submit(site, 4, 4)
        began: dict[str, float] = {}
        for _ in range(60):
            for job_id in site.world.running():
                began.setdefault(job_id, site.now)
            for job_id in [j for j in began if j not in site.world.running()]:
                del began[job_id]
            for job_id, at_s in list(began.items()):
                if site.now - at_s >= need_s:
                    site.world.end(job_id)
                    del began[job_id]
            await site.quiet()
            if set(states(site).values()) == {"done"}:
                break
            await site.tick(after_s=round_s)
        assert states(site) == {"1": "done", "2": "done"}
        starts = [view(site, job_id).attempt for job_id in "12"]
        assert max(starts) <= 6, starts
        story = " ".join(line.sentence for line in site.daemon.explain("2", OWNER).story)  # type: ignore[union-attr]
        assert "of work is lost" in story
        assert b"trine_lost_work_seconds_total" in site.daemon.metrics()  # type: ignore[union-attr]

    site = Site(tmp_path, policy="las")
    site.world.saves = False
    run_site(site, script)


def test_a_job_that_is_not_preemptible_is_never_stopped_for_others(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 4, preemptible=False)
        await submit(site, 4, priority=5.0)
        for _ in range(5):
            await site.tick(after_s=600)
            assert states(site) == {"1": "running", "2": "waiting"}

    run_site(Site(tmp_path, policy="las"), script)


@pytest.mark.parametrize("placement", ["packed-sticky", "packed", "random"])
@pytest.mark.parametrize("policy", ["srtf", "las", "max-min-fairness"])
def test_a_start_runs_as_long_as_it_was_promised(tmp_path: Path, policy: str, placement: str) -> None:
    async def script(site: Site) -> None:
        await submit(site, 3, min_run=500.0)
        where = view(site, "1").placement
        await submit(site, 2, 2, priority=5.0)
        for _ in range(8):
            await site.tick(after_s=60)
            assert (view(site, "1").state, view(site, "1").placement) == ("running", where)

    run_site(Site(tmp_path, policy=policy, placement=placement), script)


def test_jobs_that_say_nothing_of_themselves_take_turns(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 1, 1)
        ran: set[str] = set()
        for _ in range(12):
            ran |= set(site.world.running())
            await site.tick(after_s=60)
        assert ran == {"1", "2"}

    run_site(Site(tmp_path, gpus="1x1", policy="max-min-fairness", round_s=60.0), script)


def test_a_time_limit_is_kept_between_rounds(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 1, max_runtime=0.05)
        site.now += 1.0
        daemon = site.daemon
        assert daemon is not None and daemon._wake is not None, "nobody would look before the next round"
        daemon._woken()
        await site.quiet()
        told = view(site, "1")
        assert told.state == "timed out"
        assert "end of its max_runtime" in told.reason.sentence

    run_site(Site(tmp_path), script)


def test_a_launch_that_failed_while_the_journal_was_away_is_not_repeated(tmp_path: Path) -> None:
    """One attempt has one end: launched again under the same number it would run although it is on record as over."""

    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        executor, append, failures = daemon.executor, daemon.store.append, [1]

        def launch(lease: JobLease) -> Handle:
            executor.launch = type(executor).launch.__get__(executor)  # type: ignore[method-assign]
            daemon.store.append = refuse  # type: ignore[method-assign]
            site.world.tell(LaunchFailed(lease.handle, site.now, "no space left on the disk", passing=True))
            return lease.handle

        def refuse(batch: Iterable[rec.Record]) -> int:
            batch = list(batch)
            if failures and any(isinstance(record, rec.ExitReported) for record in batch):
                failures.clear()
                raise StoreError("disk full")
            return append(batch)

        executor.launch = launch  # type: ignore[method-assign]
        await daemon.submit([spec(1)], OWNER)
        async with asyncio.timeout(10):
            while failures or daemon.journal.failure is not None or view(site, "1").state != "waiting":
                await asyncio.sleep(0.01)
        await site.quiet()
        assert view(site, "1").reason.code == "paused"
        assert site.world.launches == []
        await daemon.release("1", OWNER)
        await site.quiet()
        assert [handle.epoch for handle in site.world.launches] == [2]

    run_site(Site(tmp_path), script)
