"""``trine logs``: a job's output, byte for byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, JobId, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import JobAnswer


@verb
def logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Begin with the last N lines.")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=0, metavar="N", help="Which process of the job.")] = 0,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Print what a job wrote, over all its attempts."""
    with connected(state) as client:
        # Following may take long: that there is nothing to see yet is said before, not after.
        if follow:
            _say_if_not_started(client.job(job))
        pieces = client.log_bytes(job, follow=follow, rank=rank, tail=tail)
        if output is Form.JSON:
            text = b"".join(pieces).decode("utf-8", "replace")
            written = bool(text)
            print_json({"id": job, "log": text})
        else:
            written = False
            for piece in pieces:
                written = True
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
        if not written and tail != 0:
            _say_why_nothing(client.job(job), begun=not follow)


def _say_why_nothing(job: JobAnswer, begun: bool) -> None:
    """Why a job failed without a word, such as a missing program, cannot be in its log."""
    if job["state"] == "failed" and job["attempt"]:
        say(f"trine: job {job['id']} wrote nothing: {job['reason']['sentence']}")
    elif begun:
        _say_if_not_started(job)


def _say_if_not_started(job: JobAnswer) -> None:
    from trine.client.answers import has_ended

    if job["attempt"] or job["placement"]:
        return
    if has_ended(job):
        say(f"trine: job {job['id']} never started, so it wrote nothing: it is {job['state']}")
    elif job["state"] in ("waiting", "held"):
        say(f"trine: job {job['id']} has not started yet, so it wrote nothing: it is {job['state']}")
