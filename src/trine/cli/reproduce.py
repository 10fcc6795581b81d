"""``trine reproduce``: a paper's experiments again, published / reference / ours side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from trine.reproduce.checks import Reproduction
    from trine.reproduce.panels import PlottedReproduction

    Bar = Callable[[int], Callable[[], None]]

app = typer.Typer(help="Run the experiments of a paper again and compare.", no_args_is_help=True)

MARKS = {True: "ok", False: "OUTSIDE", None: ""}
DataDir = Annotated[
    str, typer.Option("--data", metavar="DIR", help="Folder that holds the public traces/ and hardware/.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds and points: a minute or two instead of many.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", help="Processes; 0 = all cores.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write report.html with tables and plots there.")
]


@app.command()
def pal(
    data: DataDir = "data", quick: Quick = False, workers: Workers = 0, as_json: AsJson = False, out: Out = None
) -> None:
    """PAL (SC'24): 64 GPUs, locality sweep, 256 GPUs under load, and where the gain comes from."""
    from trine.cli.progress_bar import ProgressBar
    from trine.report.page import require_page
    from trine.reproduce.page import write_page
    from trine.reproduce.pal import reproduce

    if out:
        require_page()
    with ProgressBar(0, "simulating") as bar:
        found = reproduce(data, quick=quick, workers=workers, done=bar.advance)
    if out:
        write_page(found, out)
    _print_results(found, as_json, out)


def _run_plotted(run: Callable[[Bar], PlottedReproduction], out: Path | None) -> PlottedReproduction:
    """Carry out ``run``, which makes a progress bar for a number of simulations, and write the page if asked for."""
    from contextlib import ExitStack

    from trine.cli.progress_bar import ProgressBar
    from trine.report.page import require_page
    from trine.reproduce.panels import write_page

    if out:
        require_page()
    with ExitStack() as stack:
        found = run(lambda runs: stack.enter_context(ProgressBar(runs, "simulating")).advance)
    if out:
        write_page(found, out)
    return found


@app.command()
def gavel(
    data: DataDir = "data", quick: Quick = False, workers: Workers = 0, as_json: AsJson = False, out: Out = None
) -> None:
    """Gavel (OSDI'20): physical traces, continuous and static workloads, priorities, cost, SLOs, entities, solver."""
    from trine.reproduce.gavel import reproduce

    found = _run_plotted(lambda progress: reproduce(data, quick=quick, workers=workers, progress=progress), out)
    _print_results(found, as_json, out, by_experiment=True)


@app.command()
def dally(
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="Folder that holds the public traces/; none: no Philly trace.")
    ] = "",
    quick: Quick = False,
    workers: Workers = 0,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Dally (arXiv 2401.16492): waiting for GPUs close together against policies that do not, and where it pays."""
    from trine.reproduce.dally import reproduce

    found = _run_plotted(lambda progress: reproduce(data, quick=quick, workers=workers, progress=progress), out)
    if not as_json:
        _print_tables(found)
    _print_results(found, as_json, out, by_experiment=True)


def _print_tables(found: PlottedReproduction) -> None:
    from trine.cli.tables import print_table

    for table in found.tables:
        typer.echo(table.title)
        print_table([table.header, *table.rows], numbers_from=1)


def _print_results(found: Reproduction, as_json: bool, out: Path | None, *, by_experiment: bool = False) -> None:
    """Print what came out; a figure outside its band makes the command fail."""
    if out:
        typer.echo(f"report: {out / 'report.html'}", err=True)
    if as_json:
        import json

        typer.echo(json.dumps(found.as_dict()))
    else:
        (_print_each if by_experiment else _print)(found)
        for note in found.notes:
            typer.echo(f"note: {note}", err=True)
        typer.echo(found.sentence())
    if not found.held:
        raise typer.Exit(1)


def _print(found: Reproduction) -> None:
    from trine.cli.tables import print_table

    rows = [("", "experiment", "what", "published", "reference", "ours")]
    rows += [(MARKS[c.held], c.experiment, c.what, c.published, c.reference, c.ours) for c in found.checks]
    print_table(rows, numbers_from=6)


def _print_each(found: Reproduction) -> None:
    """A table for each experiment: what they say is too different in length for one."""
    from itertools import groupby

    from trine.cli.tables import print_table

    for name, checks in groupby(found.checks, key=lambda c: c.experiment):
        rows = [(MARKS[c.held], c.what, c.published, c.reference, c.ours) for c in checks]
        print_table([("", name, "published", "reference", "ours"), *rows], numbers_from=5)
