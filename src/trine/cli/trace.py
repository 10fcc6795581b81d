"""``trine trace info`` and ``trine trace convert``: parse, call, print. Data on stdout, talk on stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.generate import generate

if TYPE_CHECKING:
    from trine.trace.importer import ImportSummary
    from trine.trace.options import ImportOptions

app = typer.Typer(help="Look at job traces and convert them.", no_args_is_help=True)
app.command("generate")(generate)

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
def info(
    path: TracePath,
    fmt: FormatName = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Count what a trace holds: rows, jobs, what is skipped or repaired and why."""
    from trine.trace.importer import inspect

    summary = inspect(path, fmt, _options(settings))
    if as_json:
        import json

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
    settings: Settings = None,
) -> None:
    """Write a trace of any known format as trine CSV."""
    from trine.trace.formats.trine import trace_csv, write_trace
    from trine.trace.importer import load

    trace = load(path, fmt, _options(settings))
    if str(out) == "-":
        typer.echo(trace_csv(trace.jobs), nl=False)
    else:
        write_trace(trace.jobs, out)
        typer.echo(f"Wrote {out}.", err=True)
    for sentence in trace.summary.sentences:
        typer.echo(sentence, err=True)


def _options(settings: list[str] | None) -> ImportOptions:
    from trine.core.errors import InputError
    from trine.trace.options import ImportOptions

    pairs = [text.partition("=") for text in settings or []]
    for key, sign, _ in pairs:
        if not sign:
            raise InputError("--set", f"{key!r} without a value", "KEY=VALUE")
    return ImportOptions.parse({key.strip(): value.strip() for key, _, value in pairs})


def _table(summary: ImportSummary) -> list[str]:
    """Names and values for people, then the sentences."""
    median_s = (
        "only a throughput table can tell" if summary.duration_p50_s is None else f"{summary.duration_p50_s:,.1f}"
    )
    values = {
        "format": f"{summary.format} ({summary.title})",
        "rows": f"{summary.rows:,}",
        "jobs": f"{summary.jobs:,}",
        "span_s": f"{summary.span_s:,.1f}",
        "gpus_max": f"{summary.gpus_max:,}",
        "duration_p50_s": median_s,
    }
    if summary.groups:
        most = sorted(summary.groups.items(), key=lambda item: (-item[1], item[0]))
        values["groups"] = ", ".join(f"{name} ({jobs:,})" for name, jobs in most)
    return [f"{name:<15} {value}" for name, value in values.items()] + ["", *summary.sentences]
