"""Options that say how a trace is read, the same for ``trine sim`` and ``trine trace``: columns, window and load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="FIELD=COLUMN[:UNIT],...",
        help="Read any table: submit=, gpus=, and duration= or start= and end=; also id=, user=, group=, model=.",
    ),
]
From = Annotated[
    str,
    typer.Option("--from", metavar="TIME", help="Only jobs submitted from then on: seconds of the trace, or a date."),
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Only jobs submitted before then.")]
ScaleLoad = Annotated[
    float | None, typer.Option("--scale-load", metavar="X", help="Divide the gaps between submissions by X.")
]

_SETTINGS = {"columns": "--columns", "since": "--from", "until": "--to", "scale_load": "--scale-load"}


def trace_values(
    given: Mapping[str, Any], columns: str, since: str, until: str, scale_load: float | None
) -> dict[str, Any]:
    """The options that were used, as settings (``trace.NAME``); ``given`` are those of ``--set``, by the same names."""
    from trine.core.errors import InputError

    used = {"columns": columns, "since": since, "until": until, "scale_load": scale_load}
    values = {f"trace.{name}": value for name, value in used.items() if value not in ("", None)}
    for key in values:
        name = key.removeprefix("trace.")
        if key in given or name in given:
            raise InputError("--set", f"{name} beside {_SETTINGS[name]}", "one of the two", key)
    return values
