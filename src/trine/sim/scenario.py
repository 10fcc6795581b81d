"""A run, described by plain values so that it can be sent to another process, how it is carried out, and sweeps.

From files to a result: settings, cluster, jobs, chips, performance model, engine, world, summary.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trine.assembly.believed import believed_model
from trine.assembly.choices import Choice, label_of
from trine.assembly.factory import make_engine, performance_model
from trine.assembly.registry import placement_for
from trine.assembly.settings import (
    DrawnWorldSettings,
    RunSettings,
    Settings,
    VariabilitySettings,
    described,
    resolve,
)
from trine.core.cluster import Cluster
from trine.core.costs import StopCosts
from trine.core.errors import InputError, nearest
from trine.core.job import Job
from trine.core.params import build
from trine.core.plugins import mistakes_in_files
from trine.core.result import JobRecord, RunResult, Summary, TimerChange
from trine.engine.engine import Engine
from trine.engine.events import Decision, Start, Stop
from trine.inputs.cluster import load_cluster
from trine.inputs.power import gpu_watts
from trine.inputs.prices import load_prices
from trine.inputs.throughputs import check_jobs, load_throughputs
from trine.parity.gavel_clock import pair_cost_part, slice_clock
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.profile.draw import draw_table
from trine.profile.measurements import MeasurementRecord, read_records
from trine.profile.profile_matching import load_any
from trine.sim import metrics
from trine.sim.arrivals import (
    check_capacity,
    generate_jobs,
    in_window,
    jobs_that_fit,
    later_jobs,
    read_jobs,
    with_background,
)
from trine.sim.fair_share import fair_completion_s
from trine.sim.recorder import Recorder
from trine.sim.true_speeds import TrueSpeeds
from trine.sim.world import World
from trine.sim.worlds.generate import KINDS, WorldSpec, drawn_world
from trine.sim.worlds.load import LoadedWorld, load_world
from trine.trace import Trace
from trine.trace.selection import scaled

if TYPE_CHECKING:
    from trine.core.process_pool import Done


@dataclass(frozen=True)
class Scenario:
    """What to simulate. Either ``trace`` (a file) or ``workload`` (a generator preset) gives the jobs.

    ``world`` names a directory that holds the jobs, the cluster and the step times, in place of all three, or a kind of
    world (``TVN``, ``T``, ``V``, ``N``) that is drawn with the seed. Policy and placement are
    names, or classes or objects of the caller.
    """

    cluster: str = ""
    policy: Choice = "fifo"
    placement: Choice = "packed-sticky"
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
    others: tuple[Choice, ...] = ()
    """Other policies and placements of the same sweep; parameters of theirs among the values are passed over."""
    values: dict[str, Any] = field(default_factory=dict, hash=False)
    """Settings by name, as ``--set`` gives them."""
    loaded: Trace | None = field(default=None, hash=False)
    """What was read of ``trace`` already, if the caller did so."""


Progress = Callable[[int], None]
Workers = Callable[[Callable[[Any], Any], Sequence[Any], "Done"], list[Any]]
"""Applies a function of a module to many items, somewhere else: outcomes in the order of the items."""
DecisionLog = Callable[[dict[str, Any]], None]


class Onlooker(Protocol):
    """Follows a run while it lasts."""

    def begin(self, settings: dict[str, Any], cluster: Cluster, recorder: Recorder) -> None:
        """The run begins, with these settings in effect; ``recorder`` keeps what happens."""

    def look(self, now: float) -> None:
        """Another moment has passed; called very often."""


def run(
    scenario: Scenario,
    *,
    keep_segments: bool = True,
    progress: Progress | None = None,
    log: DecisionLog | None = None,
    onlooker: Onlooker | None = None,
) -> RunResult:
    """Simulate one scenario from its files to its result; ``log`` gets every decision with its reason."""
    world = _given_world(scenario)
    values = scenario.values if world is None else world.settings | scenario.values
    settings = resolve(scenario.policy, scenario.placement, values, scenario.authors, scenario.others, scenario.seed)
    cluster = _priced(load_cluster(scenario.cluster) if world is None else world.cluster, scenario.prices)
    jobs, notes = _load_jobs(scenario, settings, cluster) if world is None else (world.jobs, world.notes)
    source = scenario.trace or scenario.workload if world is None else world.jobs_path
    table, chip_notes = chips_of(
        scenario.variability, cluster, settings.variability, scenario.seed, {job.app_class for job in jobs}
    )
    perf = _perf_model(scenario, settings.run, cluster, table, world)
    _check_network(settings, perf)
    watts = gpu_watts(settings.run.watts)
    _check_believed(settings, perf)
    check_jobs(jobs, perf.throughputs, cluster.types, source)
    jobs, refused = jobs_that_fit(jobs, perf, settings.run, source, bool(scenario.throughputs))
    jobs = in_window(jobs, settings.run.window)
    started = time.process_time()
    simulated = _world(scenario, settings, jobs, perf, keep_segments, progress, log)
    in_effect = _record(scenario, settings)
    shown = replace(cluster, scores={name: tuple(table.slowdown(name)) for name in table.classes})
    if onlooker is not None:
        onlooker.begin(in_effect, shown, simulated.recorder)
        simulated.onlookers.append(onlooker.look)
    with _older_objects_left_alone(), mistakes_in_files():
        simulated.run()
    recorder = simulated.recorder
    cpu_s = time.process_time() - started
    fair_s, round_s = fair_completion_s([life.job for life in recorder.lives], perf), settings.run.round_s
    tracked = [life for life in recorder.lives if life.job.tracked]
    records = [metrics.job_record(life, fair_s[life.job.id] + round_s) for life in tracked]
    summary = metrics.summarise(
        recorder,
        records,
        rounds=simulated.rounds,
        cpu_s=cpu_s,
        policy=label_of(scenario.policy),
        placement=label_of(scenario.placement),
        seed=scenario.seed,
        watts=watts,
    )
    all_notes = [*cluster.notes, *notes, *chip_notes, *refused, *settings.policy.notes()]
    all_notes += [*_without_jobs(settings, jobs), *_without_traffic(perf), *_after_arrivals(settings, simulated)]
    all_notes += _overloaded(settings, jobs, perf)
    all_notes += metrics.dropped_sentences(recorder)
    timers = settings.placement.timer_changes_since(0)
    all_notes += metrics.timer_sentences(timers)
    all_notes += _free(settings, perf, simulated.engine.costs, summary, records)
    times, links = metrics.tier_times(recorder), simulated.link_loads
    loads = [] if links is None else links.samples
    return RunResult(summary, records, recorder.segments, shown, in_effect, all_notes, timers, times, loads)


_COLLECTED_AFTER = 50_000
"""New objects after which the garbage collector looks at them; with Python's own 700 it is at work all the time."""


