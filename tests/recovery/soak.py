"""A soak test: a real daemon with real jobs, good and hostile, while everything around it fails at random.

``python -m tests.recovery.soak --minutes 30 --seed 1 --state DIR`` runs it, tells a line a minute and a table at the
end, and ends with 1 if a promise was broken. DIR gets the small disk with the daemon's state (where one can be
mounted), the jobs' ledgers and the daemon's log. What must hold, whatever happens:

- every acknowledged submission is there exactly once, and an ended job stays as it ended;
- no GPU is held by two attempts at once, no rank runs twice at the same time;
- a job ends as its program does: faults of the host, lost supervisors and dead daemons never fail it;
- a training goes on from a checkpoint that was saved, and never from before the last one;
- the daemon never ends by itself, and nothing is left running at the end.

Times are seconds on the monotonic clock."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import trine
from tests.recovery import soak_job
from trine.client import Client
from trine.client.answers import ENDED, LIVE, JobAnswer
from trine.client.errors import ConnectionBrokenError, NoAnswerError, NoDaemonError, RefusedError
from trine.executor.attempt.processes import descendants, marked, parents
from trine.executor.attempt.removal import remove_tree

POLICIES = ("las", "fifo-backfill", "srtf", "max-min-fairness")
DISK = "size=192m,nr_inodes=6000"
SOURCE = Path(trine.__file__).parents[1]
_DRAIN_S = 240.0
"""How long everything may take to end once all faults are over."""
_MOST_LIVE = 24
_READY_S = 60.0
_ANSWER_S = 4.0
_STOP_S = 30.0
_SILENT_S = 12.0
"""A daemon that is up, with all it needs, answers somebody within this time."""
_CLOCK = """
import mmap, os, struct, time
path = os.environ.get("SOAK_CLOCK")
if path:
    with open(path, "rb") as file:
        offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + struct.unpack("d", offset[:8])[0]
    time.time_ns = lambda: real_ns() + int(1e9 * struct.unpack("d", offset[:8])[0])
"""
_BUG = re.compile(r"internal error|contained|crashed|policy fails|set aside|while looking at a job")

Answer = TypeVar("Answer")


@dataclass
class Report:
    """What happened, in figures, and what must not have happened, in sentences. Safe to use from any thread."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, number: int = 1) -> None:
        with self.lock:
            self.counts[what] += number

    def breach(self, sentence: str) -> None:
        with self.lock:
            if sentence not in self.broken:
                self.broken.append(sentence)
                print(f"BROKEN: {sentence}", file=sys.stderr, flush=True)


@dataclass
class Place:
    """The directories of a run."""

    home: Path

    def __post_init__(self) -> None:
        for path in (self.home, self.ledgers, self.locks, self.saved, self.home / "site"):
            path.mkdir(parents=True, exist_ok=True)
        (self.home / "site" / "sitecustomize.py").write_text(_CLOCK)
        self.clock.write_bytes(struct.pack("d", 0.0))
        self.disk = self.home / "disk"
        self.disk.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(self.disk)]
        self.small = not subprocess.run(command, check=False, capture_output=True).returncode
        self.ballast.touch()

    @property
    def state(self) -> Path:
        return self.disk / "state"

    @property
    def ballast(self) -> Path:
        return self.disk / "ballast"

    @property
    def ledgers(self) -> Path:
        return self.home / "ledgers"

    @property
    def locks(self) -> Path:
        return self.home / "locks"

    @property
    def saved(self) -> Path:
        return self.home / "checkpoints"

    @property
    def clock(self) -> Path:
        return self.home / "clock"

    @property
    def log(self) -> Path:
        return self.home / "daemon.log"

    def set_clock(self, ahead_s: float) -> None:
        with self.clock.open("r+b") as file:
            file.write(struct.pack("d", ahead_s))

    def unmount(self) -> None:
        if self.small:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)


