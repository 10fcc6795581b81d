"""``trine sim run`` and ``trine sim compare``: parse, call, print. Data on stdout, talk on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.trace_options import Columns, From, ScaleLoad, To, trace_values

if TYPE_CHECKING:
    from trine.core.result import RunResult
    from trine.inputs.preset import Preset
    from trine.report.compare import Comparison
    from trine.sim.scenario import Scenario, Sweep

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
    bool, typer.Option("--overwrite", help="Replace what is in --out even if it is of another policy or seed.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]


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
    policy: Annotated[
        str, typer.Option("--policy", metavar="P", help="See `trine policies`; or a Python file.  [default: trine]")
    ] = "",
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            metavar="L",
            help="See `trine placements`; or a Python file.  [default: the one that goes with the policy]",
        ),
    ] = "",
    round_s: Round = None,
    event_driven: EventDriven = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of everything random.")] = 0,
    variability: Variability = "",
    throughputs: Throughputs = "",
    prices: Prices = "",
    locality_penalty: Penalty = None,
    sets: Sets = None,
    out: Out = None,
    overwrite: Overwrite = False,
    decisions: Annotated[
        Path | None,
        typer.Option("--decisions", metavar="FILE", help="Write every decision with its reason, a JSON line each."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate one policy with one placement."""
    from trine.cli.progress_bar import ProgressBar
    from trine.report.files import check_out, require_files, run_title, write_run
    from trine.sim.scenario import run

    values = _values(sets, round_s, event_driven, locality_penalty)
    values |= trace_values(values, columns, since, until, scale_load)
    chosen = _preset(preset)
    scenario = _scenario(chosen, values, trace, fmt, workload, cluster, world, variability, throughputs, prices)
    scenario = _with(scenario, policy or chosen.policy, placement or chosen.placement, seed)
    if out:
        replaced = check_out(out, run_title(scenario.policy, scenario.placement, seed), overwrite)
        require_files()
    with ProgressBar(0, "simulating") as bar, decision_log(decisions) as log:
        result = run(scenario, keep_segments=out is not None, progress=bar.advance, log=log)
    if out:
        write_run(result, out, command_line(context))
        result.notes.extend([replaced] if replaced else [])
    _print_run(result, out, as_json)


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
    policies: Annotated[str, typer.Option("--policies", metavar="A,B", help="Policies to compare.")] = "",
    placements: Annotated[
        str,
        typer.Option(
            "--placements",
            metavar="X,Y",
            help="Placements to compare.  [default: for each policy the one that goes with it]",
        ),
    ] = "",
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="0..9", help="A range or a list; a single number is that one seed.")
    ] = "",
    workers: Annotated[
        str,
        typer.Option(
            "--workers",
            metavar="N|slurm",
            help="Processes, 0 = all cores; or slurm: the simulations as jobs of that cluster, resumable.",
        ),
    ] = "0",
    round_s: Round = None,
    event_driven: EventDriven = False,
    variability: Variability = "",
    throughputs: Throughputs = "",
    prices: Prices = "",
    locality_penalty: Penalty = None,
    sets: Sets = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Simulate several policies, placements and seeds side by side: one table, one report."""
    from trine.assembly.registry import DEFAULT_POLICY
    from trine.cli.progress_bar import ProgressBar
    from trine.cli.workers import workers_of
    from trine.report.compare import Comparison
    from trine.report.files import check_out, comparison_title, write_comparison
    from trine.report.page import require_page
    from trine.sim.scenario import Sweep, run_all

    values = _values(sets, round_s, event_driven, locality_penalty)
    values |= trace_values(values, columns, since, until, scale_load)
    chosen = _preset(preset)
    base = _scenario(chosen, values, trace, fmt, workload, cluster, world, variability, throughputs, prices)
    sweep = Sweep(
        base,
        _different("--policies", policies) or chosen.policies or (chosen.policy or DEFAULT_POLICY,),
        _different("--placements", placements) or chosen.placements or _names(chosen.placement),
        parse_seeds(seeds or chosen.seeds or "0"),
    )
    chosen_workers = workers_of(workers, base.values, sweep, out)
    if out:
        replaced = check_out(out, comparison_title(sweep.policies, _swept_placements(sweep), sweep.seeds), overwrite)
        require_page()
    with ProgressBar(len(sweep.scenarios()), "simulating") as bar:
        results = run_all(sweep, chosen_workers, bar.advance)
    comparison = Comparison.of(results, _common_settings(sweep, results[0]))
    if len(sweep.seeds) > 1 and _seeds_change_nothing(comparison):
        comparison.notes.append("The trace is fixed and nothing is drawn at random: all seeds give the same runs.")
    comparison.notes.extend(_one_seed_note(seeds))
    if out:
        write_comparison(comparison, out, command_line(context))
        comparison.notes.extend([replaced] if replaced else [])
    _print_comparison(comparison, out, as_json)


_NOT_OF_THE_RESULT = frozenset({"out", "overwrite", "workers", "as_json", "decisions"})
"""Options that change where results go, not what they are: left out of the command that a page names."""


def command_line(context: typer.Context) -> str:
    """The command as it was given, for the page: options in the order of the help, so that equal runs name it alike."""
    import shlex

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
            words += [option.opts[0], str(single)]
    return shlex.join(words)


def _one_seed_note(seeds: str) -> list[str]:
    """A single number is often meant as how many."""
    number = seeds.strip()
    if not number.isdecimal() or int(number) < 2:
        return []
    return [f"--seeds {number} is the one seed {number}; {number} seeds are --seeds 0..{int(number) - 1}."]


def _common_settings(sweep: Sweep, first: RunResult) -> dict[str, Any]:
    """What all runs of the sweep share, and what it went through."""
    given = {k: v for k, v in first.settings.items() if k not in ("policy", "placement", "seed", "settings")}
    shared = {k: v for k, v in first.settings["settings"].items() if k not in ("policy", "placement")}
    names = {"policies": list(sweep.policies), "placements": _swept_placements(sweep)}
    return given | names | {"seeds": list(sweep.seeds), "settings": shared}


def _swept_placements(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys(placement for _, placement in sweep.pairs))


def _seeds_change_nothing(comparison: Comparison) -> bool:
    return all(
        len({row.results["jct_mean_s"] for row in comparison.rows_of(contender)}) == 1
        for contender in comparison.contenders
    )


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0..9`` or ``0,3,7``."""
    from trine.core.errors import InputError

    try:
        first, dots, last = text.partition("..")
        seeds = tuple(range(int(first), int(last) + 1)) if dots else tuple(int(part) for part in _names(text))
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(
            "--seeds", f"{text!r}", "a range such as 0..9 or a list of different whole numbers such as 0,1,2"
        )
    return seeds


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _different(option: str, text: str) -> tuple[str, ...]:
    """Names for a sweep; one given twice would count as another seed."""
    from trine.core.errors import InputError

    names = _names(text)
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(option, f"{twice[0]!r} twice", "each name once")
    return names


