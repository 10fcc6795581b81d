"""``trine sim run`` and ``trine sim compare``: parse, call, print. Data on stdout, talk on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.trace_options import Columns, From, ScaleLoad, To, trace_values

if TYPE_CHECKING:
    from trine.core.result import Metric, RunResult
    from trine.experiment.scenarios import Inputs
    from trine.report.compare import Comparison

app = typer.Typer(help="Simulate a trace or a generated workload on a cluster.", no_args_is_help=True)

PresetName = Annotated[
    str,
    typer.Option("--preset", metavar="NAME", help="Start from a named scenario (see `trine presets`) or a YAML file."),
]
TracePath = Annotated[str, typer.Option("--trace", metavar="PATH", help="Job trace, plain or gzip'ed.")]
FormatName = Annotated[
    str, typer.Option("--format", metavar="F", help="Read the trace as this format instead of recognising it.")
]
WorkloadName = Annotated[
    str,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="Generate jobs instead of reading a trace (see `trine trace generate --list`).",
    ),
]
WorldDir = Annotated[
    str,
    typer.Option(
        "--world",
        metavar="DIR",
        help="A directory with cluster.json, gpus.csv and jobs.csv, in place of --trace and --cluster; or TVN, T, V, N "
        "to draw one.",
    ),
]
ClusterSpec = Annotated[
    str,
    typer.Option("--cluster", metavar="SPEC", help="16x4, v100=8x1,p100=16x1, a YAML file or a public cluster file."),
]
Variability = Annotated[
    str, typer.Option("--variability", metavar="CSV", help="Slowdown per GPU and application class.")
]
Throughputs = Annotated[
    str, typer.Option("--throughputs", metavar="JSON", help="Steps per second by model and GPU type.")
]
Prices = Annotated[
    str,
    typer.Option(
        "--prices",
        metavar="SPEC",
        help="Per GPU and hour, instead of those of the cluster: v100=2.5,k80=0.5, gavel-spot, or a CSV of changes.",
    ),
]
Policies = Annotated[str, typer.Option("--policies", metavar="A,B", help="Policies to compare.")]
Placements = Annotated[
    str,
    typer.Option(
        "--placements",
        metavar="X,Y",
        help="Placements to compare.  [default: for each policy the one that goes with it]",
    ),
]
Seeds = Annotated[
    str, typer.Option("--seeds", metavar="0..9", help="A range or a list; a single number is that one seed.")
]
WorkerCount = Annotated[
    str,
    typer.Option(
        "--workers",
        metavar="N|slurm",
        help="Processes, 0 = all cores; or slurm: the simulations as jobs of that cluster, resumable.",
    ),
]
Policy = Annotated[
    str, typer.Option("--policy", metavar="P", help="See `trine policies`; or a Python file.  [default: trine]")
]
Placement = Annotated[
    str,
    typer.Option(
        "--placement",
        metavar="L",
        help="See `trine placements`; or a Python file.  [default: the one that goes with the policy]",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of everything random.")]
Decisions = Annotated[
    Path | None,
    typer.Option("--decisions", metavar="FILE", help="Write every decision with its reason, a JSON line each."),
]
Round = Annotated[float | None, typer.Option("--round", metavar="S", help="Seconds between decisions.")]
EventDriven = Annotated[
    bool, typer.Option("--event-driven", help="Decide at every arrival and completion instead of in rounds.")
]
Penalty = Annotated[
    float | None, typer.Option("--locality-penalty", metavar="X", help="Slowdown of a gang that spans nodes.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting or parameter; may be repeated."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the results and report.html there.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what is in --out even if it is of other jobs, another policy or seed."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="A,B",
        help="Show these keys of the summary, or what several begin with: jct, rho, bounded_slowdown, gpu_h.",
    ),
]


Swept = tuple[tuple[str, ...], tuple[str, ...], Sequence[int]]
"""Policies, placements and seeds of a comparison."""


@app.command("run")
def run_one(
    context: typer.Context,
    preset: PresetName = "",
    trace: TracePath = "",
    fmt: FormatName = "",
    columns: Columns = "",
    since: From = "",
    until: To = "",
    scale_load: ScaleLoad = None,
    workload: WorkloadName = "",
    cluster: ClusterSpec = "",
    world: WorldDir = "",
    policy: Policy = "",
    placement: Placement = "",
    round_s: Round = None,
    event_driven: EventDriven = False,
    seed: Seed = 0,
    variability: Variability = "",
    throughputs: Throughputs = "",
    prices: Prices = "",
    locality_penalty: Penalty = None,
    sets: Sets = None,
    metrics: Metrics = "",
    out: Out = None,
    overwrite: Overwrite = False,
    decisions: Decisions = None,
    as_json: AsJson = False,
) -> None:
    """Simulate one policy with one placement."""
    from trine.cli.progress_bar import ProgressBar
    from trine.core.result import Summary
    from trine.experiment.onlooker import recorded
    from trine.experiment.run import run_simulation
    from trine.experiment.scenarios import make_scenario
    from trine.report.files import check_out, require_files, run_title
    from trine.sim.scenario import record_of

    values = _values(sets, round_s, event_driven, locality_penalty)
    values |= trace_values(values, columns, since, until, scale_load)
    inputs = _inputs(preset, trace, fmt, workload, cluster, world, variability, throughputs, prices, values)
    shown = Summary.chosen(_names(metrics))
    if out:
        scenario = make_scenario(inputs, policy, placement, seed)
        require_files()
        replaced = check_out(out, run_title(scenario.policy, scenario.placement, seed, record_of(scenario)), overwrite)
    with recorded(out) as record:
        with ProgressBar(0, "simulating") as bar, decision_log(decisions) as log:
            done = run_simulation(
                inputs,
                policy,
                placement,
                seed,
                keep_timeline=out is not None,
                progress=bar.advance,
                log=log,
                onlooker=record,
            )
        if out:
            done.save(out, command_line(context))
            done.notes.extend([replaced] if replaced else [])
    _print_run(done.result, shown, out, as_json)


@app.command("compare")
def compare(
    context: typer.Context,
    preset: PresetName = "",
    trace: TracePath = "",
    fmt: FormatName = "",
    columns: Columns = "",
    since: From = "",
    until: To = "",
    scale_load: ScaleLoad = None,
    workload: WorkloadName = "",
    cluster: ClusterSpec = "",
    world: WorldDir = "",
    policies: Policies = "",
    placements: Placements = "",
    seeds: Seeds = "",
    workers: WorkerCount = "0",
    round_s: Round = None,
    event_driven: EventDriven = False,
    variability: Variability = "",
    throughputs: Throughputs = "",
    prices: Prices = "",
    locality_penalty: Penalty = None,
    sets: Sets = None,
    metrics: Metrics = "",
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Simulate several policies, placements and seeds side by side: one table, one report."""
    from trine.cli.progress_bar import ProgressBar
    from trine.cli.workers import workers_of
    from trine.core.result import Summary
    from trine.experiment.run import run_comparison
    from trine.experiment.scenarios import parse_seeds

    values = _values(sets, round_s, event_driven, locality_penalty)
    values |= trace_values(values, columns, since, until, scale_load)
    files = (preset, trace, cluster, world, variability, throughputs, prices, *_names(policies), *_names(placements))
    chosen_workers = workers_of(workers, values, files, out)
    inputs = _inputs(preset, trace, fmt, workload, cluster, world, variability, throughputs, prices, values)
    shown = Summary.chosen(_names(metrics))
    swept = _names(policies), _names(placements), parse_seeds(seeds) if seeds else ()
    replaced = _replaced_by(inputs, swept, out, overwrite) if out else ""
    with ExitStack() as stack:
        done = run_comparison(
            inputs,
            *swept,
            workers=chosen_workers,
            count=lambda runs: stack.enter_context(ProgressBar(runs, "simulating")).advance,
        )
    comparison = done.compared
    comparison.notes.extend(_one_seed_note(seeds))
    if out:
        done.save(out, command_line(context))
        comparison.notes.extend([replaced] if replaced else [])
    _print_comparison(comparison, shown, out, as_json)


