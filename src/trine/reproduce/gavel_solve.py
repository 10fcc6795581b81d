"""Processor time of one allocation by number of jobs, beside the published times and those of the authors' code."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trine.inputs.throughputs import load_throughputs
from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import Asks, Keep, Key, Outcomes
from trine.reproduce.panels import Found, Panel
from trine.trace.generate import generate

if TYPE_CHECKING:
    from trine.policy.shares.base import SharePolicy
    from trine.policy.shares.problem import Problem

TYPES = ("k80", "p100", "v100")
SEED = 2
TIMES = 3
Lines = list[tuple[str, list[float], list[float]]]


@dataclass(frozen=True)
class SolveTime:
    """n jobs on n/4 GPUs of each type; the best of three."""

    name: ClassVar[str] = "policy run time"
    labels: tuple[str, ...] = ("max-min-fairness", "max-min-fairness, space sharing", "hierarchical")

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del data, figures, quick
        return {}

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del outcomes
        table = figures["solve_s"]
        checks: list[Check] = []
        panels: list[Panel] = []
        for label in self.labels:
            policy, sharing = policies()[label], "space sharing" in label
            ours = [self._measure(data, policy, n, sharing) for n in table["jobs"]]
            checks += self._checks(label, ours, table)
            panels.append(self._panel(label, ours, table))
        return Found(checks, panels)

    def _measure(self, data: GavelData, policy: SharePolicy, jobs: int, sharing: bool) -> float:
        problem = drawn(data.pairs("simulation") if sharing else "gavel-simulation", jobs, sharing)
        return min(_cpu_s(policy, problem) for _ in range(TIMES))

    def _checks(self, label: str, ours: list[float], table: dict[str, Any]) -> list[Check]:
        published, reference = (_column(table[side], label, len(ours)) for side in ("published", "reference"))
        rows = zip(table["jobs"], ours, published, reference, strict=True)
        return [self._check(f"{label}, {n} jobs", here, printed, there) for n, here, printed, there in rows]

    def _check(self, what: str, ours: float, published: float | None, reference: float | None) -> Check:
        held = None if reference is None else ours <= reference
        band = "" if reference is None else "no slower than the authors' code"
        told = "-" if published is None else f"{_seconds(published)} (figure)"
        known = "-" if reference is None else _seconds(reference)
        return Check(self.name, what, _seconds(ours), known, told, held, band)

    def _panel(self, label: str, ours: list[float], table: dict[str, Any]) -> Panel:
        jobs = [float(n) for n in table["jobs"]]
        lines: Lines = [("ours", jobs, ours)]
        for side in ("reference", "published"):
            column = _column(table[side], label, len(jobs))
            there = [(n, s) for n, s in zip(jobs, column, strict=True) if s is not None]
            if there:
                lines.append((side, [n for n, _ in there], [s for _, s in there]))
        return Panel(f"Policy run time: {label}", "Number of jobs", "Processor time (s)", lines, log=True)


def policies() -> dict[str, SharePolicy]:
    from trine.policy.shares.hierarchical import Hierarchical
    from trine.policy.shares.max_min_fairness import MaxMinFairness

    return {
        "max-min-fairness": MaxMinFairness(space_sharing=False),
        "max-min-fairness, space sharing": MaxMinFairness(space_sharing=True),
        "hierarchical": Hierarchical(space_sharing=False),
    }


def drawn(rates: str, count: int, sharing: bool) -> Problem:
    """Jobs of one to eight GPUs of the static workload; with ``sharing`` the pairs they may form."""
    import numpy as np

    from trine.perf.throughput import pair_kinds
    from trine.policy.shares.problem import ClassPairs, Problem

    table = load_throughputs(rates)
    jobs = generate("gavel-static", jobs=count, seed=SEED, gpus=count)
    alone = np.array([[table.rate(job.model, job.gpus, t) or 0.0 for t in TYPES] for job in jobs])
    pairs = None
    if sharing:
        found = pair_kinds(table, [(job.model, job.gpus) for job in jobs], TYPES)
        pairs = ClassPairs(found.kind, found.pairs, found.throughput)
    gang = [job.gpus for job in jobs]
    return Problem.of(dict.fromkeys(TYPES, count // 4), alone, gang=gang, class_pairs=pairs)


def _cpu_s(policy: SharePolicy, problem: Problem) -> float:
    start = time.process_time()
    policy.allocate(problem)
    return time.process_time() - start


def _column(side: dict[str, Any], label: str, length: int) -> list[float | None]:
    """Figures by number of jobs; nothing where none is known."""
    known = list(side.get(label, []))
    return known + [None] * (length - len(known))


def _seconds(value: float) -> str:
    return f"{1000 * value:.1f} ms" if value < 1 else f"{value:.1f} s"
