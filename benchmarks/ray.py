"""``python -m benchmarks.ray``: how long things take on a real Ray, started in a network namespace for it. Wall times, so
they say something only about a machine that does nothing else.

Not among the benchmarks with a budget: most of what is measured is Ray's own."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.executor.ray_cluster import RayCluster, missing
from tests.executor.ray_driving import ray_settings

from benchmarks.engine_latency import Latency, spread
from trine.executor.ray.engine import RayEngine


def main() -> int:
    """Print one line per measurement; 2 where there is no Ray."""
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    cluster = RayCluster(4, 2)
    try:
        began = time.monotonic()
        cluster.start()
        print(f"head and {len(cluster.names)} nodes up: {time.monotonic() - began:.0f} s")
        with tempfile.TemporaryDirectory(prefix="trine-bench-") as folder:
            latency = Latency(RayEngine(**ray_settings(cluster), environ=cluster.environ), Path(folder) / "live")
            try:
                print(spread("decision to first line of the job, one at a time", latency.starts(20, at_once=False)))
                print(spread("decision to first line of the job, 8 starts at once", latency.starts(8, at_once=True)))
                print(spread("order to stop to GPU given on", latency.stops(20)), flush=True)
            finally:
                latency.executor.close()
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
