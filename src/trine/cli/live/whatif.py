"""``trine whatif``: who would gain and who would lose by a change; ``--apply`` makes it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.live.predict import times_text
from trine.cli.live.trailing_command import TrailingCommand, trailing_command
from trine.cli.live.verb import Form, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import Client

Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANGE...",
        help="Each in quotes: 'policy las', 'placement pal-sticky', 'add 2x8', 'lose node3', 'drain node3', "
        "'cancel 17', 'hold 17', 'release 17', 'priority 17 5', 'submit 8 1h', 'quota user:ann=16'.",
        show_default=False,
    ),
]


class WhatIfCommand(TrailingCommand):
    """The command of a job that is submitted stands last."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- CMD...]"]


@verb
def whatif(
    ctx: typer.Context,
    changes: Changes,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Then do it, where the daemon can: cancel, hold, release, priority, quota, drain; "
            "submit with a command after --.",
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
            help="With --run: how long after its first submission, such as 12h.  "
            "[default: when half of its jobs had come, or now if it goes on]",
        ),
    ] = "",
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Say who would gain and who would lose by a change.

    By how much, and before anything happens; --apply makes the change where the daemon can. A job that is tried with
    'submit 8 1h' is submitted with its command: trine whatif 'submit 8 1h' --apply -- python train.py
    """
    command = trailing_command(ctx)
    if run is not None or at:
        _whatif_of_run(changes, run, at, apply or command is not None, output)
        return
    _check_applicable(changes, apply, command)
    with connected(state) as client:
        found = client.whatif(changes)
        if output is Form.JSON:
            print_json(found)
        else:
            _print_comparison(found, _submissions(changes))
        if apply:
            for change in changes:
                _apply(client, change, command)


whatif.command_options = {"cls": WhatIfCommand}  # type: ignore[attr-defined]


def _check_applicable(changes: list[str], apply: bool, command: list[str] | None) -> None:
    """Before anything is asked: all of the changes can be made, or none is."""
    from trine.core.errors import InputError
    from trine.planning.changes import APPLICABLE, GRAMMAR, instead_of, words_of

    submits = any(words_of(change)[0] == "submit" for change in changes)
    if command is not None and not (apply and submits):
        raise InputError("whatif", "a command after --", f"--apply and a change {GRAMMAR['submit']!r} beside it")
    cannot = {
        change: what
        for change, what in instead_of(changes).items()
        if command is None or words_of(change)[0] != "submit"
    }
    if apply and cannot:
        (change, instead), *_ = cannot.items()
        able = ", ".join(APPLICABLE)
        raise InputError("--apply", repr(change), f"changes that a daemon carries out ({able}); for this: {instead}")


def _whatif_of_run(changes: list[str], run: Path | None, at: str, apply: bool, output: Form) -> None:
    from trine.cli.live.job_text import duration
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
        typer.echo(f"After {duration(found['after_s'])} of the run:")
        _print_comparison(found, _submissions(changes), since_s=found["made_at_s"])


def _submissions(changes: list[str]) -> int:
    return sum(change.split()[:1] == ["submit"] for change in changes)


def _print_comparison(found: dict[str, Any], submitted: int, since_s: float | None = None) -> None:
    """``submitted``: so many jobs the changes submit; they come last, and are called *new*, since their ids may soon
    be those of others. ``since_s``: times are shown as seconds after it, for a simulation, which has no dates."""
    from trine.cli.tables import Fit, print_columns

    def middle(job: dict[str, Any]) -> float:
        return math.inf if job.get("never_runs") else job["change_s"]["median"] if job["change_s"] else 0.0

    def to_come(job: dict[str, Any]) -> str:
        """Its start after the change, unless it has started."""
        start, made_at_s = _time(job["after"], "start_s"), found["made_at_s"]
        if start is not None and start["high"] == made_at_s:
            return "at once"
        return times_text(None if start is None or start["median"] < made_at_s else start, since_s)

    jobs = sorted(found["jobs"].items(), key=lambda item: middle(item[1]))
    come = [job_id for job_id, job in found["jobs"].items() if job["before"] is None and job["after"] is not None]
    new = come[-submitted:] if submitted else []
    rows = [
        [
            "new" if job_id in new else job_id,
            times_text(_time(job["before"], "end_s"), since_s),
            times_text(_time(job["after"], "end_s"), since_s),
            to_come(job),
            "would not run" if job.get("never_runs") else shift(job["change_s"]),
        ]
        for job_id, job in jobs
    ]
    header = ["id", "ends", "would end", "would start", "change, 80 %"]
    print_columns(header, rows, ("id",), Fit("change, 80 %", 24, {}, (), ("ends", "would end", "would start")))
    mean = shift(found["mean_change_s"])
    gain = "1 job gains" if found["gain"] == 1 else f"{found['gain']} jobs gain"
    lose, stay = ("loses" if found["lose"] == 1 else "lose"), ("stays" if found["same"] == 1 else "stay")
    never = sum(bool(job.get("never_runs")) for job in found["jobs"].values())
    stopped = f"; {never} of those that lose could not run at all" if never else ""
    counted = f"{gain}, {found['lose']} {lose}, {found['same']} {stay}{stopped}"
    typer.echo(f"{counted}; on average {mean}. From {found['draws']} futures.")
    for sentence in found.get("assumed", ()):  # daemons before this did not say
        say(f"trine: {sentence}")


def _time(times: dict[str, Any] | None, which: str) -> dict[str, float] | None:
    return None if times is None else times[which]


def shift(change: dict[str, float] | None) -> str:
    """``12m earlier [1h05m earlier, 3m later]``; without an interval where all draws say the same."""
    from trine.cli.live.job_text import NOTHING

    if change is None:
        return NOTHING
    median, low, high = (_later(change[name]) for name in ("median", "low", "high"))
    return median if low == median == high else f"{median} [{low}, {high}]"


def _later(seconds: float) -> str:
    from trine.cli.live.job_text import duration

    if abs(seconds) < 1.0:
        return "same"
    return f"{duration(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _apply(client: Client, change: str, command: list[str] | None) -> None:
    """The daemon has understood the words of the change before: it answered what it would do."""
    from trine.planning.changes import words_of

    what, *words = words_of(change)
    made = " ".join((what, *words))
    if what == "submit":
        made += _submit(client, change, command or [])
    elif what == "drain":
        client.drain(words[0], "trine whatif --apply")
    elif what == "priority":
        client.set_priority(words[0], float(words[1]))
    elif what == "quota":
        from trine.inputs.quota_text import parse_quota

        client.set_quotas(dict([parse_quota(words[0])]))
    else:
        {"cancel": client.cancel, "hold": client.hold, "release": client.release}[what](words[0])
    say(f"trine: done: {made}")


def _submit(client: Client, change: str, command: list[str]) -> str:
    """Submits the job that was tried, as ``trine submit`` would; says what came of it."""
    from trine.cli.live.job_text import duration
    from trine.cli.live.submit import accepted, spec_of, with_environment
    from trine.planning.changes import submission

    spec = spec_of(command) | submission(change)
    (job_id,) = accepted(client, with_environment([spec], None), os.urandom(16).hex())
    limit_s = spec.get("max_runtime")
    return f": job {job_id}" + (f", ended after {duration(limit_s)} at the latest" if limit_s else "")
