"""A daemon without HTTP, in this process: start it, drive it, let it die at any moment, start it again.

``FakeWorld`` stands for the processes: it survives the daemon, gives every GPU to one attempt, or to two that name each
other, and does what the test says. Any others on one GPU, or two attempts of one job, fail the test at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trine.core.cluster import Cluster
from trine.executor.attempt.storage import DirectoryStorage
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    EngineDown,
    Event,
    Executor,
    Handle,
    JobLease,
    LaunchFailed,
    NodeInfo,
    Placement,
    Unreachable,
)
from trine.executor.local.inventory import nodes_of
from trine.inputs.cluster import load_cluster
from trine.inputs.job_spec import JobSpec
from trine.server.access import Access
from trine.server.build import Model
from trine.server.clock import JournalClock
from trine.server.configuration import Setup
from trine.server.interface import Caller
from trine.server.inventory import cluster_of, is_cluster_of, node_info
from trine.server.leases import Leases
from trine.server.records import Sharing
from trine.server.scheduler import Scheduler
from trine.server.store import Store

_PATIENCE_S = 30.0
OWNER = Caller("owner", admin=True)
NO_ROUNDS = 3600.0
"""Rounds that never come by themselves: the test ticks."""


def spec(gpus: int = 1, **values: Any) -> JobSpec:
    return JobSpec.model_validate({"run": ["work"], "gpus": gpus, "user": "owner", "queue": "default"} | values)


class Killed(BaseException):
    """The daemon is dead from here on."""


class MortalStore(Store):
    """Dies at a chosen record, before or after that record is on disk."""

    dies_at: int | None = None
    after_commit: bool = False

    def append(self, batch: Any) -> int:
        records = list(batch)
        due = self.dies_at is not None and self.seq < self.dies_at <= self.seq + len(records)
        if due and not self.after_commit:
            raise Killed
        seq = super().append(records)
        if due:
            raise Killed
        return seq


@dataclass
class Attempt:
    """One start of a job, as the world sees it."""

    lease: JobLease
    step: int = 0
    asked_to_stop: bool = False
    shares_with: str = ""
    end: AttemptExited | None = None

    @property
    def gpus(self) -> set[tuple[str, int]]:
        return {(node, gpu) for node, gpus in self.lease.placement for gpu in gpus}


@dataclass
class FakeWorld:
    """Processes under the test's control; outlives daemons. ``obedient``: a job told to stop does so at once."""

    nodes: list[NodeInfo]
    home: Path = Path("/nonexistent")
    """Where jobs keep their files."""
    obedient: bool = True
    saves: bool = True
    """Jobs that are told to stop save their work; else SIGTERM ends them."""
    attempts: dict[Handle, Attempt] = field(default_factory=dict)
    forgotten: set[Handle] = field(default_factory=set)
    safe: dict[str, int] = field(default_factory=dict)
    """Steps of each job that a checkpoint holds."""
    launches: list[Handle] = field(default_factory=list)
    lingering: bool = False
    """Killing takes a while: what was killed ends when the test says so."""
    killed: list[Handle] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """What no daemon may ever do, and one did."""
    away: str = ""
    """Why the engine cannot be asked, if it cannot."""
    refuses: str = ""
    """Why no launch works at the moment, if none does."""
    now: float = 0.0
    listeners: list[FakeExecutor] = field(default_factory=list)

    def running(self) -> dict[str, Attempt]:
        return {handle.job_id: attempt for handle, attempt in self.attempts.items() if attempt.end is None}

    def launch(self, lease: JobLease) -> None:
        try:
            self._launch(lease)
        except AssertionError as error:  # the daemon goes on whatever an executor does; the test shall not
            self.violations.append(str(error))
            raise

    def _launch(self, lease: JobLease) -> None:
        assert not self.away, f"{lease.handle} is launched while the engine is away"
        if lease.handle in self.attempts:
            return
        if self.refuses:
            self.tell(LaunchFailed(lease.handle, self.now, self.refuses, passing=True))
            return
        attempt = Attempt(lease, self.safe.get(lease.job_id, 0), shares_with=lease.shares_with)
        for job_id, other in self.running().items():
            assert job_id != lease.job_id, f"{lease.handle} starts while {other.lease.handle} still runs"
            if attempt.gpus & other.gpus:
                named = (lease.shares_with, other.shares_with) == (job_id, lease.job_id)
                assert named, f"{lease.handle} gets GPUs that {other.lease.handle} holds"
                assert attempt.gpus == other.gpus, f"{lease.handle} shares only some GPUs of {other.lease.handle}"
        there = [one for one in self.running().values() if one.gpus & attempt.gpus]
        assert len(there) < 2, f"{lease.handle} would be the third on its GPUs"
        self.attempts[lease.handle] = attempt
        self.launches.append(lease.handle)
        self.tell(AttemptStarted(lease.handle, self.now))

    def work(self, job_id: str, steps: int, total: int | None = None, rate: float = 1.0) -> None:
        """The job gets on and reports."""
        attempt = self.running()[job_id]
        attempt.step += steps
        self.tell(AttemptProgress(attempt.lease.handle, self.now, attempt.step, rate, total, None))

    def stop(self, handle: Handle) -> None:
        attempt = self.attempts[handle]
        if attempt.end is None:
            attempt.asked_to_stop = True
            if self.obedient:
                self.let_stop(handle.job_id)

    def let_stop(self, job_id: str) -> None:
        """A job that was told to stop saves its work and leaves."""
        attempt = self.running()[job_id]
        if not self.saves:
            self.end(job_id, "preempted", 143)
            return
        self.safe[job_id] = attempt.step
        self.tell(AttemptProgress(attempt.lease.handle, self.now, attempt.step, 1.0, None, attempt.step))
        self.end(job_id, "preempted", 85)

    def end(self, job_id: str, kind: Any = "done", rc: int = 0) -> None:
        attempt = self.running()[job_id]
        attempt.end = AttemptExited(attempt.lease.handle, self.now, kind, rc, attempt.step)
        self.tell(attempt.end)

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener.put(event)


