"""``trine queue``: the jobs, those that hold GPUs first, then in the order they wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.cli.tables import Fit
    from trine.client import Client, JobAnswer

HEADER = (
    *("pos", "id", "name", "user", "state", "gpus", "where", "progress"),
    *("elapsed", "waited", "limit", "start", "end", "reason"),
)
"""``start`` and ``end``, when a job is expected to, are shown only where the daemon says so."""
RIGHT = ("pos", "id", "gpus", "progress", "elapsed", "waited", "limit")
MOST_JOBS = 100_000
"""Jobs that the API lists at once, at most."""

Look = tuple[list["JobAnswer"], list[str]]
"""The jobs, and sentences that belong with them."""
User = Annotated[str, typer.Option("--user", "-u", metavar="U", help="Only jobs of this user.")]
Name = Annotated[str, typer.Option("--name", metavar="TEXT", help="Only jobs of this name; * and ? are wildcards.")]


@verb
def queue(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="STATE", help="Jobs in this state; several: running,held.")
    ] = None,
    user: User = "",
    name: Name = "",
    limit: Annotated[int, typer.Option(min=1, max=MOST_JOBS, metavar="N", help="At most so many jobs.")] = 1000,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.1, metavar="S", help="Seconds between two looks.")] = 2.0,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """List jobs: state, times, where they run, why they wait.

    elapsed: since the present start, for ended jobs from the first start to the end. waited: from submission to the
    first start. limit: the job's max_runtime. A narrow terminal shows less; `trine show JOB` shows all of it.
    """
    from trine.core.errors import InputError

    if watch and output is Form.JSON:
        raise InputError("--watch", "together with -o json", "one of them: JSON is one value")
    wanted = _wanted(everything, only)
    with connected(state) as client:

        def look() -> Look:
            jobs, cut_off = _look(client, wanted, limit, user, name)
            down = client.daemon().get("engine_down", "")  # what is shown of running jobs is what was last seen
            return jobs, [note for note in (cut_off, down) if note]

        if watch:
            _show_again(look, every_s)
            return
        jobs, notes = look()
    if output is Form.JSON:
        print_json(jobs)
    else:
        _print(jobs)
    for note in notes:
        say(f"trine: {note}")


def _wanted(everything: bool, only: list[str] | None) -> list[str]:
    """Names of states to ask for; none means those a job can still leave."""
    from trine.client.answers import ENDED, LIVE

    # "all" rather than the names known here: the daemon may have more.
    return states_of(only, [*LIVE, *sorted(ENDED)]) or (["all"] if everything else [])


def states_of(only: list[str] | None, known: Sequence[str]) -> list[str]:
    """The states that ``--only`` names, checked."""
    from trine.core.errors import unknown_name

    names = [name.strip().replace("-", " ") for text in only or () for name in text.split(",")]
    for name in names:
        if name not in known:
            raise unknown_name("--only", "state", name, known)
    return names


def _look(client: Client, wanted: list[str], limit: int, user: str, name: str) -> tuple[list[JobAnswer], str]:
    """The jobs, and a sentence if there are more than those."""
    from trine.client import RefusedError

    jobs = client.jobs(wanted, limit, user=user, name=name)
    if len(jobs) < limit:
        return jobs, ""
    try:
        more = client.count(wanted, user=user, name=name) - len(jobs)
    except RefusedError:  # a daemon that does not count
        return jobs, f"only the first {limit:,} jobs are shown; there may be more"
    jobs_are = "job is" if more == 1 else "jobs are"
    return jobs, f"{more:,} more {jobs_are} not shown; --limit N shows more" if more > 0 else ""


def rows(jobs: list[JobAnswer], now_s: float | None) -> list[list[str]]:
    """One row per job; without a time, durations are left out."""
    from trine.cli.live.job_text import (
        NOTHING,
        duration,
        elapsed_s,
        element_name,
        outcome,
        place,
        predicted_time,
        progress,
        waited_s,
    )
    from trine.client.answers import has_ended

    return [
        [
            NOTHING if job["position"] is None else str(job["position"]),
            job["id"],
            element_name(job),
            job["user"],
            outcome(job),
            str(job["gpus"]),
            place(job),
            progress(job["progress"]),
            duration(elapsed_s(job, now_s)),
            duration(waited_s(job, now_s)),
            duration(job.get("max_runtime_s")),
            predicted_time(job.get("expected_start_s"), job.get("start_interval_s")),
            predicted_time(None if has_ended(job) else job.get("expected_end_s"), job.get("end_interval_s")),
            job["reason"]["sentence"],
        ]
        for job in jobs
    ]


def table(jobs: list[JobAnswer], now_s: float | None, brief: bool) -> tuple[list[str], list[list[str]]]:
    """Header and rows, without the expected start if there is none; ``brief``: reasons do not say the id again."""
    from trine.cli.live.job_text import NOTHING

    found = rows(jobs, now_s)
    if brief:
        found = [[*row[:-1], row[-1].removeprefix(f"job {job['id']} ")] for job, row in zip(jobs, found, strict=True)]
    without = {name for name in ("start", "end") if all(row[HEADER.index(name)] == NOTHING for row in found)}
    kept = [at for at, name in enumerate(HEADER) if name not in without]
    return [HEADER[at] for at in kept], [[row[at] for at in kept] for row in found]


def _print(jobs: list[JobAnswer]) -> None:
    from trine.cli.tables import print_columns

    print_columns(*table(jobs, time.time(), brief=sys.stdout.isatty()), RIGHT, _fit())


def job_lines(jobs: list[JobAnswer], now_s: float, width: int) -> list[str]:
    """The table as lines that fit a terminal so wide."""
    from trine.cli.tables import fitted

    return fitted(*table(jobs, now_s, brief=True), RIGHT, _fit(), width)


def _fit() -> Fit:
    """The name gives way first, the id never."""
    from trine.cli.tables import Fit

    return Fit(
        rest="reason",
        rest_width=32,
        least={"name": 8, "where": 9, "state": 9, "user": 6, "reason": 8},
        extras=("pos", "waited", "progress"),
        last_resort=("end", "start", "limit", "where", "user", "gpus", "reason", "elapsed"),
    )


def _show_again(look: Callable[[], Look], every_s: float) -> None:
    """A screen that is refreshed, or, where the output is no terminal, the table again whenever it changed."""
    if sys.stdout.isatty():
        _refresh(look, every_s)
    before: list[list[str]] | None = None
    for jobs, notes in _looks(look, every_s):
        now = [*rows(jobs, None), notes]
        if now != before:
            _print(jobs)
            for note in notes:
                say(f"trine: {note}")
        before = now


def _refresh(look: Callable[[], Look], every_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from trine.cli.tables import console, terminal_width

    with Live(console=console(), screen=True, auto_refresh=False) as screen:
        for jobs, notes in _looks(look, every_s):
            lines = [*job_lines(jobs, time.time(), terminal_width()), *notes]
            screen.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)


def _looks(look: Callable[[], Look], every_s: float) -> Iterator[Look]:
    while True:
        yield look()
        time.sleep(every_s)
