"""Values of the daemon's answers as short texts for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from trine.client.answers import JobAnswer, PlacementAnswer, ProgressAnswer

NOTHING = "-"


def clean(text: str) -> str:
    """Text that other people wrote, without what could move a terminal's cursor or break a line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def ranges(numbers: Sequence[int]) -> str:
    """``0-3,6`` for 0, 1, 2, 3, 6."""
    runs = [list(run) for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs)


def where(placement: Sequence[PlacementAnswer]) -> str:
    return " ".join(f"{part['node']}:{ranges(part['gpus'])}" for part in placement) or NOTHING


def place(job: JobAnswer) -> str:
    """Where a job runs, and next to whom: ``node0:0 with 7``."""
    mate = job.get("shares_with")
    return f"{where(job['placement'])} with {mate}" if mate else where(job["placement"])


def progress(made: ProgressAnswer | None) -> str:
    """``40 %`` where the end is known, else the step."""
    if made is None:
        return NOTHING
    if made["total"]:
        return f"{100 * min(1.0, made['step'] / made['total']):.0f} %"
    return f"step {made['step']:,.0f}"


def full_progress(made: ProgressAnswer | None) -> str:
    if made is None:
        return "not reported"
    total = f" of {made['total']:,.0f} ({progress(made)})" if made["total"] else ""
    return f"step {made['step']:,.0f}{total}, {made['steps_per_s']:.3g} steps/s, said at {clock_time(made['at_s'])}"


def clock_time(at_s: float | None) -> str:
    """Local date and time of a Unix time."""
    return NOTHING if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def outcome(job: JobAnswer) -> str:
    """``done``, ``failed (exit 3)``, ``failed (signal 9)``, ``running``."""
    code = job["exit_code"]
    if job["state"] != "failed" or code is None:
        return job["state"]
    return f"failed (signal {-code})" if code < 0 else f"failed (exit {code})"