class FakeExecutor(Executor):
    """What a daemon holds of the world; dies with it."""

    relay = None

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self._queue: list[Event] = []
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.renewed: dict[Handle, float | None] = {}
        self.host_trouble = ""
        world.listeners.append(self)
        if world.away:
            self.put(EngineDown(world.now, world.away))
            return
        for handle, attempt in world.attempts.items():
            if handle not in world.forgotten:
                self.put(attempt.end or AttemptStarted(handle, world.now))

    @property
    def storage(self) -> DirectoryStorage:
        return DirectoryStorage(self.world.home)

    def put(self, event: Event) -> None:
        self._queue.append(event)
        os.eventfd_write(self._fd, 1)

    def inventory(self) -> list[NodeInfo] | Unreachable:
        return Unreachable(self.world.away) if self.world.away else self.world.nodes

    def trouble(self) -> str:
        return self.host_trouble

    def launch(self, lease: JobLease) -> Handle:
        self.world.launch(lease)
        return lease.handle

    def renew(self, handle: Handle, lease_s: float | None) -> None:
        self.renewed[handle] = lease_s

    def pair(self, handle: Handle, co_runner: str) -> None:
        attempt = self.world.attempts.get(handle)
        if attempt is not None and attempt.end is None:
            attempt.shares_with = co_runner

    def preempt(self, handle: Handle, grace_s: float) -> None:
        self.world.stop(handle)

    def kill(self, handle: Handle) -> None:
        assert not self.world.away, f"{handle} is killed while the engine is away"
        if self.world.lingering:
            self.world.killed.append(handle)
        elif handle in self.world.attempts and self.world.attempts[handle].end is None:
            self.world.end(handle.job_id, "failed", 137)

    def events(self) -> Iterator[Event]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        queue, self._queue = self._queue, []
        yield from queue

    def wait_events(self, timeout_s: float | None = None) -> list[Event]:
        return list(self.events())

    def fileno(self) -> int:
        return self._fd

    def list_handles(self) -> list[Handle] | Unreachable:
        if self.world.away:
            return Unreachable(self.world.away)
        return [handle for handle in self.world.attempts if handle not in self.world.forgotten]

    def placement(self, handle: Handle) -> Placement:
        attempt = self.world.attempts.get(handle)
        return () if attempt is None or attempt.end is not None else attempt.lease.placement

    def recall(self, handle: Handle) -> bool:
        attempt = self.world.attempts.get(handle)
        if attempt is None or attempt.end is None:
            return False
        self.world.forgotten.discard(handle)
        self.put(attempt.end)
        return True

    def forget(self, handle: Handle) -> None:
        self.world.forgotten.add(handle)

    def tell_external(self, reasons: Mapping[str, str]) -> None: ...

    def cordon(self, node: str, reason: str) -> None: ...

    def uncordon(self, node: str) -> None: ...

    def close(self) -> None:
        if self in self.world.listeners:
            self.world.listeners.remove(self)
            os.close(self._fd)


