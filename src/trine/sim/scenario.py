"""One run, described by plain values so that it can be sent to another process, and what it takes to carry it out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from trine.assembly.factory import make_engine, pair_cost_part, performance_model, slice_clock
from trine.assembly.settings import RunSettings, Settings, TraceSettings, described, resolve
from trine.core.cluster import Cluster
from trine.core.errors import InputError, nearest
from trine.core.job import Job
from trine.core.result import RunResult, TimerChange
from trine.engine.engine import Engine
from trine.engine.events import Decision, Start, Stop
from trine.engine.explain import never_fits
from trine.inputs.cluster import load_cluster
from trine.inputs.prices import load_prices
from trine.inputs.throughputs import check_jobs, load_throughputs
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.placement.base import Placement
from trine.sim import metrics
from trine.sim.background import repeat
from trine.sim.chips import chips
from trine.sim.recorder import Recorder
from trine.sim.world import World
from trine.sim.worlds.load import LoadedWorld, load_world
from trine.trace import ImportOptions, load
from trine.trace.generate import generate
from trine.trace.models import drawn_sentence


@dataclass(frozen=True)
class Scenario:
    """What to simulate. Either ``trace`` (a file) or ``workload`` (a generator preset) gives the jobs.

    ``world`` names a directory that holds the jobs, the cluster and the step times, in place of all three.
    """

    cluster: str = ""
    policy: str = "fifo"
    placement: str = "packed-sticky"
    trace: str = ""
    format: str = ""
    workload: str = ""
    world: str = ""
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
    world = _given_world(scenario)
    values = scenario.values if world is None else world.settings | scenario.values
    settings = resolve(scenario.policy, scenario.placement, values, scenario.authors, scenario.others, scenario.seed)
    cluster = _priced(load_cluster(scenario.cluster) if world is None else world.cluster, scenario.prices)
    jobs, notes = load_jobs(scenario, settings, cluster) if world is None else (world.jobs, world.notes)
    source = scenario.trace or scenario.workload if world is None else world.jobs_path
    table, chip_notes = chips(
        scenario.variability, cluster, settings.variability, scenario.seed, {job.app_class for job in jobs}
    )
    perf = _perf_model(scenario, settings.run, cluster, table, world)
    _check_network(settings, perf)
    check_jobs(jobs, perf.throughputs, cluster.types, source)
    jobs, refused = _that_fit(jobs, perf, settings.run, scenario, source)
    jobs = _in_window(jobs, settings.run.window)
    started = time.process_time()
    simulated = _world(scenario, settings, jobs, perf, keep_segments, progress, log)
    simulated.run()
    recorder = simulated.recorder
    cpu_s = time.process_time() - started
    records = [metrics.job_record(life) for life in recorder.lives if life.job.tracked]
    summary = metrics.summarise(
        recorder,
        records,
        rounds=simulated.rounds,
        cpu_s=cpu_s,
        policy=scenario.policy,
        placement=scenario.placement,
        seed=scenario.seed,
    )
    all_notes = [*cluster.notes, *notes, *chip_notes, *refused, *settings.policy.notes()]
    all_notes += [*_without_jobs(settings, jobs), *_without_traffic(perf)]
    timers = settings.placement.timer_changes_since(0)
    all_notes += metrics.timer_sentences(timers)
    told = _record(scenario, settings)
    times, links = metrics.tier_times(recorder), simulated.link_loads
    loads = [] if links is None else links.samples
    return RunResult(summary, records, recorder.segments, cluster, told, all_notes, timers, times, loads)


def _check_network(settings: Settings, perf: PerfModel) -> None:
    """Links are for runs in which jobs hold their GPUs: the two other ways to pass time know no traffic."""
    if perf.network is None:
        return
    if settings.run.ideal:
        raise InputError("--set", "ideal=true with a network", "network=off, or rounds", "ideal")
    if settings.compat.round_ends_early:
        raise InputError("--set", "compat.round_ends_early with a network", "network=off", "compat.round_ends_early")


def _given_world(scenario: Scenario) -> LoadedWorld | None:
    """The world directory, if there is one: it brings the jobs, the cluster and the step times, so nothing else may."""
    if not scenario.world:
        return None
    for option in ("cluster", "trace", "workload", "format", "throughputs"):
        if getattr(scenario, option):
            raise InputError("--world", f"--{option} beside it", "one of the two: a world brings its own", option)
    told = next((name for name in scenario.values if name.startswith(("trace.", "workload."))), None)
    if told is not None:
        raise InputError(
            "--set", "a setting of jobs that are read or drawn, beside --world", "none: a world has jobs", told
        )
    return load_world(scenario.world)


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
        options = _import_options(settings.trace, scenario.seed)
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
        models=told.models,
        sensitive_share=told.sensitive_share,
    )
    notes = [f"{len(jobs)} jobs drawn from the {scenario.workload} workload."]
    if told.models or told.sensitive_share is not None:
        notes.append(drawn_sentence(jobs, len(jobs), told.models or scenario.workload))
    return jobs, notes


def _import_options(told: TraceSettings, seed: int) -> ImportOptions:
    return ImportOptions(
        jobs_per_h=told.jobs_per_h,
        seed=seed if told.seed is None else told.seed,
        duration_s=told.duration_s,
        group=tuple(name.strip() for name in told.group),
        models=told.models,
        sensitive_share=told.sensitive_share,
    )


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


def _perf_model(
    scenario: Scenario, run: RunSettings, cluster: Cluster, table: VariabilityTable, world: LoadedWorld | None
) -> PerfModel:
    """From the files of the scenario, or from a world, which says what each of its models sends."""
    if world is not None:
        return performance_model(run, cluster, table, world.throughputs, world.traffic)
    throughputs = load_throughputs(scenario.throughputs) if scenario.throughputs else ThroughputTable()
    return performance_model(run, cluster, table, throughputs)


def _that_fit(
    jobs: list[Job], perf: PerfModel, run: RunSettings, scenario: Scenario, source: str
) -> tuple[list[Job], list[str]]:
    """Jobs that some GPU type of the cluster can hold; the others are refused or skipped, as the settings say."""
    too_large = [job for job in jobs if not perf.types_for(job)]
    if not too_large:
        return jobs, []
    job = too_large[0]
    why = never_fits(job, perf)
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
    keep_segments: bool,
    progress: Progress | None,
    log: DecisionLog | None,
) -> World:
    engine = make_engine(settings, perf, f"{scenario.seed}/placement")
    _check_capacity(jobs, settings.placement, perf.cluster)
    tracked = sum(job.tracked for job in jobs)
    log_decision = None if log is None else _teller(engine, log)
    arrivals = _arrivals(jobs, settings.run)
    return make_world(
        settings, engine, arrivals, tracked, keep_segments=keep_segments, progress=progress, log=log_decision
    )


def make_world(
    settings: Settings,
    engine: Engine,
    arrivals: Iterator[Job],
    tracked: int,
    *,
    keep_segments: bool = True,
    progress: Progress | None = None,
    log: Callable[[float, Decision], None] | None = None,
) -> World:
    """The world that ``settings`` describe; it runs until ``tracked`` of the arrivals have finished."""
    recorder = Recorder(engine.cluster, keep_segments, pair_cost_part=pair_cost_part(settings))
    slices = slice_clock(settings, engine.perf)
    return World(engine, arrivals, tracked, settings.run, recorder, progress, log, slices)


def finish_times(settings: Settings, engine: Engine, jobs: Sequence[Job]) -> dict[str, float]:
    """Simulate ``jobs`` (in order of submission) to their end; when each finished, in seconds, by job id."""
    world = make_world(settings, engine, iter(jobs), len(jobs), keep_segments=False)
    world.run()
    return {life.job.id: life.finish_s for life in world.recorder.lives}


def _teller(engine: Engine, log: DecisionLog) -> Callable[[float, Decision], None]:
    """Tells the log every decision, and every change of the placement's timers after the start that caused it."""
    timers_told = 0

    def tell(now: float, decision: Decision) -> None:
        nonlocal timers_told
        log(_entry(engine, now, decision))
        for change in engine.placement.timer_changes_since(timers_told):
            timers_told += 1
            log(_timer_entry(change))

    return tell


