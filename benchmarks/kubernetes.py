"""``python -m benchmarks.kubernetes``: how long things take on a real kube-apiserver with played kubelets, started on
loopback for it. Wall times, so they say something only about a machine that does nothing else; processor times where said.

Not among the benchmarks with a budget: most of what is measured is Kubernetes' own. Pods are local processes: pulling
images and making containers comes on top."""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.executor.kubernetes_cluster import KubernetesCluster, missing
from tests.executor.kubernetes_driving import TIMES, KubernetesDriver, KubernetesDriving

from trine.executor.attempt.remote import EngineUnreachable
from trine.executor.base import AttemptExited
from trine.executor.kubernetes.watched import Times

_FIRST_LINE = ("/bin/sh", "-c", "date +%s.%N")
_GANGS, _PODS_PER_GANG, _NODES = 250, 4, 100
_PATIENCE_S = 300.0


def latencies(home: Path, count: int) -> None:
    """One job at a time: from its launch to its first line, and from the order to stop to its end."""
    cluster = KubernetesCluster(2, 2)
    cluster.start()
    driving = KubernetesDriving(Times(exchange_s=1.0))
    try:
        driving.use(cluster)
        driver = KubernetesDriver(driving, home / "latency")
        starts, stops = [], []
        for number in range(count):
            asked_s = time.time()
            driver.run(f"start{number}", command=_FIRST_LINE)
            starts.append(float(driver.engine.log(driver.state, f"start{number}", 0)) - asked_s)
            handle = driver.launch(f"stop{number}", command=("/bin/sleep", "1000"))
            driver.started(handle)
            ordered_s = time.monotonic()
            driver.executor.preempt(handle, 20.0)
            driver.exited(handle)
            stops.append(time.monotonic() - ordered_s)
        driver.close()
        show(f"decision to first line of the job, one at a time ({count})", starts)
        show(f"order to stop to GPU given on, of a job that leaves at once ({count})", stops)
    finally:
        cluster.stop()


def show(what: str, seconds: Sequence[float]) -> None:
    ninety_five = sorted(seconds)[min(int(0.95 * len(seconds)), len(seconds) - 1)]
    print(f"{what}: median {statistics.median(seconds):.2f} s, 95 % {ninety_five:.2f} s", flush=True)


def many_pods(home: Path) -> None:
    """All gangs at once, on nodes that say their pods run and start nothing; then a quiet minute."""
    cluster = KubernetesCluster(_NODES, _GANGS * _PODS_PER_GANG // _NODES, idle=True)
    cluster.start()
    driving = KubernetesDriving(replace(TIMES, look_s=0.25, ask_s=2.0, pending_s=1e6, silent_s=60.0))
    try:
        driving.use(cluster)
        driver = KubernetesDriver(driving, home / "many")
        api, began_s, began_cpu_s = driver.executor._api, time.monotonic(), time.process_time()  # type: ignore[attr-defined]
        calls = api.calls
        for gang in range(_GANGS):
            first = gang * _PODS_PER_GANG
            places = [(f"node{(first + i) % _NODES}", ((first + i) // _NODES,)) for i in range(_PODS_PER_GANG)]
            driver.launch(f"g{gang}", *places)
        wanted = _GANGS * _PODS_PER_GANG
        while (bound := count_bound(driver)) < wanted:
            assert time.monotonic() < began_s + _PATIENCE_S, f"{bound} of {wanted} pods are bound"
            time.sleep(0.2)
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        per_pod = (api.calls - calls) / wanted
        ended = [event for event in driver.executor.events() if isinstance(event, AttemptExited)]
        print(
            f"{wanted:,} pods of {_GANGS} gangs on {_NODES} nodes: all bound after {took_s:.1f} s ({len(ended)} lost),"
        )
        print(f"  {per_pod:.2f} API calls per pod, {cpu_s:.1f} s of processor time with the played kubelets")
        quiet(driver)
        driver.executor.close()
    finally:
        cluster.stop()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"  API server and its store: {used.ru_utime + used.ru_stime:.1f} s of processor time, start and end included"
    )


def count_bound(driver: KubernetesDriver) -> int:
    """As the executor's own watch shows it."""
    with suppress(EngineUnreachable):
        pods = driver.executor._informers["pods"].objects()  # type: ignore[attr-defined]
        return sum(bool(pod["spec"].get("nodeName")) for pod in pods.values())
    return 0


def quiet(driver: KubernetesDriver) -> None:
    executor = driver.executor
    lists, calls = executor.lists, executor._api.calls  # type: ignore[attr-defined]
    time.sleep(30.0)
    more_lists, more_calls = executor.lists - lists, executor._api.calls - calls  # type: ignore[attr-defined]
    print(f"  then, in 30 s: {more_lists} lists, {more_calls} API calls (watches that begin anew, and health)")


def main() -> int:
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="trine-bench-") as home:
        many_pods(Path(home))  # first: what its server used is told from all children that have ended
        latencies(Path(home), 20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
