"""One fault stays one fault: no job, policy, placement or record ends the daemon or keeps it from starting."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.server.site import OWNER, Site, run_site, spec
from tests.server.test_scheduler import states, submit, view
from trine.core.plugins import discover
from trine.inputs.job_spec import JobSpec
from trine.policy.base import Policy
from trine.server import records as rec
from trine.server.build import build_engine
from trine.server.containment import MAX_ASIDE, culprit
from trine.server.store import Store

POLICY = """
from dataclasses import dataclass
from typing import ClassVar

from trine.policy.base import KeyPolicy
from trine.policy.view import Floats, View


@dataclass
class Touchy(KeyPolicy):
    name: ClassVar[str] = "touchy"
    title: ClassVar[str] = "fails on some jobs"

    def key(self, view: View) -> Floats:
        if {condition}:
            raise ZeroDivisionError("three GPUs are too much")
        return view.submit_s
"""
PLACEMENT = """
from dataclasses import dataclass
from typing import ClassVar

from trine.placement.packed import Packed


@dataclass
class Touchy(Packed):
    name: ClassVar[str] = "touchy"
    title: ClassVar[str] = "fails on some jobs"

    def place(self, ask, pool):
        job = ask.job
        if {condition}:
            raise KeyError("no such GPU")
        return super().place(ask, pool)
