"""Do predictions come true? Replays of traces, predicted from the middle: how many 80 % intervals held, by policy and
by how long a job had queued, and how far medians were off beside what Slurm's method would have said.

Nothing here is tuned to the clusters that are replayed: what does not lie in its band is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trine.assembly.settings import resolve
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.process_pool import work_through
from trine.forecast.replay import Foretold, replay
from trine.inputs.cluster import load_cluster
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.checks import Check
from trine.reproduce.experiment import HOUR_S, Progress
from trine.reproduce.reproduction import Part, Reproduction, ResultTable
from trine.trace import ImportOptions, load
from trine.trace.generate import generate

_FIGURES = Path(__file__).with_suffix(".yaml")
_LEAST_MOMENTS, _RESAMPLES = 5, 1_000
_WARM_UP, _LAST = 0.1, 0.95
"""Predictions are made between these parts of a trace: before, there is no history, and after, nothing more comes."""


@dataclass(frozen=True)
class Replay:
    """One trace on one cluster under one policy; plain values, so that another process can run it."""

    name: str
    policy: str
    cluster: str
    source: str
    """A trace file, or the name of a workload."""
    group: str
    """Virtual cluster of the trace, or the seed of the workload."""
    figures: Mapping[str, Any]
    times: int
    draws: int
    most_jobs: int = 0
    """Replayed are so many of the trace, the first ones; 0: all."""

    def run(self) -> list[Foretold]:
        jobs, cluster = self._jobs(), load_cluster(self.cluster)
        jobs = [job for job in jobs if job.gpus <= cluster.gpu_count][: self.most_jobs or None]
        settings = resolve(self.policy, self.figures["placement"], self._decides())
        first_s, span_s = jobs[0].submit_s, jobs[-1].submit_s - jobs[0].submit_s
        parts = np.linspace(_WARM_UP, _LAST, self.times).tolist()
        round_s = self.figures["round_s"]
        times_s = [round_s * round((first_s + part * span_s) / round_s) for part in parts]
        return [replace(each, trace=self.name) for each in replay(jobs, cluster, settings, times_s, self.draws, seed=0)]

    def _decides(self) -> dict[str, Any]:
        """When: at every event where nothing is stopped, as then rounds make no difference; else in rounds, too."""
        if not _stops(self.figures, self.policy):
            return {"event_driven": True, "round_s": self.figures["look_again_s"]}
        return {"fill": True, "round_s": self.figures["round_s"]}

    def _jobs(self) -> list[Job]:
        if self.name.startswith("generated"):
            drawn = _drawn(self.figures, self.policy)
            sizes = {name: drawn[name] for name in ("jobs", "gpus", "load", "max_gpus")}
            return generate(self.source, seed=int(self.group), **sizes)
        return [job for job in load(self.source, None, ImportOptions()).jobs if job.group == self.group]


def replays(folder: str, figures: Mapping[str, Any], quick: bool) -> list[Replay]:
    """All that is replayed: the public trace, or, without its folder, drawn workloads."""
    effort = figures["quick"] if quick else figures
    found = []
    for policy in figures["policies"]:
        where = _philly(folder, figures, policy) if folder else _generated(figures, policy, quick)
        # Less where jobs are stopped, since a draw is a simulation by rounds then.
        chosen = effort["with_stops"] if _stops(figures, policy) else effort
        for name, source, group, shape in where[: chosen.get("traces")]:
            size = (chosen["times"], chosen["draws"], chosen.get("jobs", 0))
            found.append(Replay(name, policy, shape, source, group, figures, *size))
    return found


Where = list[tuple[str, str, str, str]]
"""Names of replays, with source, group and shape of the cluster."""


def _philly(folder: str, figures: Mapping[str, Any], policy: str) -> Where:
    trace = next((p for p in (Path(folder), Path(folder) / "data") if (p / "traces").is_dir()), None)
    if trace is None:
        raise InputError("--data", f"no traces below {folder}", "the folder that holds traces/")
    path = str(trace / figures["philly"]["trace"])
    clusters = figures["philly"]["with_stops" if _stops(figures, policy) else "clusters"]
    return [(f"Philly {vc}", path, vc, shape) for vc, shape in clusters.items()]


def _generated(figures: Mapping[str, Any], policy: str, quick: bool) -> Where:
    drawn = _drawn(figures, policy)
    seeds = drawn["seeds"][:1] if quick else drawn["seeds"]
    return [(f"generated {seed}", drawn["workload"], str(seed), drawn["cluster"]) for seed in seeds]


def _drawn(figures: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """The workload that is drawn without a trace."""
    more = figures["generated_with_stops"] if _stops(figures, policy) else {}
    return {**figures["generated"], **more}


def _stops(figures: Mapping[str, Any], policy: str) -> bool:
    """Whether a policy stops jobs for others."""
    return policy not in figures["without_stops"]


def _run(item: Replay) -> list[Foretold]:
    return item.run()


@dataclass(frozen=True)
class Replays:
    """As ``experiment.Paper``, for replays instead of scenarios."""

    title: str = "Predictions"

    def reproduce(
        self,
        folder: str = "",
        *,
        quick: bool = False,
        workers: int = 0,
        progress: Progress = lambda _: lambda: None,
    ) -> Reproduction:
        """Replay everything, and judge what was predicted."""
        figures = read_mapping(_FIGURES).plain()
        todo = replays(folder, figures, quick)
        made = work_through(_run, todo, workers, progress(len(todo)), first_here=False)
        found = list(zip(todo, made, strict=True))
        parts = [_judged(figures, policy, found) for policy in figures["policies"]]
        return Reproduction(self.title, [_overview(figures, found), *parts], _notes(found))


PAPER = Replays()

Found = Sequence[tuple[Replay, list[Foretold]]]


def _overview(figures: Mapping[str, Any], found: Found) -> Part:
    """All policies side by side."""
    rows: list[tuple[str, ...]] = []
    for policy in figures["policies"]:
        made = [each for replay, all_of in found if replay.policy == policy for each in all_of]
        starts, ends = _by_kind(made)
        ours, slurm = _errors_h(starts)
        row = [policy]
        for some in (starts, ends):
            row += [f"{len(some):,}", _share_as_drawn(some), _share(some)]
        rows.append((*row[:4], ours, slurm, *row[4:]))
    each = ("as drawn", "as shown")
    header = ("policy", "starts", *each, "off by (h)", "Slurm's (h)", "ends", *each)
    return Part([], tables=[ResultTable("80 % intervals that held; median absolute error of starts", header, rows)])


def _by_kind(made: Sequence[Foretold]) -> tuple[list[Foretold], list[Foretold]]:
    """Starts, and ends of jobs that wait or run."""
    return [each for each in made if each.kind == "start"], [each for each in made if each.kind != "start"]


def _judged(figures: Mapping[str, Any], policy: str, found: Found) -> Part:
    made = [each for replay, all_of in found if replay.policy == policy for each in all_of]
    starts, ends = _by_kind(made)
    checks = [_coverage(figures, policy, "starts", starts), _coverage(figures, policy, "ends", ends)]
    edges_h = [*figures["queued_h"], float("inf")]
    for low_h, high_h in pairwise(edges_h):
        queued = [each for each in starts if low_h * HOUR_S <= each.waited_s < high_h * HOUR_S]
        name = f"starts of jobs queued {low_h} to {high_h:g} h" if high_h < float("inf") else f"queued over {low_h} h"
        checks.append(_coverage(figures, policy, name, queued))
    ours, slurm = _errors_h(starts)
    better = None if len(starts) < figures["least"] else float(ours) <= float(slurm)
    what = "median error of starts (h), Slurm's beside it"
    checks.append(Check(policy, what, ours, slurm, held=better, band="not above Slurm's", counted=False))
    return Part(checks)


def _coverage(figures: Mapping[str, Any], policy: str, what: str, made: Sequence[Foretold]) -> Check:
    """As shown: put right by the score of earlier ones where there was one, else as drawn."""
    low, high = figures["band"]["low"], figures["band"]["high"]
    held = None
    if len(made) >= figures["least"]:
        held = low <= np.mean(_held(made)) <= high
    ours = f"{_share(made)} of {len(made):,}{_range(made)}"
    return Check(policy, f"80 % intervals that held: {what}", ours, "80 %", held=held, band=f"{low:.0%} to {high:.0%}")


def _held(made: Sequence[Foretold]) -> list[bool]:
    return [each.predicted.holds(each.real_s) for each in made]


def _share(made: Sequence[Foretold]) -> str:
    return f"{np.mean(_held(made)):.1%}" if made else "-"


def _share_as_drawn(made: Sequence[Foretold]) -> str:
    return f"{np.mean([(each.drawn or each.predicted).holds(each.real_s) for each in made]):.1%}" if made else "-"


def _range(made: Sequence[Foretold]) -> str:
    """In which the share would lie in 95 % of such replays: whole moments drawn anew, since each shares one fate."""
    moments: dict[tuple[str, float], list[bool]] = {}
    for each, held in zip(made, _held(made), strict=True):
        moments.setdefault((each.trace, each.at_s), []).append(held)
    if len(moments) < _LEAST_MOMENTS:
        return f" at {len(moments)} moments"
    hits, sizes = (np.array([f(held) for held in moments.values()], dtype=float) for f in (sum, len))
    rng = np.random.default_rng(0)
    some = rng.integers(0, len(hits), (_RESAMPLES, len(hits)))
    low, high = np.quantile(hits[some].sum(axis=1) / sizes[some].sum(axis=1), (0.025, 0.975))
    return f" at {len(moments)} moments [{low:.0%}, {high:.0%}]"


def _errors_h(starts: Sequence[Foretold]) -> tuple[str, str]:
    """Median absolute errors of starts, ours and by Slurm's method, hours."""
    if not starts:
        return "-", "-"
    ours = np.median([abs(each.predicted.median - each.real_s) for each in starts])
    slurm = np.median([abs(each.slurm_s - each.real_s) for each in starts if each.slurm_s is not None])
    return f"{ours / HOUR_S:.2f}", f"{slurm / HOUR_S:.2f}"


def _notes(found: Found) -> list[str]:
    """What a reader must know to weigh the figures."""
    starts = [(replay, each) for replay, made in found for each in made if each.kind == "start"]
    moments = {(replay.name, replay.policy, each.at_s) for replay, each in starts}
    return [
        "Jobs state a time limit: one to five times their length (uniform), rounded up to a round figure; the trace "
        "has none. Scheduler, forecaster and Slurm's method see the limit, the world alone the length.",
        f"Predictions of one moment share its fate: all starts were predicted at {len(moments)} moments, which is the "
        "number of trials that counts, not the number of jobs; ranges are of whole moments drawn anew.",
        "Intervals are put right by the score of earlier ones of the same replay, of what had happened by then. Those "
        "made before there was a score are shown and judged as drawn.",
        "Policies that stop jobs are replayed on the beginning of traces only, on fewer GPUs: a draw of theirs is a "
        "simulation in rounds. Jobs that come start at once under most of them, so that it is ends that are judged.",
    ]
