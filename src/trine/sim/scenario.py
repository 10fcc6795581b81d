"""One run, described by plain values so that it can be sent to another process, and what it takes to carry it out."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from trine.config.cluster import load_cluster
from trine.config.prices import load_prices
from trine.config.throughput_check import check_jobs
from trine.config.throughputs import load_throughputs
from trine.core.cluster import Cluster
from trine.core.errors import InputError, nearest
from trine.core.job import Job
from trine.core.result import RunResult
from trine.engine import reasons
from trine.engine.engine import Engine
from trine.engine.events import Decision, Start
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.placement.base import Placement
from trine.policy.base import Policy
from trine.policy.rounds.problem import entities_of
from trine.policy.rounds.share_rounds import ShareRounds
from trine.sim import metrics
from trine.sim.background import repeat
from trine.sim.chips import chips
from trine.sim.recorder import Recorder
from trine.sim.settings import RunSettings, Settings, described, resolve
from trine.sim.world import World
from trine.trace import ImportOptions, load
from trine.trace.generate import generate


@dataclass(frozen=True)
class Scenario:
    """What to simulate. Either ``trace`` (a file) or ``workload`` (a generator preset) gives the jobs."""

    cluster: str
    policy: str = "fifo"
    placement: str = "packed-sticky"
    trace: str = ""
    format: str = ""
    workload: str = ""
    seed: int = 0
    variability: str = ""
    throughputs: str = ""
    prices: str = ""
    """In place of those of the cluster: a table by name, TYPE=PRICE,... or a CSV of changes."""
    authors: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Other policies and placements of the same sweep; parameters of theirs among the values are passed over."""
    values: dict[str, Any] = field(default_factory=dict, hash=False)
    """Settings by name, as ``--set`` gives them."""


Progress = Callable[[int], None]
DecisionLog = Callable[[dict[str, Any]], None]


def run(
    scenario: Scenario, *, keep_segments: bool = True, progress: Progress | None = None, log: DecisionLog | None = None
) -> RunResult:
    """Simulate one scenario from its files to its result; ``log`` is told every decision with its reason."""
    settings = resolve(
        scenario.policy, scenario.placement, scenario.values, scenario.authors, scenario.others, scenario.seed
    )
    cluster = _priced(load_cluster(scenario.cluster), scenario.prices)
    jobs, notes = load_jobs(scenario, settings, cluster)
    table, chip_notes = chips(
        scenario.variability, cluster, settings.variability, scenario.seed, {job.app_class for job in jobs}
    )
    perf = _perf_model(scenario, settings.run, cluster, table)
    check_jobs(jobs, perf.throughputs, cluster.types, scenario.trace or scenario.workload)
    jobs, refused = _that_fit(jobs, perf, settings.run, scenario)
    jobs = _in_window(jobs, settings.run.window)
    recorder = Recorder(cluster, keep_segments)
    started = time.process_time()
    world = _world(scenario, settings, jobs, perf, recorder, progress, log)
    world.run()
    cpu_s = time.process_time() - started
    records = [metrics.job_record(life) for life in recorder.lives if life.job.tracked]
    summary = metrics.summarise(
        recorder,
        records,
        rounds=world.rounds,
        cpu_s=cpu_s,
        policy=scenario.policy,
        placement=scenario.placement,
        seed=scenario.seed,
    )
    all_notes = [*cluster.notes, *notes, *chip_notes, *refused, *settings.policy.notes()]
    all_notes += _without_jobs(settings.policy, jobs)
    return RunResult(summary, records, recorder.segments, cluster, _record(scenario, settings), all_notes)


def _priced(cluster: Cluster, spec: str) -> Cluster:
    """The cluster with the prices that ``spec`` names; every type needs one, or costs would be too low."""
    if not spec:
        return cluster
    prices = load_prices(spec)
    missing = [gpu_type for gpu_type in cluster.types if prices.lowest(gpu_type) is None]
    if missing:
        raise InputError("--prices", f"no price for {missing[0]} in {spec}", "one for every GPU type of the cluster")
    return replace(cluster, changing_prices=prices)


