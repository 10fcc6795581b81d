"""Do predictions come true? Replays of traces, predicted from the middle: how many 80 % intervals held, by policy and
by how long a job had queued, and how far medians were off beside what Slurm's method would have said.

Nothing here is tuned to the clusters that are replayed: what does not lie in its band is shown as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from trine.assembly.settings import resolve
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.process_pool import work_through
from trine.forecast.replay import CheckedPrediction, Waits, replay, waits
from trine.inputs.cluster import load_cluster
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.checks import Check
from trine.reproduce.experiment import HOUR_S, Progress
from trine.reproduce.prediction_clusters import busy_gpus, moments_of, queue_at, without_rounds
from trine.reproduce.reproduction import Part, Reproduction, ResultTable
from trine.trace import ImportOptions, load
from trine.trace.generate import generate

_FIGURES = Path(__file__).with_suffix(".yaml")
_DAY_S = 24 * HOUR_S
_LEAST_TRIALS, _RESAMPLES = 5, 1_000
_WARM_UP, _LAST = 0.1, 0.95
"""Predictions are made between these parts of a trace: before, there is no history, and after, nothing more comes."""

_SHOWN = {"overloaded": "overloaded", "developed": "developed on"}
"""Clusters that are shown and not judged: about the GPUs that jobs keep busy, where one queue is one trial; and those
that draws and calibration were developed on."""

_NOTES = (
    "Jobs state a time limit: one to five times their length (uniform), rounded up to a round figure; the trace "
    "has none. Scheduler, forecaster and Slurm's method see the limit, the world alone the length.",
    "Every virtual cluster has the fewest nodes on which its jobs wait no longer under fifo-backfill, as a part of "
    "how long they run, than is recorded of all of Philly; on about the GPUs that they keep busy they would wait "
    "for weeks (overloaded: shown, not judged).",
    "Predictions of one queue share its fate: the number of queues is the number of trials that counts, not that "
    "of jobs; ranges are of whole queues drawn anew. Moments are spread evenly over the time in which jobs wait.",
    "Intervals are put right by the score of earlier ones of the same replay, of what had happened by then. Those "
    "made before there was a score are shown and judged as drawn.",
    "Policies that stop jobs are predicted while jobs would wait under fifo-backfill. Jobs that come start at once "
    "under most of them, so that it is ends that are judged.",
)
"""What a reader must know to weigh the figures."""


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
    judged: bool = True
    """``False``: it is shown, and not judged (``_SHOWN``)."""

    def run(self) -> list[CheckedPrediction]:
        jobs, cluster = self._jobs(), load_cluster(self.cluster)
        settings = resolve(self.policy, self.figures["placement"], self._decides())
        first_s, span_s = jobs[0].submit_s, jobs[-1].submit_s - jobs[0].submit_s
        queues = self._queues(jobs, cluster)
        times_s = moments_of(queues, first_s + _WARM_UP * span_s, first_s + _LAST * span_s, self.times)
        if _stops(self.figures, self.policy):
            round_s = self.figures["round_s"]
            times_s = sorted({round_s * round(at_s / round_s) for at_s in times_s})
        made = replay(jobs, cluster, settings, times_s, self.draws, seed=0)
        return [replace(each, trace=self.name, queue=queue_at(queues, each.at_s)) for each in made]

    def waits_shown(self) -> tuple[str, ...]:
        """How many jobs there are, the load of the cluster, and what jobs wait there, as ``_clusters`` names it."""
        jobs, cluster = self._jobs(), load_cluster(self.cluster)
        found = self._waits(jobs, cluster, self.figures["recorded_waits"]["policy"])
        load, queues = busy_gpus(jobs) / cluster.gpu_count, found.queues()
        longest_s = max((end_s - begin_s for begin_s, end_s in queues), default=0.0)
        waited = (f"{found.mean_wait_s / HOUR_S:.1f}", f"{found.per_run:.2f}")
        return f"{len(jobs):,}", f"{load:.2f}", *waited, str(len(queues)), f"{longest_s / _DAY_S:.1f}"

    def _waits(self, jobs: Sequence[Job], cluster: Cluster, policy: str) -> Waits:
        settings = resolve(policy, self.figures["placement"], without_rounds(self.figures))
        return waits(jobs, cluster, settings, seed=0)

    def _queues(self, jobs: Sequence[Job], cluster: Cluster) -> list[tuple[float, float]]:
        """When there is more work than GPUs. A policy that stops jobs has no queue of jobs that never ran: then, when
        there would be one without stops."""
        policy = self.figures["recorded_waits"]["policy"] if _stops(self.figures, self.policy) else self.policy
        return self._waits(jobs, cluster, policy).queues()

    def _decides(self) -> dict[str, Any]:
        """When: at every event where nothing is stopped, as then rounds make no difference; else in rounds, too."""
        if not _stops(self.figures, self.policy):
            return without_rounds(self.figures)
        return {"fill": True, "round_s": self.figures["round_s"]}

    def _jobs(self) -> list[Job]:
        if self.name.startswith("generated"):
            drawn = self.figures["generated"]
            sizes = {name: drawn[name] for name in ("jobs", "gpus", "load", "max_gpus")}
            return generate(self.source, seed=int(self.group), **sizes)
        return [job for job in load(self.source, None, ImportOptions()).jobs if job.group == self.group]


def replays(folder: str, figures: Mapping[str, Any], quick: bool) -> list[Replay]:
    """All that is replayed: the public trace, or, without its folder, drawn workloads."""
    effort = (figures["quick"] if quick else figures) if folder else figures["generated"]
    found = []
    where = _philly(folder, figures, "clusters") if folder else _generated(figures, quick)
    for policy in figures["policies"]:
        # Less where jobs are stopped, since a draw is a simulation by rounds then.
        chosen = effort["with_stops"] if _stops(figures, policy) else effort
        found += _of_size(where, policy, figures, chosen, judged=True)
        if folder and not _stops(figures, policy):
            for kind in _SHOWN:
                found += _of_size(_philly(folder, figures, kind), policy, figures, effort[kind], judged=False)
    return found


def _of_size(
    where: Where, policy: str, figures: Mapping[str, Any], effort: Mapping[str, Any], *, judged: bool
) -> list[Replay]:
    size = (effort["times"], effort["draws"], judged)
    return [Replay(name, policy, shape, source, group, figures, *size) for name, source, group, shape in where]


Where = list[tuple[str, str, str, str]]
"""Names of replays, with source, group and shape of the cluster."""


def _philly(folder: str, figures: Mapping[str, Any], kind: str) -> Where:
    """Virtual clusters of the trace; ``kind``: ``clusters`` are judged, others as ``_SHOWN`` names them."""
    suffix = f", {_SHOWN[kind]}" if kind in _SHOWN else ""
    clusters = figures["philly"][kind]
    return [(f"Philly {vc}{suffix}", _trace(folder, figures), vc, shape) for vc, shape in clusters.items()]


def _trace(folder: str, figures: Mapping[str, Any]) -> str:
    above = next((p for p in (Path(folder), Path(folder) / "data") if (p / "traces").is_dir()), None)
    if above is None:
        raise InputError("--data", f"no traces below {folder}", "the folder that holds traces/")
    return str(above / figures["philly"]["trace"])


def _generated(figures: Mapping[str, Any], quick: bool) -> Where:
    drawn = figures["generated"]
    seeds = drawn["seeds"][: drawn["quick_seeds"]] if quick else drawn["seeds"]
    return [(f"generated {seed}", drawn["workload"], str(seed), drawn["cluster"]) for seed in seeds]


def _stops(figures: Mapping[str, Any], policy: str) -> bool:
    """Whether a policy stops jobs for others."""
    return policy not in figures["without_stops"]


def _run(item: Replay) -> list[CheckedPrediction]:
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
        only: Sequence[str] = (),
    ) -> Reproduction:
        """Replay everything, or under the policies of ``only``, and judge what was predicted."""
        figures = read_mapping(_FIGURES).plain()
        unasked = figures["quick"]["policies"] if quick else figures["policies"]
        figures = figures | {"policies": _chosen(figures["policies"], only) if only else unasked}
        todo = replays(folder, figures, quick)
        made = work_through(_run, todo, workers, progress(len(todo)), first_here=False)
        found = list(zip(todo, made, strict=True))
        judged = [(replay, made_of) for replay, made_of in found if replay.judged]
        parts = [_judged(figures, policy, judged) for policy in figures["policies"]]
        tables = [_overview(figures, judged), _by_cluster(found), _by_time_queued(figures, found)]
        return Reproduction(self.title, [*tables, _clusters(figures, todo), *parts], _NOTES)


PAPER = Replays()


def _chosen(policies: Sequence[str], only: Sequence[str]) -> list[str]:
    for name in only:
        if name not in policies:
            raise InputError("--only", f"no policy {name!r} here", f"one of: {'; '.join(policies)}")
    return [name for name in policies if name in only]


Found = Sequence[tuple[Replay, list[CheckedPrediction]]]


def _overview(figures: Mapping[str, Any], found: Found) -> Part:
    """All policies side by side."""
    rows = [(policy, *_figures(_of_policy(policy, found))) for policy in figures["policies"]]
    title = "80 % intervals that held; median absolute error of starts"
    return Part([], tables=[ResultTable(title, ("policy", *_HEADER), rows)])


def _clusters(figures: Mapping[str, Any], todo: Sequence[Replay]) -> Part:
    """How long jobs wait on each cluster, under the policy that its size rests on."""
    of_name = {replay.name: replay for replay in reversed(todo)}
    title = f"Clusters: what jobs wait under {figures['recorded_waits']['policy']}, before anything is predicted"
    header = ("cluster", "nodes", "jobs", "load", "mean wait (h)", "wait / length", "queues", "longest (days)")
    rows = [(name, replay.cluster, *replay.waits_shown()) for name, replay in sorted(of_name.items())]
    return Part([], tables=[ResultTable(title, header, rows)])


def _of_policy(policy: str, found: Found) -> list[CheckedPrediction]:
    return [each for replay, made in found if replay.policy == policy for each in made]


def _by_cluster(found: Found) -> Part:
    """Every replay apart, also those that are not judged."""
    rows = [(f"{replay.policy}, {replay.name}", replay.cluster, *_figures(made)) for replay, made in found]
    title = "The same by cluster; overloaded ones, and those that the method was developed on, are not judged"
    return Part([], tables=[ResultTable(title, ("replay", "nodes", *_HEADER), rows)])


def _by_time_queued(figures: Mapping[str, Any], found: Found) -> Part:
    """Starts as shown, of every replay in which jobs wait."""
    spans = _spans_queued(figures)
    rows = []
    for item, made in found:
        if not _stops(figures, item.policy):
            starts, _ = _by_kind(made)
            cells = (_of_span(starts, low_h, high_h) for low_h, high_h in spans)
            shares = (f"{_share(queued)} of {len(queued):,}" if queued else "-" for queued in cells)
            rows.append((f"{item.policy}, {item.name}", *shares))
    header = ("starts held as shown", *(f"{_span_name(low_h, high_h)}" for low_h, high_h in spans))
    return Part([], tables=[ResultTable("By cluster and time queued", header, rows)])


def _spans_queued(figures: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Hours that jobs have queued, from and below."""
    return list(pairwise([*figures["queued_h"], math.inf]))


