"""Runs and comparisons: ``simulate``, ``compare`` and ``load_trace`` for Python, and what the command line calls.

``run_simulation`` and ``run_comparison`` take checked inputs; the public functions translate arguments and errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from trine.assembly.choices import Choice
from trine.core.errors import InputError
from trine.core.result import RunResult
from trine.experiment.arguments import (
    ONE_RUN,
    SEVERAL_RUNS,
    MoreInputs,
    PathText,
    as_count,
    as_list,
    as_seeds,
    as_text,
    errors_of_arguments,
    make_inputs,
    setting_values,
    trace_arguments,
    trace_settings,
)
from trine.experiment.results import Comparison, Point, Simulation
from trine.experiment.scenarios import Inputs, make_scenario, make_sweep
from trine.report.compare import Comparison as ComparisonOfRuns
from trine.sim.scenario import DecisionLog, Onlooker, Progress, Sweep, Workers, run, run_each
from trine.trace import ImportOptions, Trace
from trine.trace import load as read_trace

LOAD = "load"
"""The column that tells the loads of a comparison apart."""
LOAD_SETTINGS = ("workload.load", "trace.scale_load")
"""What a load is of generated jobs, and of those of a trace."""


def simulate(
    trace: PathText | Trace = "",
    *,
    cluster: PathText = "",
    policy: Choice = "",
    placement: Choice = "",
    seed: int = 0,
    workload: str = "",
    world: PathText = "",
    preset: PathText = "",
    settings: Mapping[str, Any] | None = None,
    **more: Unpack[MoreInputs],
) -> Simulation:
    """Simulate one policy with one placement.

    ``trace`` is a file of any known format or what ``load_trace`` returned; ``workload`` names a generator instead, and
    ``world`` a directory that holds jobs and cluster. ``policy`` and ``placement`` are names, Python files, classes or
    objects. ``settings`` are those of ``--set``: ``{"round_s": 60, "workload.jobs": 200}``.
    """
    with errors_of_arguments(trace_arguments(more)):
        inputs = make_inputs(trace, cluster, workload, world, preset, settings, more, known=ONE_RUN)
        return run_simulation(inputs, policy, placement, as_count("seed", seed))


def compare(
    trace: PathText | Trace = "",
    *,
    cluster: PathText = "",
    policies: Iterable[Choice] = (),
    placements: Iterable[Choice] = (),
    seeds: Iterable[int] = (),
    loads: Iterable[float] = (),
    sweep: Mapping[str, Iterable[Any]] | None = None,
    workers: int = 0,
    workload: str = "",
    world: PathText = "",
    preset: PathText = "",
    settings: Mapping[str, Any] | None = None,
    **more: Unpack[MoreInputs],
) -> Comparison:
    """Simulate several policies and placements with several seeds side by side.

    ``loads`` repeats all of it at several loads: of a generated workload the offered GPU-seconds per second as a
    fraction of the cluster, of a trace the factor by which its gaps are divided. ``sweep`` repeats it with several
    values of settings: ``{"round_s": [60, 300]}``. ``workers`` are processes, 0 for as many as there are cores.
    """
    with errors_of_arguments():
        choices, several_loads = setting_values(sweep, "sweep"), as_list("loads", loads)
    by_load = dict.fromkeys(LOAD_SETTINGS, "loads") if several_loads else {}
    by_sweep = {name: f"sweep[{name!r}]" for name in choices}
    with errors_of_arguments(trace_arguments(more) | by_load | by_sweep):
        inputs = make_inputs(trace, cluster, workload, world, preset, settings, more, known=SEVERAL_RUNS)
        swept = {name: as_list(by_sweep[name], values) for name, values in choices.items()}
        return run_comparison(
            inputs,
            as_list("policies", policies),
            as_list("placements", placements),
            as_seeds(seeds),
            loads=several_loads,
            swept=swept,
            workers=as_count("workers", workers),
        )


def load_trace(
    path: PathText,
    format: str = "",  # noqa: A002 - the word that the command line has
    *,
    columns: Mapping[str, str] | None = None,
    since: float | str = "",
    until: float | str = "",
    scale_load: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Trace:
    """Read a job trace of any known format, or any table by its ``columns``.

    ``since`` and ``until`` keep jobs submitted in between (seconds of the trace, or dates), ``scale_load`` divides the
    gaps between submissions. ``settings`` are those of ``trine trace``: ``{"group": "vc1", "jobs_per_h": 20}``.
    """
    given = {"columns": columns, "since": since, "until": until, "scale_load": scale_load}
    with errors_of_arguments({name: name for name, value in given.items() if value not in (None, "")}):
        values = setting_values(settings) | trace_settings(given)
        options = ImportOptions.parse({name: _import_text(value) for name, value in values.items()})
        return read_trace(as_text("path", path), format or None, options)


def _import_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def run_simulation(
    inputs: Inputs,
    policy: Choice = "",
    placement: Choice = "",
    seed: int = 0,
    *,
    keep_timeline: bool = True,
    progress: Progress | None = None,
    log: DecisionLog | None = None,
    onlooker: Onlooker | None = None,
) -> Simulation:
    """One run. Without its timeline it takes less memory; ``log`` gets every decision, ``onlooker`` follows the run."""
    scenario = make_scenario(inputs, policy, placement, seed)
    return Simulation(run(scenario, keep_segments=keep_timeline, progress=progress, log=log, onlooker=onlooker))


def run_comparison(
    inputs: Inputs,
    policies: Sequence[Choice],
    placements: Sequence[Choice],
    seeds: Sequence[int],
    *,
    loads: Sequence[float] = (),
    swept: Mapping[str, Sequence[Any]] | None = None,
    workers: int | Workers = 0,
    count: Callable[[int], Callable[[], None]] | None = None,
) -> Comparison:
    """All runs of a sweep, at every load and for every value of the settings that are swept.

    ``count`` gets the number of runs and returns what is called after each of them.
    """
    points = _points(inputs, loads, swept or {})
    sweeps = [make_sweep(replace(inputs, values=values), policies, placements, seeds) for _, values in points]
    todo = [(scenario, scenario.seed == s.seeds[0]) for s in sweeps for scenario in s.scenarios()]
    results = run_each(todo, workers, count(len(todo)) if count else lambda: None)
    each = len(todo) // len(points)
    parts = [results[at : at + each] for at in range(0, len(todo), each)]
    return Comparison(
        [Point(where, _compared(s, part), part) for (where, _), s, part in zip(points, sweeps, parts, strict=True)]
    )


def _points(
    inputs: Inputs, loads: Sequence[float], swept: Mapping[str, Sequence[Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What tells the parts of a comparison apart, and the settings of each; one part without loads and sweeps."""
    names = {name: (name, values) for name, values in swept.items()}
    if loads:
        names = {LOAD: (_load_setting(inputs), loads)} | names
    twice = next((key for key, _ in names.values() if key in inputs.values), None)
    if twice is not None:
        raise InputError("settings", f"{twice} beside several values of it", "one of the two", twice)
    if any(not values for _, values in names.values()):
        raise InputError("sweep", "a setting without values", "at least one value each")
    found = []
    for values in itertools.product(*(choices for _, choices in names.values())):
        where = dict(zip(names, values, strict=True))
        found.append((where, {**inputs.values, **{names[name][0]: value for name, value in where.items()}}))
    return found