@contextmanager
def _older_objects_left_alone() -> Iterator[None]:
    """The garbage collector passes over all that is there already, modules above all, and looks at new objects seldom.

    A simulation makes many objects that stay and hardly any cycles: it would walk through everything again and again.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(thresholds[0], _COLLECTED_AFTER) if thresholds[0] else 0, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def jobs_and_model(scenario: Scenario) -> tuple[list[Job], PerfModel]:
    """The jobs that ``run`` would simulate, and how fast they are; for what can be said about them without a run."""
    world = _given_world(scenario)
    values = scenario.values if world is None else world.settings | scenario.values
    settings = resolve(scenario.policy, scenario.placement, values, scenario.authors, scenario.others, scenario.seed)
    cluster = load_cluster(scenario.cluster) if world is None else world.cluster
    jobs = _load_jobs(scenario, settings, cluster)[0] if world is None else world.jobs
    classes = {job.app_class for job in jobs}
    table, _ = chips_of(scenario.variability, cluster, settings.variability, scenario.seed, classes)
    return jobs, _perf_model(scenario, settings.run, cluster, table, world)


@dataclass(frozen=True)
class Sweep:
    """Every policy with every placement and every seed, in this order.

    Without placements, every policy runs with the one that goes with it.
    """

    base: Scenario
    policies: Sequence[Choice]
    placements: Sequence[Choice]
    seeds: Sequence[int]

    @property
    def pairs(self) -> list[tuple[Choice, Choice]]:
        """Policies with their placements."""
        return [(policy, own) for policy in self.policies for own in self.placements or (placement_for(policy),)]

    def scenarios(self) -> list[Scenario]:
        names = (*self.policies, *(self.placements or map(placement_for, self.policies)))
        return [
            replace(self.base, policy=policy, placement=placement, seed=seed, others=names)
            for policy, placement in self.pairs
            for seed in self.seeds
        ]


def run_all(sweep: Sweep, workers: int | Workers = 0, done: Done = lambda: None) -> list[RunResult]:
    """Run the whole sweep; ``workers`` 0 takes all cores. Only the first seed keeps its segments, for the report."""
    return run_each([(s, s.seed == sweep.seeds[0]) for s in sweep.scenarios()], workers, done)


def run_each(
    todo: list[tuple[Scenario, bool]], workers: int | Workers = 0, done: Done = lambda: None
) -> list[RunResult]:
    """Run scenarios, each with whether to keep its segments; results in the same order."""
    from trine.core.process_pool import work_through  # a single run needs no processes

    if not isinstance(workers, int):
        return workers(_run, todo, done)
    by_value = any(not isinstance(choice, str) for s, _ in todo for choice in (s.policy, s.placement))
    return work_through(_run, todo, workers, done, by_value=by_value)


def _run(item: tuple[Scenario, bool]) -> RunResult:
    scenario, keep_segments = item
    return run(scenario, keep_segments=keep_segments)


def _check_network(settings: Settings, perf: PerfModel) -> None:
    """Links are for runs in which jobs hold their GPUs: the two other ways to pass time know no traffic."""
    if perf.network is None:
        return
    if settings.run.ideal:
        raise InputError("--set", "ideal=true with a network", "network=off, or rounds", "ideal")
    if settings.compat.round_ends_early:
        raise InputError("--set", "compat.round_ends_early with a network", "network=off", "compat.round_ends_early")


def _check_believed(settings: Settings, perf: PerfModel) -> None:
    """Beliefs are put right by the speeds of jobs that run in rounds, and concern what the model knows."""
    believed = settings.believed
    if not believed.differs:
        return
    if settings.run.ideal or settings.compat.round_ends_early:
        found = "ideal=true" if settings.run.ideal else "compat.round_ends_early"
        raise InputError("--set", f"believed.NAME with {found}", "rounds that end on the grid", "believed")
    if (believed.type_error or "type" in believed.blind) and not perf.throughputs.rates:
        raise InputError("--set", "believed speeds without step times by type", "--throughputs or --world", "believed")


def _given_world(scenario: Scenario) -> LoadedWorld | None:
    """The world, read or drawn, if there is one: it brings jobs, cluster and step times, so nothing else may."""
    if not scenario.world:
        return None
    for option in ("cluster", "trace", "workload", "format", "throughputs"):
        if getattr(scenario, option):
            raise InputError("--world", f"--{option} beside it", "one of the two: a world brings its own", option)
    misplaced = next((name for name in scenario.values if name.startswith(("trace.", "workload."))), None)
    if misplaced is not None:
        raise InputError(
            "--set", "a setting of jobs that are read or drawn, beside --world", "none: a world has jobs", misplaced
        )
    drawn = {name.removeprefix("world."): v for name, v in scenario.values.items() if name.startswith("world.")}
    if scenario.world in KINDS and not Path(scenario.world).is_dir():
        wanted: DrawnWorldSettings = build(DrawnWorldSettings, drawn, "--set", "world.")
        return drawn_world(WorldSpec(scenario.world, seed=scenario.seed, **asdict(wanted)))
    if drawn:
        expected = f"a kind to draw, {', '.join(KINDS)}, as --world, or none of these settings"
        raise InputError(
            "--set", "a setting of drawn worlds, beside a directory", expected, f"world.{next(iter(drawn))}"
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


def _load_jobs(scenario: Scenario, settings: Settings, cluster: Cluster) -> tuple[list[Job], list[str]]:
    """The jobs of a trace file or of a generated workload, and what a reader should know about them."""
    if bool(scenario.trace) == bool(scenario.workload):
        found = "both --trace and --workload" if scenario.trace else "no jobs"
        raise InputError("--trace", found, "either --trace or --workload")
    if scenario.loaded is not None:
        return _jobs_of(scenario.loaded, scenario.values, settings.trace.scale_load)
    if scenario.trace:
        return read_jobs(scenario.trace, scenario.format, settings.trace, scenario.seed)
    for name in ("columns", "since", "until", "scale_load"):
        if f"trace.{name}" in scenario.values:
            found, expected = "a part or a scale of a trace, beside --workload", "workload.jobs and workload.load"
            raise InputError("--workload", found, expected, f"trace.{name}")
    return generate_jobs(scenario.workload, settings.workload, cluster, scenario.seed)


def _jobs_of(trace: Trace, values: dict[str, Any], scale_load: float) -> tuple[list[Job], list[str]]:
    """The jobs of a trace that has been read already: only their arrivals can still be changed."""
    late = next((name for name in values if name.startswith("trace.") and name != "trace.scale_load"), None)
    if late is not None:
        found, expected = "a setting of how a trace is read, and this one has been read", "it where the trace is loaded"
        raise InputError("--trace", found, expected, late)
    return scaled(trace.jobs, scale_load), list(trace.summary.sentences)


def _perf_model(
    scenario: Scenario, run: RunSettings, cluster: Cluster, table: VariabilityTable, world: LoadedWorld | None
) -> PerfModel:
    """From the files of the scenario, or from a world, which says what each of its models sends."""
    if world is not None:
        return performance_model(run, cluster, table, world.throughputs, world.traffic)
    throughputs = load_throughputs(scenario.throughputs) if scenario.throughputs else ThroughputTable()
    return performance_model(run, cluster, table, throughputs)


def _world(
    scenario: Scenario,
    settings: Settings,
    jobs: list[Job],
    perf: PerfModel,
    keep_segments: bool,
    progress: Progress | None,
    log: DecisionLog | None,
) -> World:
    believed = believed_model(settings.believed, perf, scenario.seed)
    engine = make_engine(settings, believed, f"{scenario.seed}/placement")
    check_capacity(jobs, settings.placement, perf.cluster)
    tracked = sum(job.tracked for job in jobs)
    log_decision = None if log is None else _decision_log(engine, log)
    arriving = with_background(jobs, settings.run)
    truth = None if believed is perf else TrueSpeeds(perf, settings.believed.measured)
    if scenario.workload and settings.run.window:
        later = later_jobs(scenario.workload, settings.workload, perf.cluster, scenario.seed)
        arriving = itertools.chain(arriving, (job for job in later if perf.types_for(job)))
    return make_world(
        settings,
        engine,
        arriving,
        tracked,
        keep_segments=keep_segments,
        progress=progress,
        log=log_decision,
        truth=truth,
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
    truth: TrueSpeeds | None = None,
) -> World:
    """The world that ``settings`` describe; it runs until ``tracked`` of the arrivals have finished.

    ``truth``: how fast jobs are where the model of ``engine`` is not the world's.
    """
    recorder = Recorder(engine.cluster, keep_segments, pair_cost_part=pair_cost_part(settings.compat))
    slices = slice_clock(settings.compat, engine.perf, settings.run.round_s)
    return World(engine, arrivals, tracked, settings.run, recorder, progress, log, slices, truth)


def finish_times(settings: Settings, engine: Engine, jobs: Sequence[Job]) -> dict[str, float]:
    """Simulate ``jobs`` (in order of submission) to their end; when each finished, in seconds, by job id."""
    world = make_world(settings, engine, iter(jobs), len(jobs), keep_segments=False)
    world.run()
    return {life.job.id: life.finish_s for life in world.recorder.lives}


def _decision_log(engine: Engine, log: DecisionLog) -> Callable[[float, Decision], None]:
    """Logs every decision, and every change of the placement's timers after the start that caused it."""
    timers_logged = 0

    def write(now: float, decision: Decision) -> None:
        nonlocal timers_logged
        log(_entry(engine, now, decision))
        for change in engine.placement.timer_changes_since(timers_logged):
            timers_logged += 1
            log(_timer_entry(change))

    return write