def _of_span(starts: Sequence[CheckedPrediction], low_h: float, high_h: float) -> list[CheckedPrediction]:
    return [each for each in starts if low_h * HOUR_S <= each.waited_s < high_h * HOUR_S]


def _span_name(low_h: float, high_h: float) -> str:
    return f"queued {low_h:g} to {high_h:g} h" if high_h < math.inf else f"queued over {low_h:g} h"


_EACH = ("as drawn", "as shown")
_HEADER = ("starts", "queues", *_EACH, "off by (h)", "Slurm's (h)", "ends", *_EACH)


def _figures(made: Sequence[CheckedPrediction]) -> tuple[str, ...]:
    """As ``_HEADER`` names them."""
    starts, ends = _by_kind(made)
    queues = f"{len(_trials(starts)):,}"
    of_starts = (f"{len(starts):,}", queues, _share_as_drawn(starts), _share(starts), *_errors_h(starts))
    return (*of_starts, f"{len(ends):,}", _share_as_drawn(ends), _share(ends))


def _by_kind(made: Sequence[CheckedPrediction]) -> tuple[list[CheckedPrediction], list[CheckedPrediction]]:
    """Starts, and ends of jobs that wait or run."""
    return [each for each in made if each.kind == "start"], [each for each in made if each.kind != "start"]


