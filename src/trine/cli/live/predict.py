"""``trine predict``: when jobs will start and end, with 80 % intervals. ``trine whatif``: what a change would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import Client

Jobs = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids of jobs; none: all.", show_default=False)
]
Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANGE...",
        help="Each in quotes: 'policy las', 'placement pal-sticky', 'add 2x8', 'lose node3', 'cancel 17', 'hold 17', "
        "'release 17', 'priority 17 5', 'submit 8 3600', 'quota user:ann=16'.",
        show_default=False,
    ),
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
        [job_id, _times(job["start_s"]), _times(job["end_s"]), job["reason"]] for job_id, job in found["jobs"].items()
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


def _times(found: dict[str, float] | None, since_s: float | None = None) -> str:
    from trine.cli.live.job_text import NOTHING, duration, foretold

    if found is not None and since_s is not None:
        median, low, high = (found[name] for name in ("median", "low", "high"))
        return f"in {duration(median - since_s)} -{duration(median - low)} +{duration(high - median)}"
    return NOTHING if found is None else foretold(found["median"], (found["low"], found["high"]))


def _made_of(found: dict[str, Any]) -> str:
    """On what the predictions rest, and how earlier ones did."""
    from trine.cli.live.job_text import clock_time, duration

    sentence = f"made at {clock_time(found['made_at_s'])} from {found['draws']} futures"
    if not found.get("calibrated", True):  # daemons before this did not say
        sentence += "; the intervals are not yet calibrated by how earlier ones came out"
    parts = [
        f"{kind}: {score['coverage']:.0%} of {score['count']} held, off by {duration(score['median_error_s'])}"
        for kind, score in (found["score"] or {}).items()
        if score["count"]
    ]
    return f"{sentence}; {'; '.join(parts)}" if parts else f"{sentence}; no score yet"


@verb
def whatif(
    changes: Changes,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Then do it, where the daemon can: cancel, hold, release, priority, quota, lose (drains).",
        ),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Of a simulation that `trine sim run --out DIR` wrote or writes."),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="TIME",
            help="With --run: how long after its first submission, such as 12h.  [default: half]",
        ),
    ] = "",
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Say who would gain and who would lose by a change.

    By how much, and before anything happens; --apply makes the change where the daemon can.
    """
    from trine.planning.changes import APPLICABLE, instead_of, words_of

    if run is not None or at:
        _whatif_of_run(changes, run, at, apply, output)
        return
    cannot = instead_of(changes)
    if apply and cannot:
        from trine.core.errors import InputError

        (change, instead), *_ = cannot.items()
        able = ", ".join(APPLICABLE)
        raise InputError("--apply", repr(change), f"changes that a daemon carries out ({able}); for this: {instead}")
    with connected(state) as client:
        found = client.whatif(changes)
        if output is Form.JSON:
            print_json(found)
        else:
            _print_comparison(found)
        if apply:
            for change in changes:
                _apply(client, *words_of(change))


def _whatif_of_run(changes: list[str], run: Path | None, at: str, apply: bool, output: Form) -> None:
    from trine.core.errors import InputError
    from trine.planning.recorded_present import whatif_of_run

    if run is None:
        raise InputError("--at", repr(at), "--run DIR beside it: a daemon is asked about now")
    if apply:
        raise InputError("--apply", "beside --run", "one of the two: what is recorded cannot be changed any more")
    found = whatif_of_run(run, at, changes)
    if output is Form.JSON:
        print_json(found)
    else:
        _print_comparison(found, since_s=found["made_at_s"])


def _print_comparison(found: dict[str, Any], since_s: float | None = None) -> None:
    """``since_s``: times are told as the time from then on, of a simulation, which knows no dates."""
    from trine.cli.tables import Fit, print_columns

    def middle(job: dict[str, Any]) -> float:
        return job["change_s"]["median"] if job["change_s"] else 0.0

    jobs = sorted(found["jobs"].items(), key=lambda item: middle(item[1]))
    rows = [
        [job_id, _times(_end(job["before"]), since_s), _times(_end(job["after"]), since_s), shift(job["change_s"])]
        for job_id, job in jobs
    ]
    header = ["id", "ends", "would end", "change, 80 %"]
    print_columns(header, rows, ("id",), Fit("change, 80 %", 24, {}, (), ("ends", "would end")))
    mean = shift(found["mean_change_s"])
    gain = "1 job gains" if found["gain"] == 1 else f"{found['gain']} jobs gain"
    typer.echo(f"{gain}, {found['lose']} lose, {found['same']} stay; on average {mean}.")


def _end(times: dict[str, Any] | None) -> dict[str, float] | None:
    return None if times is None else times["end_s"]


def shift(change: dict[str, float] | None) -> str:
    """``12m earlier [1h05m earlier, 3m later]``."""
    from trine.cli.live.job_text import NOTHING

    if change is None:
        return NOTHING
    return f"{_later(change['median'])} [{_later(change['low'])}, {_later(change['high'])}]"


def _later(seconds: float) -> str:
    from trine.cli.live.job_text import duration

    if abs(seconds) < 1.0:
        return "same"
    return f"{duration(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _apply(client: Client, what: str, name: str, *rest: str) -> None:
    """The daemon has understood the words of the change before: it answered what it would do."""
    if what == "lose":
        client.drain(name, "trine whatif --apply")
    elif what == "priority":
        client.set_priority(name, float(rest[0]))
    elif what == "quota":
        from trine.inputs.quota_text import parse_quota

        client.set_quotas(dict([parse_quota(name)]))
    else:
        {"cancel": client.cancel, "hold": client.hold, "release": client.release}[what](name)
    say(f"trine: done: {' '.join((what, name, *rest))}")
