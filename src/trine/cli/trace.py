"""``trine trace``: draw a job trace, look into one, convert one. Data on stdout, messages on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.trace_options import Columns, From, ScaleLoad, To, trace_values
from trine.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from trine.core.job import Job
    from trine.trace.generate import Arrivals
    from trine.trace.importer import ImportSummary
    from trine.trace.options import ImportOptions

app = typer.Typer(help="Look at job traces and convert them.", no_args_is_help=True)

TracePath = Annotated[Path, typer.Argument(help="Trace file, plain or gzip'ed.", show_default=False)]
FormatName = Annotated[
    str | None, typer.Option("--format", metavar="F", help="Read as this format instead of recognising it.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="group=NAME[,NAME] keeps these groups; for what the file lacks: jobs_per_h, seed, duration_s, "
        "models=draw, sensitive_share.",
    ),
]


@app.command()
def generate(
    workload: Annotated[str, typer.Argument(help="Workload name (see --list) or a table of your own, FILE.yaml.")] = "",
    jobs: Annotated[int, typer.Option("--jobs", "-n", help="Number of jobs.")] = 1000,
    gpus: Annotated[int, typer.Option("--gpus", "--cluster-size", help="GPUs of the cluster.")] = 64,
    load: Annotated[float | None, typer.Option(help="Offered load, a fraction of the cluster [default: 0.8].")] = None,
    jobs_per_h: Annotated[float | None, typer.Option(help="Mean submissions per hour, in place of --load.")] = None,
    gap_s: Annotated[float | None, typer.Option(help="Mean seconds between submissions, in place of --load.")] = None,
    arrivals: Annotated[str, typer.Option(help="poisson, diurnal or batch.")] = "poisson",
    max_gpus: Annotated[int | None, typer.Option(help="Largest job [default: the cluster].")] = None,
    start_hour: Annotated[float, typer.Option(help="Hour of the day at time 0 (diurnal).")] = 0.0,
    models: Annotated[str, typer.Option(help="Another mix of models: draw, gavel or a workload's name.")] = "",
    sensitive_share: Annotated[
        float | None, typer.Option(help="Share of gangs with a network-sensitive model.", min=0, max=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed and options, same jobs.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File to write (trine CSV).")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the workloads and where they come from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw a job trace from published distributions of job sizes, durations and arrival hours."""
    if list_:
        typer.echo(_listing(as_json))
        return
    if not workload or out is None:
        raise InputError(
            "trace generate", "no workload" if not workload else "no --out", "WORKLOAD --out FILE, or --list"
        )
    from trine.trace import write_trace
    from trine.trace.generate import generate as draw

    drawn = draw(
        workload,
        jobs=jobs,
        seed=seed,
        gpus=gpus,
        load=load,
        jobs_per_h=jobs_per_h,
        gap_s=gap_s,
        arrivals=_arrivals(arrivals),
        max_gpus=max_gpus,
        start_hour=start_hour,
        models=models,
        sensitive_share=sensitive_share,
    )
    write_trace(drawn, out)
    _report_generated(drawn, gpus, out, as_json)


@app.command("generate-world")
def generate_world(
    kind: Annotated[str, typer.Argument(help="What differs: TVN all, T types, V chips, N places.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Directory to write; it must not hold a world yet.", show_default=False)],
    load: Annotated[float, typer.Option(help="Work over capacity while jobs arrive.")] = 0.9,
    jobs: Annotated[int, typer.Option("--jobs", "-n", help="Number of jobs.")] = 1500,
    racks: Annotated[int, typer.Option(help="Racks, each of one GPU type.")] = 9,
    nodes_per_rack: Annotated[int, typer.Option(help="Nodes of a rack.")] = 8,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.")] = 4,
    congestion: Annotated[
        float | None, typer.Option(help="NICs and uplinks over their nominal bandwidth [default: that of the kind].")
    ] = None,
    round_s: Annotated[float, typer.Option("--round", help="Seconds between decisions.")] = 360.0,
    restart_s: Annotated[float, typer.Option("--restart", help="Seconds before work goes on after a stop.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Same seed and options, same bytes.")] = 1,
) -> None:
    """Draw a world directory for ``sim run --world``: a cluster with its chips and links, and jobs that feel them."""
    from trine.sim.worlds.generate import WorldSpec
    from trine.sim.worlds.generate import generate_world as draw

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("--out", f"{out} is there and not empty", "a new or an empty directory")
    shape = (jobs, racks, nodes_per_rack, gpus_per_node)
    draw(out, WorldSpec(kind, load, seed, *shape, congestion, round_s, restart_s))
    gpus = racks * nodes_per_rack * gpus_per_node
    typer.echo(f"{out}: {jobs} jobs on {gpus} GPUs; run it with: trine sim run --world {out}", err=True)


