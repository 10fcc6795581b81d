"""A world that takes its time: it carries out decisions when the test says so, and keeps its own book of GPUs."""

from __future__ import annotations

from typing import Any

from tests.sim.tiny import build_engine
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.core.reason import Reason
from trine.engine.events import Decision, Finished, Start, Started, Stop, Stopped, Submitted, Tick
from trine.engine.invariants import check


class LiveWorld:
    """Jobs by their ids. ``held`` is what the processes really have; two of them on one GPU fail the test at once."""

    def __init__(self, cluster: Cluster, policy: str, placement: str = "packed-sticky", **values: Any) -> None:
        settings = resolve(policy, placement, {k.replace("__", "."): v for k, v in values.items()})
        self.engine = build_engine(cluster, settings)
        self.now = 0.0
        self.job_indices: dict[str, int] = {}
        self.held: dict[str, tuple[int, ...]] = {}
        self.told_to_stop: set[str] = set()
        self.log: list[str] = []
        """Decisions as they came: ``start a 0,1``, ``stop a``, ``move a``."""

    def submit(self, *jobs: Job) -> None:
        for job in jobs:
            self.job_indices[job.id] = len(self.job_indices)
            self._heard(self.engine.handle(Submitted(self.now, job)))

    def tick(self, now: float | None = None) -> list[str]:
        """Decide; returns what was decided now."""
        self.now = self.now if now is None else now
        before = len(self.log)
        self._heard(self.engine.handle(Tick(self.now)))
        return self.log[before:]

    def confirm_start(self, job_id: str, rate: float = 1.0) -> None:
        self._heard(self.engine.handle(Started(self.now, self.job_indices[job_id], rate, self.now)))

    def confirm_stop(self, job_id: str, done: float = 0.0, now: float | None = None) -> list[str]:
        self.now = self.now if now is None else now
        return self._let_go(job_id, Stopped(self.now, self.job_indices[job_id], done))

    def finish(self, job_id: str, now: float | None = None) -> list[str]:
        self.now = self.now if now is None else now
        return self._let_go(job_id, Finished(self.now, self.job_indices[job_id]))

    def start_all(self, now: float | None = None) -> list[str]:
        """A tick whose starts are confirmed at once."""
        decided = self.tick(now)
        for line in decided:
            if line.startswith("start"):
                self.confirm_start(line.split()[1])
        return decided

    def explain(self, job_id: str) -> Reason:
        return self.engine.explain(self.job_indices[job_id])

    def state(self, job_id: str) -> str:
        return self.engine.table.state[self.job_indices[job_id]].name

    def _let_go(self, job_id: str, event: Stopped | Finished) -> list[str]:
        gpus = self.held.pop(job_id, None)
        self.told_to_stop.discard(job_id)
        before = len(self.log)
        try:
            self._heard(self.engine.handle(event))
        except Exception:
            if gpus is not None:
                self.held[job_id] = gpus
            raise
        return self.log[before:]

    def _heard(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            job_id = self.engine.table.jobs[decision.job_index].id
            if isinstance(decision, Start):
                self._start(job_id, decision)
            else:
                self._stop(job_id, decision)
        self.engine.settle_speeds(self.now)
        check(self.engine)

    def _start(self, job_id: str, decision: Start) -> None:
        assert job_id not in self.held, f"{job_id} starts while its old run holds GPUs"
        busy = {g for gpus in self.held.values() for g in gpus}
        assert not busy & set(decision.gpus), f"{job_id} starts on GPUs {decision.gpus}, still held: {self.held}"
        self.held[job_id] = decision.gpus
        self.log.append(f"start {job_id} {','.join(map(str, decision.gpus))}")

    def _stop(self, job_id: str, decision: Stop) -> None:
        assert job_id in self.held, f"{job_id} is told to stop but holds nothing"
        assert job_id not in self.told_to_stop, f"{job_id} is told to stop twice"
        self.told_to_stop.add(job_id)
        self.log.append(f"{'move' if decision.moves else 'stop'} {job_id}")