def _judged(figures: Mapping[str, Any], policy: str, found: Found) -> Part:
    starts, ends = _by_kind(_of_policy(policy, found))
    checks = [_coverage(figures, policy, "starts", starts), _coverage(figures, policy, "ends", ends)]
    for low_h, high_h in _spans_queued(figures):
        what = f"starts of jobs {_span_name(low_h, high_h)}"
        checks.append(_coverage(figures, policy, what, _of_span(starts, low_h, high_h)))
    ours, slurm = _errors_h(starts)
    better = None if len(starts) < figures["least"] else float(ours) <= float(slurm)
    what = "median error of starts (h), Slurm's beside it"
    checks.append(Check(policy, what, ours, slurm, held=better, band="not above Slurm's", counted=False))
    return Part(checks)


def _coverage(figures: Mapping[str, Any], policy: str, what: str, made: Sequence[CheckedPrediction]) -> Check:
    """As shown: put right by the score of earlier ones where there was one, else as drawn."""
    low, high = figures["band"]["low"], figures["band"]["high"]
    held = None
    if len(made) >= figures["least"]:
        held = low <= np.mean(_held(made)) <= high
    ours = f"{_share(made)} of {len(made):,}{_range(made)}"
    return Check(policy, f"80 % intervals that held: {what}", ours, "80 %", held=held, band=f"{low:.0%} to {high:.0%}")


