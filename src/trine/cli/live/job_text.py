"""Values of the daemon's answers as short texts for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from trine.client.answers import JobAnswer, PlacementAnswer, ProgressAnswer, has_ended

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
    """Where a job runs, and next to which other: ``node0:0 with 7``."""
    co_runner = job.get("shares_with")
    return f"{where(job['placement'])} with {co_runner}" if co_runner else where(job["placement"])


def progress(made: ProgressAnswer | None) -> str:
    """``40 %`` where the end is known, else the step."""
    if made is None:
        return NOTHING
    if made["total"]:
        return f"{100 * min(1.0, made['step'] / made['total']):.0f} %"
    return f"step {made['step']:,.0f}"


def full_progress(made: ProgressAnswer | None, ended: bool = False) -> str:
    """When it was reported is shown of jobs that may report more."""
    if made is None:
        return "not reported"
    total = f" of {made['total']:,.0f} ({progress(made)})" if made["total"] else ""
    speed = f", {made['steps_per_s']:.3g} steps/s" if made["steps_per_s"] else ""
    reported = f", reported at {clock_time(made['at_s'])}" if made["at_s"] and not ended else ""
    return f"step {made['step']:,.0f}{total}{speed}{reported}"


def duration(seconds: float | None) -> str:
    """``45s``, ``5m03s``, ``3h05m``, ``2d04h``: the two largest units, the second one only if it is not 0."""
    if seconds is None:
        return NOTHING
    whole = int(max(0.0, seconds))
    if whole < 60:
        return "<1s" if 0 < seconds < 1 else f"{whole}s"
    units = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))
    large, name, small, small_name = next(unit for unit in units if whole >= unit[0])
    rest = whole % large // small
    return f"{whole // large}{name}" + (f"{rest:02}{small_name}" if rest else "")


def elapsed_s(job: JobAnswer, now_s: float | None) -> float | None:
    """How long the present start of a job has run, or how long an ended job took from its first start to its end."""
    if has_ended(job):
        first_s, end_s = job["started_s"], job["finished_s"]
        return None if first_s is None or end_s is None else end_s - first_s
    since_s = job.get("run_from_s")
    return None if since_s is None or now_s is None else now_s - since_s


def waited_s(job: JobAnswer, now_s: float | None) -> float | None:
    """How long a job waited for its first start."""
    until_s = job["started_s"] if job["started_s"] is not None else job["finished_s"] if has_ended(job) else now_s
    return None if until_s is None else until_s - job["submitted_s"]


def clock_time(at_s: float | None) -> str:
    """Local date and time of a Unix time."""
    return NOTHING if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def predicted_time(at_s: float | None, interval_s: Sequence[float] | None) -> str:
    """A predicted time and how far it may be off: ``2026-05-01 14:05:00 -10m +2h``."""
    if at_s is None or interval_s is None:
        return clock_time(at_s)
    return f"{clock_time(at_s)} -{duration(at_s - interval_s[0])} +{duration(interval_s[1] - at_s)}"


def element_name(job: JobAnswer) -> str:
    """``sweep[3]`` for an element of an array, whose elements all have the same name."""
    index = job.get("array_index")
    return job["name"] if index is None else f"{job['name']}[{index}]"


def outcome(job: JobAnswer) -> str:
    """``done``, ``failed (exit 3)``, ``failed (signal 9)``, ``running``."""
    code = job["exit_code"]
    if job["state"] != "failed" or code is None:
        return job["state"]
    return f"failed (signal {-code})" if code < 0 else f"failed (exit {code})"
