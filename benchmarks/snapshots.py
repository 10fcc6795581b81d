"""``python -m benchmarks.snapshots``: how long submissions take while a daemon with many ended jobs takes snapshots."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trine.inputs.job_spec import JobSpec
from trine.server.live_job import LiveJob
from trine.server.snapshot import to_snapshot
from trine.server.state import LiveState
from trine.server.store import Store

_SPEC = {"run": ["python", "train.py", "--epochs", "90"], "gpus": 4, "model": "resnet50", "env": {"A": "1", "B": "2"}}
_JOB = json.dumps({"run": ["sleep", "1000"], "gpus": 1, "name": "benchmark"}).encode()
_UP = (
    "import sys; from trine.server import scheduler; scheduler._SNAPSHOT_EVERY = int(sys.argv.pop(1)); "
    "from trine.cli.main import main; main()"
)
_NEVER, _OFTEN = 10**9, 1
_BUDGET_MS = 100.0


def write_past(home: Path, ended: int) -> None:
    """The journal of a daemon that has seen ``ended`` jobs, as a version wrote it that kept them in one body."""
    state = LiveState()
    spec = JobSpec.model_validate({**_SPEC, "user": "ada", "queue": "default"}, strict=False)
    for number in range(1, ended + 1):
        job = LiveJob(str(number), "ada", "default", 1.0, spec, float(number), "done", 1, finished_s=number + 90.0)
        for what in ("submitted", "started", "running", "done"):
            job.tell(float(number), what, "job 1 starts on 4 GPUs on node node0." if what == "started" else "")
        state.jobs[job.id] = job
    state.next_id, state.last_s = ended + 1, float(ended)
    store = Store.open(home / "journal.db")
    store.load()
    store.snapshot(to_snapshot(state), 0)
    store.close()


@contextlib.contextmanager
def daemon(home: Path, snapshot_every: int) -> Iterator[tuple[str, str, float]]:
    """Address, token, and the seconds it took to come up."""
    command = [sys.executable, "-c", _UP, str(snapshot_every), "up", "--state", str(home), "--gpus", "1x1"]
    (home / "api.json").unlink(missing_ok=True)
    began = time.monotonic()
    process = subprocess.Popen([*command, "--round", "0.2", "--quiet"])
    try:
        while not (home / "api.json").exists():
            if process.poll() is not None or time.monotonic() > began + 120:
                raise RuntimeError("the daemon did not come up")
            time.sleep(0.02)
        entry = json.loads((home / "api.json").read_text())
        yield entry["url"], (home / "token").read_text().strip(), time.monotonic() - began
    finally:
        ending = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        print(f"  stopped in {time.monotonic() - ending:.2f} s, with a snapshot")


async def latencies(url: str, token: str, seconds: float, connections: int = 4) -> list[float]:
    """Milliseconds of each submission, durable when answered."""
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(_JOB)}\r\n\r\n".encode() + _JOB
    found: list[float] = []

    async def client(until: float) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.monotonic() < until:
            before = time.monotonic()
            writer.write(request)
            headers = await reader.readuntil(b"\r\n\r\n")
            if not headers.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(headers.decode())
            await reader.readexactly(int(headers.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            found.append((time.monotonic() - before) * 1e3)
            await asyncio.sleep(0.02)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client(time.monotonic() + seconds) for _ in range(connections)))
    return found


def measure(home: Path, seconds: float, snapshot_every: int, name: str) -> float:
    with daemon(home, snapshot_every) as (url, token, up_s):
        found = asyncio.run(latencies(url, token, seconds))
    cuts = statistics.quantiles(found, n=100)
    print(
        f"{name}: up in {up_s:.2f} s; {len(found)} submissions, p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, "
        f"longest {max(found):.1f} ms",
        flush=True,
    )
    return cuts[98]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ended", type=int, default=60_000, help="ended jobs on record")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each measurement lasts")
    given = parser.parse_args()
    os.environ.pop("TRINE_STATE", None)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_past(home, given.ended)
        print(f"{given.ended} ended jobs, 4 clients")
        # The second daemon writes down all jobs of the old snapshot first, then one snapshot after the other.
        measure(home, given.seconds, _NEVER, "without snapshots")
        write_past_again(home, given.ended)
        first = measure(home, given.seconds, _OFTEN, "first snapshot of an older journal")
        worst = max(first, measure(home, given.seconds, _OFTEN, "one snapshot after the other"))
    if worst > _BUDGET_MS:
        print(f"over budget: p99 {worst:.0f} ms, at most {_BUDGET_MS:.0f} ms", file=sys.stderr)
    return int(worst > _BUDGET_MS)


def write_past_again(home: Path, ended: int) -> None:
    """The old form once more, after a daemon has replaced it at its end."""
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (home / name).unlink(missing_ok=True)
    write_past(home, ended)


if __name__ == "__main__":
    sys.exit(main())