def load_jobs(scenario: Scenario, settings: Settings, cluster: Cluster) -> tuple[list[Job], list[str]]:
    """The jobs of a trace file or of a generated workload, and what a reader should know about them."""
    if bool(scenario.trace) == bool(scenario.workload):
        raise InputError(
            "sim", "both --trace and --workload" if scenario.trace else "no jobs", "either --trace or --workload"
        )
    if scenario.trace:
        told_seed = settings.trace.seed
        seed = scenario.seed if told_seed is None else told_seed
        options = ImportOptions(settings.trace.jobs_per_h, seed, settings.trace.duration_s)
        return _load_trace(scenario.trace, scenario.format, options, _stamp(scenario.trace))
    told = settings.workload
    jobs = generate(
        scenario.workload,
        jobs=told.jobs,
        seed=scenario.seed,
        gpus=cluster.gpu_count,
        load=told.load,
        jobs_per_h=told.jobs_per_h,
        arrivals=told.arrivals,  # type: ignore[arg-type]  # checked against the choices
        max_gpus=told.max_gpus or max(cluster.gpus_by_type.values()),
    )
    return jobs, [f"{len(jobs)} jobs drawn from the {scenario.workload} workload."]


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file does; nothing for what is not there (the reader will say so)."""
    try:
        status = Path(path).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _load_trace(path: str, fmt: str, options: ImportOptions, stamp: tuple[int, int]) -> tuple[list[Job], list[str]]:  # noqa: ARG001
    """Sweeps read the same trace many times: keep the last few; a file that has changed since is read again."""
    trace = load(path, fmt or None, options)
    if not trace.jobs:
        raise InputError(path, "no job that asks for GPUs", "at least one")
    return trace.jobs, list(trace.summary.sentences)


def _perf_model(scenario: Scenario, run: RunSettings, cluster: Cluster, table: VariabilityTable) -> PerfModel:
    across = run.locality_penalty
    return PerfModel(
        cluster,
        table,
        LocalityPenalty(
            1.0, across, across if run.rack_penalty is None else run.rack_penalty, class_penalties(run.class_penalty)
        ),
        load_throughputs(scenario.throughputs) if scenario.throughputs else ThroughputTable(),
    )


def class_penalties(parts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """``("A=1.2", "D=1.1/1.5")``: penalties across nodes and across racks by class; one number stands for both."""
    found: dict[str, tuple[float, float]] = {}
    for part in parts:
        name, _, told = part.partition("=")
        words = told.split("/")
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if not name or len(numbers) not in (1, 2) or not all(1 <= x < math.inf for x in numbers):
            raise InputError("--set", f"{part!r}", "CLASS=X or CLASS=X/Y with penalties of at least 1", "class_penalty")
        found[name] = (numbers[0], numbers[-1])
    return found


def _that_fit(jobs: list[Job], perf: PerfModel, run: RunSettings, scenario: Scenario) -> tuple[list[Job], list[str]]:
    """Jobs that some GPU type of the cluster can hold; the others are refused or skipped, as the settings say."""
    too_large = [job for job in jobs if not perf.types_for(job)]
    if not too_large:
        return jobs, []
    job, source = too_large[0], scenario.trace or scenario.workload
    why = reasons.never_fits(job, perf)
    if run.oversize == "refuse":
        where = f"{source}:{job.line}" if job.line else source
        hint = "jobs that fit, or --set oversize=skip"
        if job.step_s is None:
            hint = "a cluster of GPU types that the table knows" if scenario.throughputs else "--throughputs FILE"
        raise InputError(where, f"job {job.id} can never run: {why}", hint, "gpus")
    fitting = [job for job in jobs if perf.types_for(job)]
    if not fitting:
        raise InputError(source, f"no job can ever run; the first: {why}", "at least one job that fits")
    return fitting, [f"{len(too_large)} jobs that can never run here were skipped; the first: {why}."]


def _world(
    scenario: Scenario,
    settings: Settings,
    jobs: list[Job],
    perf: PerfModel,
    recorder: Recorder,
    progress: Progress | None,
    log: DecisionLog | None,
) -> World:
    run = settings.run
    settings.placement.prepare(perf, random.Random(f"{scenario.seed}/placement"), settings.compat)
    _check_capacity(jobs, settings.placement, perf.cluster)
    engine = Engine(perf.cluster, settings.policy, settings.placement, perf, run.strict, settings.compat, run.costs)
    tracked = sum(job.tracked for job in jobs)
    told = None if log is None else lambda now, decision: log(_entry(engine, now, decision))
    return World(engine, _arrivals(jobs, run), tracked, run, recorder, progress, told)


def _entry(engine: Engine, now: float, decision: Decision) -> dict[str, Any]:
    """One line of the decision log."""
    job, reason = engine.table.jobs[decision.slot], engine.reason(decision)
    gpus = list(decision.gpus) if isinstance(decision, Start) else list(engine.handover.holding[decision.slot])
    action = type(decision).__name__.lower()
    return {"t": now, "action": action, "job": job.id, "gpus": gpus, "code": reason.code.value, "reason": str(reason)}


def _without_jobs(policy: Policy, jobs: list[Job]) -> list[str]:
    """Groups that were given a weight and have no jobs: their names may be misspelt."""
    named = entities_of(policy.params.entities) if isinstance(policy, ShareRounds) else {}
    groups = {job.group for job in jobs}
    return [f"No job belongs to {name!r} of entities{nearest(name, groups)}." for name in named if name not in groups]


def _check_capacity(jobs: list[Job], placement: Placement, cluster: Cluster) -> None:
    """GPUs that the placement leaves alone may be missing for the largest job."""
    excluded = placement.excluded()
    if not excluded:
        return
    left = {t: n - sum(cluster.type_of(g) == t for g in excluded) for t, n in cluster.gpus_by_type.items()}
    largest = max(jobs, key=lambda job: job.gpus)
    if largest.gpus > max(left.values()):
        raise InputError(
            "--placement",
            f"it leaves {len(excluded)} GPUs alone, and job {largest.id} needs {largest.gpus} of one type",
            f"jobs of at most {max(left.values())} GPUs, or another placement",
        )


def _in_window(jobs: list[Job], window: str) -> list[Job]:
    """Track only the jobs at the positions ``FROM:TO`` of the trace."""
    if not window:
        return jobs
    first, colon, last = window.partition(":")
    if not (colon and first.isdigit() and last.isdigit() and int(first) < int(last) <= len(jobs)):
        raise InputError("--set", f"{window!r}", f"FROM:TO with 0 <= FROM < TO <= {len(jobs)}", "window")
    tracked = range(int(first), int(last))
    return [job if i in tracked else replace(job, tracked=False) for i, job in enumerate(jobs)]


def _arrivals(jobs: list[Job], run: RunSettings) -> Iterator[Job]:
    if run.background_jobs_per_h <= 0:
        return iter(jobs)
    return itertools.chain(jobs, repeat(jobs, run.background_jobs_per_h, run.background_seed))


def _record(scenario: Scenario, settings: Settings) -> dict[str, Any]:
    """The settings as they took effect, for the report."""
    given = {k: v for k, v in vars(replace(scenario, values={}, others=())).items() if v not in ("", (), {})}
    return given | {"settings": described(settings)}
