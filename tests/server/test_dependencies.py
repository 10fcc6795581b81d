"""Jobs that start after others, and arrays: in the right order, all or none, over crashes, and with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, Site, spec
from trine.engine.invariants import check
from trine.inputs.job_relations import Predecessor, predecessor
from trine.server import dependencies, scheduler
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.interface import Caller, Refused
from trine.server.live_job import LiveJob
from trine.server.records import Accepted, Configured, from_body, to_body
from trine.server.replay import RecordedRun, recorded_run, redecide
from trine.server.scheduler import Scheduler
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState
from trine.server.store import Store
from trine.sim.scenario import finish_times

Script = Callable[[Site, Scheduler], Awaitable[None]]


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


def run(home: Path, script: Script, **values: Any) -> None:
    """Run a script; the journal it leaves is decided the same again, and its state survives a snapshot."""

    async def whole() -> None:
        site = Site(home, **values)
        await site.up()
        try:
            assert site.daemon is not None
            await script(site, site.daemon)
            check(site.daemon.controller.deciding)
        finally:
            await site.crash()

    asyncio.run(whole())
    store = Store.open(home / "journal.db")
    agreement, state = redecide(store.records(), Model())
    store.close()
    assert agreement.difference == ""
    again = from_snapshot(to_snapshot(state))
    assert again.jobs == state.jobs


def states(daemon: Scheduler) -> dict[str, str]:
    return {job.id: job.state for job in daemon.controller.state.jobs.values()}


def test_a_job_starts_when_its_predecessor_has_ended_well(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1), spec(1, after=["1"])], OWNER)
        await site.quiet()
        assert states(daemon) == {"1": "running", "2": "waiting"}, "although GPUs are free"
        view = daemon.job("2", OWNER)
        assert (view.after, view.position, view.reason.code) == (("1",), None, "waits-for-other-jobs")
        assert view.reason.sentence == "job 2 waits for job 1 (running) to end well."
        site.world.now = site.now = site.now + 100
        site.world.end("1")
        await site.quiet()
        assert states(daemon) == {"1": "done", "2": "running"}
        found = daemon.job("2", OWNER)
        assert found.after == ()
        assert found.eligible_s == pytest.approx(found.submitted_s + 100, abs=1)

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("condition", "rc", "after"),
    [
        ("1", 0, "running"),
        ("1", 3, "cancelled"),
        ("any:1", 0, "running"),
        ("any:1", 3, "running"),
        ("failed:1", 3, "running"),
        ("failed:1", 0, "cancelled"),
    ],
)
def test_how_a_predecessor_ends_decides(tmp_path: Path, condition: str, rc: int, after: str) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1)], OWNER)
        await daemon.submit([spec(1, after=condition)], OWNER)
        await site.quiet()
        site.world.end("1", "failed" if rc else "done", rc)
        await site.quiet()
        assert states(daemon)["2"] == after

    run(tmp_path, script)


def test_a_long_chain_is_cancelled_with_its_first_job_and_says_why(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        chain = [spec(1, name="n0"), *(spec(1, name=f"n{i}", after=[f"n{i - 1}"]) for i in range(1, 999))]
        await daemon.submit([*chain, spec(1, after=["any:n998"])], OWNER)
        await site.quiet()
        site.world.end("1", "failed", 1)
        await site.quiet()
        found = states(daemon)
        assert {found[str(number)] for number in range(2, 1000)} == {"cancelled"}
        assert found["1000"] == "running", "it is to run however the last one ends"
        assert "Job 1, which had to end well first, failed." in daemon.job("2", OWNER).reason.sentence
        assert "Job 2, which had to end well first, was cancelled." in daemon.job("3", OWNER).reason.sentence

    run(tmp_path, script)


def test_retries_and_preemptions_of_a_predecessor_are_no_end(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4, retries=1), spec(1, after=["1"])], OWNER)
        await site.quiet()
        site.world.end("1", "failed", 1)
        await site.quiet()
        assert states(daemon) == {"1": "waiting", "2": "waiting"}

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([spec(1, after=["77"])], "there is no such job"),
        ([spec(1, name="b", after=["b"])], "expected the id of a job, or the name of one before it"),
        ([spec(1, name="b", after=["c"]), spec(1, name="c")], "expected the id of a job, or the name of one before"),
        ([spec(1, after=["2"]), spec(1)], "there is no such job"),
        ([spec(1), spec(1, array="0-999")], "1,001 jobs with the elements of arrays"),
    ],
)
def test_unknown_jobs_and_cycles_are_refused_and_nothing_is_accepted(
    tmp_path: Path, jobs: list[Any], message: str
) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        with pytest.raises(Refused, match=message):
            await daemon.submit(jobs, OWNER)
        assert states(daemon) == {}

    run(tmp_path, script)


def test_a_job_after_one_that_failed_long_ago_is_refused_and_after_one_of_another_user_too(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        with pytest.raises(Refused, match="no such job"):
            await daemon.submit([spec(1, user="ada", after=["1"])], Caller("ada"))
        site.world.end("1", "failed", 1)
        await site.quiet()
        with pytest.raises(Refused, match="can never run: job 1, which had to end well first, failed"):
            await daemon.submit([spec(1, after=["1"])], OWNER)
        assert await daemon.submit([spec(1, after=["failed:1"])], OWNER) == ["2"]
        await site.quiet()
        assert states(daemon)["2"] == "running"

    run(tmp_path, script)


def test_hold_and_release_do_not_get_around_a_dependency(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1), spec(1, after=["1"]), spec(1, after=["1"])], OWNER)
        await daemon.hold("2", OWNER)
        await daemon.hold("3", OWNER)
        await daemon.release("2", OWNER)
        await site.quiet()
        assert states(daemon) == {"1": "running", "2": "waiting", "3": "held"}
        assert "job 3 waits for job 1 (running) to end well." in daemon.explain("3", OWNER).sentences
        site.world.end("1")
        await site.quiet()
        assert states(daemon) == {"1": "done", "2": "running", "3": "held"}
        await daemon.release("3", OWNER)
        await site.quiet()
        assert states(daemon)["3"] == "running"

    run(tmp_path, script)


def test_elements_of_an_array_have_their_index_and_their_own_checkpoints(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        asked = [spec(1, array="2-6:2", checkpoint={"dir": "/data/sweep"})]
        assert await daemon.submit(asked, OWNER, "request") == ["1", "2", "3"]
        assert await daemon.submit(asked, OWNER, "request") == ["1", "2", "3"], "asked again, submitted once"
        with pytest.raises(Refused, match="was used before"):
            await daemon.submit([spec(1, array="2-8:2")], OWNER, "request")
        await site.quiet()
        leases = [attempt.lease for attempt in site.world.running().values()]
        told = [[lease.env[f"TRINE_ARRAY_{name}"] for name in ("ID", "INDEX", "COUNT")] for lease in leases]
        assert told == [["1", "2", "3"], ["1", "4", "3"], ["1", "6", "3"]]
        assert [lease.checkpoint_dir for lease in leases] == [f"/data/sweep/{index}" for index in (2, 4, 6)]
        assert daemon.job("3", OWNER).array_index == 6

    run(tmp_path, script)


def test_an_array_with_a_limit_has_that_many_under_way(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1, array="0-5%2")], OWNER)
        await site.quiet()
        order = []
        while site.world.running():
            assert len(site.world.running()) <= 2
            order.append(min(site.world.running(), key=int))
            site.world.end(order[-1], "failed" if order[-1] == "3" else "done", int(order[-1] == "3"))
            await site.quiet()
        assert order == list("123456"), "an element that failed passes its turn on as well"

    run(tmp_path, script)


def test_a_waiting_element_says_whose_turn_it_is_and_a_cancelled_one_passes_its_turn(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1, array="0-2%1"), spec(1, name="sum", after=["work"])], OWNER)
        await site.quiet()
        assert "of array 1 at most 1 are under way at once" in daemon.job("2", OWNER).reason.sentence
        await daemon.cancel("2", OWNER)
        await site.quiet()
        assert states(daemon) == {"1": "running", "2": "cancelled", "3": "waiting", "4": "cancelled"}
        site.world.end("1")
        await site.quiet()
        assert states(daemon)["3"] == "running"

    run(tmp_path, script)


def test_an_array_whose_predecessor_fails_is_cancelled_as_a_whole(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1, name="first"), spec(1, array="0-3%2", after=["first"])], OWNER)
        await site.quiet()
        site.world.end("1", "failed", 1)
        await site.quiet()
        assert set(states(daemon).values()) == {"failed", "cancelled"}

    run(tmp_path, script)


def test_an_end_costs_what_it_changes_where_all_of_an_array_wait_for_all_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elements that wait for a hundred jobs each: at the end of one of those the other 99 are not looked at."""
    first = {str(number): LiveJob(str(number), "ada", "default", 1.0, spec(1), 0.0) for number in range(1, 101)}
    after = (*map(str, range(1, 100)), "any:100")
    last = {
        str(number): LiveJob(str(number), "ada", "default", 1.0, spec(1), 0.0, after=after)
        for number in range(101, 201)
    }
    live = first | last
    waits = dependencies.Dependencies(live)
    read: list[str] = []

    def noted(term: str) -> Predecessor:
        read.append(term)
        return predecessor(term)

    monkeypatch.setattr(dependencies, "predecessor", noted)
    for number, job in enumerate(first.values(), 1):
        live.pop(job.id)
        job.state = "done" if number < 100 else "failed"
        read.clear()
        follows = waits.ended(job)
        assert (len(read), len(follows.impossible)) == (100, 0), "one term of each"
        assert [one.id for one in follows.eligible] == ([] if number < 100 else list(last))
        assert {one.after for one in last.values()} == {after[number:]}


