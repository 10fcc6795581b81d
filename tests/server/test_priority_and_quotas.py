"""Priorities of jobs and quotas of users and queues change while the daemon runs: who may, what follows, what stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, MortalStore, Site, run_site, spec
from trine.server import records as rec
from trine.server import scheduler
from trine.server.access import Access, Queue, UserLimits
from trine.server.board import JOB_COLUMNS
from trine.server.build import Model
from trine.server.configuration import quotas_of
from trine.server.interface import Caller, NotFound, Refused
from trine.server.replay import redecide
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState
from trine.server.store import Store

ANN, BEN = Caller("ann"), Caller("ben")
ACCESS = Access(
    {"default": Queue("default", max_priority=3.0), "prod": Queue("prod", max_gpus=4)}, {"ben": UserLimits(max_gpus=2)}
)


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


def made(home: Path, **values: Any) -> Site:
    return Site(home, access=ACCESS, model=Model(quotas=quotas_of(ACCESS)), **values)


def refused(error: pytest.ExceptionInfo[Refused]) -> tuple[str, str]:
    return error.value.code, str(error.value)


# -- priorities -----------------------------------------------------------------------------------------------------


def test_a_waiting_job_with_a_higher_priority_starts_before_those_that_came_earlier(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.submit([spec(4), spec(4), spec(4)], OWNER)
        await site.quiet()
        at = JOB_COLUMNS.index("priority")
        assert daemon.board().rows["3"][at] == 0.0
        assert (await daemon.set_priority("3", 2.0, OWNER)).priority == 2.0
        assert daemon.board().rows["3"][at] == 2.0, "the dashboard shows it too"
        site.world.end("1")
        await site.quiet()
        assert list(site.world.running()) == ["3"]
        told = daemon.explain("3", OWNER).story
        assert [line.sentence for line in told if line.what == f"priority 2 asked by {OWNER.user}"] == ["It was 0."]

    run_site(made(tmp_path), script)


def test_a_running_job_that_is_lowered_makes_way_in_the_next_round(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.submit([spec(4, steps=1e4), spec(4, steps=1e4)], OWNER)
        await site.quiet()
        await site.tick(60)
        assert list(site.world.running()) == ["1"]
        await daemon.set_priority("1", -1.0, OWNER)
        await site.quiet()
        assert list(site.world.running()) == ["1"], "nothing is stopped between rounds"
        await site.tick(60)
        assert list(site.world.running()) == ["2"]

    run_site(made(tmp_path, policy="srtf"), script)


def test_owners_stay_within_their_queue_and_others_find_no_job(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.submit([spec(1, user="ann")], ANN)
        assert (await daemon.set_priority("1", 3.0, ANN)).priority == 3.0
        with pytest.raises(Refused) as error:
            await daemon.set_priority("1", 4.0, ANN)
        assert refused(error) == ("forbidden", "Priority 4 is above 3, the highest in queue default.")
        with pytest.raises(NotFound):
            await daemon.set_priority("1", 0.0, BEN)
        assert (await daemon.set_priority("1", 99.0, OWNER)).priority == 99.0, "administrators may choose any"
        assert (await daemon.set_priority("1", -5.0, ANN)).priority == -5.0
        await site.quiet()
        site.world.end("1")
        await site.quiet()
        with pytest.raises(Refused) as error:
            await daemon.set_priority("1", 1.0, ANN)
        assert error.value.code == "ended"
        assert daemon.job("1", ANN).priority == -5.0

    run_site(made(tmp_path), script)


# -- quotas ---------------------------------------------------------------------------------------------------------


def test_a_quota_that_is_raised_lets_waiting_jobs_start_and_larger_ones_in(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.submit([spec(2, user="ben"), spec(2, user="ben")], BEN)
        await site.quiet()
        assert list(site.world.running()) == ["1"]
        assert "user ben may hold 2" in daemon.explain("2", BEN).sentences[0]
        with pytest.raises(Refused, match="may use 2 at once"):
            await daemon.submit([spec(3, user="ben")], BEN)
        found = await daemon.set_quotas({"user:ben": 4}, OWNER)
        ben = next(view for view in found if view.name == "ben")
        assert (ben.max_gpus, ben.configured, ben.changed_by) == (4, 2, OWNER.user)
        await site.quiet()
        assert sorted(site.world.running()) == ["1", "2"]
        assert await daemon.submit([spec(3, user="ben")], BEN) == ["3"]
        assert next(share.max_gpus for share in daemon.shares(OWNER) if share.name == "ben") == 4

    run_site(made(tmp_path), script)


def test_a_quota_that_is_lowered_stops_nobody_and_says_what_a_larger_job_waits_for(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.submit([spec(3, user="ann"), spec(3, user="ann")], ANN)
        await site.quiet()
        await daemon.set_quotas({"user:ann": 1}, OWNER)
        await site.tick(60)
        assert list(site.world.running()) == ["1"]
        reason = daemon.job("2", ANN).reason
        assert "user ann may hold 1" in reason.sentence
        assert reason.change == "It is larger than the quota and starts only when an administrator raises that."
        site.world.end("1")
        await site.quiet()
        assert not list(site.world.running())
        await daemon.set_quotas({"user:ann": None}, OWNER)
        await site.quiet()
        assert list(site.world.running()) == ["2"]

    run_site(made(tmp_path), script)


def test_quotas_are_changed_by_administrators_all_or_none(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        with pytest.raises(Refused) as error:
            await daemon.set_quotas({"user:ann": 1}, ANN)
        assert error.value.code == "not-admin"
        with pytest.raises(NotFound, match=r"there is no queue 'prd' \(did you mean 'prod'\?\)"):
            await daemon.set_quotas({"user:ann": 1, "queue:prd": 1}, OWNER)
        for wrong in ({"ann": 1}, {"user:": 1}, {"user:a b": 1}, {"user:ann": -1}):
            with pytest.raises(Refused) as error:
                await daemon.set_quotas(wrong, OWNER)
            assert error.value.code == "invalid"
        assert daemon.controller.state.quotas == {}
        await daemon.set_quotas({"user:ann": 1, "queue:prod": 8}, OWNER)
        seen = {(view.kind, view.name): view.max_gpus for view in daemon.quotas(ANN)}
        assert seen == {("queue", "default"): None, ("queue", "prod"): 8, ("user", "ann"): 1}, "ben's is not hers"
        records = daemon.store.seq
        await daemon.set_quotas({"user:ann": 1}, OWNER)
        assert daemon.store.seq == records, "what is so already is not written again"
        found = await daemon.set_quotas({"user:ann": "default", "queue:prod": "default"}, OWNER)
        assert {view.name: view.max_gpus for view in found} == {"default": None, "prod": 4, "ben": 2}
        assert daemon.controller.state.quotas == {}

    run_site(made(tmp_path), script)


# -- on record -------------------------------------------------------------------------------------------------------


async def changes(site: Site) -> None:
    """Jobs, a priority and quotas, each of which is decided on."""
    daemon = site.daemon
    assert daemon is not None
    await daemon.submit([spec(4, user="ann"), spec(4, user="ann"), spec(2, user="ann"), spec(2, user="ann")], ANN)
    await site.quiet()
    await daemon.set_priority("3", 2.0, ANN)
    await daemon.set_quotas({"user:ann": 2, "queue:default": None}, OWNER)
    site.world.end("1")
    await site.quiet()


def standing(daemon: scheduler.Scheduler) -> tuple[Any, ...]:
    state = daemon.controller.state
    return {job.id: (job.state, job.spec.priority) for job in state.jobs.values()}, dict(state.quotas)


@pytest.mark.parametrize("in_order", [True, False], ids=["stopped", "killed"])
def test_both_outlive_a_restart_and_are_decided_the_same_again(in_order: bool, tmp_path: Path) -> None:
    async def whole() -> None:
        site = made(tmp_path)
        daemon = await site.up()
        await changes(site)
        assert list(site.world.running()) == ["3"], "it goes first, and the quota has room for it alone"
        before = standing(daemon)
        if in_order:
            await daemon.stop()
        await site.crash()
        daemon = await site.up()
        await site.quiet()
        assert standing(daemon) == before
        assert daemon.controller.deciding.quotas.by_user == {"ben": 2, "ann": 2}
        site.world.end("3")
        await site.quiet()
        assert list(site.world.running()) == ["4"]
        await site.crash()

    asyncio.run(whole())
    store = Store.open(tmp_path / "journal.db")
    try:
        agreement, _ = redecide(store.records(), Model())
    finally:
        store.close()
    assert agreement.difference == "" and agreement.decisions >= 3


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("kind", [rec.PriorityChanged, rec.QuotasChanged])
def test_what_was_acknowledged_is_there_after_a_crash(kind: type, after_commit: bool, tmp_path: Path) -> None:
    async def whole() -> None:
        site = made(tmp_path)
        store = MortalStore.open(tmp_path / "journal.db")
        daemon = await site.up(store=store)
        await daemon.submit([spec(4), spec(2)], OWNER)
        await site.quiet()
        store.dies_at, store.after_commit = store.seq + 1, after_commit
        asked = (
            daemon.set_priority("2", 2.0, OWNER)
            if kind is rec.PriorityChanged
            else daemon.set_quotas({"user:ann": 2}, OWNER)
        )
        writer, answer = daemon._tasks[0], asyncio.ensure_future(asked)
        await asyncio.wait([writer, answer], return_when=asyncio.FIRST_COMPLETED)
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        await site.crash()
        daemon = await site.up()
        state = daemon.controller.state
        there = state.jobs["2"].spec.priority == 2.0 if kind is rec.PriorityChanged else "user:ann" in state.quotas
        assert there is after_commit
        await site.crash()

    asyncio.run(whole())


def test_a_snapshot_of_before_has_no_changed_quotas() -> None:
    state = LiveState()
    state.apply(rec.QuotasChanged(5.0, {"user:ann": 3, "queue:prod": None}, "root"))
    body = json.loads(json.dumps(to_snapshot(state)))
    assert from_snapshot(body).quotas == state.quotas
    del body["quotas"]
    assert from_snapshot(body).quotas == {}
