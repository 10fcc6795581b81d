"""Gavel's other objectives: makespan of a static workload, weights, cost and deadlines, and the three entities."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trine.inputs.throughputs import load_throughputs
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.checks import Band, Check, RunFailed, banded, check, no_worse, ratios, shown, with_change, within
from trine.reproduce.experiment import (
    HOUR_S,
    Contender,
    Experiment,
    Key,
    Outcome,
    Outcomes,
    Runs,
    contenders_of,
    known_points,
)
from trine.reproduce.gavel_inputs import (
    AWARE,
    AXES,
    BLIND,
    FIFO_AWARE,
    FIFO_BLIND,
    FIGURES,
    SMALL_CLUSTER,
    GavelData,
    Mode,
    label,
    label_of,
    scenario,
)
from trine.reproduce.gavel_tables import UNIQUE_BAND
from trine.reproduce.reproduction import Line, Panel, Part
from trine.sim.scenario import Scenario
from trine.trace.formats.trine import write_trace
from trine.trace.generate import generate

if TYPE_CHECKING:
    from trine.core.job import Job
    from trine.policy.shares.problem import Problem

MAKESPAN = "min_total_duration_perf"


class Static(Experiment[GavelData]):
    """Makespan of 100 jobs as published and in the reference; by number of jobs for several policies."""

    name = "static workload"
    policies = (MAKESPAN, "min_total_duration", FIFO_AWARE, FIFO_BLIND)
    jobs, seeds, band = 100, (0, 1, 2), 0.05
    """What is published, and how far our mean over the seeds may lie above it."""

    def runs(self, data: GavelData) -> Runs:
        sizes = (self.jobs,) if data.quick else (400, 200, self.jobs, 50)
        found = {("static", p, False, n, 0): self._scenario(p, n) for n in sizes for p in self.policies}
        found["static", MAKESPAN, True, self.jobs, 0] = self._scenario(MAKESPAN, self.jobs, compat=True)
        for seed in self.seeds[1:]:
            for policy in (MAKESPAN, FIFO_AWARE, FIFO_BLIND):
                found["static", policy, False, self.jobs, seed] = self._scenario(policy, self.jobs, seed)
        return found

    def _scenario(self, policy: str, jobs: int, seed: int = 0, *, compat: bool = False) -> Scenario:
        return scenario("gavel-static", policy, compat=compat, seed=seed, values={"workload.jobs": jobs})

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        table = data.figures["static"]
        expected = table["makespan_h"][MAKESPAN]
        what = f"makespan, {self.jobs} jobs, makespan h"
        ours, authors = (outcomes["static", MAKESPAN, compat, self.jobs, 0] for compat in (False, True))
        sizes = sorted({key[3] for key in outcomes if key[0] == "static"})
        checks = [
            within(self.name, f"{what}, as published", lambda: authors.makespan_h, expected, UNIQUE_BAND),
            no_worse(self.name, f"{what}, trine", lambda: ours.makespan_h, expected),
            self._mean(MAKESPAN, table["published"][MAKESPAN], outcomes, judged=True),
            *(self._mean(p, table["published"]["fifo"], outcomes, judged=False) for p in (FIFO_AWARE, FIFO_BLIND)),
            *(self._order(n, outcomes) for n in sizes),
        ]
        lines = [
            (label(p), *known_points(sizes, [outcomes["static", p, False, n, 0] for n in sizes], "makespan_h"))
            for p in self.policies
        ]
        panel = Panel("Static workload: makespan", "Number of jobs", "Makespan (h)", lines)
        return Part(checks, [panel] if len(sizes) > 1 else [])

    def _mean(self, policy: str, published: float, outcomes: Outcomes, *, judged: bool) -> Check:
        what = f"{label(policy)}, {self.jobs} jobs, mean of seeds 0 to 2, makespan h, trine"

        def judge() -> tuple[str, bool | None]:
            mean = fmean(outcomes["static", policy, False, self.jobs, seed].makespan_h for seed in self.seeds)
            return with_change(mean, published, 2), mean <= published * (1 + self.band) if judged else None

        band = f"at most {self.band:.0%} longer" if judged else ""
        return check(self.name, what, judge, published=f"{published:g} (notebook)", band=band, counted=False)

    def _order(self, jobs: int, outcomes: Outcomes) -> Check:
        """The policy made for the makespan has the shortest one."""

        def judge() -> tuple[str, bool]:
            times = [outcomes["static", p, False, jobs, 0].makespan_h for p in self.policies]
            return " ".join(f"{x:.1f}" for x in times), times[0] <= min(times) * 1.001

        what = f"{jobs} jobs, makespan h: {', '.join(label(p) for p in self.policies)}"
        return check(self.name, what, judge, band="the first is the shortest", counted=False)


# -- weights ---------------------------------------------------------------------------------------------------------

HEAVY = "weight 5"
CLASSES = (HEAVY, "weight 1")
WEIGHED = {True: "weights heeded", False: "all weights 1"}


@dataclass(frozen=True)
class Priorities(Experiment[GavelData]):
    """A fifth of the jobs has weight 5: the same jobs with their weights and with equal ones. The paper gives no figure
    to hold this against."""

    jobs: int = 2000
    """Arrivals must go on until the last measured job has ended."""
    jobs_per_h: float = 2.0
    """A load at which jobs get less than they could use; otherwise weights change nothing."""
    modes: tuple[Mode, ...] = ((AWARE, False), (AWARE, True), (BLIND, True))
    name: str = "priorities"

    def runs(self, data: GavelData) -> Runs:
        traces = {weighed: self._trace(data, weighed) for weighed in WEIGHED}
        return {
            ("priorities", mode, weighed): self._scenario(data, mode, trace)
            for mode in self.modes
            for weighed, trace in traces.items()
        }

    def _trace(self, data: GavelData, weighed: bool) -> str:
        jobs = self._drawn()
        path = data.scratch / f"{'weights' if weighed else 'equal'}.csv"
        write_trace(jobs if weighed else [replace(job, weight=1.0) for job in jobs], path)
        return str(path)

    def _drawn(self) -> list[Job]:
        workload = "gavel-continuous-single-priorities"
        return generate(workload, jobs=self.jobs, seed=0, gpus=36, jobs_per_h=self.jobs_per_h)

    def _scenario(self, data: GavelData, mode: Mode, trace: str) -> Scenario:
        values = {"window": "100:150" if data.quick else "300:400"}
        name, compat = mode
        return scenario(
            "gavel-continuous-single", name, compat=compat, cluster=SMALL_CLUSTER, trace=trace, values=values
        )

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        del data
        heavy = {job.id for job in self._drawn() if job.weight > 1}
        jct_h = {key[1:]: _by_class_h(found, heavy) for key, found in outcomes.items() if key[0] == "priorities"}
        checks = [self._weighed(mode, kind, jct_h) for mode in self.modes for kind in CLASSES]
        return Part(checks + [self._aware(kind, jct_h) for kind in CLASSES], [self._panel(jct_h)])

    def _weighed(self, mode: Mode, kind: str, jct_h: dict[Any, dict[str, float]]) -> Check:
        """With weights and without. Only the heavy jobs are judged: what they gain the others pay."""
        with_h, without_h = (jct_h[mode, weighed][kind] for weighed in WEIGHED)
        what = f"{label_of(mode)}, jobs of {kind}, average JCT h: {WEIGHED[True]}, {WEIGHED[False]}"
        ours = f"{with_h:.2f} and {without_h:.2f} ({without_h / with_h:.2f} times)"
        held, band = (with_h <= without_h, "no longer with their weight") if kind == HEAVY else (None, "")
        return Check(self.name, what, ours, held=held, band=band, counted=False)

    def _aware(self, kind: str, jct_h: dict[Any, dict[str, float]]) -> Check:
        _, aware, blind = self.modes
        what = f"jobs of {kind}, {WEIGHED[True]}, JCT of {label_of(blind)} over {label_of(aware)}"
        return ratios(self.name, what, lambda: [jct_h[blind, True][kind] / jct_h[aware, True][kind]])

    def _panel(self, jct_h: dict[Any, dict[str, float]]) -> Panel:
        keys = [(mode, weighed) for mode in self.modes for weighed in WEIGHED]
        labels = [f"{label_of(mode)}, {WEIGHED[weighed]}" for mode, weighed in keys]
        across = [float(i) for i in range(len(labels))]
        lines = [(f"jobs of {kind}", across, [jct_h[key][kind] for key in keys]) for kind in CLASSES]
        return Panel("Priorities: average JCT by weight", "Policy", AXES["jct_h"], lines, labels)


def _by_class_h(found: Outcome, heavy: set[str]) -> dict[str, float]:
    """Average JCT of the measured jobs by class."""
    by_class = {
        kind: [j.jct_s / HOUR_S for j in found.jobs if (j.job_id in heavy) == (kind == HEAVY)] for kind in CLASSES
    }
    return {kind: fmean(values) if values else 0.0 for kind, values in by_class.items()}


# -- cost and deadlines ----------------------------------------------------------------------------------------------

COST_CONTENDERS = contenders_of(read_mapping(FIGURES).plain()["cost_contenders"])
FAST, FAST_KEPT, CHEAP, KEPT = COST_CONTENDERS


@dataclass(frozen=True)
class Cost(Experiment[GavelData]):
    """Total cost and missed deadlines of single-GPU jobs, under policies that look at prices or deadlines and those
    that do not. Prices are those of the cost experiments of the paper."""

    jobs: int = 300
    name: str = "cost and SLO"

    loads = {1.0: "1 job/h", 2.0: "2 jobs/h"}
    """Room to spare, and not enough for all deadlines."""

    def runs(self, data: GavelData) -> Runs:
        cluster = data.priced(SMALL_CLUSTER)
        return {
            ("cost", name, load): self._scenario(contender, load, cluster)
            for load in self.loads
            for name, contender in COST_CONTENDERS.items()
        }

    def _scenario(self, contender: Contender, jobs_per_h: float, cluster: str) -> Scenario:
        values = {"workload.jobs": self.jobs, "workload.jobs_per_h": jobs_per_h, "window": ""}
        given = {"cluster": cluster, "workload": "gavel-continuous-single-slos", "values": values}
        return scenario("gavel-continuous-single", contender, compat=False, **given)

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        runs = {key[1:]: outcomes[key] for key in outcomes if key[0] == "cost"}
        claimed = f"up to {data.figures['claims']['cost_times']} (recalled)"
        checks = [self._figures(name, load, found) for (name, load), found in runs.items()]
        checks += [self._saving(load, runs, claimed) for load in self.loads]
        checks += [self._kept(*pair, load, runs) for load in self.loads for pair in ((FAST_KEPT, FAST), (KEPT, CHEAP))]
        return Part(
            checks,
            [
                self._bars("Deadlines missed", "Jobs that miss their deadline (%)", "missed_deadlines", 100, runs),
                self._bars("Cost of the same runs at spot prices", "Cost ($)", "cost", 1, runs),
            ],
        )

    def _figures(self, name: str, load: float, found: Outcome) -> Check:
        return shown(
            self.name,
            f"{name}, {self.loads[load]}",
            lambda: (
                f"${found.cost:.0f}, {found.missed_deadlines:.1%} of deadlines missed, average JCT {found.jct_h:.1f} h"
            ),
        )

    def _saving(self, load: float, runs: Mapping[Key, Outcome], published: str) -> Check:
        def judge() -> tuple[str, bool]:
            times = runs[FAST, load].cost / runs[CHEAP, load].cost
            return f"{times:.2f} times", times >= 1

        what = f"cost of {FAST} over that of {CHEAP}, {self.loads[load]}"
        return check(self.name, what, judge, published=published, band="not below 1", counted=False)

    def _kept(self, kept: str, ignored: str, load: float, runs: Mapping[Key, Outcome]) -> Check:
        """The paper shows that minding deadlines avoids missing them; no figure of it is at hand."""

        def judge() -> tuple[str, bool]:
            those, these = runs[kept, load].missed_deadlines, runs[ignored, load].missed_deadlines
            return f"{those:.1%} and {these:.1%}", those <= these

        what = f"deadlines missed, {kept} and ignored, {self.loads[load]}"
        return check(self.name, what, judge, band="not more where kept", counted=False)

    def _bars(self, title: str, axis: str, metric: str, factor: float, runs: Mapping[Key, Outcome]) -> Panel:
        names = list(COST_CONTENDERS)
        across = [float(i) for i in range(len(names))]
        lines: list[Line] = []
        for load, words in self.loads.items():
            x, y = known_points(across, [runs[name, load] for name in names], metric)
            lines.append((words, x, [factor * value for value in y]))
        return Panel(title, "Policy", axis, lines, names)


# -- three entities --------------------------------------------------------------------------------------------------

TYPES = ("k80", "p100", "v100")
GPUS_PER_TYPE, ENTITIES = 3, 3
HIERARCHICAL, HIERARCHICAL_RATES = "gavel-hierarchical", "gavel-simulation"
WINDOW_S = 7200.0
TIMELINE: Key = ("entities",)
Received = dict[str, tuple[list[float], list[float]]]
"""By entity: hours, and the normalised throughput of its jobs in each, summed."""


class Entities(Experiment[GavelData]):
    """The levels computed for the 18 jobs, summed, as published, and that the rounds give each entity what was computed
    for it."""

    name = "three entities"
    level_band = 0.0006
    received_band = 0.05

    def runs(self, data: GavelData) -> Runs:
        del data
        contender = Contender("hierarchical", "hierarchical", values={"space_sharing": False})
        return {TIMELINE: scenario(HIERARCHICAL, contender, compat=False)}

    def with_segments(self) -> Collection[Key]:
        return (TIMELINE,)

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        table = data.figures["hierarchy"]
        checks = [self._level(rule, frozen, table[rule]) for rule in ("fairness", "fifo") for frozen in (True, False)]
        blind = table["fairness"]["not_aware"]
        levels = _levels("fairness", aware=False)
        checks.append(self._sum("fairness, not aware, sum of levels", levels, blind, f"{blind:g} (notebook)"))
        try:
            lines = received(outcomes[TIMELINE])
        except RunFailed as failure:
            return Part([*checks, Check(self.name, "received over time", f"failed: {failure}", held=False)])
        title = "Entities of weight 1, 2 and 3: throughput received"
        plotted = [(entity, *line) for entity, line in lines.items()]
        panel = Panel(title, "Time (h)", "Normalised throughput (sum)", plotted)
        return Part([*checks, *self._received(lines)], [panel])

    def _level(self, rule: str, frozen: bool, table: Mapping[str, float]) -> Check:
        expected = table["published" if frozen else "bottlenecks"]
        what = f"{rule}, sum of levels, {'as published' if frozen else 'trine'}"
        published = f"{table['published']:g} (notebook)" if frozen else "-"
        return self._sum(what, _levels(rule, finalise_all=frozen), expected, published)

    def _sum(self, what: str, levels: list[float], expected: float, published: str) -> Check:
        band = Band(expected, len(levels) * self.level_band, "levels to three decimals")
        return banded(self.name, what, lambda: sum(levels), band, "{:.3f}".format, f"{expected:.3f}", published)

    def _received(self, lines: Received) -> list[Check]:
        """Once all 18 jobs are there, before the first of them ends."""
        levels, checks = _levels("fairness"), []
        # A few resets after the last arrival.
        from_h = _entity_jobs()[-1].submit_s / HOUR_S + 2
        for entity, (hours, values) in lines.items():
            number = int(entity[-1])
            computed = sum(levels[6 * number : 6 * number + 6])
            late = [v for h, v in zip(hours, values, strict=True) if h >= from_h]
            checks.append(self._as_computed(entity, late, computed))
        return checks

    def _as_computed(self, entity: str, values: list[float], computed: float) -> Check:
        what = f"{entity}, throughput received with all jobs there ({computed:.3f} computed)"
        words = f"within {self.received_band:.0%} of the levels computed"
        band = Band(computed, self.received_band * computed, words)
        return banded(self.name, what, lambda: fmean(values), band, "{:.3f}".format)


def _entity_jobs() -> list[Job]:
    return generate(HIERARCHICAL, jobs=18, seed=0, gpus=GPUS_PER_TYPE * len(TYPES))


def _levels(rule: str, **settings: bool) -> list[float]:
    """Normalised throughput of each of the 18 jobs as the policy computes it."""
    from trine.policy.shares.hierarchical import Hierarchical

    return [float(level) for level in Hierarchical(**settings).allocate(_entity_problem(rule)).levels]


def _entity_problem(rule: str) -> Problem:
    """The 18 jobs at once."""
    from trine.policy.shares.problem import Entity, Problem

    jobs, table = _entity_jobs(), load_throughputs(HIERARCHICAL_RATES)
    rates = [[table.rate(job.model, 1, t) or 0.0 for t in TYPES] for job in jobs]
    return Problem.of(
        dict.fromkeys(TYPES, GPUS_PER_TYPE),
        rates,
        weight=[job.weight if rule == "fairness" else 1.0 for job in jobs],
        entity=[int(job.group[-1]) for job in jobs],
        entities=[Entity(f"entity{e}", e + 1.0, rule) for e in range(ENTITIES)],
    )


def received(found: Outcome) -> Received:
    """What the entities received over time, while no job has ended."""
    jobs, table = {job.id: job for job in _entity_jobs()}, load_throughputs(HIERARCHICAL_RATES)
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
    hours = [(i + 0.5) * WINDOW_S / HOUR_S for i in range(count)]
    return {entity: (hours, values) for entity, values in sums.items()}


def _spread(start_s: float, end_s: float, count: int) -> list[tuple[int, float]]:
    """Windows that a segment touches, and the part of each that it fills."""
    first, last = int(start_s // WINDOW_S), min(int(end_s // WINDOW_S), count - 1)
    return [
        (i, max(0.0, min(end_s, (i + 1) * WINDOW_S) - max(start_s, i * WINDOW_S)) / WINDOW_S)
        for i in range(first, last + 1)
    ]
