"""``trine show`` and ``trine explain``: one job, all about it and why it is where it is."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import typer

from trine.cli.live.verb import Form, JobId, Output, State, connected, print_json, verb

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
        ("gpus", str(job["gpus"])),
        ("where", where(job["placement"]) if job["placement"] else ""),
        ("shares with", job.get("shares_with") or ""),
        ("progress", full_progress(job["progress"]) if job["progress"] else ""),
        ("model", job["model"]),
        ("class", job["app_class"]),
        ("priority", f"{job['priority']:g}"),
        ("starts", f"{job['attempt']}, preempted {job['preemptions']}, moved {job['migrations']}"),
        ("submitted", clock_time(job["submitted_s"])),
        ("started", clock_time(job["started_s"]) if job["started_s"] is not None else ""),
        ("finished", clock_time(job["finished_s"]) if job["finished_s"] is not None else ""),
        ("expected end", clock_time(job["expected_end_s"]) if job["expected_end_s"] is not None else ""),
        ("running for", "" if job.get("run_from_s") is None else duration(elapsed_s(job, time.time()))),
        ("max runtime", "" if job.get("max_runtime_s") is None else duration(job.get("max_runtime_s"))),
        ("exit code", "" if job["exit_code"] is None else str(job["exit_code"])),
    ]
    return [(name, value) for name, value in pairs if value]


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
