"""Gavel's mechanism: time of an allocation, estimated rates of pairs, and where differences to the authors' code come
from: each quirk left out alone, and what rounds cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trine.inputs.preset import load_preset
from trine.inputs.throughputs import load_throughputs
from trine.reproduce.checks import Band, Check, RunFailed, banded, shown
from trine.reproduce.experiment import Contender, Experiment, Key, Outcome, Outcomes, Runs, known_points
from trine.reproduce.gavel_inputs import (
    AWARE,
    FIFO_AWARE,
    METRICS,
    SHARED,
    SMALL_CLUSTER,
    GavelData,
    label,
    scenario,
)
from trine.reproduce.reproduction import Line, Panel, Part
from trine.sim.scenario import Scenario
from trine.trace.generate import generate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trine.policy.shares.base import SharePolicy
    from trine.policy.shares.problem import Problem

PHYSICAL = "gavel-physical"


# -- time of an allocation -------------------------------------------------------------------------------------------

TYPES = ("k80", "p100", "v100")
SEED = 2
TIMES = 3
ENTITIES = 3


@dataclass(frozen=True)
class SolveTime(Experiment[GavelData]):
    """Processor time of one allocation for n jobs on n/4 GPUs of each type; the best of three."""

    labels: tuple[str, ...] = ("max-min-fairness", "max-min-fairness, space sharing", "hierarchical")
    name: str = "policy run time"

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        del outcomes
        table = data.figures["solve_s"]
        checks: list[Check] = []
        panels: list[Panel] = []
        for kind in self.labels:
            ours = [self._measure(data, kind, n) for n in table["jobs"]]
            published, reference = (_column(table[side], kind, len(ours)) for side in ("published", "reference"))
            rows = zip(table["jobs"], ours, published, reference, strict=True)
            checks += [self._check(f"{kind}, {n} jobs", here, printed, there) for n, here, printed, there in rows]
            sides: dict[str, list[Any]] = {"ours": ours, "reference": reference, "published": published}
            panels.append(_panel(kind, [float(n) for n in table["jobs"]], sides))
        return Part(checks, panels)

    def _measure(self, data: GavelData, kind: str, jobs: int) -> float:
        policy, sharing = _policy(kind), "space sharing" in kind
        problem = _drawn(data.pairs("simulation") if sharing else "gavel-simulation", jobs, sharing)
        if kind == "hierarchical":
            problem = _with_entities(problem)
        return min(_cpu_s(policy, problem) for _ in range(TIMES))

    def _check(self, what: str, ours: float, published: float | None, reference: float | None) -> Check:
        held = None if reference is None else ours <= reference
        band = "" if reference is None else "no slower than the authors' code"
        printed = "-" if published is None else f"{_seconds(published)} (figure)"
        known = "-" if reference is None else _seconds(reference)
        return Check(self.name, what, _seconds(ours), known, printed, held, band, counted=False)


def _panel(kind: str, jobs: list[float], sides: Mapping[str, list[Any]]) -> Panel:
    lines: list[Line] = []
    for side, column in sides.items():
        there = [(n, s) for n, s in zip(jobs, column, strict=True) if s is not None]
        if there:
            lines.append((side, [n for n, _ in there], [s for _, s in there]))
    return Panel(f"Policy run time: {kind}", "Number of jobs", "Processor time (s)", lines, log=True)


def _policy(kind: str) -> SharePolicy:
    from trine.policy.shares.hierarchical import Hierarchical
    from trine.policy.shares.max_min_fairness import MaxMinFairness

    if kind == "hierarchical":
        return Hierarchical(space_sharing=False)
    return MaxMinFairness(space_sharing="space sharing" in kind)


def _drawn(rates: str, count: int, sharing: bool) -> Problem:
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


def _with_entities(problem: Problem) -> Problem:
    """The jobs in turn to three entities of weight 1, 2 and 3, as in the paper's example: without any entity the policy
    would fill levels of single jobs, which is less work."""
    import numpy as np

    from trine.policy.shares.problem import Entity

    entities = tuple(Entity(f"entity{e}", e + 1.0, "fairness") for e in range(ENTITIES))
    return replace(problem, entity=np.arange(len(problem)) % ENTITIES, entities=entities)


def _cpu_s(policy: SharePolicy, problem: Problem) -> float:
    start = time.process_time()
    policy.allocate(problem)
    return time.process_time() - start


def _column(side: dict[str, Any], kind: str, length: int) -> list[float | None]:
    """Figures by number of jobs; nothing where none is known."""
    known = list(side.get(kind, []))
    return known + [None] * (length - len(known))


def _seconds(value: float) -> str:
    return f"{1000 * value:.1f} ms" if value < 1 else f"{value:.1f} s"


# -- estimated rates of pairs ----------------------------------------------------------------------------------------

ORACLE: Key = ("estimate", "oracle")


class Estimator(Experiment[GavelData]):
    """What estimated rates of pairs cost: the small trace under max-min fairness with space sharing, with 16 of 26
    references and 60 % profiled, beside all known."""

    name = "estimator"
    references, profiled = 16, 0.6
    seeds = 5
    band = 0.10

    def runs(self, data: GavelData) -> Runs:
        found = {ORACLE: self._scenario(data, SHARED)}
        for seed in range(1 if data.quick else self.seeds):
            estimated = {"references": self.references, "profiled": self.profiled, "rounds_seed": seed}
            values = {"space_sharing": True, **estimated}
            contender = Contender("estimated", "max-min-fairness", values=values, pairs=True)
            found["estimate", seed] = self._scenario(data, contender)
        return found

    def _scenario(self, data: GavelData, contender: str | Contender) -> Scenario:
        return scenario(
            "gavel-continuous-single",
            contender,
            compat=False,
            throughputs=data.pairs("simulation"),
            trace=data.small,
            cluster=SMALL_CLUSTER,
            values={"window": "50:100" if data.quick else "300:400"},
        )

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        del data
        oracle = outcomes[ORACLE]
        seeds = [key[1] for key in outcomes if key[0] == "estimate" and key != ORACLE]
        first = shown(self.name, "all pairs known, average JCT h", lambda: f"{oracle.jct_h:.3f}")
        return Part([first, *(self._check(seed, outcomes["estimate", seed], oracle) for seed in seeds)])

    def _check(self, seed: int, found: Outcome, oracle: Outcome) -> Check:
        what = f"{self.references} of 26 references, {self.profiled:.0%} profiled, seed {seed}, over all pairs known"
        band = Band(1.0, self.band, f"within {self.band:.0%} of all pairs known")
        return banded(
            self.name,
            what,
            lambda: found.jct_h / oracle.jct_h,
            band,
            lambda ratio: f"{found.jct_h:.3f} h ({ratio - 1:+.1%})",
        )


# -- quirks ----------------------------------------------------------------------------------------------------------


class Quirks(Experiment[GavelData]):
    """The physical traces with all quirks of the authors' code but one."""

    name = "one quirk less"
    cases = {
        (AWARE, "max_min_fairness"): "jct_h",
        (FIFO_AWARE, "max_min_fairness"): "jct_h",
        ("isolated", "max_min_fairness"): "jct_h",
        ("min_total_duration_perf", "minimize_makespan"): "makespan_h",
    }
    """Policy and physical trace, and what counts there."""
    least = 0.0005
    """Smaller changes are not shown."""

    def runs(self, data: GavelData) -> Runs:
        return {
            ("quirk", policy, trace, quirk): scenario(
                PHYSICAL,
                policy,
                compat=True,
                trace=data.physical(trace),
                values={f"compat.{quirk}": False} if quirk else {},
            )
            for policy, trace in list(self.cases)[: 1 if data.quick else None]
            for quirk in ("", *load_preset(PHYSICAL).authors)
        }

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        del data
        there = [case for case in self.cases if ("quirk", *case, "") in outcomes]
        return Part([check for case in there for check in self._checks(*case, self.cases[case], outcomes)])

    def _checks(self, policy: str, trace: str, metric: str, outcomes: Outcomes) -> list[Check]:
        """All quirks together, then what each does when it alone is left out, where that is anything."""
        runs = {key[3]: found for key, found in outcomes.items() if key[:3] == ("quirk", policy, trace)}
        what = f"{label(policy)}, {METRICS[metric]}"
        try:
            base, *others = (getattr(found, metric) for found in runs.values())
        except RunFailed as failure:
            return [Check(self.name, what, f"failed: {failure}", held=False)]
        changes = zip(list(runs)[1:], (other / base - 1 for other in others), strict=True)
        large = sorted((c for c in changes if abs(c[1]) >= self.least), key=lambda c: c[1])
        first = Check(self.name, f"{what}, all quirks", f"{base:.3f}")
        return [first, *(Check(self.name, f"{what}, without {q}", f"{100 * c:+.1f} %") for q, c in large)]