class Daemon:
    """``trine up`` in a process of its own; whoever ends it says so first."""

    def __init__(self, place: Place, report: Report, options: list[str]) -> None:
        self.place, self.report, self.options = place, report, options
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.said = 0
        """Where in the log the words of the present process begin."""

    def start(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TRINE_")}
        path = os.pathsep.join([str(self.place.home / "site"), str(SOURCE)])
        environment |= {"PYTHONPATH": path, "SOAK_CLOCK": str(self.place.clock)}
        environment["PYTHONFAULTHANDLER"] = "1"  # a daemon that hangs is asked where
        command = [sys.executable, "-m", "trine", "up", "--state", str(self.place.state), "--quiet", *self.options]
        self.said = self.place.log.stat().st_size if self.place.log.exists() else 0
        with self.place.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        self.ready = False
        self.report.count("daemon starts")

    def words(self) -> str:
        with self.place.log.open("rb") as log:
            log.seek(self.said)
            return log.read().decode(errors="replace").strip()

    def look(self) -> int | None:
        """Whether it is ready; its exit code if it has ended by itself."""
        assert self.process is not None
        if not self.ready:
            with contextlib.suppress(OSError, ValueError):
                known = json.loads((self.place.state / "api.json").read_text())
                self.ready = known["pid"] == self.process.pid
        return self.process.poll()

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut for the daemon; jobs go on."""
        assert self.process is not None
        self.send(signal.SIGKILL)
        self.process.wait(30)

    def stop(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """In order, as an operator does."""
        assert self.process is not None
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while self.process.poll() is None and time.monotonic() < deadline:
            meanwhile()
            time.sleep(0.05)
        if self.process.poll() is None:
            self.send(signal.SIGABRT)
            self.process.wait(30)
            self.report.breach(f"the daemon did not stop within {_STOP_S:g} s: {self.words()[-4000:]}")
        elif self.process.returncode:
            words = self.words()[-1500:]
            self.report.breach(f"the daemon ended with {self.process.returncode} on SIGTERM: {words}")


@dataclass
class Asked:
    """One job as it was submitted, and how it must end: ``done``, ``failed``, ``timed out``, or ``never``."""

    tag: str
    spec: dict[str, Any]
    ends: str
    rc: int | None = 0
    failures: int = 0
    """How often it has to fail by itself before it counts as failed."""
    id: str = ""
    cancelled: bool = False
    state: str = ""


@dataclass
class Request:
    """A submission that is sent with the same id until it is answered."""

    id: str
    jobs: list[Asked]
    ids: list[str] = field(default_factory=list)


class Jobs:
    """Makes up jobs, each with a name and a ledger of its own."""

    def __init__(self, place: Place, rng: random.Random) -> None:
        self.place, self.rng, self.number = place, rng, 0

    def one(self) -> Asked:
        makers = {
            self._plain: 5,
            self._failing: 2,
            self._flaky: 2,
            self._crashing: 1,
            self._trained: 6,
            self._overdue: 1,
            self._hostile: 4,
            self._extreme: 2,
            self._leaving: 1,
        }
        maker = self.rng.choices(list(makers), list(makers.values()))[0]
        self.number += 1
        return maker()

    def _job(self, kind: str, ends: str = "done", *, rc: int | None = 0, failures: int = 0, **more: Any) -> Asked:
        options = more.pop("options", {})
        tag = f"soak-{self.number}"
        per_gpu = more.get("ranks") == "gpu"
        told = {"locks": str(self.place.locks), "per_gpu": per_gpu, **options}
        program = [sys.executable, "-I", "-S", soak_job.__file__]
        ledger = str(self.place.ledgers / f"{tag}.jsonl")
        spec = {"name": tag, "run": [*program, ledger, kind, json.dumps(told)], "gpus": 1, **more}
        spec.setdefault("checkpoint", {"grace_s": self.rng.choice([0.3, 1.0, 3.0])})
        return Asked(tag, spec, ends, rc, failures)

    def _shape(self) -> dict[str, Any]:
        return self.rng.choice(
            [
                {"gpus": 1},
                {"gpus": 1},
                {"gpus": 2},
                {"gpus": 3},
                {"gpus": 4, "nodes": 2},
                {"gpus": 2, "ranks": "gpu"},
                {"gpus": 4, "nodes": 1},
                {"gpus": 8},
                {"gpus": 4, "nodes": 2, "ranks": "gpu"},
            ]
        )

    def _plain(self) -> Asked:
        seconds = self.rng.choice([0.0, 0.2, 1.0, 2.0, 4.0])
        spec = self._shape() | {"preemptible": self.rng.random() < 0.9, "priority": float(self.rng.randrange(3))}
        return self._job("plain", options={"seconds": seconds, "rc": 0}, **spec)

    def _failing(self) -> Asked:
        rc, retries = self.rng.choice([1, 3, 7, 84, 126, 143, 255]), self.rng.choice([0, 0, 0, 1])
        options = {"seconds": self.rng.choice([0.0, 0.5]), "rc": rc}
        return self._job("plain", "failed", rc=rc, failures=retries + 1, retries=retries, options=options)

    def _flaky(self) -> Asked:
        times = self.rng.choice([1, 2])
        return self._job("sometimes", options={"seconds": 0.2, "rc": 9, "times": times}, retries=times + 1)

    def _crashing(self) -> Asked:
        number = self.rng.choice([signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
        options = {"seconds": 0.2, "signal": int(number)}
        return self._job("crash", "failed", rc=128 + number, failures=1, options=options)

    def _trained(self) -> Asked:
        options = {
            "src": str(SOURCE),
            "clock": str(self.place.clock),
            "steps": self.rng.choice([20, 60, 120]),
            "step_s": self.rng.choice([0.02, 0.05]),
            "every": self.rng.choice([0, 5, 20]),
        }
        where = {"dir": str(self.place.saved / f"soak-{self.number}")} if self.rng.random() < 0.8 else {}
        spec = self._shape() | {"steps": options["steps"], "checkpoint": {"grace_s": 5.0, **where}}
        return self._job("trained", options=options, **spec)

    def _overdue(self) -> Asked:
        limit = self.rng.choice([0.5, 1.0, 2.0])
        return self._job("plain", "timed out", rc=None, options={"seconds": 1e6, "rc": 0}, max_runtime=limit)

    def _hostile(self) -> Asked:
        kind, options = self.rng.choice(
            [
                ("talk", {"lines": self.rng.choice([10, 200])}),
                ("family", {"children": 5, "seconds": 1.0}),
                ("deaf", {"seconds": 3.0}),
                ("garbage", {"seconds": 3.0, "first": self.rng.randrange(100)}),
                ("vandal", {"seconds": 2.0, "first": self.rng.randrange(5), "stays": self.rng.random() < 0.5}),
                ("hoard", {"seconds": 1.0, "megabytes": 8}),
            ]
        )
        return self._job(kind, options=options)

    def _extreme(self) -> Asked:
        choices: list[dict[str, Any]] = [
            {"priority": 1e6, "steps": 1e15},
            {"priority": -1e6, "steps": 1.0, "retries": 1000},
            {"max_runtime": 1e6 * 86_400, "steps": 1e15, "deadline": 0.001},
            {"deadline": 1e6 * 86_400, "min_run": 1e6 * 86_400},
            {"checkpoint": {"grace_s": 0}, "topology": {"preferred": "node", "max_wait_s": 1e6 * 86_400}},
            {"checkpoint": {"grace_s": 3600}, "min_run": 0.001},
            {"name": "трейн-訓練-ñ-🅰"[:9] + f" ({self.number})", "model": "名" * 128, "class": "z" * 64},
            {"env": {"LONG": "x" * 30_000}},
        ]
        options = {"seconds": self.rng.choice([0.0, 2.0]), "rc": 0}
        return self._job("plain", options=options, **self.rng.choice(choices))

    def _leaving(self) -> Asked:
        """Says that it saved its work, at once and in vain; once or for ever."""
        if self.rng.random() < 0.3:
            return self._job("plain", "never", rc=None, options={"seconds": 0.0, "rc": 85})
        return self._job("sometimes", options={"seconds": 0.0, "rc": 85, "times": 2})


class Users(threading.Thread):
    """Whoever uses the daemon: submits, cancels, holds, releases, drains, and looks."""

    def __init__(self, place: Place, report: Report, seed: int) -> None:
        super().__init__(name="users", daemon=True)
        self.place, self.report, self.rng = place, report, random.Random(f"{seed} users")
        self.jobs = Jobs(place, random.Random(f"{seed} jobs"))
        self.asked: list[Asked] = []
        """Acknowledged."""
        self.open: list[Request] = []
        """Not acknowledged yet."""
        self.answered: list[Request] = []
        self.live: dict[str, Asked] = {}
        self.answered_s = 0.0
        """When the daemon last answered."""
        self.leaving = threading.Event()

    def run(self) -> None:
        while not self.leaving.is_set():
            try:
                self.act()
            except Exception as error:
                self.report.breach(f"a client got {type(error).__name__}: {error}")
            self.leaving.wait(min(self.rng.expovariate(3.0), 2.0))

    def call(self, ask: Callable[[Client], Answer]) -> Answer | None:
        """The answer; ``None`` if the daemon is away, hangs, or cannot write now."""
        try:
            with Client(state=self.place.state, timeout_s=_ANSWER_S) as client:
                answer = ask(client)
        except (NoDaemonError, ConnectionBrokenError, NoAnswerError) as error:
            self.report.count(f"answers: {type(error).__name__}")
            return None
        except RefusedError as error:
            self.report.count(f"answers: {error.status} {error.code}")
            if error.status in (503, 429):
                return None
            raise
        self.report.count("answers: ok")
        self.answered_s = time.monotonic()
        return answer

    def act(self) -> None:
        for request in self.open[:2]:
            self._submit(request)
        if len(self.live) < _MOST_LIVE and len(self.open) < 5:
            request = Request(f"r{self.rng.getrandbits(64):x}", [self.jobs.one() for _ in range(self._how_many())])
            self.open.append(request)
            self._submit(request)
        elif self.answered and self.rng.random() < 0.1:
            self._submit_again(self.rng.choice(self.answered))
        verbs = [self._look, self._cancel, self._hold, self._release, self._drain, self._undrain, self._read]
        self.rng.choices(verbs, [10, 1, 1, 3, 1, 3, 1])[0]()

    def _how_many(self) -> int:
        return self.rng.choice([1, 1, 1, 2, 4])

    def _submit(self, request: Request) -> None:
        specs = [job.spec for job in request.jobs]
        ids = self.call(lambda client: client.submit(specs[0] if len(specs) == 1 else specs, request.id))
        if ids is None:
            self.report.count("submissions tried again")
            return
        if len(ids) != len(specs):
            self.report.breach(f"{len(specs)} jobs were submitted as {request.id}, {len(ids)} acknowledged")
        request.ids = ids
        self.open.remove(request)
        self.answered.append(request)
        for job, job_id in zip(request.jobs, ids, strict=False):
            job.id = job_id
            self.asked.append(job)
            self.live[job_id] = job
            self.report.count("jobs")

    def _submit_again(self, request: Request) -> None:
        specs = [job.spec for job in request.jobs]
        ids = self.call(lambda client: client.submit(specs[0] if len(specs) == 1 else specs, request.id))
        if ids is not None:
            self.report.count("submissions repeated")
            if ids != request.ids:
                self.report.breach(f"{request.id} was acknowledged as {request.ids} and then as {ids}")

    def _look(self) -> None:
        for job in list(self.live.values()):
            if self.leaving.is_set() or (found := self.call(lambda client, job=job: client.job(job.id))) is None:  # type: ignore[misc]
                return
            self.note(job, found)
        nodes = self.call(lambda client: client.nodes()) or []
        holders = Counter(gpu["second_job"] is not None for node in nodes for gpu in node["gpus"])
        if holders[True]:
            self.report.breach("the daemon says that two jobs hold a GPU")

    def note(self, job: Asked, found: JobAnswer) -> None:
        """An ended job never changes again."""
        if found["name"] != job.spec["name"]:
            self.report.breach(f"job {job.id} was submitted as {job.tag} and is {found['name']}")
        if job.state in ENDED and found["state"] != job.state:
            self.report.breach(f"job {job.id} was {job.state} and is {found['state']}")
        job.state = found["state"]
        if job.state in ENDED:
            self.live.pop(job.id, None)
            if self.rng.random() < 0.5:  # as an operator may
                with contextlib.suppress(OSError):
                    remove_tree(self.place.state / "jobs", job.id)  # some are too deep for others

    def _chosen(self) -> Asked | None:
        return self.rng.choice(list(self.live.values())) if self.live else None

    def _verb(self, verb: str, job: Asked) -> None:
        try:
            if self.call(lambda client: getattr(client, verb)(job.id)) is not None:
                self.report.count(f"{verb}s")
        except RefusedError as error:
            if error.status == 404:
                self.report.breach(f"job {job.id} ({job.tag}) was acknowledged and is not known: {error}")
            elif error.status != 409:
                raise

    def _cancel(self) -> None:
        if job := self._chosen():
            job.cancelled = True  # said before: the answer may get lost
            self._verb("cancel", job)

    def _hold(self) -> None:
        if job := self._chosen():
            self._verb("hold", job)

    def _release(self) -> None:
        for job in [job for job in self.live.values() if job.state == "held"][:5]:
            self._verb("release", job)

    def _drain(self) -> None:
        node, gpus = self.rng.choice(["node0", "node1"]), self.rng.choice([[], [0], [1, 3]])
        if self.call(lambda client: client.drain(node, "a new fan", gpus)) is not None:
            self.report.count("drains")

    def _undrain(self) -> None:
        for node in ("node0", "node1"):
            self.call(lambda client, node=node: client.undrain(node))  # type: ignore[misc]

    def _read(self) -> None:
        if job := self._chosen():
            self.call(lambda client: (client.explain(job.id), list(client.logs(job.id, tail=3))))


class Faults:
    """Everything that can go wrong around the daemon; what lasts is lifted in time."""

    def __init__(self, place: Place, report: Report, daemon: Daemon, rng: random.Random, postgres: Any) -> None:
        self.place, self.report, self.daemon, self.rng, self.postgres = place, report, daemon, rng, postgres
        self.lasting: dict[str, tuple[float, Callable[[], None]]] = {}
        """By name: until when, and how it is lifted."""
        self.hindered_s = 0.0
        """When the daemon last had a reason not to answer."""
        self.started_short = False
        """There was a moment in the start of the daemon without room on the disk or descriptors."""

    def actions(self) -> dict[Callable[[], None], int]:
        found: dict[Callable[[], None], int] = {
            self.kill: 3,
            self.kill_early: 2,
            self.restart: 1,
            self.freeze: 2,
            self.few_descriptors: 2,
            self.many_connections: 1,
            self.kill_supervisor: 4,
            self.kill_newborn: 3,
            self.step_clock: 2,
        }
        if self.place.small:
            found |= {self.fill_disk: 2, self.use_inodes: 2}
        if self.postgres is not None:
            found |= {self.cut_database: 3}
        return found

    def strike(self) -> None:
        actions = self.actions()
        self.rng.choices(list(actions), list(actions.values()))[0]()

    def last(self, name: str, seconds: float, lift: Callable[[], None]) -> None:
        self.lasting[name] = (time.monotonic() + seconds, lift)

    def tend(self, everything: bool = False) -> None:
        """Lift what has lasted long enough, and keep up the rest."""
        for name, (until, lift) in list(self.lasting.items()):
            if everything or time.monotonic() >= until:
                del self.lasting[name]
                lift()
        if {"freeze", "descriptors", "connections"} & self.lasting.keys() or not self.daemon.ready:
            self.hindered_s = time.monotonic()
        if "disk" in self.lasting:
            self._take_room()
        self.started_short = self.started_short or self.disk_short

    @property
    def disk_short(self) -> bool:
        return bool({"disk", "inodes"} & self.lasting.keys())

    def up(self) -> None:
        self.daemon.start()
        self.hindered_s = time.monotonic()
        self.started_short = self.disk_short

    # The daemon's own process

    def kill(self) -> None:
        self._lift_freeze()
        self.daemon.kill()
        self.report.count("daemon killed")
        time.sleep(self.rng.choice([0.0, 0.0, 0.5, 2.0]))
        self.up()

    def kill_early(self) -> None:
        self._lift_freeze()
        for _ in range(self.rng.choice([1, 1, 3])):
            self.daemon.kill()
            self.up()
            time.sleep(self.rng.choice([0.2, 0.5, 1.5]) * self.rng.random())
            self.report.count("daemon killed as it started")
        self.daemon.kill()
        self.up()

    def restart(self) -> None:
        """In order, as an operator does."""
        self._lift_freeze()
        if not self.daemon.ready:
            return
        self.daemon.stop(self.tend)
        self.report.count("daemon restarted")
        self.up()

    def freeze(self) -> None:
        if "freeze" not in self.lasting:
            self.daemon.send(signal.SIGSTOP)
            self.report.count("daemon frozen")
            self.last("freeze", self.rng.uniform(0.2, 6.0), lambda: self.daemon.send(signal.SIGCONT))

    def _lift_freeze(self) -> None:
        if found := self.lasting.pop("freeze", None):
            found[1]()

    def few_descriptors(self) -> None:
        process = self.daemon.process
        if process is None or "descriptors" in self.lasting:
            return
        try:
            opened = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (opened + self.rng.randrange(8), before[1]))
        except (OSError, ValueError):
            return
        self.report.count("descriptors taken")
        self.started_short = self.started_short or not self.daemon.ready

        def lift() -> None:
            with contextlib.suppress(OSError):
                if process.poll() is None:
                    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)

        self.last("descriptors", self.rng.uniform(0.5, 6.0), lift)

    def many_connections(self) -> None:
        if "connections" in self.lasting:
            return
        sockets: list[socket.socket] = []
        here, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        for _ in range(min(2_500, here - 100)):
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            sockets.append(one)
            try:
                one.connect(str(self.place.state / "api.sock"))
            except OSError:
                break
        self.report.count("floods of idle connections")

        def lift() -> None:
            for one in sockets:
                one.close()

        self.last("connections", self.rng.uniform(0.5, 4.0), lift)

    # The disk

    def fill_disk(self) -> None:
        if "disk" not in self.lasting:
            self.report.count("disk filled")
            self.last("disk", self.rng.uniform(0.5, 8.0), lambda: os.truncate(self.place.ballast, 0))
            self._take_room()

    def _take_room(self) -> None:
        with self.place.ballast.open("ab", buffering=0) as file:
            size, left = os.fstat(file.fileno()).st_size, shutil.disk_usage(self.place.disk).free
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), size, max(left, 4096))
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)

    def use_inodes(self) -> None:
        if "inodes" in self.lasting:
            return
        folder = self.place.disk / f"files{self.rng.getrandbits(32):x}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            for number in range(100_000):
                os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
        self.report.count("inodes used up")
        self.last("inodes", self.rng.uniform(0.5, 8.0), lambda: shutil.rmtree(folder, ignore_errors=True))

    # Jobs' supervisors

    def supervisors(self) -> dict[int, str]:
        """Supervisors of this state directory: process ids with their directories.

        A rank that was forked just now still has the words of its supervisor, but is the job's own."""
        found = {}
        mark = f"{self.place.state}/jobs/".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().rstrip(b"\0").split(b"\0")
                if words[-1].startswith(mark) and b"trine.executor.local.supervisor" in b"".join(words):
                    found[int(path.parent.name)] = words[-1].decode()
        above = parents()
        return {pid: run_dir for pid, run_dir in found.items() if above.get(pid) not in found}

    def _kill_one(self, pid: int) -> bool:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if pid not in self.supervisors():
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def kill_supervisor(self) -> None:
        if (found := sorted(self.supervisors())) and self._kill_one(self.rng.choice(found)):
            self.report.count("supervisors killed")

    def kill_newborn(self) -> None:
        """The next one that is started, before it can do much."""
        known, deadline = self.supervisors().keys(), time.monotonic() + 1.5
        while time.monotonic() < deadline:
            if new := [pid for pid in self.supervisors() if pid not in known]:
                time.sleep(self.rng.choice([0.0, 0.0, 0.01, 0.03]))
                if self._kill_one(new[0]):
                    self.report.count("supervisors killed as they started")
                return

    # Clock and database

    def step_clock(self) -> None:
        ahead_s = self.rng.choice([0.0, 20.0, -20.0, 3_600.0, -3_600.0, 86_400.0, -30 * 86_400.0, 1e8])
        self.place.set_clock(ahead_s)
        self.report.count("clock set")

    def cut_database(self) -> None:
        self.postgres.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename = 'trine'"
        )
        self.report.count("database connections cut")


