"""Walks of random inputs through a whole daemon in this process: no job, user, plug-in or report may end it.

``python -m tests.server.fuzz --count 100000 --seed 1 [--policy P]`` runs as many inputs by hand; the suite runs a few
walks with the same code. A walk is told by its number alone: the same number gives the same inputs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, get_args
from unittest import mock

import structlog

from tests.server.api.fake import ADMIN_TOKEN, ANNA_TOKEN, BEN_TOKEN, FakeAuth
from tests.server.fuzz_inputs import Call, Inputs, hostile_placement, hostile_policy
from tests.server.site import OWNER, Attempt, FakeWorld, MortalStore, Site
from trine.core.errors import InputError
from trine.core.plugins import discover
from trine.engine.invariants import check
from trine.executor.attempt import rundir
from trine.executor.attempt.files import AttemptFiles, _progress
from trine.executor.base import (
    AttemptExited,
    AttemptProgress,
    AttemptStarted,
    ExitKind,
    Handle,
    JobLease,
    LaunchFailed,
    NodeDown,
    NodeUp,
)
from trine.inputs.job_file import read_job_file
from trine.inputs.job_spec import JobSpec, parse_jobs
from trine.perf.throughput import ThroughputTable
from trine.placement.base import Placement
from trine.policy.base import Policy
from trine.policy.shares.base import SharePolicy
from trine.server import scheduler as scheduler_module
from trine.server.access import Access, Queue, UserLimits
from trine.server.api import watches
from trine.server.api.app import build_app
from trine.server.build import Model
from trine.server.scheduler import Scheduler
from trine.server.snapshot import to_snapshot
from trine.server.store import Store

ORDERING = sorted(discover("trine.policy", Policy))
SHARING = sorted(discover("trine.policy.shares", SharePolicy).keys() - set(ORDERING))
POLICIES = [*ORDERING, *SHARING]
PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]
HOSTILE = "hostile"
"""In the place of a policy or placement: a plug-in file that breaks its promises."""
CLUSTERS = ("2x2", "1x4", "v100=1x2,k80=1x2", "2x2x2")
MODELS = {"p": (8.0, 2.0), "q": (6.0, 3.0), "r": (2.0, 1.9)}
TABLE = ThroughputTable(
    rates={(m, n): dict(zip(("v100", "k80"), rates, strict=True)) for m, rates in MODELS.items() for n in (1, 2, 4)},
    pairs={("p", "q", 1): {"v100": (6.0, 5.0), "k80": (1.5, 2.0)}},
)
ACCESS = Access(
    {
        "default": Queue("default"),
        "small": Queue("small", weight=0.5, max_gpus=2, max_waiting=30, max_priority=10.0, retries=2),
    },
    {"ben": UserLimits(max_waiting=20)},
)
TOKENS = (ADMIN_TOKEN, ADMIN_TOKEN, ANNA_TOKEN, BEN_TOKEN)
_ALWAYS = {401, 408, 413, 422, 503}
"""Statuses that the gate may give to any request."""
_SOLVER_LIMIT = "no proven answer"
"""What a share policy says of jobs whose numbers are too far apart for its solver; they are set aside by design."""
_STEPS_S = (0.0, 0.5, 1.0, 30.0, 60.0, 3_600.0, 1e5, 1e7, -100.0)


class FuzzError(AssertionError):
    """Something that must never happen did."""


# -- inputs without a daemon -----------------------------------------------------------------------------------------


def read_jobs(inputs: Inputs, folder: Path) -> list[JobSpec]:
    """The jobs of a random file or request, none if it was refused; anything but ``InputError`` is a bug."""
    if inputs.chance(0.5):
        path, shown = None, inputs.jobs_text()
    else:
        path, shown = folder / "job.yaml", inputs.job_file()
        path.write_bytes(shown)
    try:
        if path is not None:
            found = read_job_file(path, inputs.rng.choice(("", "/tmp")))
        else:
            found = parse_jobs(shown if inputs.chance(0.5) else shown.decode("latin-1"))
    except InputError as error:
        if len(str(error)) > 2_000 or "\n" in str(error):
            raise FuzzError(f"not a sentence: {error!r} for {shown[:2_000]!r}") from None
        return []
    except Exception as error:
        raise FuzzError(f"{type(error).__name__} ({error}) instead of InputError for {shown[:2_000]!r}") from error
    for job in found:
        if parse_jobs(job.as_json()) != [job]:
            raise FuzzError(f"{job!r} is another job after it was written and read")
    return found


def read_report(inputs: Inputs, folder: Path, handle: Handle) -> AttemptProgress | None:
    """A random progress report as the executor reads it; no exception may come of it."""
    if inputs.chance(0.5):
        told = inputs.report()
        return _guarded_progress(lambda: _progress(handle, told), told)
    data = inputs.report_bytes()
    (folder / rundir.PROGRESS).mkdir(exist_ok=True)
    Path(rundir.progress_file(str(folder))).write_bytes(data)
    return _guarded_progress(lambda: AttemptFiles(handle, folder).progress(), data[:500])


def _guarded_progress(read: Any, told: Any) -> AttemptProgress | None:
    try:
        found: AttemptProgress | None = read()
    except Exception as error:
        raise FuzzError(f"{type(error).__name__} ({error}) for the report {told!r}") from error
    return found


# -- a world in which anything happens -------------------------------------------------------------------------------


@dataclass
class FuzzWorld(FakeWorld):
    """Some starts fail at once, some are reported late or twice."""

    rng: Random = field(default_factory=Random)

    def launch(self, lease: JobLease) -> None:
        if lease.handle in self.attempts:
            return
        listeners, self.listeners = self.listeners, []  # nobody hears of the start from there
        try:
            super().launch(lease)
        finally:
            self.listeners = listeners
        if self.rng.random() < 0.1:
            self.fail(lease.job_id)
        elif self.rng.random() < 0.9:
            for _ in range(self.rng.choice((1, 1, 1, 2))):
                self.tell(AttemptStarted(lease.handle, self.now))

    def fail(self, job_id: str) -> None:
        attempt, reason = self.running()[job_id], self.rng.choice(("", "no such program", "é\n.", "x" * 1_000))
        attempt.end = LaunchFailed(attempt.lease.handle, self.now, reason, self.rng.random() < 0.5)  # type: ignore[assignment]
        self.tell(attempt.end)  # type: ignore[arg-type]


# -- the API ---------------------------------------------------------------------------------------------------------


class Api:
    """The real application, called in this process; keeps to what is documented or raises."""

    def __init__(self, daemon: Scheduler, log: Any) -> None:
        self.app = build_app(daemon, FakeAuth(), log=log)
        self._documented = {
            (method.upper(), tuple(path.split("/"))): {int(status) for status in told["responses"]}
            for path, methods in self.app.openapi()["paths"].items()
            for method, told in methods.items()
        }

    async def __call__(self, call: Call, token: str) -> tuple[int, bytes]:
        status, body = await self._ask(call, token)
        if status not in self._allowed(call):
            raise FuzzError(f"{call} is answered {status}: {body[:1_000]!r}")
        if status >= 400 and call.method != "HEAD":
            told = json.loads(body)
            if set(told) != {"code", "message", "field"} or not told["message"]:
                raise FuzzError(f"{call} is answered {status} without a sentence: {body[:500]!r}")
        return status, body

    def _allowed(self, call: Call) -> set[int]:
        parts = call.path.split("/")
        if call.path.endswith("/"):
            return {307, 404, 405} | _ALWAYS
        for (method, known), statuses in self._documented.items():
            same = len(parts) == len(known) and all(
                k.startswith("{") or k == p for k, p in zip(known, parts, strict=True)
            )
            if method == call.method and same:
                return statuses | _ALWAYS
        return {200, 307, 404, 405} | _ALWAYS

    async def _ask(self, call: Call, token: str) -> tuple[int, bytes]:
        headers = [(b"authorization", b"Bearer " + token.encode()), *call.headers]
        if call.body and not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(call.body)).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": call.method,
            "scheme": "http",
            "path": call.path,
            "raw_path": call.path.encode(),
            "query_string": call.query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        sent: list[Any] = []
        parts = [{"type": "http.request", "body": call.body, "more_body": False}]
        gone_s = time.monotonic() + 0.02

        async def receive() -> Any:
            if parts:
                return parts.pop()
            left_s = gone_s - time.monotonic()
            if left_s > 0:
                await asyncio.sleep(left_s)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await asyncio.wait_for(self.app(scope, receive, send), 30)
        status = next((message["status"] for message in sent if message["type"] == "http.response.start"), 0)
        return status, b"".join(message.get("body", b"") for message in sent)


class Inline(Executor):
    """A thread pool without threads: every run of a walk takes the same turns."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, call: Any, /, *values: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*values, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


