"""News that comes late, twice, out of order or from nowhere, and clocks that go back: nothing breaks or gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, FakeExecutor, FakeWorld, Site, spec
from trine.core.cluster import Cluster
from trine.engine.invariants import check
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    Event,
    Handle,
    LaunchFailed,
    NodeDown,
    NodeInfo,
    NodeUp,
)
from trine.executor.node_states import NodeStates
from trine.server import records as rec
from trine.server import scheduler
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.interface import Refused
from trine.server.replay import redecide
from trine.server.scheduler import Scheduler
from trine.server.state import LiveState
from trine.server.store import Store, StoreError

Script = Callable[[Site, Scheduler], Awaitable[None]]


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


class GuardedExecutor(FakeExecutor):
    """Refuses launches on nodes that are cordoned or lost; the node book is that of the local executor."""

    def __init__(self, world: FakeWorld, lost: tuple[str, ...] = ()) -> None:
        super().__init__(world)
        self.book = NodeStates(world.nodes, {}, self.put, lambda: world.now)
        self.lost = set(lost)

    def inventory(self) -> list[NodeInfo]:
        return [
            replace(node, up=False, reason="no answer") if node.name in self.lost else node
            for node in self.book.inventory()
        ]

    def lose(self, node: str) -> None:
        self.lost.add(node)
        self.put(NodeDown(node, self.world.now, "no answer"))

    def launch(self, lease: Any) -> Handle:
        try:
            self.book.check(lease.placement)
            if down := self.lost & {node for node, _ in lease.placement}:
                raise LaunchRefused(f"{min(down)} is down")
        except LaunchRefused as refusal:
            self.put(LaunchFailed(lease.handle, self.world.now, str(refusal)))
            return Handle(lease.job_id, lease.epoch)
        return super().launch(lease)

    def cordon(self, node: str, reason: str) -> None:
        self.book.cordon(node, reason)

    def uncordon(self, node: str) -> None:
        self.book.uncordon(node)


def run(home: Path, script: Script, guarded: bool = False, **values: Any) -> None:
    """Run a script and check that the journal it leaves is decided the same again."""

    async def whole() -> None:
        site = Site(home, **values)
        await site.up(GuardedExecutor(site.world) if guarded else None)
        try:
            assert site.daemon is not None
            await script(site, site.daemon)
        finally:
            await site.crash()

    asyncio.run(whole())
    store = Store.open(home / "journal.db")
    agreement, _ = redecide(store.records(), Model())
    store.close()
    assert agreement.difference == ""


async def tell(site: Site, *events: Event) -> None:
    for event in events:
        site.world.tell(event)
    await site.quiet()
    assert site.daemon is not None
    check(site.daemon.controller.deciding)


def states(site: Site) -> dict[str, str]:
    assert site.daemon is not None
    return {job.id: job.state for job in site.daemon.controller.state.jobs.values()}


def test_two_exits_of_one_epoch_are_one(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4), spec(4)], OWNER)
        await site.quiet()
        first = Handle("1", 1)
        site.world.attempts[first].end = AttemptExited(first, site.now, "lost", 137)
        await tell(site, AttemptExited(first, site.now, "lost", 137), AttemptExited(first, site.now, "lost", 137))
        assert states(site) == {"1": "running", "2": "waiting"}
        await tell(site, AttemptExited(first, site.now, "failed", 1), AttemptExited(first, site.now, "done", 0))
        assert states(site) == {"1": "running", "2": "waiting"}, "the second start has nothing to do with it"
        assert daemon.job("1", OWNER).attempt == 2
        assert first in site.world.forgotten

    run(tmp_path, script)


def test_news_of_unknown_jobs_and_epochs_is_ignored(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        before = daemon.store.seq
        for handle in (Handle("99", 1), Handle("1", 7), Handle("no-number", 1)):
            news = (
                AttemptStarted(handle, site.now),
                AttemptProgress(handle, site.now, 5, 1.0, None, 5),
                AttemptExited(handle, site.now, "done", 0),
                LaunchFailed(handle, site.now, "no such thing"),
            )
            await tell(site, *news)
            assert handle in site.world.forgotten, "the executor need not keep it"
        await site.tick(60)
        assert states(site) == {"1": "running"}
        assert daemon.store.seq <= before + 1, "nothing of it is worth a record"

    run(tmp_path, script)


def test_a_start_confirmed_after_its_end_changes_nothing(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(1), spec(1)], OWNER)
        await site.quiet()
        site.world.end("1")
        site.world.end("2", "lost", 137)
        await tell(site, AttemptStarted(Handle("1", 1), site.now), AttemptStarted(Handle("2", 1), site.now))
        assert states(site) == {"1": "done", "2": "running"}
        await tell(site, AttemptStarted(Handle("2", 2), site.now), AttemptStarted(Handle("2", 2), site.now))
        assert states(site) == {"1": "done", "2": "running"}

    run(tmp_path, script)


def test_a_job_may_end_before_its_start_is_confirmed() -> None:
    for outcome, expected in (("done", "done"), ("failed", "failed"), ("lost", "waiting"), ("preempted", "waiting")):
        controller = Controller(LiveState(), Model())
        controller.configure(0.0, "test", Cluster.uniform(1, 1), "fifo", "packed", {})
        controller.submit(0.0, 1.0, spec(1))
        controller.tick(1.0)
        assert controller.exited(2.0, "1", 1, outcome, 0, None) is not None
        check(controller.deciding)
        assert controller.state.jobs["1"].state == expected
        assert controller.started(3.0, "1", 1) is None


def test_a_launch_that_fails_says_why_and_frees_the_gpus(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4), spec(4)], OWNER)
        await site.quiet()
        handle = Handle("1", 1)
        del site.world.attempts[handle]
        await tell(site, LaunchFailed(handle, site.now, "there is no directory /data"))
        assert states(site) == {"1": "failed", "2": "running"}
        assert "there is no directory /data" in daemon.job("1", OWNER).reason.sentence

    run(tmp_path, script)


def test_a_job_that_comes_back_with_an_older_checkpoint_does_not_end_the_daemon(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        site.world.obedient = False
        await daemon.submit([spec(4, steps=100.0)], OWNER)
        for checkpoint, other in ((40, "2"), (10, "3")):
            await site.quiet()
            await daemon.submit([spec(4, priority=5.0)], OWNER)
            await site.tick(60)
            assert site.world.running()["1"].asked_to_stop
            site.world.tell(
                AttemptProgress(site.world.running()["1"].lease.handle, site.now, 50, 1.0, None, checkpoint)
            )
            site.world.end("1", "preempted", 85)
            await site.quiet()
            assert daemon.controller.state.jobs["1"].safe == checkpoint
            site.world.end(other)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "done", "3": "done"}

    run(tmp_path, script, policy="srtf")


def test_a_job_of_unknown_length_may_count_as_many_steps_as_it_likes(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(4)], OWNER)
        await site.quiet()
        site.world.work("1", 100_000, rate=500.0)
        await site.tick(60)
        await daemon.submit([spec(4, priority=5.0)], OWNER)
        await site.tick(60)
        check(daemon.controller.deciding)
        assert states(site) == {"1": "waiting", "2": "running"}
        site.world.end("2")
        await site.quiet()
        assert site.world.running()["1"].step == 100_000

    run(tmp_path, script, policy="las")


def test_a_clock_that_goes_back_moves_nothing_back(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(2), spec(2)], OWNER)
        await site.quiet()
        await site.tick(100)
        site.now -= 5000
        await daemon.submit([spec(2)], OWNER)
        site.world.work("1", 10)
        await site.tick(10)
        site.world.end("1")
        await site.quiet()
        state = daemon.controller.state
        times = [line.at_s for job in state.jobs.values() for line in job.story]
        assert min(times) >= 1_000_000.0 and state.jobs["1"].attained_s >= 0
        assert states(site) == {"1": "done", "2": "running", "3": "running"}
        stamps = [record.at_s for record in daemon.store.records()]
        assert stamps == sorted(stamps)

    run(tmp_path, script, policy="fifo")


def test_a_restart_with_a_clock_set_back_goes_on_from_the_last_record(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(2)], OWNER)
        await site.quiet()
        await site.crash()
        site.now -= 100_000
        daemon = await site.up()
        await daemon.submit([spec(2)], OWNER)
        await site.tick(60)
        assert states(site) == {"1": "running", "2": "running"}
        stamps = [record.at_s for record in daemon.store.records()]
        assert stamps == sorted(stamps)

    run(tmp_path, script)


# -- nodes ----------------------------------------------------------------------------------------------------------


def test_a_lost_node_takes_no_jobs_until_it_is_back(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.submit([spec(2)], OWNER)
        await site.quiet()
        node = daemon.job("1", OWNER).placement[0].node
        await tell(site, NodeDown(node, site.now, "no answer"))
        site.world.end("1", "lost", 137)
        await site.quiet()
        found = {view.name: (view.state, view.reason) for view in daemon.nodes()}
        assert found.pop(node) == ("down", "no answer") and set(found.values()) == {("up", "")}
        assert daemon.job("1", OWNER).placement[0].node != node
        await daemon.submit([spec(2)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting"}
        await tell(site, NodeUp(node, site.now))
        assert states(site) == {"1": "running", "2": "running"}

    run(tmp_path, script)


def test_a_drain_outlives_an_outage_and_an_outage_outlives_an_undrain(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        def state() -> str:
            return next(view.state for view in daemon.nodes() if view.name == "node0")

        await daemon.drain("node0", "new fan", OWNER)
        await tell(site, NodeDown("node0", site.now, "no answer"))
        assert state() == "down"
        await tell(site, NodeUp("node0", site.now))
        assert state() == "drained", "the operator has not said that it may be used again"
        await tell(site, NodeDown("node0", site.now, "no answer"))
        assert (await daemon.undrain("node0", OWNER)).state == "down", "saying so does not bring a machine back"
        await daemon.submit([spec(4)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "waiting"}
        await tell(site, NodeUp("node0", site.now))
        assert state() == "up" and states(site) == {"1": "running"}

    run(tmp_path, script)


def test_node_news_twice_or_of_unknown_nodes_changes_nothing(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await tell(site, NodeUp("node0", 0.0), NodeUp("nowhere", 0.0))
        await tell(site, NodeDown("node1", 0.0, "x"), NodeDown("node1", 0.0, "y"), NodeDown("nowhere", 0.0, "z"))
        await daemon.submit([spec(2), spec(2)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting"}
        await tell(site, NodeUp("node1", 0.0), NodeUp("node1", 0.0))
        assert states(site) == {"1": "running", "2": "running"}

    run(tmp_path, script)


def test_a_node_drained_before_a_restart_can_be_undrained_after_it(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await daemon.drain("node0", "new fan", OWNER)
        await site.quiet()
        await site.crash()
        daemon = await site.up(GuardedExecutor(site.world))
        await daemon.submit([spec(4), spec(2)], OWNER)
        await site.quiet()
        await daemon.undrain("node0", OWNER)
        await site.tick(60)
        assert states(site) == {"1": "running", "2": "waiting"}, daemon.job("1", OWNER).reason.sentence

    run(tmp_path, script, guarded=True)


def test_a_start_that_waits_for_gpus_of_a_node_is_placed_again_when_the_node_is_drained(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        site.world.obedient = False
        await daemon.submit([spec(2), spec(2)], OWNER)
        await daemon.submit([spec(2, priority=5.0)], OWNER)
        await site.tick(60)
        (stopping,) = [job for job, state in states(site).items() if state == "stopping"]
        await daemon.drain(daemon.job(stopping, OWNER).placement[0].node, "", OWNER)
        await site.quiet()
        site.world.let_stop(stopping)
        await site.quiet()
        assert "failed" not in states(site).values(), "it was started on a node that takes no jobs"
        assert states(site)["3"] == "waiting"

    run(tmp_path, script, guarded=True, policy="srtf")


def test_what_happened_to_nodes_while_the_daemon_was_away_is_noticed(tmp_path: Path) -> None:
    async def script(site: Site, daemon: Scheduler) -> None:
        await tell(site, NodeDown("node0", site.now, "no answer"))
        await daemon.drain("node2", "gone soon", OWNER)
        await site.crash()
        site.cluster = Cluster.uniform(2, 2)
        site.world.nodes = site.world.nodes[:2]
        daemon = await site.up(GuardedExecutor(site.world, lost=("node1",)))
        await daemon.submit([spec(2), spec(2)], OWNER)
        await site.quiet()
        assert {view.name: view.state for view in daemon.nodes()} == {"node0": "up", "node1": "down"}
        assert states(site) == {"1": "running", "2": "waiting"}
        assert daemon.job("1", OWNER).placement[0].node == "node0"

    run(tmp_path, script, guarded=False, gpus="3x2")


# -- the journal cannot be written for a while ----------------------------------------------------------------------


class FullStore(Store):
    full = False

    def append(self, batch: Any) -> int:
        if self.full:
            raise StoreError("journal.db: the journal cannot be written: disk is full")
        return super().append(batch)


def test_starts_and_outages_told_while_the_journal_failed_are_not_forgotten(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        store = FullStore.open(tmp_path / "journal.db")
        world = site.world
        executor = GuardedExecutor(world)
        daemon = await site.up(executor, store)
        held_back: list[Event] = []
        world.tell = held_back.append  # type: ignore[method-assign,assignment]
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "starting"}
        store.full = True
        for event in held_back:
            executor.put(event)
        executor.lose("node1")
        async with asyncio.timeout(30):
            while daemon.journal.failure is None:
                await asyncio.sleep(0.005)
        store.full = False
        await site.recovered()
        assert states(site) == {"1": "running"}
        assert {view.name: view.state for view in daemon.nodes()} == {"node0": "up", "node1": "down"}
        await site.crash()

    asyncio.run(script())


def test_a_job_too_large_without_the_excluded_gpus_is_refused(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, gpus="3x4", placement="exclude-outliers-sticky")
        site.cluster = replace(site.cluster, scores={"A": (6.0, *(1.0,) * 11)})
        daemon = await site.up()
        with pytest.raises(Refused, match="asks for 12 GPUs of one type, and the placement leaves 11 in use"):
            await daemon.submit([spec(12)], OWNER)
        assert await daemon.submit([spec(11)], OWNER) == ["1"]
        await site.crash()

    asyncio.run(script())


def test_every_kind_of_record_is_read_back_as_it_was_written() -> None:
    controller = Controller(LiveState(), Model())
    records = [controller.configure(0.0, "test", Cluster.uniform(1, 2), "srtf", "packed", {"round_s": 30})]
    records.append(controller.submit(1.0, 2.0, spec(2, steps=10.0, env={"A": "b"}, deadline=60.0), "request"))
    records.append(controller.tick(2.0))
    records.append(controller.change_node(3.0, "node0", "drained", "why", "me"))
    records.append(controller.ask(4.0, "1", "hold", "me"))
    records += filter(None, [controller.exited(5.0, "1", 1, "preempted", 85, 4.0, "in time")])
    for record in records:
        assert rec.from_body(record.kind, rec.to_body(record)) == record
    with pytest.raises(rec.JournalError, match="kind 'dreamt'"):
        rec.from_body("dreamt", {})
    with pytest.raises(rec.JournalError, match="expected fields"):
        rec.from_body("asked", {"at_s": 1.0, "surprise": 2})