class Soak:
    """One run: users, faults, and the checks."""

    def __init__(self, home: Path, seed: int, seconds: float, postgres: Any = None) -> None:
        self.seconds, self.report = seconds, Report()
        rng = random.Random(f"{seed} faults")
        self.policy = POLICIES[(seed - 1) % len(POLICIES)]
        self.place = Place(home)
        options = ["--gpus", "2x4", "--round", "1", "--policy", self.policy, "--port", "0"]
        options += ["--store", postgres.url()] if postgres is not None else []
        self.daemon = Daemon(self.place, self.report, options)
        self.faults = Faults(self.place, self.report, self.daemon, rng, postgres)
        self.rng, self.users = rng, Users(self.place, self.report, seed)
        self.began = time.monotonic()

    def run(self) -> Report:
        try:
            self.faults.up()
            self._await_ready()
            self.users.start()
            self._trouble()
            self._settle()
            self._stop()
            self._check()
        except Exception as error:
            self.report.breach(f"the run was cut short by {type(error).__name__}: {error}")
        finally:
            self._clean()
        return self.report

    def _trouble(self) -> None:
        end, told = self.began + self.seconds, self.began
        due = time.monotonic() + 2.0
        while (now := time.monotonic()) < end:
            if now >= due:
                self.faults.strike()
                due = time.monotonic() + min(self.rng.expovariate(0.3), 8.0)
            self.faults.tend()
            self._watch()
            if now - told >= 60:
                told = now
                self.tell()
            time.sleep(0.05)
        self.faults.kill()  # every run has one, however few faults a busy machine leaves time for

    def _watch(self) -> None:
        """A daemon that ends by itself breaks a promise, unless it could not even start: no room, no descriptors."""
        code = self.daemon.look()
        if code is None:
            silent_s = time.monotonic() - max(self.users.answered_s, self.faults.hindered_s)
            if self.daemon.ready and silent_s > _SILENT_S and self.users.is_alive():
                self.daemon.send(signal.SIGABRT)  # says where it hangs, and ends
            return
        words = self.daemon.words()
        if self.faults.started_short and not self.daemon.ready and code == 1 and "Traceback" not in words:
            self.report.count("starts refused for want of room or descriptors")
        else:
            self.report.breach(f"the daemon ended by itself with {code}: {words[-2500:]}")
        time.sleep(0.3)
        self.faults.up()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        while not self.daemon.ready:
            self._watch()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the daemon did not come up: {self.daemon.words()[-1500:]}")
            time.sleep(0.05)

    def tell(self) -> None:
        counts = self.report.counts
        killed = sum(number for what, number in counts.items() if what.startswith("daemon killed"))
        lost = sum(number for what, number in counts.items() if what.startswith("supervisors"))
        states = Counter(job.state for job in self.users.asked)
        ended = ", ".join(f"{states[state]} {state}" for state in sorted(ENDED))
        print(
            f"{(time.monotonic() - self.began) / 60:5.1f} min  {counts['jobs']} jobs ({ended}), {killed} kills of the "
            f"daemon, {lost} of supervisors, {len(self.report.broken)} promises broken",
            flush=True,
        )

    def _settle(self) -> None:
        """All faults over: everything must come to its end."""
        self.faults.tend(everything=True)
        self.users.leaving.set()
        self.users.join(60)
        self._await_ready()
        users, deadline = self.users, time.monotonic() + _DRAIN_S
        users.leaving.clear()
        while users.open or users.live:
            self._watch()
            for request in list(users.open):
                users._submit(request)
            users._undrain()
            users._look()
            for job in list(users.live.values()):
                self._help(job)
            if time.monotonic() > deadline:
                self._stuck()
                return
            time.sleep(0.5)

    def _help(self, job: Asked) -> None:
        """Let go whoever is held or pauses; end whoever would go on for ever."""
        if job.ends == "never":
            job.cancelled = True
            self.users._verb("cancel", job)
        elif job.state in ("held", "set aside", "waiting"):
            self.users._verb("release", job)

    def _stuck(self) -> None:
        for job in self.users.live.values():
            found = self.users.call(lambda client, job=job: client.explain(job.id))  # type: ignore[misc]
            told = found["sentences"] + [line["sentence"] for line in found["story"][-5:]] if found else []
            self.report.breach(f"job {job.id} ({job.tag}) is still {job.state}: {' '.join(told)[:600]}")
        if self.users.open:
            self.report.breach(f"{len(self.users.open)} submissions were never answered")

    def _stop(self) -> None:
        self._check_answers()
        self.daemon.stop()
        self.daemon.process = None

    # Checks at the end

    def _check_answers(self) -> None:
        """Jobs that never ended are a breach already; those that did are judged all the same."""
        users = self.users
        ids = [job.id for job in users.asked]
        if len(set(ids)) < len(ids):
            self.report.breach("two submissions got the same job")
        count = users.call(lambda client: client.count([*ENDED, *LIVE]))
        if count != len(ids) and not users.open:
            self.report.breach(f"{len(ids)} jobs were acknowledged, {count} are there")
        for job in users.asked:
            try:
                found = users.call(lambda client, job=job: client.job(job.id))  # type: ignore[misc]
            except RefusedError as error:
                self.report.breach(f"job {job.id} ({job.tag}) was acknowledged and is gone: {error}")
                continue
            if found is None:
                self.report.breach(f"no answer about job {job.id} although all faults are over")
                continue
            users.note(job, found)
            if found["state"] in ENDED:
                self._check_end(job, found)

    def _check_end(self, job: Asked, found: JobAnswer) -> None:
        self.report.count(f"ended: {found['state']}")
        self.report.count("preemptions", found["preemptions"])
        self.report.count("attempts", found["attempt"])
        if found["state"] == "cancelled" and job.cancelled:
            return
        lines = self._ledger(job)
        if found["state"] != job.ends:
            story = self._story(job)
            self.report.breach(
                f"job {job.id} ({job.tag}, {job.spec['run'][5]}) is {found['state']} with exit code "
                f"{found['exit_code']}, not {job.ends}: {story}"
            )
        elif job.ends == "failed":
            failed = sum(line["ev"] == "failing" for line in lines)
            if found["exit_code"] != job.rc or failed < job.failures:
                self.report.breach(
                    f"job {job.id} ({job.tag}) failed with {found['exit_code']} after {failed} failures of its own, "
                    f"not with {job.rc} after {job.failures}: {self._story(job)}"
                )
        elif job.ends == "done" and not any(line["ev"] == "end" and line["rc"] == 0 for line in lines):
            self.report.breach(f"job {job.id} ({job.tag}) is done, and its program never ended with 0")

    def _story(self, job: Asked) -> str:
        found = self.users.call(lambda client: client.explain(job.id))
        told = " | ".join(f"{line['what']}: {line['sentence']}" for line in found["story"][-6:]) if found else ""
        errors = [line["what"] for line in self._ledger(job) if line["ev"] == "error"]
        return f"{told} {errors}"

    def _ledger(self, job: Asked) -> list[dict[str, Any]]:
        path = self.place.ledgers / f"{job.tag}.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def _check(self) -> None:
        held: dict[str, list[tuple[float, float, str]]] = {}
        for job in self.users.asked:
            lines = self._ledger(job)
            for line in lines:
                if line["ev"] == "taken":
                    who = f"{job.tag}, attempt {line['attempt']}, rank {line['rank']}"
                    self.report.breach(f"{who} started where {line['what']} was still held by {line['by']}")
            for name, begin, end, who in _held(job, lines):
                held.setdefault(name, []).append((begin, end, who))
            if job.spec["run"][5] == "trained":
                self._check_training(job, lines)
        for name, times in held.items():
            _check_apart(name, sorted(times), self.report)
        self._check_log()
        self._check_leftovers()
        self._check_journal()

    def _check_training(self, job: Asked, lines: list[dict[str, Any]]) -> None:
        """It goes on from the last checkpoint that was saved, or from one that was being saved, step by step."""
        saved, saving, due = 0, {0}, 0
        for line in lines:
            step = line.get("step", 0)
            if line["ev"] == "resume":
                due = step
                self.report.count("resumes" if step else "trainings from the start")
                if step not in saving or step < saved:
                    self.report.breach(f"{job.tag} went on from step {step}; saved was {saved}, begun {max(saving)}")
            elif line["ev"] == "saving":
                saving.add(step)
            elif line["ev"] == "saved":
                saved = max(saved, step)
                self.report.count("checkpoints")
            elif line["ev"] == "step":
                if step != due:
                    self.report.breach(f"{job.tag} ran step {step} where {due} was due")
                due = step + 1
        total = json.loads(job.spec["run"][6])["steps"]
        if job.state == "done" and due != total:
            self.report.breach(f"{job.tag} is done after {due} of {total} steps")

    def _check_log(self) -> None:
        for line in self.place.log.read_text(errors="replace").splitlines():
            if _BUG.search(line):
                self.report.count("errors of its own in the daemon's log")
                self.report.breach(f"the daemon's log says: {re.sub(r'^[^ ]+ ', '', line)[:300]}")

    def _check_leftovers(self) -> None:
        left = self.faults.supervisors()
        left |= dict.fromkeys(self._processes(), "a job's process")
        if left:
            self.report.breach(f"still running at the end: {left}")
        if active := sorted(path.name for path in (self.place.state / "active").iterdir()):
            self.report.breach(f"starts without an end on record: {active}")

    def _processes(self) -> list[int]:
        runs = {f"TRINE_RUN_DIR={path}" for path in self.place.state.glob("jobs/*/[0-9]*")}
        return [pid for run in runs for pid in marked(run)] if len(runs) < 100 else self._holders()

    def _holders(self) -> list[int]:
        """Processes that still hold a lock of a job."""
        inodes = {path.stat().st_ino for path in self.place.locks.iterdir()}
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return [int(row[4]) for row in rows if row[1] == "FLOCK" and int(row[5].rpartition(":")[2]) in inodes]

    def _check_journal(self) -> None:
        """What is on record is decided the same again."""
        options = self.daemon.options
        store = ["--store", options[options.index("--store") + 1]] if "--store" in options else []
        command = [sys.executable, "-m", "trine", "replay", "--state", str(self.place.state), "-o", "json", *store]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        self.report.count("replays that agree", not done.returncode)
        if done.returncode:
            self.report.breach(f"trine replay ends with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")

    def _clean(self) -> None:
        """End everything, by its process id, whatever happened."""
        self.users.leaving.set()
        with contextlib.suppress(Exception):
            self.faults.tend(everything=True)
        process = self.daemon.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(10)
        for _ in range(50):
            left = self.faults.supervisors()
            gone = {pid for root in left for pid in descendants(root)} | set(self._holders())
            for pid in {*left, *gone}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left and not gone:
                break
            time.sleep(0.1)
        self.place.unmount()