def _replaced_by(inputs: Inputs, swept: Swept, out: Path, overwrite: bool) -> str:
    """What the results of a comparison will replace, in a sentence; ``InputError`` before anything is simulated."""
    from trine.experiment.scenarios import make_sweep
    from trine.report.files import check_out, comparison_title
    from trine.report.page import require_page
    from trine.sim.scenario import record_of

    sweep = make_sweep(inputs, *swept)
    placed = list(dict.fromkeys(placement for _, placement in sweep.pairs))
    title = comparison_title(sweep.policies, placed, sweep.seeds, record_of(sweep.scenarios()[0]))
    replaced = check_out(out, title, overwrite)
    require_page()
    return replaced


_NOT_OF_THE_RESULT = frozenset({"out", "overwrite", "workers", "as_json", "decisions", "metrics"})
"""Options that change where results go, not what they are: left out of the command that a page names."""


def command_line(context: typer.Context) -> str:
    """The command as it was given, for the page: options in the order of the help, so that equal runs name it alike."""
    import shlex

    from trine.cli.workers import ENGINE_SETTING

    words = context.command_path.split()
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in _NOT_OF_THE_RESULT or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append(option.opts[0])
            continue
        for single in value if isinstance(value, list | tuple) else [value]:
            if not str(single).startswith(ENGINE_SETTING):  # of the workers
                words += [option.opts[0], str(single)]
    return shlex.join(words)


