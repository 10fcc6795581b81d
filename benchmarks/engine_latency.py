"""How long an engine takes from a decision to the first line of a job, and from an order to stop to a GPU that is given
on: the same measurement for all engines, with the settings that a daemon has by default."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from trine.executor.base import AttemptExited, AttemptStarted, Event, Executor, JobLease, NodeInfo
from trine.executor.registry import ExecutorFactory

_FIRST_LINE = ("/bin/sh", "-c", "date +%s.%N")
_PATIENCE_S = 120.0


class Latency:
    """An executor of an engine, over all of its nodes."""

    def __init__(self, engine: ExecutorFactory, home: Path) -> None:
        nodes = engine.find_nodes(None)
        assert isinstance(nodes, list), nodes
        self.nodes: list[NodeInfo] = nodes
        self.executor: Executor = engine.open(home, nodes)
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
            place = (self.nodes[0].name, (0,))
            handle = self.executor.launch(JobLease(f"stop-{number}", 1, (place,), ("sleep", "1000"), workdir=""))
            self.until(1, AttemptStarted)
            asked = time.time()
            self.executor.preempt(handle, 30.0)
            found.append(self.until(1, AttemptExited) - asked)
            self.seen.clear()
        return found


def spread(title: str, seconds: Sequence[float]) -> str:
    """Median and 95th percentile, in words."""
    ordered = sorted(seconds)
    worst = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"{title}: median {statistics.median(ordered):.2f} s, 95 % {worst:.2f} s, n = {len(ordered)}"
