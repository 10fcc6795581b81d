"""``trine queue``: the jobs, those that hold GPUs first, then in the order they wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, verb

if TYPE_CHECKING:
    from trine.client import Client, JobAnswer

HEADER = ("pos", "id", "name", "user", "state", "gpus", "where", "progress", "reason")
RIGHT = ("pos", "id", "gpus", "progress")


@verb
def queue(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="STATE", help="Jobs in this state; several: running,held.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many jobs.")] = 1000,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.1, metavar="S", help="Seconds between two looks.")] = 2.0,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """List jobs: position, state, where they run, why they wait."""
    from trine.core.errors import InputError

    if watch and output is Form.JSON:
        raise InputError("--watch", "together with -o json", "one of them: JSON is one value")
    wanted = _wanted(everything, only)
    with connected(state) as client:
        if watch:
            _show_again(_looks(client, wanted, limit, every_s))
        elif output is Form.JSON:
            print_json(client.jobs(wanted, limit))
        else:
            from trine.cli.live.columns import print_columns

            print_columns(HEADER, rows(client.jobs(wanted, limit)), RIGHT)


def _wanted(everything: bool, only: list[str] | None) -> list[str]:
    """Names of states to ask for; none means those a job can still leave."""
    from trine.client.answers import ENDED, LIVE
    from trine.core.errors import unknown_name

    known = [*LIVE, *sorted(ENDED)]
    names = [name.strip() for text in only or () for name in text.split(",")]
    for name in names:
        if name not in known:
            raise unknown_name("--only", "state", name, known)
    return names or (known if everything else [])


def rows(jobs: list[JobAnswer]) -> list[list[str]]:
    from trine.cli.live.words import NOTHING, outcome, place, progress

    return [
        [
            NOTHING if job["position"] is None else str(job["position"]),
            job["id"],
            job["name"],
            job["user"],
            outcome(job),
            str(job["gpus"]),
            place(job),
            progress(job["progress"]),
            job["reason"]["sentence"],
        ]
        for job in jobs
    ]


def _looks(client: Client, wanted: list[str], limit: int, every_s: float) -> Iterator[list[list[str]]]:
    while True:
        yield rows(client.jobs(wanted, limit))
        time.sleep(every_s)


def _show_again(looks: Iterator[list[list[str]]]) -> None:
    """A screen that is refreshed, or, where the output is no terminal, the table again whenever it changed."""
    from trine.cli.live.columns import console, drawn, print_columns

    if not sys.stdout.isatty():
        before: list[list[str]] | None = None
        for look in looks:
            if look != before:
                print_columns(HEADER, look, RIGHT)
            before = look
        return
    from rich.live import Live

    with Live(console=console(), screen=True, auto_refresh=False) as screen:
        for look in looks:
            screen.update(drawn(HEADER, look, RIGHT), refresh=True)
