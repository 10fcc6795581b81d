"""The dashboard at scale: 10,000 GPUs, 10,000 jobs, 20 viewers. ``python -m benchmarks.dashboard`` prints the figures.

A whole daemon (scheduler, journal, API) in a process of its own, with jobs that only pretend: they start at once, report
progress and end when told. Twenty viewers read the events over sockets; a headless Chromium
comes on top for the times of views, and is closed while processor and memory are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server.site import Attempt, FakeExecutor, FakeWorld

from trine.core.cluster import Cluster
from trine.executor.base import AttemptExited, AttemptStarted, JobLease
from trine.executor.local.inventory import nodes_of
from trine.inputs.job_spec import JobSpec
from trine.server.access import Access
from trine.server.api.app import build_app
from trine.server.api.serve import bind, serve
from trine.server.auth import open_auth
from trine.server.build import Model
from trine.server.configuration import Setup
from trine.server.daemon import configure_logging
from trine.server.interface import Caller
from trine.server.leases import Leases
from trine.server.scheduler import Scheduler
from trine.server.store import Store

GANGS = (1, 1, 1, 2, 4, 8)
CHURN_S, REPORTS_PER_S = 0.5, 100
"""A job ends, and another arrives, this often; so many jobs report progress every second."""
BUDGETS = {
    "processor, share of a core": 0.20,
    "memory for 20 viewers (MB)": 300.0,
    "first view (s)": 2.0,
    "update visible (s)": 1.0,
}


# -- the daemon ------------------------------------------------------------------------------------------------------


class _Pretended(FakeWorld):
    """Starts whatever it is told to; the checks of the tests would cost more than the daemon."""

    def _launch(self, lease: JobLease) -> None:
        self.attempts[lease.handle] = Attempt(lease)
        self.tell(AttemptStarted(lease.handle, time.time()))


async def _daemon(home: Path, gpus: int, jobs: int) -> None:
    cluster = Cluster.uniform(gpus // 8, 8, "a100", 32)
    world = _Pretended(nodes_of(cluster), home)
    auth, store = open_auth(home), Store.open(home / "journal.db")
    setup = Setup(cluster, "fifo-backfill", "packed-sticky", {}, 60.0, "benchmark", False, "off")
    scheduler = Scheduler(setup, Model(), store, FakeExecutor(world), Leases(1e9), Access(), time.time)
    await scheduler.start()
    numbers = itertools.count()
    for _ in range(jobs // 500):
        await scheduler.submit([_spec(next(numbers)) for _ in range(500)], Caller("root", admin=True))
    stop = asyncio.Event()

    def end() -> None:
        stop.set()
        scheduler.forecasts.close()  # no request waits for one while the server closes

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    churning = [_churn(scheduler, world, numbers), _report(world), _sample(scheduler)]
    tasks = [asyncio.create_task(each) for each in churning]
    with bind() as listener:
        app = build_app(scheduler, auth, log_requests=False)
        await serve(app, listener, stop=stop, ready=lambda url: print(url, flush=True))
    for task in tasks:
        task.cancel()
    await scheduler.stop(keep_snapshot=False)


def _spec(number: int) -> JobSpec:
    described = {
        "run": ["train"],
        "gpus": GANGS[number % len(GANGS)],
        "name": f"train-{number}",
        "steps": 1e6,
        "model": f"model{number % 7}",
        "user": f"user{number % 40}",
    }
    return JobSpec.model_validate(described)


async def _churn(scheduler: Scheduler, world: FakeWorld, numbers: Iterator[int]) -> None:
    while True:
        await asyncio.sleep(CHURN_S)
        handle, attempt = next(iter(world.attempts.items()))
        del world.attempts[handle]
        world.tell(AttemptExited(attempt.lease.handle, time.time(), "done", 0, attempt.step))
        await scheduler.submit([_spec(next(numbers))], Caller("root", admin=True))


async def _sample(scheduler: Scheduler) -> None:
    """As the daemon does every minute; here more often, so that there is something to see."""
    while True:
        scheduler.past.add(scheduler.sample())
        await asyncio.sleep(2.0)


async def _report(world: FakeWorld) -> None:
    """In turn, as jobs that report every half minute do."""
    from trine.executor.base import AttemptProgress

    while True:
        await asyncio.sleep(1 / REPORTS_PER_S)
        for attempt in list(world.attempts.values()):
            await asyncio.sleep(1 / REPORTS_PER_S)
            attempt.step += 50
            world.tell(AttemptProgress(attempt.lease.handle, time.time(), attempt.step, 2.5, 1_000_000))


# -- viewers ---------------------------------------------------------------------------------------------------------


@dataclass
class Host:
    """The daemon's process."""

    url: str
    token: str
    pid: int

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@contextlib.contextmanager
def host(gpus: int, jobs: int) -> Iterator[Host]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.dashboard", "--serve", folder, str(gpus), str(jobs)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            yield Host(url, (Path(folder) / "token").read_text().strip(), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def _view(found: Host, received: list[int], index: int) -> None:
    """Reads events for as long as it may, as a browser does."""
    address, port = found.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    request = f"GET /v1/board/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {found.token}\r\n\r\n"
    writer.write(request.encode())
    try:
        while part := await reader.read(1 << 20):
            received[index] += len(part)
    finally:
        writer.close()