# -- rounds ----------------------------------------------------------------------------------------------------------


class Ideal(Experiment[GavelData]):
    """The shares carried out as a fluid, without rounds, beside rounds of several lengths."""

    name = "rounds versus ideal"
    rounds_s = (60.0, 180.0, 360.0, 720.0, 1440.0)

    def runs(self, data: GavelData) -> Runs:
        lengths_s = self.rounds_s[1:4] if data.quick else self.rounds_s
        found: Runs = {("rounds", x): self._scenario(data, round_s=x) for x in lengths_s}
        return found | {("rounds", "ideal"): self._scenario(data, ideal=True)}

    def _scenario(self, data: GavelData, **values: Any) -> Scenario:
        return scenario(PHYSICAL, AWARE, compat=False, trace=data.physical("max_min_fairness"), values=values)

    def judge(self, data: GavelData, outcomes: Outcomes) -> Part:
        del data
        found = {key[1]: outcome for key, outcome in outcomes.items() if key[0] == "rounds"}
        ideal = found["ideal"]
        checks = [self._check(length, outcome) for length, outcome in found.items()]
        lengths_s = [x for x in found if x != "ideal"]
        there_s, y = known_points(lengths_s, [found[x] for x in lengths_s], "jct_h")
        lines: list[Line] = [("rounds", there_s, y)]
        if not ideal.failure:
            lines.append(("ideal", there_s, [ideal.jct_h] * len(there_s)))
        panel = Panel("Rounds versus ideal: average JCT on the physical trace", "Round (s)", "Average JCT (h)", lines)
        return Part(checks, [panel] if len(there_s) > 1 else [])

    def _check(self, length_s: Any, found: Outcome) -> Check:
        what = "ideal, average JCT h" if length_s == "ideal" else f"rounds of {length_s:g} s, average JCT h"
        return shown(self.name, what, lambda: f"{found.jct_h:.3f}")
