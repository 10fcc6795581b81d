"""``trine quota``: how many GPUs users and queues may hold at most, and changes of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, verb

if TYPE_CHECKING:
    from trine.client.answers import QuotaAnswer

HEADER = ("of", "gpus", "configured", "changed by", "changed at")


@verb
def quota(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[user:NAME=GPUS|queue:NAME=GPUS]...",
            help="What is to hold from now on; none: no limit, default: as configured. Without any: list quotas.",
            show_default=False,
        ),
    ] = None,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """List or change how many GPUs users and queues may hold.

    Changes are for administrators, are made all together or not at all, and outlive a restart of the daemon. Jobs that
    run go on, also where they hold more than they may from now on.
    """
    asked = _parsed(changes or [])
    with connected(state) as client:
        found = client.set_quotas(asked) if asked else client.quotas()
    if asked:
        known = {f"{each['kind']}:{each['name']}": each for each in found}
        found = [known.get(subject) or _unlimited(subject) for subject in asked]
    if output is Form.JSON:
        print_json(found)
        return
    from trine.cli.tables import print_columns

    print_columns(HEADER, [_row(each) for each in found], ("gpus", "configured"))


def _parsed(texts: list[str]) -> dict[str, int | str | None]:
    from trine.core.errors import InputError
    from trine.inputs.quota_text import QUOTA_FORM, parse_quota

    asked: dict[str, int | str | None] = {}
    for text in texts:
        try:
            subject, max_gpus = parse_quota(text)
        except ValueError:
            raise InputError("quota", repr(text), QUOTA_FORM) from None
        if subject in asked:
            raise InputError("quota", f"{subject} twice", "each user and queue once")
        asked[subject] = max_gpus
    return asked


def _unlimited(subject: str) -> QuotaAnswer:
    """Of a user or queue without a quota, which the daemon does not list."""
    kind, _, name = subject.partition(":")
    return {"kind": kind, "name": name, "max_gpus": None, "configured": None, "changed_by": "", "changed_s": None}


def _row(quota: QuotaAnswer) -> list[str]:
    from trine.cli.live.job_text import NOTHING, clock_time

    def limit(gpus: int | None) -> str:
        return "none" if gpus is None else f"{gpus:,}"

    changed_s = quota["changed_s"]
    at = NOTHING if changed_s is None else clock_time(changed_s)
    by = quota["changed_by"] or NOTHING
    return [f"{quota['kind']}:{quota['name']}", limit(quota["max_gpus"]), limit(quota["configured"]), by, at]
