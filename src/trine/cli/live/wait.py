"""``trine wait``: stay until jobs have ended, and hand their exit status on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, JobIds, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import JobAnswer

TIMED_OUT = 124
"""As of timeout(1)."""


@verb
def wait(
    jobs: JobIds,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0.0, metavar="S", help="Give up after so many seconds (exit 124).")
    ] = None,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Wait until jobs have ended and exit with their status.

    0 if all are done; the job's own status if the only one failed; else 1.
    """
    found, in_time = _wait_for(jobs, timeout_s, state, talk=output is Form.TABLE)
    if output is Form.JSON:
        print_json(found)
    raise typer.Exit(status(found) if in_time else TIMED_OUT)


def _wait_for(jobs: list[str], timeout_s: float | None, state: Path | None, talk: bool) -> tuple[list[JobAnswer], bool]:
    """The jobs as they stood at last, and whether all have ended."""
    from trine.cli.live.job_text import outcome
    from trine.client import WaitTimeoutError

    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    found, in_time = [], True
    with connected(state) as client:
        for job_id in jobs:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            try:
                job = client.wait(job_id, left_s)
            except WaitTimeoutError as error:
                job, in_time = error.job, False
                say(f"trine: job {job['id']} has not ended in time: it is {job['state']}")
            found.append(job)
            if talk:
                typer.echo(f"{job['id']} {outcome(job)}")
    return found, in_time


def status(jobs: list[JobAnswer]) -> int:
    """Exit status for jobs that have ended; a signal counts as shells count it."""
    if all(job["state"] == "done" for job in jobs):
        return 0
    code = jobs[0]["exit_code"]
    if len(jobs) > 1 or jobs[0]["state"] != "failed" or not code:
        return 1
    return 128 - code if -128 < code < 0 else code if 0 < code < 256 else 1
