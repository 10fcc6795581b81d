"""``trine cancel``, ``hold``, ``release``: each for one job or several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trine.cli.live.verb import Form, JobIds, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import Client, JobAnswer


@verb
def cancel(jobs: JobIds, state: State = None, output: Output = Form.TABLE) -> None:
    """Cancel jobs; running ones are stopped."""
    _each(jobs, state, output, lambda client: client.cancel)


@verb
def hold(jobs: JobIds, state: State = None, output: Output = Form.TABLE) -> None:
    """Keep jobs from running until they are released."""
    _each(jobs, state, output, lambda client: client.hold)


@verb
def release(jobs: JobIds, state: State = None, output: Output = Form.TABLE) -> None:
    """Let held jobs run again."""
    _each(jobs, state, output, lambda client: client.release)


def _each(
    jobs: list[str], state: Path | None, output: Form, change: Callable[[Client], Callable[[str], JobAnswer]]
) -> None:
    """Change every job that can be changed, say which could not and why, and fail then."""
    from trine.client import RefusedError

    changed, refused = [], []
    with connected(state) as client:
        for job_id in jobs:
            try:
                changed.append(change(client)(job_id))
            except RefusedError as error:
                refused.append(error)
                say(f"trine: {error}")
    if output is Form.JSON:
        print_json(changed)
    elif changed:
        typer.echo("\n".join(f"{job['id']} {job['state']}" for job in changed))
    if refused:
        raise typer.Exit(2 if all(error.usage for error in refused) else 1)
