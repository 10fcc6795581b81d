"""Many short jobs through a daemon on a real engine while things break, drawn by a seed: every accepted job ends once,
no GPU is held twice, nothing is left behind. What breaks, and how, is the engine's own."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.executor.cluster_command import Cluster
from tests.executor.driving import marked_processes
from trine.client import Client
from trine.client.errors import DaemonError

_JOB = Path(__file__).with_name("soak_job.py")
_FINAL = ("done", "failed", "cancelled", "timed out")
LEASE_S, _GRACE_S = 12.0, 2.0
_LOG_LINES = 40
"""Of the daemon's log, shown where a promise was broken."""


class EngineSoak(ABC):
    """One daemon over one cluster, and what may go wrong with them."""

    round_s = 6
    """Longer than a start takes: who is preempted while it starts gets nowhere."""

    def __init__(self, seed: int, home: Path) -> None:
        self.draw = random.Random(seed)
        self.state, self.locks = home / "state", home / "locks"
        self.locks.mkdir(parents=True)
        self.daemon: subprocess.Popen[bytes] | None = None
        self.faults: Counter[str] = Counter()
        self.log = (home / "daemon.log").open("ab")

    # -- what an engine fills in --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def environ(self) -> Mapping[str, str]:
        """Of the daemon."""

    @property
    @abstractmethod
    def options(self) -> Sequence[str]:
        """Of ``trine up``: the engine and its settings."""

    @abstractmethod
    def kinds(self) -> Sequence[Callable[[], None]]:
        """What may go wrong with the engine."""

    @abstractmethod
    def mend(self) -> None:
        """Put back what is an administrator's to put back, and not trine's."""

    @abstractmethod
    def check_engine(self) -> None:
        """Nothing of any job is left in the engine."""

    def ranks(self) -> list[int]:
        """Processes of jobs."""
        return marked_processes(self.state)

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def up(self) -> None:
        common = ["--round", str(self.round_s), "--policy", "las", "--lease", str(LEASE_S), "--quiet"]
        command = [sys.executable, "-m", "trine", "up", "--state", str(self.state), *common, *self.options]
        self.daemon = subprocess.Popen(command, env=dict(self.environ), stdout=self.log, stderr=self.log)

    def answers(self) -> bool:
        with suppress(OSError, ValueError, KeyError):
            assert self.daemon is not None
            return bool(json.loads((self.state / "api.json").read_text())["pid"] == self.daemon.pid)
        return False

    def call(self, ask: Callable[[Client], Any]) -> Any:
        """Ask until it answers: the daemon may be away for a moment."""
        deadline = time.monotonic() + 60
        while True:
            try:
                with Client(state=self.state) as client:
                    return ask(client)
            except (DaemonError, OSError):
                assert time.monotonic() < deadline, "the daemon does not answer any more"
                time.sleep(0.2)

    def submit(self, count: int) -> list[str]:
        specs = []
        for _ in range(count):
            gpus, nodes = self.draw.choice([(1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (3, 0), (4, 2)])
            steps = str(self.draw.randrange(2, 20))
            run = [sys.executable, "-I", "-S", str(_JOB), str(self.locks), steps, "0.1"]
            more = {"checkpoint": {"grace_s": _GRACE_S}, "retries": 20, "priority": float(self.draw.randrange(2))}
            specs.append({"run": run, "gpus": gpus, "ranks": "gpu", **more, **({"nodes": nodes} if nodes else {})})
        request = f"soak-{self.draw.getrandbits(64):x}"  # once only, however often it is asked
        return list(self.call(lambda client: client.submit(specs, request)))

    def explain(self, job_id: str) -> Any:
        return self.call(partial(Client.explain, job_id=job_id))

    # -- what goes wrong with any engine ------------------------------------------------------------------------------

    def fault(self) -> None:
        chosen = self.draw.choice([*self.kinds(), self.rank_dies, self.daemon_dies])
        self.faults[chosen.__name__] += 1
        chosen()

    def rank_dies(self) -> None:
        ranks = sorted(self.ranks())
        if ranks:
            with suppress(ProcessLookupError):
                os.kill(self.draw.choice(ranks), signal.SIGKILL)

    def daemon_dies(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()
        time.sleep(self.draw.uniform(0.0, 2.0))
        self.up()

    # -- the whole of it ----------------------------------------------------------------------------------------------

    def run(self, jobs: int, faults: int, limit_s: float) -> dict[str, int]:
        """Ends of the jobs by state; AssertionError for what must not be."""
        began = time.monotonic()
        self.up()
        ids: list[str] = []
        for number in range(faults):
            ids += self.submit(jobs * (number + 1) // faults - len(ids))
            time.sleep(self.draw.uniform(0.2, 2.0))
            self.fault()
        ends = self._wait_for_ends(ids, began + limit_s)
        self._check(ids)
        return ends

    def _wait_for_ends(self, ids: Sequence[str], deadline: float) -> dict[str, int]:
        while True:
            self._mend()
            open_jobs = [job["id"] for job in self.call(lambda client: client.jobs(limit=1000))]
            if not open_jobs:
                return dict(Counter(self.explain(job_id)["job"]["state"] for job_id in ids))
            stories = [self.explain(job_id) for job_id in open_jobs[:3]]
            assert time.monotonic() < deadline, f"{len(open_jobs)} jobs have not ended: {stories}"
            time.sleep(1.0)

    def _mend(self) -> None:
        self.mend()
        for job_id in [job["id"] for job in self.call(lambda client: client.jobs(["held"]))]:
            self.call(partial(Client.release, job_id=job_id))

    def _check(self, ids: Sequence[str]) -> None:
        clashes = self.locks / "clashes"
        assert not clashes.exists(), f"a GPU was held twice: {clashes.read_text()}"
        for job_id in ids:
            story = self.explain(job_id)["story"]
            # An attempt that failed and is tried again is no end of the job.
            ends = [line for line in story if line["what"] in _FINAL and "Retry" not in line["sentence"]]
            assert len(ends) == 1, f"job {job_id} ended {len(ends)} times: {story}"
        self.check_engine()
        assert self.ranks() == [], "a process outlives its job"

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(30)
        self.log.close()


Soaking = Callable[[int, int, int, float, Path], tuple[dict[str, int], Counter[str]]]
"""Seed, jobs, faults, the seconds in which all must have ended, and where to: ends by state and faults by kind."""


def soak_on(
    cluster: Cluster, soak: EngineSoak, jobs: int, faults: int, limit_s: float
) -> tuple[dict[str, int], Counter[str]]:
    """Ends by state and faults by kind; the cluster is started for it and stopped after it."""
    try:
        cluster.start()
        return soak.run(jobs, faults, limit_s), soak.faults
    finally:
        soak.close()
        cluster.stop()


def run_soak(
    soak: Soaking, missing: str, seconds: float, doc: str | None, arguments: Sequence[str] | None = None
) -> int:
    """0 if all held; 2 where the engine is missing."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=seconds, help="in which all jobs must have ended")
    asked = parser.parse_args(arguments)
    if missing:
        print(missing, file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trine-soak-") as home:
        try:
            ends, faults = soak(asked.seed, asked.jobs, asked.faults, asked.seconds, Path(home))
        except AssertionError:
            print("\n".join((Path(home) / "daemon.log").read_text().splitlines()[-_LOG_LINES:]), file=sys.stderr)
            raise
    print(f"seed {asked.seed}: {asked.jobs} jobs {ends}, {sum(faults.values())} faults {dict(sorted(faults.items()))}")
    print(f"every job ended once, no GPU was held twice, nothing is left: {time.monotonic() - began:.0f} s")
    return 0