async def _with_viewers(found: Host, viewers: int, seconds: float) -> dict[str, float]:
    """Processor time of the daemon while viewers look on, after they have their snapshots, and with a browser last."""
    received = [0] * viewers
    tasks = [asyncio.create_task(_view(found, received, index)) for index in range(viewers)]
    await asyncio.sleep(8)
    figures = await asyncio.to_thread(_in_browser, found) if shutil.which("chromium") else {}
    before, cpu_s, begin = sum(received), found.cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    spent = time.monotonic() - begin
    figures["processor, share of a core"] = (found.cpu_s() - cpu_s) / spent
    figures["sent to each viewer (kB/s)"] = (sum(received) - before) / viewers / spent / 1e3
    figures["memory (MB)"] = found.memory_mb()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return figures


def _in_browser(found: Host) -> dict[str, float]:
    """Seconds from the address to the drawn map, and from a submission to its row on the screen."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"{found.url}/ui")
        page.get_by_label("Token or code").fill(found.token)
        page.get_by_role("button", name="Log in").click()
        page.locator(".cards b").first.wait_for()
        begin = time.monotonic()
        page.reload()
        page.locator(".cards b").first.wait_for()
        first_s = time.monotonic() - begin
        page.goto(f"{found.url}/ui#/queue")
        page.locator(".space .row").first.wait_for()
        updates = sorted(_update_s(page, found) for _ in range(5))
        heap_mb = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        filtered_s = _filter_s(page)
        browser.close()
    return {"first view (s)": first_s, "update visible (s)": updates[2], "filter (s)": filtered_s, "heap (MB)": heap_mb}


def _update_s(page: Any, found: Host) -> float:
    from trine.client import Client

    name = f"new-{secrets.token_hex(4)}"
    page.get_by_label("Filter").fill(name)
    with Client(found.url, found.token) as client:
        begin = time.monotonic()
        client.submit({"run": ["train"], "gpus": 8, "name": name})
        page.locator(".space .row", has_text=name).wait_for()
        return time.monotonic() - begin


def _filter_s(page: Any) -> float:
    begin = time.monotonic()
    page.get_by_label("Filter").fill("user:user7")
    page.wait_for_function("document.querySelector('.controls [role=status]').textContent.match(/^2\\d\\d jobs/)")
    return time.monotonic() - begin


def measured(gpus: int, jobs: int, viewers: int, seconds: float) -> dict[str, float]:
    with host(gpus, jobs) as found:
        time.sleep(5)
        cpu_s, begin = found.cpu_s(), time.monotonic()
        time.sleep(seconds)
        alone = (found.cpu_s() - cpu_s) / (time.monotonic() - begin)
        before_mb = found.memory_mb()
        figures = asyncio.run(_with_viewers(found, viewers, seconds))
        figures["without viewers, share of a core"] = alone
        figures["memory for 20 viewers (MB)"] = figures["memory (MB)"] - before_mb
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=3, metavar=("DIR", "GPUS", "JOBS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        configure_logging(as_json=False, quiet=True)
        asyncio.run(_daemon(Path(options.serve[0]), int(options.serve[1]), int(options.serve[2])))
        return 0
    figures = measured(options.gpus, options.jobs, options.viewers, options.seconds)
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            budget = BUDGETS.get(name)
            print(f"{name:<36}{value:>10.3g}" + (f"   budget {budget:g}" if budget else ""))
    return int(any(figures.get(name, 0.0) > budget for name, budget in BUDGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
