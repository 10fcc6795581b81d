"""``trine cancel``, ``hold``, ``release``: each for one job or several; ``priority``: of one job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.queue import MOST_JOBS, Name, User, states_of
from trine.cli.live.verb import Form, JobId, JobIds, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import Client, JobAnswer


@verb
def cancel(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids of jobs; or choose them:", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All jobs that you may cancel.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="STATE", help="Jobs in this state; several: waiting,held.")
    ] = None,
    user: User = "",
    name: Name = "",
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Cancel jobs; running ones are stopped.

    By their ids, or all that --only, --user and --name choose together. What was cancelled is printed.
    """
    from trine.client.answers import LIVE
    from trine.core.errors import InputError

    if state is not None and str(state) in LIVE and not state.exists():
        raise InputError("--state", f"the state of a job, {str(state)!r}", f"a directory; jobs: --only {state}")
    chosen = everything or bool(only or user or name)
    if chosen == bool(jobs):
        found = "both ids and a choice" if jobs else "no job"
        raise InputError("cancel", found, "ids, or some of --all, --only STATE, --user U, --name TEXT")
    if jobs:
        _each(jobs, state, output, lambda client: client.cancel, _newest_first)
        return
    _cancel_chosen(states_of(only, LIVE), user, name, state, output)


@verb
def hold(jobs: JobIds, state: State = None, output: Output = Form.TABLE) -> None:
    """Keep jobs from running until they are released."""
    _each(jobs, state, output, lambda client: client.hold)


@verb
def release(jobs: JobIds, state: State = None, output: Output = Form.TABLE) -> None:
    """Let held jobs run again."""
    _each(jobs, state, output, lambda client: client.release)


@verb
def priority(
    job: JobId,
    number: Annotated[
        str, typer.Argument(metavar="NUMBER", help="Larger goes first; 0 by default.", show_default=False)
    ],
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Let a job go before others, or behind them.

    The next round ranks by it, and stops a job that runs where the policy does that. Users may choose what their queue
    allows at submission, administrators any number.
    """
    wanted = _number(number)
    with connected(state) as client:
        changed = client.set_priority(job, wanted)
    if output is Form.JSON:
        print_json(changed)
    else:
        typer.echo(f"{changed['id']} {changed['state']}, priority {changed['priority']:g}")


priority.command_options = {"context_settings": {"ignore_unknown_options": True}}  # type: ignore[attr-defined]
"""-5 is a number, not an option."""


def _number(text: str) -> float:
    from trine.core.errors import InputError
    from trine.inputs.job_rules import EXPECTED, MAX_PRIORITY

    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not -MAX_PRIORITY <= found <= MAX_PRIORITY:
        raise InputError("NUMBER", repr(text), EXPECTED["priority"])
    return found


def _cancel_chosen(states: list[str], user: str, name: str, state: Path | None, output: Form) -> None:
    """Cancel whatever matches; a job that ends in the meantime needs no cancelling."""
    from trine.client import RefusedError

    cancelled = []
    with connected(state) as client:
        found = client.jobs(states, MOST_JOBS, user=user, name=name)
        try:
            for job in sorted(found, key=_cancelled_first):
                try:
                    cancelled.append(client.cancel(job["id"]))
                except RefusedError as error:
                    if error.code not in ("ended", "not-found"):
                        raise
        finally:  # also what was done before an error
            _print(cancelled, output)
    if not cancelled:
        say("trine: no job was cancelled: none matches")


def _cancelled_first(job: JobAnswer) -> tuple[bool, int]:
    """Jobs that wait go first: otherwise they would start where those that run are stopped. Of these the newest go
    first, which may wait for the end of older ones, or for their turn in an array."""
    return job["state"] in ("starting", "running", "stopping"), -int(job["id"])


def _newest_first(jobs: list[str]) -> list[str]:
    """The same where ids are all that is known."""
    return sorted(jobs, key=lambda job_id: int(job_id) if job_id.isdecimal() else 0, reverse=True)


def _each(
    jobs: list[str],
    state: Path | None,
    output: Form,
    change: Callable[[Client], Callable[[str], JobAnswer]],
    order: Callable[[list[str]], list[str]] = list,
) -> None:
    """Change every job that can be changed, say which could not and why, and fail then."""
    from trine.client import RefusedError

    jobs, changed = list(dict.fromkeys(jobs)), dict[str, "JobAnswer"]()
    refused: dict[str, RefusedError] = {}
    with connected(state) as client:
        try:
            for job_id in order(jobs):
                try:
                    changed[job_id] = change(client)(job_id)
                except RefusedError as error:
                    refused[job_id] = error
        finally:  # also what was done before an error
            for job_id in filter(refused.__contains__, jobs):
                say(f"trine: {refused[job_id]}")
            _print([changed[job_id] for job_id in jobs if job_id in changed], output)
    if refused:
        raise typer.Exit(2 if all(error.usage for error in refused.values()) else 1)


def _print(changed: list[JobAnswer], output: Form) -> None:
    if output is Form.JSON:
        print_json(changed)
    elif changed:
        typer.echo("\n".join(f"{job['id']} {job['state']}" for job in changed))