def _timer_entry(change: TimerChange) -> dict[str, Any]:
    """The line of the decision log on a timer."""
    place = f"within one {change.tier.label}"
    reason = f"jobs of {change.gpus} GPUs wait up to {change.timer_s:.0f} s for GPUs {place} from now on."
    timer = {"demand": change.gpus, "tier": change.tier.label, "timer_s": change.timer_s}
    return {"t": change.at_s, "action": "timer", **timer, "code": "timer", "reason": reason}


def _entry(engine: Engine, now: float, decision: Decision) -> dict[str, Any]:
    """One line of the decision log."""
    job, reason = engine.table.jobs[decision.job_index], engine.reason(decision)
    gpus = list(decision.gpus) if isinstance(decision, Start) else list(engine.ownership.holding[decision.job_index])
    action = type(decision).__name__.lower()
    entry = {"t": now, "action": action, "job": job.id, "gpus": gpus, "code": reason.code.value, "reason": str(reason)}
    if isinstance(decision, Stop) and decision.for_job >= 0:
        entry["for"] = engine.table.jobs[decision.for_job].id
    if isinstance(decision, Stop) and decision.trade is not None:
        entry |= decision.trade.figures()
    return entry


def _free(
    settings: Settings, perf: PerfModel, costs: StopCosts, summary: Summary, records: Sequence[JobRecord]
) -> list[str]:
    """What happened and cost nothing, which a real cluster would charge for: stops, and gangs that span nodes."""
    run, notes = settings.run, list[str]()
    stops = summary.preemptions + summary.migrations
    if stops and not summary.lost_work_s and costs.by_model is None and not costs.restore_s:
        # Without their number, which differs by seed: a comparison says it once.
        notes.append("Stops are free: restore_s is 0, so preemptions and migrations cost no time.")
    spread = any(record.tier in ("rack", "network") for record in records)
    if spread and perf.network is None and run.locality_penalty == 1 and not (run.rack_penalty or run.class_penalty):
        notes.append("Spreading is free: locality_penalty is 1, so gangs that span nodes are not slowed down.")
    return notes