class Notes:
    """A request log that keeps only failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def info(self, event: str, **values: Any) -> None: ...

    def error(self, event: str, **values: Any) -> None:
        self.failures.append(f"{event} {values} {sys.exc_info()[1]!r}")


# -- walks -----------------------------------------------------------------------------------------------------------


class FuzzSite(Site):
    """A site whose daemons note their crashes instead of raising, on a disk that may forget."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.crashes: list[BaseException] = []

    async def quiet(self) -> None:
        rest = asyncio.ensure_future(super().quiet())
        deadline_s = time.monotonic() + 60
        while not rest.done():
            await asyncio.wait([rest], timeout=0.5)
            if self.crashes or time.monotonic() > deadline_s:
                rest.cancel()
                await asyncio.wait([rest])
                raise FuzzError(f"the daemon does not come to rest: {self.crashes[:1]}") from next(
                    iter(self.crashes), None
                )
        await rest

    async def up(self, *args: Any, **values: Any) -> Scheduler:
        store = MortalStore.open(self.home / "journal.db")
        with mock.patch.object(scheduler_module, "_raise", self.crashes.append):
            return await super().up(*args, **{"store": store, **values})


class Walk:
    """One daemon, its restarts, and a few hundred inputs."""

    def __init__(self, number: int, home: Path, policy: str, placement: str) -> None:
        self.rng = Random(f"walk/{number}/{policy}/{placement}")
        self.inputs, self.home, self.counts = Inputs(self.rng), home, Counter[str]()
        rng = self.rng
        self.plain = HOSTILE not in (policy, placement)
        self.setup = (policy, placement)
        home.mkdir(parents=True, exist_ok=True)
        shares = policy in SHARING
        self.site = FuzzSite(
            home / "state",
            gpus=rng.choice(CLUSTERS) if not shares else "v100=1x2,k80=1x2",
            policy=hostile_policy(rng, home) if policy == HOSTILE else policy,
            placement=hostile_placement(rng, home) if placement == HOSTILE else placement,
            model=Model(TABLE) if shares or self.inputs.chance(0.3) else Model(),
            access=ACCESS,
            event_driven=self.inputs.chance(0.3),
            sharing=rng.choice(("user", "user", "off")),
        )
        prices = dict.fromkeys(self.site.cluster.types, 1.0)
        self.site.cluster = replace(self.site.cluster, prices_per_gpu_h=prices)
        self.site.home.mkdir(exist_ok=True)
        self.site.world = FuzzWorld(self.site.world.nodes, obedient=self.inputs.chance(0.7), rng=Random(number))
        self.site.world.saves = self.inputs.chance(0.7)
        self.notes, self.logged = Notes(), list[str]()
        self.api: Api | None = None

    async def run(self, steps: int) -> None:
        await self._up()
        for _ in range(steps):
            await self._step()
            self._check_alive()
        await self._end()

    async def _up(self) -> None:
        daemon = await self.site.up()
        self.api = Api(daemon, self.notes)

    @property
    def daemon(self) -> Scheduler:
        assert self.site.daemon is not None
        return self.site.daemon

    async def _step(self) -> None:
        do = self.rng.choices(
            (self._call, self._submit, self._report, self._event, self._time, self._restart, self._file),
            (40, 12, 12, 14, 10, 1, 12),
        )[0]
        await do()
        if self.inputs.chance(0.2):
            await self.site.quiet()

    def _count(self, what: str, more: int = 1) -> None:
        self.counts[what] += more

    async def _call(self) -> None:
        nodes = [node.name for node in self.site.world.nodes]
        known = list(self.daemon.controller.state.jobs)[-12:]
        call = self.inputs.call(known, nodes)
        token = (
            self.rng.choice(TOKENS) if self.inputs.chance(0.97) else self.rng.choice(("x", "é", "a" * 300, "a" * 63))
        )
        assert self.api is not None
        status, _ = await self.api(call, token)
        self._count("calls")
        self._count(f"status {status}")

    async def _submit(self) -> None:
        """A job that is sound, so that there is work."""
        body = json.dumps(self.inputs.sound_job()).encode()
        assert self.api is not None
        status, _ = await self.api(Call("POST", "/v1/jobs", b"", [], body), self.rng.choice(TOKENS))
        self._count("calls")
        self._count(f"status {status}")

    async def _file(self) -> None:
        found = read_jobs(self.inputs, self.home)
        self._count("job files")
        self._count("jobs accepted", len(found))

    async def _report(self) -> None:
        running = list(self.site.world.running().values())
        handle = self._handle(running)
        found = read_report(self.inputs, self.home, handle)
        self._count("reports")
        if found is not None:
            self._count("reports accepted")
            self.site.world.tell(found)

    def _handle(self, running: list[Attempt]) -> Handle:
        if running and self.inputs.chance(0.9):
            return self.rng.choice(running).lease.handle
        known = list(self.site.world.attempts) or [Handle("66666", 1)]
        return self.rng.choice((self.rng.choice(known), Handle("77777", 3), Handle("1", -1), Handle("é", 10**9)))

    async def _event(self) -> None:
        rng, world, now = self.rng, self.site.world, self.site.now
        assert isinstance(world, FuzzWorld)
        running = world.running()
        job_id = rng.choice(sorted(running)) if running else ""
        node = rng.choice([n.name for n in world.nodes] + ["nowhere", ""])
        kind: ExitKind = rng.choice(get_args(ExitKind))
        rc = rng.choice((0, 1, 83, 85, 137, 143, -1, 255, 2**31))
        stale = self._handle([])
        if running.get(stale.job_id) is not None and running[stale.job_id].lease.handle == stale:
            stale = Handle(stale.job_id, stale.epoch + 10**6)
        self._count("events")
        choice = rng.random()
        if choice < 0.35 and job_id:
            world.end(job_id, kind, rc)
        elif choice < 0.45 and job_id:
            world.fail(job_id)
        elif choice < 0.6 and job_id:
            if running[job_id].asked_to_stop:
                world.let_stop(job_id)
            else:
                world.work(
                    job_id, rng.choice((0, 1, 1000, 10**12)), rng.choice((None, 10**15)), rng.choice((0.0, 1e-9, 1e12))
                )
        elif choice < 0.7:
            world.tell(AttemptExited(stale, now, kind, rc, rng.choice((None, -5, 10**30)), self.inputs.text()))
        elif choice < 0.75:
            world.tell(LaunchFailed(stale, now, self.inputs.text(), self.inputs.chance(0.5)))
        elif choice < 0.8:
            world.tell(AttemptStarted(self._handle(list(running.values())), rng.choice((now, -1.0, 1e300))))
        elif choice < 0.88:
            world.tell(NodeDown(node, now, self.inputs.text()))
        else:
            world.tell(NodeUp(node, now))

    async def _time(self) -> None:
        self.site.now += self.rng.choice(_STEPS_S)
        self._count("rounds")
        daemon = self.daemon
        if self.inputs.chance(0.3):
            await daemon._each_round()
        else:
            daemon._guarded(daemon._round if self.inputs.chance(0.7) else daemon._woken)
        await self.site.quiet()

    async def _restart(self) -> None:
        self._count("restarts")
        if self.inputs.chance(0.5):
            await self.site.quiet()
            before = self._text()
            await self._stop(in_order=self.inputs.chance(0.5))
            self._check_same(before)
        else:
            await self._stop(in_order=False)
        await self._up()

    async def _stop(self, in_order: bool) -> None:
        daemon = self.daemon
        self._check_alive()
        if in_order:
            await daemon.stop()
        await self.site.crash()

    def _text(self) -> str:
        return json.dumps(self._lasting(to_snapshot(self.daemon.controller.state)), sort_keys=True)

    def _lasting(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """What must survive: all but what the next start says of itself, or tries again with a plug-in."""
        passing = {"skipped", "format"} if self.plain else {"skipped", "format", "accounts", "fallback"}
        return {key: value for key, value in snapshot.items() if key not in passing}

    def _check_same(self, before: str) -> None:
        store = Store.open(self.site.home / "journal.db")
        after = json.dumps(self._lasting(to_snapshot(store.load())), sort_keys=True)
        store.close()
        if after != before:
            at = next(i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
            raise FuzzError(f"after a restart ...{after[at - 200 : at + 80]}... was ...{before[at - 200 : at + 80]}...")

    def _check_alive(self) -> None:
        """No crash, no call that failed, and with built-in plug-ins no error that had to be contained."""
        if self.site.crashes:
            raise FuzzError(f"the daemon ended: {self.site.crashes[0]!r}") from self.site.crashes[0]
        if self.notes.failures:
            raise FuzzError(self.notes.failures[0])
        daemon = self.daemon
        errors = daemon.observed._problems._value.get()
        if errors and self.plain and not all(_SOLVER_LIMIT in told for told in self.logged):
            raise FuzzError(f"{errors:g} internal errors: {self.logged[:3]}")
        if daemon.controller.state.skipped:
            raise FuzzError(f"records were skipped: {daemon.controller.state.skipped}")
        check(daemon.controller.deciding)

    async def _end(self) -> None:
        """Whatever happened: the daemon answers, and once the GPUs are free a plain job runs."""
        site = self.site
        await site.quiet()
        before = self._text()
        await self._stop(in_order=False)
        self._check_same(before)
        site.world.obedient = True
        await self._up()
        await self._clear()
        assert self.api is not None
        status, _ = await self.api(Call("GET", "/v1/daemon", b"", [], b""), ADMIN_TOKEN)
        if status != 200:
            raise FuzzError(f"the daemon answers {status}")
        await self._run_plain_job()
        self._check_alive()
        await self._stop(in_order=True)

    async def _clear(self) -> None:
        site, daemon = self.site, self.daemon
        for node in site.world.nodes:
            site.world.tell(NodeUp(node.name, site.now))
        await site.quiet()
        assert self.api is not None
        for node in site.world.nodes:
            await self.api(Call("POST", f"/v1/nodes/{node.name}/undrain", b"", [], b""), ADMIN_TOKEN)
        for _ in range(5):
            for job_id in list(daemon.controller.state.live):
                await self.api(Call("POST", f"/v1/jobs/{job_id}/cancel", b"", [], b""), ADMIN_TOKEN)
            await site.quiet()
            for job_id in list(site.world.running()):
                site.world.end(job_id, "failed", 1)
            await site.quiet()
            if not daemon.controller.state.live:
                return
        raise FuzzError(f"jobs cannot be cancelled: {list(daemon.controller.state.live.values())[:2]}")

    async def _run_plain_job(self) -> None:
        assert self.api is not None
        body = json.dumps({"run": ["work"], "gpus": 1}).encode()
        status, told = await self.api(Call("POST", "/v1/jobs", b"", [], body), ADMIN_TOKEN)
        if status != 201:
            raise FuzzError(f"a plain job is answered {status}: {told!r}")
        (job_id,) = json.loads(told)["ids"]
        for _ in range(40):
            await self.site.quiet()
            state = self.daemon.controller.state.jobs[job_id].state
            if state in ("running", "starting", "failed"):  # one that fails at its start was started
                return
            if state == "set aside":  # by a plug-in that fails now and then; its user asks again
                await self.api(Call("POST", f"/v1/jobs/{job_id}/release", b"", [], b""), ADMIN_TOKEN)
            await self.site.tick(after_s=3_600)
        raise FuzzError(f"a plain job is {state}: {self.daemon.explain(job_id, OWNER)}")


@contextlib.contextmanager
def _quick() -> Iterator[None]:
    """Nothing waits for real time."""
    with (
        mock.patch.object(scheduler_module, "_FILL_AFTER_S", 0.0),
        mock.patch.object(watches, "LOOK_EVERY_S", 0.01),
        mock.patch.object(watches, "NOT_BEFORE_S", 0.001),
        mock.patch("trine.server.journal.ThreadPoolExecutor", Inline),
        mock.patch("trine.server.store._durable_sqlite", _unsafe_sqlite),
    ):
        yield


def _unsafe_sqlite(connection: Any, _: Any) -> None:
    """No power is cut here."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=OFF", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def run_walk(number: int, policy: str, placement: str, steps: int = 120) -> Counter[str]:
    """One walk in a directory of its own; the error of one that fails says how to run it again."""
    home = Path(tempfile.mkdtemp(prefix="trine-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    walk = Walk(number, home, policy, placement)

    def note(_: Any, method: str, event: Any) -> Any:
        if method == "error":
            walk.logged.append(str({k: repr(v) for k, v in event.items()}))
        raise structlog.DropEvent

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: walk.site.crashes.append(context.get("exception") or FuzzError(context["message"]))
        )
        try:
            await walk.run(steps)
        finally:
            await walk.site.crash()

    before = structlog.get_config()
    structlog.configure(processors=[note], cache_logger_on_first_use=False)
    try:
        with _quick():
            asyncio.run(whole())
    except BaseException as error:
        again = f"--walk {number} --policy {policy} --placement {placement} --steps {steps}"
        error.add_note(f"again: python -m tests.server.fuzz {again}; {dict(walk.counts)}; {walk.logged[-2:]}")
        raise
    finally:
        structlog.configure(**before)
        shutil.rmtree(home, ignore_errors=True)
    return walk.counts


INPUTS = ("calls", "job files", "reports", "events", "rounds", "restarts")


def inputs_of(counts: Counter[str]) -> int:
    return sum(counts[name] for name in INPUTS)


def cases(seed: int, policy: str = "", placement: str = "") -> Iterator[tuple[int, str, str]]:
    """Walks for ever: every policy in turn, each with another placement; every fourth with a hostile plug-in."""
    number = seed * 1_000_000
    policies = [policy] if policy else POLICIES
    while True:
        for each in policies:
            at = Random(f"case/{number}")
            where = placement or at.choice(PLACEMENTS)
            if not policy and not placement and number % 4 == 3:
                each, where = at.choice(((HOSTILE, where), (HOSTILE, where), (each, HOSTILE), (HOSTILE, HOSTILE)))
            yield number, each, where
            number += 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="", help=f"one of {', '.join(POLICIES)}, {HOSTILE}")
    parser.add_argument("--placement", default="", help=f"one of {', '.join(PLACEMENTS)}, {HOSTILE}")
    parser.add_argument("--steps", type=int, default=120, help="inputs of a walk")
    parser.add_argument("--walk", type=int, help="only the walk of this number")
    parser.add_argument("--keep-going", action="store_true", help="report a failed walk and go on")
    told = parser.parse_args(arguments)
    logging.disable(logging.ERROR)
    counts, failed, begun_s, shown_s = Counter[str](), 0, time.monotonic(), 0.0
    for number, policy, placement in cases(told.seed, told.policy, told.placement):
        try:
            counts += run_walk(number if told.walk is None else told.walk, policy, placement, told.steps)
        except (Exception, SystemExit) as error:
            if not told.keep_going:
                raise
            failed += 1
            notes = getattr(error, "__notes__", [""])
            print(f"FAILED {policy} {placement}: {str(error)[:600]} {notes[-1][:1500]}", file=sys.stderr)
            counts["calls"] += told.steps
        took_s = time.monotonic() - begun_s
        done = inputs_of(counts) >= told.count or told.walk is not None
        if took_s - shown_s > 5 or done:
            shown_s = took_s
            print(f"{inputs_of(counts):,} inputs in {took_s:.0f} s, {failed} walks failed", file=sys.stderr, flush=True)
        if done:
            break
    print(json.dumps(dict(sorted(counts.items())), indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