def _held(made: Sequence[CheckedPrediction]) -> list[bool]:
    return [each.predicted.holds(each.real_s) for each in made]


def _share(made: Sequence[CheckedPrediction]) -> str:
    return f"{np.mean(_held(made)):.1%}" if made else "-"


def _share_as_drawn(made: Sequence[CheckedPrediction]) -> str:
    return f"{np.mean([(each.drawn or each.predicted).holds(each.real_s) for each in made]):.1%}" if made else "-"


def _trials(made: Sequence[CheckedPrediction]) -> list[list[bool]]:
    """Which intervals held, by what shares one fate: a queue of one replay, or a moment at which no job waits."""
    trials: dict[tuple[str, int | None, float], list[bool]] = {}
    for each, held in zip(made, _held(made), strict=True):
        alone_s = each.at_s if each.queue is None else 0.0
        trials.setdefault((each.trace, each.queue, alone_s), []).append(held)
    return list(trials.values())


def _range(made: Sequence[CheckedPrediction]) -> str:
    """In which the share would lie in 95 % of such replays: whole queues drawn anew, since each shares one fate."""
    trials = _trials(made)
    if len(trials) < _LEAST_TRIALS:
        return f" in {len(trials)} queues"
    hits, sizes = (np.array([f(held) for held in trials], dtype=float) for f in (sum, len))
    rng = np.random.default_rng(0)
    some = rng.integers(0, len(hits), (_RESAMPLES, len(hits)))
    low, high = np.quantile(hits[some].sum(axis=1) / sizes[some].sum(axis=1), (0.025, 0.975))
    return f" in {len(trials)} queues [{low:.0%}, {high:.0%}]"


def _errors_h(starts: Sequence[CheckedPrediction]) -> tuple[str, str]:
    """Median absolute errors of starts, ours and by Slurm's method, hours."""
    if not starts:
        return "-", "-"
    ours = np.median([abs(each.predicted.median - each.real_s) for each in starts])
    slurm = np.median([abs(each.slurm_s - each.real_s) for each in starts if each.slurm_s is not None])
    return f"{ours / HOUR_S:.2f}", f"{slurm / HOUR_S:.2f}"
