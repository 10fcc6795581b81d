"""``trine reproduce``: a paper's experiments again, published / reference / ours side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from trine.reproduce.reproduction import Reproduction

app = typer.Typer(help="Run the experiments of a paper again and compare.", no_args_is_help=True)

MARKS: dict[tuple[bool | None, bool], str] = {
    (True, True): "ok",
    (False, True): "OUT",
    (True, False): "(ok)",
    (False, False): "(no)",
}
"""By whether a figure holds and whether it counts."""
Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds, points and moments: minutes instead of an hour.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", help="Processes; 0 = all cores.", min=0)]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Only the experiments whose names begin so; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write report.html with tables and plots there.")
]


class Paper(NamedTuple):
    """A command: what it does, what ``--data`` is to hold, and where that is looked for."""

    about: str
    data: str
    default: str = ""


PAPERS = {
    "pal": Paper(
        "PAL (SC'24): 64 GPUs, locality sweep, 256 GPUs under load, and where the gain comes from.",
        "Folder that holds the public traces/ and hardware/.",
        "data",
    ),
    "gavel": Paper(
        "Gavel (OSDI'20): physical traces, continuous and static workloads, priorities, cost, SLOs, entities, solver.",
        "Folder that holds the public traces/ and hardware/.",
        "data",
    ),
    "dally": Paper(
        "Dally (arXiv 2401.16492): waiting for GPUs close together against policies that do not, and where it pays.",
        "Folder that holds the public traces/; none: no Philly trace.",
    ),
    "joint": Paper(
        "The trine policy: against its ancestors and their combinations, without its parts, and where it pays.",
        "Folder that holds worlds/ and traces/; none: all are drawn.",
    ),
    "predictions": Paper(
        "Predicted starts and ends against what happened: how many 80 % intervals hold, and Slurm's method beside it.",
        "Folder that holds the public traces/; none: jobs are drawn.",
    ),
}
"""By the name of the command, which is also that of the module below ``trine.reproduce``."""


def _add_command(name: str, paper: Paper) -> None:
    def command(
        data: str = paper.default,
        quick: Quick = False,
        only: Only = None,
        workers: Workers = 0,
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        _reproduce(name, data, quick, only or (), workers, as_json, out)

    # Annotations are texts that are read in the module, where there is no ``paper``.
    command.__annotations__["data"] = Annotated[str, typer.Option("--data", metavar="DIR", help=paper.data)]
    app.command(name, help=paper.about)(command)


for _name, _paper in PAPERS.items():
    _add_command(_name, _paper)


def _reproduce(
    name: str, data: str, quick: bool, only: Sequence[str], workers: int, as_json: bool, out: Path | None
) -> None:
    """Run the experiments of the paper in ``trine.reproduce.NAME``, write the page if wanted, and print the figures."""
    from contextlib import ExitStack
    from importlib import import_module

    from trine.cli.progress_bar import ProgressBar
    from trine.report.page import require_page
    from trine.reproduce.reproduction import write_page

    if out:
        require_page()
    paper = import_module(f"trine.reproduce.{name}").PAPER
    with ExitStack() as stack:
        found: Reproduction = paper.reproduce(
            data,
            quick=quick,
            only=only,
            workers=workers,
            progress=lambda runs: stack.enter_context(ProgressBar(runs, "simulating")).advance,
        )
    if out:
        write_page(found, out, _command(name, data, quick))
        typer.echo(f"report: {out / 'report.html'}", err=True)
    _print(found, as_json)
    if not found.held:
        raise typer.Exit(1)


def _command(name: str, data: str, quick: bool) -> str:
    """The command without the options that change nothing in the figures."""
    import shlex

    given = [*(["--data", data] if data else []), *(["--quick"] if quick else [])]
    return shlex.join(["trine", "reproduce", name, *given])


def _print(found: Reproduction, as_json: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(found.as_dict()))
        return
    _print_tables(found)
    (_print_by_experiment if found.grouped else _print_together)(found)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(found.sentence())


def _print_tables(found: Reproduction) -> None:
    from trine.cli.tables import print_table

    for table in found.tables:
        typer.echo(table.title)
        print_table([table.header, *table.rows], numbers_from=1)


def _print_together(found: Reproduction) -> None:
    from trine.cli.tables import print_table

    rows = [("", "experiment", "what", "published", "reference", "ours")]
    rows += [
        (MARKS.get((c.held, c.counted), ""), c.experiment, c.what, c.published, c.reference, c.ours)
        for c in found.checks
    ]
    print_table(rows, numbers_from=6)


def _print_by_experiment(found: Reproduction) -> None:
    """A table for each experiment: their rows are too different in length for one."""
    from itertools import groupby

    from trine.cli.tables import print_table

    for name, checks in groupby(found.checks, key=lambda c: c.experiment):
        rows = [(MARKS.get((c.held, c.counted), ""), c.what, c.published, c.reference, c.ours) for c in checks]
        print_table([("", name, "published", "reference", "ours"), *rows], numbers_from=5)
