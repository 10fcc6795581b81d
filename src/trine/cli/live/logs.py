"""``trine logs``: a job's output, byte for byte."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trine.cli.live.verb import Form, JobId, Output, State, connected, print_json, verb


@verb
def logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Print what a job wrote."""
    with connected(state) as client:
        pieces = client.log_bytes(job, follow=follow)
        if output is Form.JSON:
            print_json({"id": job, "log": b"".join(pieces).decode("utf-8", "replace")})
            return
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