def _finish(controller: Controller, now: float) -> list[str]:
    """Let every job that is started end well, one at a time; returns them in that order."""
    ended = []
    while controller.state.live:
        controller.decide(now := now + 1)
        holders = sorted(controller.state.holders(), key=lambda job: int(job.id))
        assert holders, "jobs wait, and nothing ever starts"
        controller.started(now, holders[0].id, holders[0].epoch)
        controller.exited(now := now + 1, holders[0].id, holders[0].epoch, "done", 0, None)
        ended.append(holders[0].id)
        check(controller.deciding)
    return ended


def test_a_crash_at_any_record_loses_no_dependency(tmp_path: Path) -> None:
    """From every prefix of the journal of a pipeline, a new daemon brings the rest of it to its end, in order."""

    async def script(site: Site, daemon: Scheduler) -> None:
        first, last = spec(1, name="a"), spec(1, name="c", after=["b"])
        await daemon.submit([first, spec(1, name="b", array="0-2%2", after=["a"]), last], OWNER)
        for job_id in "12345":
            await site.quiet()
            site.world.end(job_id)
        await site.quiet()
        assert set(states(daemon).values()) == {"done"}

    run(tmp_path, script)
    store = Store.open(tmp_path / "journal.db")
    records = list(store.records())
    store.close()
    accepted = max(number for number, record in enumerate(records) if isinstance(record, Accepted))
    for count in range(accepted + 1, len(records) + 1):
        state = LiveState()
        for record in records[:count]:
            state.apply(record)
        state = from_snapshot(to_snapshot(state))
        done = [job.id for job in state.jobs.values() if not job.live]
        controller = Controller(state, Model())
        configured = next(record for record in records if isinstance(record, Configured))
        controller.again(replace(configured, at_s=state.last_s))
        assert done + _finish(controller, state.last_s) == list("12345"), f"after {count} records"