def _after_arrivals(settings: Settings, world: World) -> list[str]:
    """Jobs of a window that ran on when nothing arrived any more had less company than those before them."""
    if not settings.run.window or not world.arrivals_over:
        return []
    last_s = world.recorder.lives[-1].job.submit_s
    late = sum(life.finish_s > last_s for life in world.recorder.lives if life.job.tracked)
    if not late:
        return []
    return [
        f"{late} jobs of the window ended after the last arrival ({last_s / 3600:.1f} h), in a cluster that emptied: "
        "more jobs than are there would be needed."
    ]


def _overloaded(settings: Settings, jobs: list[Job], perf: PerfModel) -> list[str]:
    """A window of a stream that no scheduler could serve: what was measured is no steady state."""
    if not settings.run.window:
        return []
    from trine.sim.jct_bound import pooled_jobs
    from trine.sim.offered_load import offered_load

    load = offered_load(pooled_jobs(jobs, perf))
    if load <= 1.0:
        return []
    return [
        f"Jobs arrive {load:.2f} times as fast as any schedule could serve them (offered load): the queue grows with "
        "time, and averages depend on the window."
    ]


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


def record_of(scenario: Scenario) -> dict[str, Any]:
    """The record that a run of it will have, before anything is read; settings that a world brings are not in it."""
    resolved = resolve(
        scenario.policy, scenario.placement, scenario.values, scenario.authors, scenario.others, scenario.seed
    )
    return _record(scenario, resolved)


