"""``python -m benchmarks.slurm``: how long things take on a real Slurm, started on loopback for it, and what following
many jobs costs. Wall times, so they say something only about a machine that does nothing else; processor times where said.

Not among the benchmarks with a budget: most of what is measured is Slurm's own."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.executor.slurm_cluster import SlurmCluster, missing

from trine.executor.attempt import rundir
from trine.executor.attempt.shared_dir import PART_LOOK_S
from trine.executor.attempt.spec import Site, make_spec
from trine.executor.attempt.state_dir import StateDir, own_id
from trine.executor.base import AttemptExited, AttemptStarted, Event, JobLease, NodeInfo
from trine.executor.slurm.engine import ID_FILE, SlurmEngine
from trine.executor.slurm.executor import SlurmExecutor
from trine.executor.slurm.submission import comment, job_name

_FIRST_LINE = ("/bin/sh", "-c", "date +%s.%N")
_PATIENCE_S = 120.0


class Bench:
    """An executor with the settings that a daemon has by default."""

    def __init__(self, cluster: SlurmCluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self.engine = SlurmEngine(conf=str(cluster.conf), environ=cluster.environ)
        nodes = self.engine.find_nodes(None)
        assert isinstance(nodes, list), nodes
        self.nodes: list[NodeInfo] = nodes
        self.executor: SlurmExecutor = self.engine.open(home, nodes)
        self.seen: list[Event] = []

    def until(self, count: int, kind: type) -> float:
        """When, on the clock of the system, so many events of a kind were read."""
        deadline = time.monotonic() + _PATIENCE_S
        while sum(isinstance(event, kind) for event in self.seen) < count:
            assert time.monotonic() < deadline, self.seen
            self.seen += self.executor.wait_events(1.0)
        return time.time()

    def first_line_s(self, job_id: str) -> float:
        """When the job wrote its first line."""
        log = self.executor.storage.open_log(job_id)
        assert log is not None
        return float(log.read(0, 100))

    def starts(self, count: int, at_once: bool) -> list[float]:
        """Seconds from each launch to the first line of its job."""
        places = [(node.name, (gpu.index,)) for node in self.nodes for gpu in node.gpus]
        asked: dict[str, float] = {}
        for number in range(count):
            job_id = f"{'burst' if at_once else 'single'}-{number}"
            asked[job_id] = time.time()
            self.executor.launch(JobLease(job_id, 1, (places[number % len(places)],), _FIRST_LINE, workdir=""))
            if not at_once:
                self.until(number + 1, AttemptExited)
        self.until(count, AttemptExited)
        self.seen.clear()
        return [self.first_line_s(job_id) - at_s for job_id, at_s in asked.items()]

    def stops(self, count: int) -> list[float]:
        """Seconds from the order to stop to the event that gives the GPU on; the job leaves at once."""
        found = []
        for number in range(count):
            handle = self.executor.launch(
                JobLease(f"stop-{number}", 1, (("node0", (0,)),), ("sleep", "1000"), workdir="")
            )
            self.until(1, AttemptStarted)
            asked = time.time()
            self.executor.preempt(handle, 30.0)
            found.append(self.until(1, AttemptExited) - asked)
            self.seen.clear()
        return found


def asking(cluster: SlurmCluster, home: Path, jobs: int) -> list[str]:
    """What following so many jobs costs. Slurm holds them, since so many processes are more than one machine carries;
    their directories look as if they ran."""
    bench = Bench(cluster, home)
    bench.executor.close()
    state_id, state = own_id(home, ID_FILE), StateDir(home)
    for number in range(1, jobs + 1):
        lease = JobLease(str(number), 1, (("node0", (0,)),), ("true",), lease_s=900.0)
        state.prepare(lease, make_spec(lease, {}, 0, "", "", Site(part_per_node=True, look_s=PART_LOOK_S)))
        rundir.append_status(str(state.run_dir(lease.handle)), t=time.time(), ev="started")
        options = ["--hold", f"--job-name={job_name(state_id)}", "--output=/dev/null", "--mem=1", "--wrap=true"]
        cluster.run("sbatch", f"--comment={comment(state_id, lease.handle)}", *options)
    slurm = bench.engine.slurm
    spent = [_timed(lambda: slurm.jobs(job_name(state_id))) for _ in range(10)]
    carrier = bench.engine.carrier(state_id)
    executor = SlurmExecutor(home, bench.nodes, carrier, bench.engine.times, environ=cluster.environ)
    try:
        time.sleep(5.0)  # until it has taken all of them up
        carrier.slurm.calls.clear()
        before, began = time.process_time(), time.monotonic()
        time.sleep(20.0)
        cpu_s, wall_s = time.process_time() - before, time.monotonic() - began
        calls = sum(carrier.slurm.calls.values()) / wall_s
        assert len(executor.list_handles()) == jobs and not [
            e for e in executor.events() if isinstance(e, AttemptExited)
        ], "they did not stay as they were"
    finally:
        executor.close()
    return [
        f"one question about {jobs} jobs: {_middle(spent)} ms (median of 10)",
        f"calls of Slurm's programs per second, {jobs} jobs: {calls:.1f}",
        f"processor time of the executor, {jobs} jobs: {100 * cpu_s / wall_s:.0f} % of a core",
    ]


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _middle(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.0f}"


def _line(title: str, seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    worst = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"{title}: median {statistics.median(ordered):.2f} s, 95 % {worst:.2f} s, n = {len(ordered)}"


def main() -> int:
    """Print one line per measurement; 2 where there is no Slurm."""
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    print(subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.strip())
    cluster = SlurmCluster(8, 16)
    try:
        cluster.start()
        with tempfile.TemporaryDirectory(prefix="trine-bench-") as folder:
            bench = Bench(cluster, Path(folder) / "live")
            try:
                print(_line("decision to first line of the job, one at a time", bench.starts(20, at_once=False)))
                print(_line("decision to first line of the job, 100 starts at once", bench.starts(100, at_once=True)))
                print(_line("order to stop to GPU given on", bench.stops(20)), flush=True)
            finally:
                bench.executor.close()
            for line in asking(cluster, Path(folder) / "asking", 1000):
                print(line, flush=True)
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
