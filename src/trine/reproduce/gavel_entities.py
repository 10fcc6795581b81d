"""Gavel's example of three entities: the levels computed for the 18 jobs, and what the entities received over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trine.inputs.throughputs import load_throughputs
from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import ALONE, Asks, Contender, Keep, Key, Outcome, Outcomes, scenario
from trine.reproduce.gavel_tables import failed
from trine.reproduce.panels import Found, Panel
from trine.trace.generate import generate

if TYPE_CHECKING:
    from trine.core.job import Job
    from trine.policy.shares.problem import Problem

PRESET = "gavel-hierarchical"
RATES = "gavel-simulation"
TYPES = ("k80", "p100", "v100")
GPUS_PER_TYPE, ENTITIES = 3, 3
WINDOW_S = 7200.0
LEVEL_BAND = 0.0006
RECEIVED_BAND = 0.05
TIMELINE: Key = ("entities",)


@dataclass(frozen=True)
class Entities:
    """Sums of levels as published, and that the rounds give each entity what was computed for it."""

    name: ClassVar[str] = "three entities"

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del data, figures, quick
        contender = Contender("hierarchical", "hierarchical", ALONE)
        return {TIMELINE: scenario(PRESET, contender, compat=False, throughputs=RATES)}

    def keep(self) -> dict[Key, Keep]:
        return {TIMELINE: Keep(segments=True)}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data
        table, found = figures["hierarchy"], outcomes[TIMELINE]
        checks = [self._level(rule, frozen, table[rule]) for rule in ("fairness", "fifo") for frozen in (True, False)]
        checks.append(self._blind(table["fairness"]["not_aware"]))
        if found.failure:
            return Found([*checks, failed(self.name, "received over time", found)])
        lines = received(found)
        return Found([*checks, *self._received(lines)], [_panel(lines)])

    def _level(self, rule: str, frozen: bool, table: dict[str, float]) -> Check:
        from trine.policy.shares.hierarchical import Hierarchical

        found = Hierarchical(finalise_all=frozen).allocate(example(rule))
        expected = table["published" if frozen else "bottlenecks"]
        what = f"{rule}, sum of levels, {'as published' if frozen else 'trine'}"
        told = f"{table['published']:g} (notebook)" if frozen else "-"
        return self._sum(what, float(found.levels.sum()), expected, told)

    def _blind(self, expected: float) -> Check:
        from trine.policy.shares.hierarchical import Hierarchical

        found = Hierarchical(aware=False).allocate(example("fairness"))
        told = f"{expected:g} (notebook)"
        return self._sum("fairness, not aware, sum of levels", float(found.levels.sum()), expected, told)

    def _sum(self, what: str, ours: float, expected: float, published: str) -> Check:
        held = abs(ours - expected) <= 18 * LEVEL_BAND
        return Check(self.name, what, f"{ours:.3f}", f"{expected:.3f}", published, held, "levels to three decimals")

    def _received(self, lines: dict[str, tuple[list[float], list[float]]]) -> list[Check]:
        """Once all 18 jobs are there, before the first of them ends."""
        from trine.policy.shares.hierarchical import Hierarchical

        found = Hierarchical().allocate(example("fairness"))
        checks = []
        for entity, (hours, values) in lines.items():
            number = int(entity[-1])
            computed = float(found.levels[6 * number : 6 * number + 6].sum())
            steady = [v for h, v in zip(hours, values, strict=True) if h >= _all_there_h()]
            ours = sum(steady) / len(steady)
            held = abs(ours / computed - 1) <= RECEIVED_BAND
            what = f"{entity}, throughput received with all jobs there ({computed:.3f} computed)"
            band = f"within {RECEIVED_BAND:.0%} of the levels computed"
            checks.append(Check(self.name, what, f"{ours:.3f}", held=held, band=band))
        return checks


def jobs_of_example() -> list[Job]:
    return generate(PRESET, jobs=18, seed=0, gpus=GPUS_PER_TYPE * len(TYPES))


def example(rule: str) -> Problem:
    """The 18 jobs at once."""
    from trine.policy.shares.problem import Entity, Problem

    jobs, table = jobs_of_example(), load_throughputs(RATES)
    rates = [[table.rate(job.model, 1, t) or 0.0 for t in TYPES] for job in jobs]
    return Problem.of(
        dict.fromkeys(TYPES, GPUS_PER_TYPE),
        rates,
        weight=[job.weight if rule == "fairness" else 1.0 for job in jobs],
        entity=[int(job.group[-1]) for job in jobs],
        entities=[Entity(f"entity{e}", e + 1.0, rule) for e in range(ENTITIES)],
    )


def received(found: Outcome) -> dict[str, tuple[list[float], list[float]]]:
    """By entity: hours, and the normalised throughput of its jobs in each, summed, while no job has ended."""
    jobs, table = {job.id: job for job in jobs_of_example()}, load_throughputs(RATES)
    until_s = min(job.finish_s for job in found.jobs)
    count = int(until_s // WINDOW_S)
    sums = {f"entity{e}": [0.0] * count for e in range(ENTITIES)}
    type_of = [t for t in ("v100", "p100", "k80") for _ in range(GPUS_PER_TYPE)]
    for segment in found.segments:
        job = jobs[segment.job_id]
        rates = {t: table.rate(job.model, 1, t) or 0.0 for t in TYPES}
        normal = rates[type_of[segment.gpus[0]]] / (sum(rates.values()) / len(TYPES))
        for window, part in _spread(segment.start_s, segment.end_s, count):
            sums[job.group][window] += normal * part
    hours = [(i + 0.5) * WINDOW_S / 3600 for i in range(count)]
    return {entity: (hours, values) for entity, values in sums.items()}


def _spread(start_s: float, end_s: float, count: int) -> list[tuple[int, float]]:
    """Windows that a stretch touches, and the part of each that it fills."""
    first, last = int(start_s // WINDOW_S), min(int(end_s // WINDOW_S), count - 1)
    return [
        (i, max(0.0, min(end_s, (i + 1) * WINDOW_S) - max(start_s, i * WINDOW_S)) / WINDOW_S)
        for i in range(first, last + 1)
    ]


def _all_there_h() -> float:
    """A few resets after the last arrival."""
    return jobs_of_example()[-1].submit_s / 3600 + 2


def _panel(lines: dict[str, tuple[list[float], list[float]]]) -> Panel:
    shown = [(entity, *line) for entity, line in lines.items()]
    return Panel("Entities of weight 1, 2 and 3: throughput received", "Time (h)", "Normalised throughput (sum)", shown)