def test_records_of_older_versions_are_read_and_plain_ones_are_as_they_were() -> None:
    plain = Accepted(1.0, "1", "ada", "default", 1.0, spec(1))
    body = to_body(plain)
    assert not {"array_id", "array_index"} & body.keys() and not {"after", "array"} & body["spec"].keys()
    assert from_body("accepted", body) == plain
    element = Accepted(1.0, "2", "ada", "default", 1.0, spec(1, array="0-3", after="1"), array_id="2", array_index=0)
    assert from_body("accepted", to_body(element)) == element


def _recorded(home: Path) -> RecordedRun:
    """What the journal has of a run, as a replay simulates it."""
    store = Store.open(home / "journal.db")
    _, state = redecide(store.records(), Model())
    store.close()
    recorded = recorded_run(state, Model())
    assert recorded is not None
    return recorded


def test_a_replay_simulates_dependents_after_their_predecessors(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1), spec(1, after=["1"])], OWNER)
        for job_id in ("1", "2"):
            await site.quiet()
            site.world.now = site.now = site.now + 100
            site.world.end(job_id)
        await site.quiet()

    run(tmp_path, script)
    recorded = _recorded(tmp_path)
    finish_s = finish_times(recorded.settings, recorded.engine, recorded.jobs)
    assert finish_s["2"] >= finish_s["1"] + 99


def test_a_replay_simulates_so_many_elements_of_an_array_at_once_as_may_be(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1, array="0-4%2"), spec(1)], OWNER)
        for _ in range(3):
            await site.quiet()
            site.world.now = site.now = site.now + 100
            for job_id in sorted(site.world.running()):
                site.world.end(job_id)
        await site.quiet()
        assert set(states(daemon).values()) == {"done"}

    run(tmp_path, script)
    recorded = _recorded(tmp_path)
    assert [job.array for job in recorded.jobs] == [*["1%2"] * 5, ""]
    finish_s = finish_times(recorded.settings, recorded.engine, recorded.jobs)
    assert [finish_s[job_id] for job_id in "123456"] == pytest.approx([100, 100, 200, 200, 300, 100], abs=2)