@app.command()
def info(
    path: TracePath,
    fmt: FormatName = None,
    columns: Columns = "",
    since: From = "",
    until: To = "",
    scale_load: ScaleLoad = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Count what a trace holds: rows, jobs, what is skipped or repaired and why."""
    from trine.trace.importer import inspect

    summary = inspect(path, fmt, _options(settings, columns, since, until, scale_load))
    if as_json:
        typer.echo(json.dumps(summary.as_dict(), indent=2))
        return
    for line in _table(summary):
        typer.echo(line)


@app.command()
def convert(
    path: TracePath,
    out: Annotated[
        Path, typer.Argument(help="CSV to write, gzip'ed if it ends in .gz; - for stdout.", show_default=False)
    ],
    fmt: FormatName = None,
    columns: Columns = "",
    since: From = "",
    until: To = "",
    scale_load: ScaleLoad = None,
    settings: Settings = None,
) -> None:
    """Write a trace of any known format as trine CSV."""
    from trine.trace.formats.trine import trace_csv, write_trace
    from trine.trace.importer import load

    trace = load(path, fmt, _options(settings, columns, since, until, scale_load))
    if str(out) == "-":
        typer.echo(trace_csv(trace.jobs), nl=False)
    else:
        write_trace(trace.jobs, out)
        typer.echo(f"Wrote {out}.", err=True)
    for sentence in trace.summary.sentences:
        typer.echo(sentence, err=True)


def _options(
    settings: list[str] | None, columns: str, since: str, until: str, scale_load: float | None
) -> ImportOptions:
    from trine.trace.options import ImportOptions

    pairs = [text.partition("=") for text in settings or []]
    for key, sign, _ in pairs:
        if not sign:
            raise InputError("--set", f"{key!r} without a value", "KEY=VALUE")
    given = {key.strip(): value.strip() for key, _, value in pairs}
    flags = trace_values(given, columns, since, until, scale_load)
    return ImportOptions.parse(given | {key: str(value) for key, value in flags.items()})


def _table(summary: ImportSummary) -> list[str]:
    """Names and values for people, then the sentences."""
    unknown = "only a throughput table can tell" if summary.jobs else "no jobs"
    median_s = unknown if summary.duration_p50_s is None else f"{summary.duration_p50_s:,.1f}"
    values = {
        "format": f"{summary.format} ({summary.title})",
        "rows": f"{summary.rows:,}",
        "jobs": f"{summary.jobs:,}",
        **({"submitted": " to ".join(summary.submitted)} if summary.submitted else {}),
        "span_s": f"{summary.span_s:,.1f}",
        "gpus_max": f"{summary.gpus_max:,}",
        "duration_p50_s": median_s,
    }
    if summary.groups:
        most = sorted(summary.groups.items(), key=lambda item: (-item[1], item[0]))
        values["groups"] = ", ".join(f"{name} ({jobs:,})" for name, jobs in most)
    return [f"{name:<15} {value}" for name, value in values.items()] + ["", *summary.sentences]


def _arrivals(wanted: str) -> Arrivals:
    from trine.trace.generate import ARRIVALS

    for kind in ARRIVALS:
        if kind == wanted:
            return kind
    raise unknown_name("trace generate", "kind", wanted, ARRIVALS, "--arrivals")


def _listing(as_json: bool) -> str:
    from trine.trace.generate import every_workload

    tables = every_workload()
    if as_json:
        return json.dumps({"workloads": [{"name": t.name, "title": t.title, "source": t.source} for t in tables]})
    width = max(len(table.name) for table in tables)
    return "\n".join(f"{table.name:<{width}} {table.title}\n{'':<{width}} {table.source}" for table in tables)


def _report_generated(jobs: list[Job], gpus: int, out: Path, as_json: bool) -> None:
    """What was written: JSON is data for stdout, the sentence goes to stderr."""
    from trine.trace.generate import offered_load

    span_s, load = jobs[-1].submit_s - jobs[0].submit_s, offered_load(jobs, gpus)
    if as_json:
        finite = load if span_s > 0 else None
        typer.echo(json.dumps({"jobs": len(jobs), "span_s": span_s, "load": finite, "out": str(out)}))
        return
    rate = f"over {span_s / 3600:.1f} h, load {load:.3f} of {gpus} GPUs" if span_s > 0 else "all submitted at 0"
    typer.echo(f"{out}: {len(jobs)} jobs {rate}", err=True)
