"""Verbs that look at single jobs: ``trine show`` (everything about one), ``explain`` (why it waits, or runs where it
does), ``logs`` (its output, byte for byte) and ``wait`` (until jobs have ended).
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, JobId, JobIds, Output, State, connected, print_json, say, unaffected, verb

if TYPE_CHECKING:
    from trine.client import ExplanationAnswer, JobAnswer


@verb
def show(job: JobId, state: State = None, output: Output = Form.TABLE) -> None:
    """Show everything about one job."""
    with connected(state) as client:
        found = client.job(job)
    if output is Form.JSON:
        print_json(found)
    else:
        from trine.cli.tables import print_pairs

        print_pairs(pairs(found))


@verb
def explain(job: JobId, state: State = None, output: Output = Form.TABLE) -> None:
    """Say why a job waits, or why it runs where it does."""
    with connected(state) as client:
        found = client.explain(job)
    if output is Form.JSON:
        print_json(found)
    else:
        typer.echo("\n".join(explanation(found)))


def pairs(job: JobAnswer) -> list[tuple[str, str]]:
    """Names and values; what a job cannot have yet is left out."""
    from trine.cli.live.job_text import clock_time, duration, elapsed_s, full_progress, outcome, where
    from trine.client.answers import has_ended

    pairs = [
        ("id", job["id"]),
        ("name", job["name"]),
        ("user", job["user"]),
        ("queue", job["queue"]),
        ("state", outcome(job)),
        ("position", "" if job["position"] is None else str(job["position"])),
        ("command", shlex.join(job.get("command") or ())),
        ("workdir", job.get("workdir") or ""),
        ("reason", job["reason"]["sentence"]),
        ("would change", job["reason"]["change"]),
        ("after", ", ".join(job.get("after") or ())),
        ("array", f"{job.get('array')}, index {job.get('array_index')}" if job.get("array") else ""),
        ("gpus", str(job["gpus"])),
        ("where", where(job["placement"]) if job["placement"] else ""),
        ("shares with", job.get("shares_with") or ""),
        ("progress", full_progress(job["progress"], has_ended(job)) if job["progress"] else ""),
        ("model", job["model"]),
        ("class", job["app_class"]),
        ("priority", f"{job['priority']:g}"),
        ("starts", f"{job['attempt']}, preempted {job['preemptions']}, moved {job['migrations']}"),
        ("submitted", clock_time(job["submitted_s"])),
        ("eligible", clock_time(job.get("eligible_s")) if job.get("eligible_s") is not None else ""),
        ("started", clock_time(job["started_s"]) if job["started_s"] is not None else ""),
        ("finished", clock_time(job["finished_s"]) if job["finished_s"] is not None else ""),
        ("expected start", _predicted(job, "start")),
        ("expected end", "" if has_ended(job) else _predicted(job, "end")),
        ("prediction", "" if has_ended(job) else job.get("predicted_reason", "")),
        ("running for", "" if job.get("run_from_s") is None else duration(elapsed_s(job, time.time()))),
        ("max runtime", "" if job.get("max_runtime_s") is None else duration(job.get("max_runtime_s"))),
        ("exit code", "" if job["exit_code"] is None else str(job["exit_code"])),
    ]
    return [(name, value) for name, value in pairs if value]


def _predicted(job: JobAnswer, what: str) -> str:
    """When the job is expected to start or end, and the 80 % interval; empty if that is not known."""
    from trine.cli.live.job_text import clock_time

    times = {"start": job.get("expected_start_s"), "end": job["expected_end_s"]}
    spans = {"start": job.get("start_interval_s"), "end": job.get("end_interval_s")}
    if times[what] is None:
        return ""
    span = spans[what]
    between = "" if span is None else f" (80 %: {clock_time(span[0])} to {clock_time(span[1])})"
    return f"{clock_time(times[what])}{between}"


def explanation(found: ExplanationAnswer) -> list[str]:
    """What it is, why, and what happened, in this order."""
    from trine.cli.live.job_text import clean, clock_time, outcome, place

    job = found["job"]
    on = f" on {place(job)}" if job["placement"] else ""
    gpus = "1 GPU" if job["gpus"] == 1 else f"{job['gpus']} GPUs"
    lines = [f"Job {job['id']} ({job['name']}, {gpus}): {outcome(job)}{on}."]
    lines += [f"  {sentence}" for sentence in found["sentences"]]
    if found["story"]:
        lines.append("What happened:")
    for line in found["story"]:
        because = f": {line['sentence']}" if line["sentence"] else ""
        lines.append(f"  {clock_time(line['at_s'])}  {line['what']}{because}")
    return [clean(line) for line in lines]


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
            with unaffected(job):
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
                with unaffected(*jobs):
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