@dataclass
class Site:
    """A state directory, a world, and at most one living daemon."""

    home: Path
    gpus: str = "2x2"
    policy: str = "fifo"
    placement: str = "packed-sticky"
    settings: dict[str, Any] = field(default_factory=dict)
    round_s: float = NO_ROUNDS
    model: Model = field(default_factory=Model)
    access: Access = field(default_factory=Access)
    event_driven: bool = False
    sharing: Sharing = "user"
    time: JournalClock | None = None
    """A clock of its own instead of the site's."""

    def __post_init__(self) -> None:
        self.cluster = load_cluster(self.gpus)
        self.world = FakeWorld(nodes_of(self.cluster), self.home)
        self._told = self._on_record = self.cluster
        self.now = 1_000_000.0
        self.daemon: Scheduler | None = None

    def clock(self) -> float:
        self.now += 1e-3
        self.world.now = self.now
        return self.now

    async def up(self, executor: Executor | None = None, store: Store | None = None) -> Scheduler:
        store = store or MortalStore.open(self.home / "journal.db")
        leases = Leases(900.0)
        if self.cluster is not self._told:  # the test has changed the machines
            self.world.nodes, self._told = [node_info(node) for node in self.cluster.nodes], self.cluster
        setup = Setup(
            self._found(),
            self.policy,
            self.placement,
            self.settings,
            self.round_s,
            "test",
            self.event_driven,
            self.sharing,
        )
        self.daemon = Scheduler(
            setup, self.model, store, executor or FakeExecutor(self.world), leases, self.access, self.time or self.clock
        )
        await self.daemon.start()
        return self.daemon

    def _found(self) -> Cluster:
        """The cluster as a start finds it; that on record if the engine cannot be asked."""
        if self.world.away:
            return self._on_record
        same = is_cluster_of(self.cluster, self.world.nodes)
        return self.cluster if same else cluster_of(self.world.nodes)

    async def crash(self) -> None:
        """As SIGKILL: nothing more is written, nobody is told."""
        daemon = self.daemon
        if daemon is None:
            return
        self.daemon, daemon.closing = None, True
        self._on_record = daemon.controller.state.cluster or self.cluster
        with contextlib.suppress(Exception):
            asyncio.get_running_loop().remove_reader(daemon.executor.fileno())
        for task in daemon._tasks:
            task.cancel()
        await asyncio.gather(*daemon._tasks, return_exceptions=True)
        daemon.journal.close()
        daemon.executor.close()
        daemon.store.close()

    async def quiet(self) -> None:
        """Until everything that was set in motion has come to rest."""
        daemon, deadline, turns = self.daemon, time.monotonic() + _PATIENCE_S, 0
        assert daemon is not None
        while time.monotonic() < deadline:
            await daemon.journal.drained()
            assert not self.world.violations, self.world.violations
            busy = daemon._fill is not None or getattr(daemon.executor, "_queue", [])
            if not busy:
                await asyncio.sleep(0)
                if daemon._fill is None and not daemon.journal._waiting and not getattr(daemon.executor, "_queue", []):
                    return
            turns += 1
            await asyncio.sleep(0.0 if turns < 20 else 0.005)  # most of it comes with the next turns of the loop
        raise AssertionError("the daemon does not come to rest")

    async def heard(self) -> None:
        """Until the daemon has taken all events, whether or not it could write them down."""
        assert self.daemon is not None
        async with asyncio.timeout(_PATIENCE_S):
            while getattr(self.daemon.executor, "_queue", []):
                await asyncio.sleep(0.005)

    async def recovered(self, within_s: float = _PATIENCE_S) -> None:
        """Until the daemon has written its journal again: a try to do so that is under way may fail yet."""
        assert self.daemon is not None
        async with asyncio.timeout(within_s):
            await self.quiet()
            while self.daemon.journal.failure is not None:
                await asyncio.sleep(0.01)
                await self.quiet()

    async def tick(self, after_s: float = 0.0) -> None:
        """A round, ``after_s`` later."""
        assert self.daemon is not None
        self.now += after_s
        self.daemon._round()
        await self.quiet()


def run_site(site: Site, script: Callable[[Site], Any]) -> None:
    """Run an async script on a fresh daemon and stop it in order."""

    async def whole() -> None:
        await site.up()
        try:
            await script(site)
            assert not site.world.violations, site.world.violations
            assert site.daemon is not None
            await site.daemon.stop()
            site.daemon.executor.close()
            site.daemon.store.close()
        except BaseException:
            await site.crash()
            raise

    asyncio.run(whole())