"""


def policy_file(folder: Path, condition: str = "(view.gpus == 3).any()") -> str:
    path = folder / "touchy.py"
    path.write_text(POLICY.replace("{condition}", condition))
    return str(path)


def placement_file(folder: Path, condition: str = "job.gpus == 3") -> str:
    path = folder / "touchy_placement.py"
    path.write_text(PLACEMENT.replace("{condition}", condition))
    return str(path)


def test_a_job_that_the_policy_fails_on_is_set_aside_and_the_others_run(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 1, 3, 1)
        assert states(site) == {"1": "running", "2": "set aside", "3": "running"}
        told = view(site, "2").reason
        assert told.code == "set-aside" and "three GPUs are too much" in told.sentence
        assert "trine release 2" in told.change
        assert any(line.what == "set aside" for line in daemon.explain("2", OWNER).story)
        assert b'trine_jobs{state="set aside"} 1.0' in daemon.metrics()
        assert b"trine_internal_errors_total 0.0" not in daemon.metrics()
        await daemon.release("2", OWNER)
        await site.quiet()
        assert states(site)["2"] == "set aside", "tried again, with the same result"
        await site.crash()
        daemon = await site.up()
        await site.quiet()
        assert states(site) == {"1": "running", "2": "set aside", "3": "running"}
        await daemon.cancel("2", OWNER)
        assert states(site)["2"] == "cancelled"

    run_site(Site(tmp_path, policy=policy_file(tmp_path)), script)


def test_a_running_job_that_the_policy_comes_to_fail_on_keeps_running(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2, 1, steps=1000.0)
        site.world.work("1", 500)
        await site.tick(after_s=60)
        assert states(site) == {"1": "running", "2": "running"}
        await submit(site, 1)
        await site.tick(after_s=60)
        assert states(site) == {"1": "running", "2": "running", "3": "running"}
        assert site.daemon.controller.state.jobs["1"].aside  # type: ignore[union-attr]
        site.world.end("1")
        await site.quiet()
        assert states(site)["1"] == "done"

    run_site(Site(tmp_path, policy=policy_file(tmp_path, "(view.done > 100).any()")), script)


def test_a_policy_that_fails_for_all_gives_way_to_fifo_and_says_so(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 2, 2, 1)
        assert states(site) == {"1": "running", "2": "running", "3": "waiting"}
        assert any("fails for all jobs" in problem for problem in daemon.daemon().problems)
        assert "fails for all jobs" in " ".join(daemon.explain("3", OWNER).sentences)
        assert b"trine_policy_fallback 1.0" in daemon.metrics()
        await site.crash()
        daemon = await site.up()
        await site.quiet()
        assert states(site)["3"] == "waiting", "the next start tries the policy again, and falls back again"
        site.world.end("1")
        await site.quiet()
        assert states(site)["3"] == "running"

    run_site(Site(tmp_path, policy=policy_file(tmp_path, "True")), script)


def test_a_placement_that_fails_for_one_job_costs_only_that_job(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 3, 1)
        assert states(site) == {"1": "set aside", "2": "running"}

    run_site(Site(tmp_path, placement=placement_file(tmp_path)), script)


def test_a_placement_that_fails_for_all_gives_way_to_packed(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 3, 1)
        assert states(site) == {"1": "running", "2": "running"}
        fallback = site.daemon.controller.state.fallback  # type: ignore[union-attr]
        assert fallback is not None and fallback.placement == "packed-sticky"

    run_site(Site(tmp_path, placement=placement_file(tmp_path, "True")), script)


def test_the_culprit_among_thousands_is_found_in_a_dozen_trials() -> None:
    jobs, trials = [str(i) for i in range(5_000)], 0

    def trial(only: Any, harmless: bool) -> BaseException | None:
        nonlocal trials
        trials += 1
        return ValueError("bad") if "1234" in only else None

    assert culprit(jobs, trial) == "1234"
    assert trials < 30
    assert culprit(jobs, lambda only, harmless: ValueError("always")) is None
    together = culprit(list("abcd"), lambda only, _: ValueError("both") if {"a", "d"} <= set(only) else None)
    assert together == "d", "the newest of those that fail together"


OLD_NUMBERS = {"steps": 1e15, "max_runtime": 5e-324}


@pytest.mark.parametrize("policy", sorted(discover("trine.policy", Policy)))
def test_numbers_that_an_earlier_version_took_stop_no_policy(tmp_path: Path, policy: str) -> None:
    """Not even if they came around all bounds: as if the record had been made by a version without any."""

    async def script(site: Site) -> None:
        await site.up()
        await submit(site, 1)
        daemon = site.daemon
        assert daemon is not None
        hostile = spec(1).model_copy(update=OLD_NUMBERS)
        for _ in range(2):
            await daemon.write([daemon.controller.submit(daemon.now(), 1.0, hostile)])
            await site.quiet()
        await submit(site, 1)
        await site.tick(after_s=60)
        assert states(site)["1"] == states(site)["4"] == "running"
        await site.crash()
        await site.up()
        await submit(site, 1)
        await site.tick(after_s=60)
        assert states(site)["5"] == "running"
        assert site.daemon is not None
        await site.daemon.stop()

    asyncio.run(script(Site(tmp_path, gpus="2x4", policy=policy)))


def test_a_record_that_cannot_be_applied_is_kept_reported_and_skipped(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await site.up()
        await submit(site, 1)
        assert site.daemon is not None
        await site.daemon.stop(keep_snapshot=False)
        site.daemon.executor.close()
        site.daemon.store.close()
        store = Store.open(tmp_path / "journal.db")
        store.load()
        store.append([rec.ActionRequested(2_000_000.0, "77", "cancel", "somebody")])
        damaged = rec.Accepted(2_000_000.0, "9", "me", "default", 1.0, JobSpec(run=("true",)))
        store.append([damaged])
        nonsense = rec.Accepted(2_000_000.0, "10", "me", "default", 1.0, spec().model_copy(update={"name": "\n"}))
        store.append([nonsense])
        store.close()
        with sa.create_engine(f"sqlite:///{tmp_path / 'journal.db'}").begin() as connection:
            count = connection.execute(sa.text("select count(*) from journal")).scalar_one()
        daemon = await site.up()
        await site.quiet()
        assert states(site)["1"] == "running" and states(site)["9"] in ("running", "waiting")
        assert any("(asked) cannot be applied" in problem for problem in daemon.daemon().problems)
        assert any("(accepted) cannot be applied" in problem for problem in daemon.daemon().problems)
        assert b"trine_skipped_records 2.0" in daemon.metrics()
        with sa.create_engine(f"sqlite:///{tmp_path / 'journal.db'}").begin() as connection:
            after = connection.execute(sa.text("select count(*) from journal")).scalar_one()
        assert after >= count, "it is kept"
        await daemon.stop()

    asyncio.run(script(Site(tmp_path)))


def test_an_error_of_ours_is_reported_and_the_daemon_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        ids = await submit(site, 1, 1)
        broken = daemon.leases.hear
        monkeypatch.setattr(daemon.leases, "hear", lambda _: 1 / 0)
        site.world.work(ids[0], 5)
        site.world.end(ids[1])
        await site.quiet()
        assert states(site) == {"1": "running", "2": "done"}, "the event after the bad one counts"
        monkeypatch.setattr(daemon.leases, "hear", broken)
        await submit(site, 1)
        assert states(site)["3"] == "running"

    run_site(Site(tmp_path), script)


def test_more_bad_jobs_than_can_be_set_aside_at_once_keep_nobody_waiting(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        bad = [spec(3) for _ in range(MAX_ASIDE + 10)]
        await daemon.submit([*bad, spec(1, priority=1.0)], OWNER)
        await site.quiet()
        found = states(site)
        assert list(found.values()).count("set aside") == MAX_ASIDE
        assert daemon.controller.state.fallback is not None, "the rest of them are not waited for"
        assert "running" in found.values()

    run_site(Site(tmp_path, policy=policy_file(tmp_path)), script)


def test_a_trial_is_not_slower_for_jobs_that_take_no_part_in_it(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, *[1] * 20)
        state = daemon.controller.state
        engine, job_indices = build_engine(state, daemon.model, daemon.now(), {"15"})
        assert set(job_indices) == {*(job.id for job in state.holders()), "15"} and len(engine.table) == len(
            job_indices
        )

    run_site(Site(tmp_path), script)
