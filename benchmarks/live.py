"""What the daemon costs: submissions over HTTP with durability on, a large round, and doing nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trine.executor.base import AttemptExited, Event, Handle, JobLease, LaunchFailed
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes
from trine.inputs.cluster import load_cluster
from trine.inputs.job_spec import JobSpec
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.records import to_body
from trine.server.state import LiveState

_CONNECTIONS = 16
_JOB = json.dumps({"run": ["sleep", "1000"], "gpus": 1, "model": "resnet50", "name": "benchmark"}).encode()


@contextlib.contextmanager
def daemon(*options: str) -> Iterator[tuple[str, str, int]]:
    """A daemon of its own: address, token and process id."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        command = [sys.executable, "-m", "trine", "up", "--state", folder, "--quiet", *options]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while not (home / "api.json").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the daemon did not come up")
                time.sleep(0.05)
            entry = json.loads((home / "api.json").read_text())
            yield entry["url"], (home / "token").read_text().strip(), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            _end_jobs(home)


def _end_jobs(home: Path) -> None:
    """Jobs outlive their daemon; these are of no use to anybody."""
    with LocalExecutor(home, virtual_nodes("1x1")) as executor:
        handles = executor.list_handles()
        for handle in handles:
            executor.kill(handle)
        deadline = time.monotonic() + 20
        left = set(handles)
        while left and time.monotonic() < deadline:
            left -= {
                event.handle for event in executor.wait_events(0.5) if isinstance(event, AttemptExited | LaunchFailed)
            }


def submissions(count: int = 4000) -> tuple[float, float]:
    """Seconds per 1,000 single-job submissions, each durable before it is answered; and the daemon's share of them."""
    with daemon("--gpus", "1x1") as (url, token, pid):
        before = _cpu_s(pid)
        started = time.monotonic()
        asyncio.run(_submit_all(url, token, count))
        spent = time.monotonic() - started
        return spent / count * 1000, (_cpu_s(pid) - before) / count * 1000


async def _submit_all(url: str, token: str, count: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    )
    request = head.encode() + f"Content-Length: {len(_JOB)}\r\n\r\n".encode() + _JOB

    async def client(jobs: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(jobs):
            writer.write(request)
            headers = await reader.readuntil(b"\r\n\r\n")
            if not headers.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(headers.decode())
            length = int(headers.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client(count // _CONNECTIONS) for _ in range(_CONNECTIONS)))


def launches(count: int = 100) -> float:
    """Milliseconds of processor time from a lease to the end of its job on record, for a job that does nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalExecutor(folder, virtual_nodes("1x1")) as executor,
    ):
        before = _all_cpu_s()
        for number in range(count):
            handle = executor.launch(JobLease(str(number), 1, (("node0", (0,)),), ("/bin/true",), lease_s=900.0))
            while not any(_is_end(event, handle) for event in executor.wait_events(30)):
                pass
            executor.forget(handle)
        return (_all_cpu_s() - before) / count * 1000


def _is_end(event: Event, handle: Handle) -> bool:
    if isinstance(event, LaunchFailed):
        raise RuntimeError(event.reason)
    return isinstance(event, AttemptExited) and event.handle == handle


def _all_cpu_s() -> float:
    """Of this process and of all that it has waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in found)


def large_round(policy: str, placement: str, jobs: int = 10_000, gpus: str = "1250x8") -> float:
    """Seconds of processor time to decide a round over ``jobs`` queued jobs on as many free GPUs."""
    controller = Controller(LiveState(), Model())
    controller.configure(0.0, "benchmark", load_cluster(gpus), policy, placement, {})
    for number in range(jobs):
        gang = (1, 1, 1, 2, 4, 8)[number % 6]
        spec = JobSpec.model_validate({"run": ("train",), "gpus": gang, "steps": 1000.0 + number, "queue": "q"})
        controller.submit(float(number), 1.0, spec)
    before = time.process_time()
    record = controller.tick(1e5)
    spent = time.process_time() - before
    if len(record.orders.starts) < 100:
        raise RuntimeError(f"only {len(record.orders.starts)} jobs were started")
    to_body(record)
    return spent


def idle(seconds: float = 10.0) -> tuple[float, float]:
    """Share of a core, in percent, and resident memory in MB of a daemon that has nothing to do."""
    with daemon("--gpus", "4x2", "--round", "1") as (_, _, pid):
        time.sleep(2.0)
        before = _cpu_s(pid)
        time.sleep(seconds)
        return (_cpu_s(pid) - before) / seconds * 100, _resident_mb(pid)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