def _one_seed_note(seeds: str) -> list[str]:
    """A single number is often meant as how many."""
    number = seeds.strip()
    if not number.isdecimal() or int(number) < 2:
        return []
    return [f"--seeds {number} is the one seed {number}; {number} seeds are --seeds 0..{int(number) - 1}."]


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _values(sets: list[str] | None, round_s: float | None, event_driven: bool, penalty: float | None) -> dict[str, Any]:
    """What the flags and ``--set`` say, by name."""
    from trine.assembly.settings import parse_pairs
    from trine.core.errors import InputError

    flags: dict[str, Any] = {}
    if round_s is not None:
        flags["round_s"] = round_s
    if event_driven:
        flags["event_driven"] = True
    if penalty is not None:
        flags["locality_penalty"] = penalty
    pairs = parse_pairs(sets or [])
    for name, flag in (
        ("round_s", "--round"),
        ("event_driven", "--event-driven"),
        ("locality_penalty", "--locality-penalty"),
    ):
        if name in flags and name in pairs:
            raise InputError("--set", f"{name} beside {flag}", "one of the two", name)
    return flags | pairs


def _inputs(
    preset: str,
    trace: str,
    fmt: str,
    workload: str,
    cluster: str,
    world: str,
    variability: str,
    throughputs: str,
    prices: str,
    values: dict[str, Any],
) -> Inputs:
    from trine.experiment.scenarios import Inputs

    return Inputs(
        preset=preset,
        trace=trace,
        format=fmt,
        workload=workload,
        cluster=cluster,
        world=world,
        variability=variability,
        throughputs=throughputs,
        prices=prices,
        values=values,
    )


@contextmanager
def decision_log(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A function that writes one decision to ``path``, a JSON line each, or ``None`` if no log is wanted.

    A run that fails leaves no file.
    """
    import json

    from trine.core.atomic_file import atomic_stream
    from trine.core.errors import InputError

    if path is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(atomic_stream(path))
        except OSError as error:
            found = f"cannot be written ({error.strerror})"
            raise InputError(str(path), found, "a file in a folder that exists") from None

        def log(entry: dict[str, Any]) -> None:
            stream.write(f"{json.dumps(entry)}\n".encode())

        yield log


def _print_run(result: RunResult, metrics: Sequence[Metric], out: Path | None, as_json: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(_selected(result.summary.as_dict(), metrics)))
    else:
        from trine.cli.tables import run_lines

        for line in run_lines(result, metrics):
            typer.echo(line)
    _print_notes(result.notes, out)


def _selected(values: dict[str, Any], metrics: Sequence[Metric]) -> dict[str, Any]:
    """The chosen metrics and what tells the run apart; all values if none are chosen."""
    kept = {metric.key for metric in metrics} | {"policy", "placement", "seed"}
    return {key: value for key, value in values.items() if key in kept} if metrics else values


def _print_comparison(comparison: Comparison, metrics: Sequence[Metric], out: Path | None, as_json: bool) -> None:
    from trine.report.compare import as_dict, comparison_table, headline

    if as_json:
        import json

        typer.echo(json.dumps(as_dict(comparison, metrics)))
    else:
        from trine.cli.tables import print_table

        print_table(comparison_table(comparison, metrics))
        typer.echo(headline(comparison))
    _print_notes(comparison.notes, out)


def _print_notes(notes: Sequence[str], out: Path | None) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if out:
        typer.echo(f"report: {out / 'report.html'}", err=True)