def _preset(name: str) -> Preset:
    from trine.inputs.preset import Preset, load_preset

    return load_preset(name) if name else Preset("", "")


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


def _scenario(
    preset: Preset,
    values: dict[str, Any],
    trace: str,
    fmt: str,
    workload: str,
    cluster: str,
    world: str,
    variability: str,
    throughputs: str,
    prices: str,
) -> Scenario:
    """The preset with the flags on top; a trace given by flag replaces the preset's workload and vice versa."""
    from trine.core.errors import InputError
    from trine.sim.scenario import Scenario

    if preset.world and not (world or trace or workload or cluster):
        world = preset.world
    if world:
        base = Scenario(cluster, trace=trace, format=fmt, workload=workload, world=world, throughputs=throughputs)
        return _in_world(base, preset, values, variability, prices)
    spec = cluster or preset.cluster
    if not spec:
        raise InputError(
            "--cluster",
            "nothing",
            "nodes x GPUs such as 16x4, or a YAML file; or a --preset that names one, or --world",
        )
    given = bool(trace or workload)
    if not given and not (preset.trace or preset.workload):
        raise InputError("--trace", "nothing", "a job trace, or --workload NAME")
    return Scenario(
        cluster=spec,
        trace=trace if given else preset.trace,
        format=fmt or (preset.format if trace or not given else ""),
        workload=workload if given else preset.workload,
        variability=variability,
        throughputs=throughputs or preset.throughputs,
        prices=prices or preset.prices,
        authors=preset.authors,
        values={k: v for k, v in preset.settings.items() if not k.startswith("world.")} | values,
    )


def _in_world(base: Scenario, preset: Preset, values: dict[str, Any], variability: str, prices: str) -> Scenario:
    """The world in place of the preset's jobs and cluster; settings of those jobs are left out with them."""
    from dataclasses import replace

    left_out = ("trace.", "workload.") if base.world == preset.world else ("trace.", "workload.", "world.")
    settings = {k: v for k, v in preset.settings.items() if not k.startswith(left_out)}
    return replace(
        base,
        variability=variability,
        prices=prices or preset.prices,
        authors=preset.authors,
        values=settings | values,
    )


def _with(scenario: Scenario, policy: str, placement: str, seed: int) -> Scenario:
    """What is not named is trine, and the placement that goes with the policy."""
    from dataclasses import replace

    from trine.assembly.registry import DEFAULT_POLICY, placement_for

    policy = policy or DEFAULT_POLICY
    return replace(scenario, policy=policy, placement=placement or placement_for(policy), seed=seed)


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


def _print_run(result: RunResult, out: Path | None, as_json: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(result.summary.as_dict()))
    else:
        from trine.cli.tables import run_lines

        for line in run_lines(result):
            typer.echo(line)
    _print_notes(result.notes, out)


def _print_comparison(comparison: Any, out: Path | None, as_json: bool) -> None:
    from trine.report.compare import as_dict, comparison_table, headline

    if as_json:
        import json

        typer.echo(json.dumps(as_dict(comparison)))
    else:
        from trine.cli.tables import print_table

        print_table(comparison_table(comparison))
        typer.echo(headline(comparison))
    _print_notes(comparison.notes[:5], out)


def _print_notes(notes: Sequence[str], out: Path | None) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if out:
        typer.echo(f"report: {out / 'report.html'}", err=True)
