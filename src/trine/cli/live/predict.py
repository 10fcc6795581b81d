"""``trine predict``: when jobs will start and end, with 80 % intervals."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, say, verb

Jobs = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids of jobs; none: all.", show_default=False)
]


@verb
def predict(jobs: Jobs = None, state: State = None, output: Output = Form.TABLE) -> None:
    """Say when jobs will start and end, with intervals."""
    with connected(state) as client:
        found = client.predictions()
    if jobs:
        _check_known(jobs, found)
        found["jobs"] = {job_id: found["jobs"][job_id] for job_id in jobs}
    if output is Form.JSON:
        print_json(found)
        return
    from trine.cli.tables import Fit, print_columns

    rows = [
        [job_id, times_text(job["start_s"]), times_text(job["end_s"]), job["reason"]]
        for job_id, job in found["jobs"].items()
    ]
    print_columns(["id", "start", "end", "reason"], rows, ("id",), Fit("reason", 24, {"reason": 12}, (), ("end",)))
    say(f"trine: {_made_of(found)}")


def _check_known(jobs: list[str], found: dict[str, Any]) -> None:
    from trine.cli.live.job_text import clock_time
    from trine.core.errors import InputError

    made_at = clock_time(found["made_at_s"])
    for job_id in jobs:
        if job_id not in found["jobs"]:
            expected = (
                f"the id of a job that was there at {made_at}, when predictions were last made, and has not ended"
            )
            raise InputError("JOB", repr(job_id), expected)


def times_text(found: dict[str, float] | None, since_s: float | None = None) -> str:
    from trine.cli.live.job_text import NOTHING, duration, predicted_time

    if found is not None and since_s is not None:
        median, low, high = (found[name] for name in ("median", "low", "high"))
        if high - low < 1.0:  # where lengths are known
            return f"in {duration(median - since_s)}"
        return f"in {duration(median - since_s)} -{duration(median - low)} +{duration(high - median)}"
    return NOTHING if found is None else predicted_time(found["median"], (found["low"], found["high"]))


def _made_of(found: dict[str, Any]) -> str:
    """On what the predictions rest, and how earlier ones did."""
    from trine.cli.live.job_text import clock_time, duration

    sentence = f"made at {clock_time(found['made_at_s'])} from {found['draws']} futures"
    if not found.get("calibrated", True):  # daemons before this did not say
        sentence += "; the intervals are not yet calibrated by how earlier ones came out"
    parts = [
        f"{kind}: {score['coverage']:.0%} of {score['count']} intervals held, "
        f"off by {duration(score['median_error_s'])}"
        for kind, score in (found["score"] or {}).items()
        if score["count"]
    ]
    return f"{sentence}; {'; '.join(parts)}" if parts else f"{sentence}; no score yet"
