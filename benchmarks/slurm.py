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

from benchmarks.engine_latency import Latency, spread
from trine.executor.attempt import rundir
from trine.executor.attempt.shared_dir import PART_LOOK_S
from trine.executor.attempt.spec import Site, make_spec
from trine.executor.attempt.state_dir import StateDir, own_id
from trine.executor.base import AttemptExited, JobLease
from trine.executor.slurm.engine import ID_FILE, SlurmEngine
from trine.executor.slurm.executor import SlurmExecutor
from trine.executor.slurm.submission import comment, job_name


def asking(cluster: SlurmCluster, home: Path, jobs: int) -> list[str]:
    """What following so many jobs costs. Slurm holds them, since so many processes are more than one machine carries;
    their directories look as if they ran."""
    engine = SlurmEngine(conf=str(cluster.conf), environ=cluster.environ)
    nodes = engine.find_nodes(None)
    assert isinstance(nodes, list), nodes
    home.mkdir(parents=True)
    state_id, state = own_id(home, ID_FILE), StateDir(home)
    for number in range(1, jobs + 1):
        lease = JobLease(str(number), 1, (("node0", (0,)),), ("true",), lease_s=900.0)
        state.prepare(lease, make_spec(lease, {}, 0, "", "", Site(part_per_node=True, look_s=PART_LOOK_S)))
        rundir.append_status(str(state.run_dir(lease.handle)), t=time.time(), ev="started")
        options = ["--hold", f"--job-name={job_name(state_id)}", "--output=/dev/null", "--mem=1", "--wrap=true"]
        cluster.run("sbatch", f"--comment={comment(state_id, lease.handle)}", *options)
    slurm = engine.slurm
    spent = [_timed(lambda: slurm.jobs(job_name(state_id))) for _ in range(10)]
    carrier = engine.carrier(state_id)
    executor = SlurmExecutor(home, nodes, carrier, engine.times, environ=cluster.environ)
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
            bench = Latency(SlurmEngine(conf=str(cluster.conf), environ=cluster.environ), Path(folder) / "live")
            try:
                print(spread("decision to first line of the job, one at a time", bench.starts(20, at_once=False)))
                print(spread("decision to first line of the job, 100 starts at once", bench.starts(100, at_once=True)))
                print(spread("order to stop to GPU given on", bench.stops(20)), flush=True)
            finally:
                bench.executor.close()
            for line in asking(cluster, Path(folder) / "asking", 1000):
                print(line, flush=True)
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