def _timer_entry(change: TimerChange) -> dict[str, Any]:
    """The line of the decision log on a timer."""
    place = f"within one {change.tier.label}"
    reason = f"jobs of {change.gpus} GPUs wait up to {change.timer_s:.0f} s for GPUs {place} from now on."
    told = {"demand": change.gpus, "tier": change.tier.label, "timer_s": change.timer_s}
    return {"t": change.at_s, "action": "timer", **told, "code": "timer", "reason": reason}


def _entry(engine: Engine, now: float, decision: Decision) -> dict[str, Any]:
    """One line of the decision log."""
    job, reason = engine.table.jobs[decision.job_index], engine.reason(decision)
    gpus = list(decision.gpus) if isinstance(decision, Start) else list(engine.ownership.holding[decision.job_index])
    action = type(decision).__name__.lower()
    entry = {"t": now, "action": action, "job": job.id, "gpus": gpus, "code": reason.code.value, "reason": str(reason)}
    if isinstance(decision, Stop) and decision.for_job >= 0:
        entry["for"] = engine.table.jobs[decision.for_job].id
    return entry


def _without_jobs(settings: Settings, jobs: list[Job]) -> list[str]:
    """Groups that were given a weight and have no jobs: their names may be misspelt."""
    if settings.round_params is None:
        return []
    from trine.policy.shares.rounds.round_params import entities_of

    named = entities_of(settings.round_params.entities)
    groups = {job.group for job in jobs}
    return [f"No job belongs to {name!r} of entities{nearest(name, groups)}." for name in named if name not in groups]


def _without_traffic(perf: PerfModel) -> list[str]:
    """Models of which nothing is known of their communication."""
    unknown = perf.network.traffic.unknown_models() if perf.network is not None else ()
    if not unknown:
        return []
    named = ", ".join(name or "jobs without a model" for name in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
    return [f"Nothing is known of the communication of {len(unknown)} models ({named}): they are taken as ResNet-50."]


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