def _load_setting(inputs: Inputs) -> str:
    if inputs.world:
        raise InputError("loads", "loads beside a world", "a trace or a workload: the jobs of a world are as they are")
    generated = inputs.workload or (not inputs.trace and inputs.chosen_preset().workload)
    return LOAD_SETTINGS[0 if generated else 1]


def _compared(sweep: Sweep, results: list[RunResult]) -> ComparisonOfRuns:
    comparison = ComparisonOfRuns.of(results, _common_settings(sweep, results))
    if len(sweep.seeds) > 1 and _seeds_change_nothing(comparison):
        comparison.notes.append("The trace is fixed and nothing is drawn at random: all seeds give the same runs.")
    return comparison


def _common_settings(sweep: Sweep, results: list[RunResult]) -> dict[str, Any]:
    """What all runs of the sweep share, and what it went through."""
    first = results[0].settings
    given = {k: v for k, v in first.items() if k not in ("policy", "placement", "seed", "settings")}
    shared = {k: v for k, v in first["settings"].items() if k not in ("policy", "placement")}
    policies = list(dict.fromkeys(result.summary.policy for result in results))
    placements = list(dict.fromkeys(result.summary.placement for result in results))
    swept = {"policies": policies, "placements": placements, "seeds": list(sweep.seeds)}
    return given | swept | {"settings": shared}


def _seeds_change_nothing(comparison: ComparisonOfRuns) -> bool:
    return all(
        len({row.results["jct_mean_s"] for row in comparison.rows_of(contender)}) == 1
        for contender in comparison.contenders
    )