def _held(job: Asked, lines: list[dict[str, Any]]) -> Iterator[tuple[str, float, float, str]]:
    """From when to when each rank surely ran, under the names of its GPUs and of its place in the job."""
    runs: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in lines:
        runs.setdefault((line["attempt"], line["rank"]), []).append(line)
    for (attempt, rank), told in runs.items():
        start = next((line for line in told if line["ev"] == "start"), None)
        if start is None:
            continue
        who = f"{job.tag}@{attempt}"
        names = [f"{job.tag} rank {rank}", *(f"GPU {gpu} of {start['node']}" for gpu in start["gpus"])]
        for name in names:
            yield name, start["t"], told[-1]["t"], who


def _check_apart(name: str, times: list[tuple[float, float, str]], report: Report) -> None:
    until, holder = float("-inf"), ""
    for begin, end, who in times:
        if begin < until and who != holder:
            report.breach(f"{name} was held by {holder} and {who} at the same time")
        if end > until:
            until, holder = end, who


def summary(soak: Soak) -> dict[str, Any]:
    counts = dict(sorted(soak.report.counts.items()))
    minutes = round((time.monotonic() - soak.began) / 60, 1)
    return {"policy": soak.policy, "minutes": minutes, "counts": counts, "broken": soak.report.broken}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Soak test of a real daemon with real jobs and faults of all kinds.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, required=True, help="a directory that is new or empty")
    parser.add_argument("--postgres", action="store_true", help="keep the journal in a PostgreSQL server of its own")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    told = parser.parse_args(arguments)
    if told.state.exists() and any(told.state.iterdir()):
        parser.error(f"--state: found files in {told.state}; expected a directory that is new or empty")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with server(told.postgres) as postgres:
        soak = Soak(told.state.absolute(), told.seed, 60 * told.minutes, postgres)
        soak.run()
    result = summary(soak)
    if told.output == "json":
        print(json.dumps(result, indent=1))
    else:
        for what, number in [("policy", result["policy"]), ("minutes", result["minutes"]), *result["counts"].items()]:
            print(f"{what:42} {number:>10}")
        print(f"{'promises broken':42} {len(result['broken']):>10}", *result["broken"], sep="\n- ")
    return 1 if result["broken"] else 0


@contextlib.contextmanager
def server(wanted: bool) -> Iterator[Any]:
    """A PostgreSQL server on a socket of its own, if that is asked for."""
    if not wanted:
        yield None
        return
    import tempfile

    from tests.server.test_store import Postgres, unprivileged

    home = Path(tempfile.mkdtemp(prefix="trine-soak-pg-"))
    home.chmod(0o755)
    running = Postgres(home, unprivileged())
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