def _record(scenario: Scenario, settings: Settings) -> dict[str, Any]:
    """The settings as they took effect, for the report."""
    named = {"policy": label_of(scenario.policy), "placement": label_of(scenario.placement)}
    plain = vars(scenario) | named
    given = {k: v for k, v in plain.items() if k not in ("values", "others", "loaded") and v not in ("", ())}
    return given | {"settings": described(settings)}


def chips_of(
    source: str, cluster: Cluster, settings: VariabilitySettings, seed: int, classes: set[str]
) -> tuple[VariabilityTable, list[str]]:
    """Which chips the cluster has: slowdowns of its GPUs, and what a reader should know about them.

    ``source`` is a file (table or profile), or ``A=FILE,B=FILE ...``: records of real GPUs per class to draw from.
    """
    if not source:
        table, notes = VariabilityTable.of_cluster(cluster), list[str]()
    elif "=" in source:
        drawn_with = seed if settings.seed is None else settings.seed
        table = draw_table(_sources(source), cluster.gpu_count, drawn_with, settings.draw)
        notes = [f"Chips drawn from measurements ({settings.draw})."]
    else:
        table, notes = load_any(source, cluster, classes)
    return (table, notes) if settings.cap is None else _capped(table, settings.cap, notes)


def _sources(source: str) -> dict[str, tuple[MeasurementRecord, ...]]:
    sources: dict[str, tuple[MeasurementRecord, ...]] = {}
    for part in source.split(","):
        name, equals, path = part.partition("=")
        if not (equals and name.strip() and path.strip()) or name.strip() in sources:
            raise InputError("--variability", f"{part!r}", "a file, or CLASS=FILE once per class, separated by commas")
        sources[name.strip()] = _records(path.strip(), name.strip())
    return sources


@lru_cache(maxsize=16)
def _records(path: str, app_class: str) -> tuple[MeasurementRecord, ...]:
    """Sweeps draw from the same records again and again."""
    return tuple(read_records(path, app_class).records)


def _capped(table: VariabilityTable, cap: float, notes: list[str]) -> tuple[VariabilityTable, list[str]]:
    """GPUs slower than ``cap`` count as median ones: what is left when outliers are replaced."""
    replaced = {c: [1.0 if v > cap else v for v in table.slowdown(c)] for c in table.classes}
    count = sum(v > cap for c in table.classes for v in table.slowdown(c))
    return VariabilityTable(table.gpu_count, replaced), [*notes, f"{count} slowdowns above {cap:g} were set to 1."]
