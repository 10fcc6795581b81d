"""``trine history``: ended jobs for people, and as CSV or Parquet for accounting."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, say, verb

if TYPE_CHECKING:
    from trine.client import HistoryAnswer

HEADER = ("id", "name", "user", "state", "gpus", "finished", "waited", "held", "GPU-hours", "starts")
RIGHT = ("id", "gpus", "waited", "held", "GPU-hours", "starts")
_UNITS_S = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_MOMENT = "a duration back from now such as 12h, 7d or 4w, or a date such as 2030-01-31 or 2030-01-31T18:00"
_FILES = "a file name that ends in .csv, .csv.gz or .parquet"


@verb
def history(
    since: Annotated[str, typer.Option("--since", metavar="T", help="Ended since then: 7d, 12h, 2030-01-31.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="T", help="Ended before then.")] = "",
    user: Annotated[str, typer.Option("--user", "-u", metavar="U", help="Only jobs of this user.")] = "",
    only: Annotated[str, typer.Option("--only", metavar="STATE", help="Only jobs that ended so: failed.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write all columns to FILE.csv or FILE.parquet.")
    ] = None,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """List ended jobs with their GPU time; also as CSV and Parquet."""
    from trine.cli.live.queue import states_of
    from trine.client.answers import ENDED
    from trine.core.errors import InputError

    now_s = time.time()
    since_s, until_s = moment_s(since, now_s, "--since"), moment_s(until, now_s, "--until")
    if since_s is not None and until_s is not None and until_s <= since_s:
        raise InputError("--until", repr(until), f"a time after --since, {since}")
    [wanted] = states_of([only] if only else None, sorted(ENDED)) or [""]
    if out is not None:
        _check_name(out)
    with connected(state) as client:
        found = list(client.history(since_s, until_s, user=user, state=wanted))
    if out is not None:
        _write(out, found)
    elif output is Form.JSON:
        print_json(found)
    else:
        _print(found)
    say(f"trine: {_total(found)}")


def moment_s(text: str, now_s: float, option: str) -> float | None:
    """Unix time of a duration back from now, or of a local date; ``None`` if nothing is given."""
    from datetime import datetime

    from trine.core.errors import InputError

    if not text:
        return None
    back = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhdw])", text)
    if back:
        return now_s - float(back[1]) * _UNITS_S[back[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise InputError(option, repr(text), _MOMENT) from None


def _total(found: list[HistoryAnswer]) -> str:
    hours = sum(job["gpu_h"] for job in found)
    return f"{len(found):,} ended {'job' if len(found) == 1 else 'jobs'}, {hours:,.1f} GPU-hours"


def _print(found: list[HistoryAnswer]) -> None:
    from trine.cli.live.job_text import clock_time, duration
    from trine.cli.tables import print_columns

    rows = [
        [
            *(job["id"], _name(job), job["user"], job["state"], str(job["gpus"]), clock_time(job["finished_s"])),
            *(duration(job["wait_s"]), duration(job["held_s"]), f"{job['gpu_h']:.2f}", str(job["attempts"])),
        ]
        for job in found
    ]
    print_columns(HEADER, rows, RIGHT)


def _name(job: HistoryAnswer) -> str:
    return job["name"] if job["array_index"] is None else f"{job['name']}[{job['array_index']}]"


def _check_name(out: Path) -> None:
    from trine.core.errors import InputError, require_extra

    if not out.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise InputError("--out", repr(str(out)), _FILES)
    if out.suffix == ".parquet":
        require_extra("report", "pyarrow", purpose="Parquet needs")


def _write(out: Path, found: list[HistoryAnswer]) -> None:
    from trine.core.atomic_file import write_output

    write_output(out, _parquet(found) if out.suffix == ".parquet" else csv_text(found))


def _columns() -> dict[str, str]:
    """Name and Arrow type of every column, in order: the same for no job as for many."""
    from typing import get_type_hints

    from trine.client import HistoryAnswer

    kinds: dict[Any, str] = {
        str: "string",
        int: "int64",
        float: "float64",
        int | None: "int64",
        float | None: "float64",
    }
    return {name: kinds[kind] for name, kind in get_type_hints(HistoryAnswer).items()}


def csv_text(found: list[HistoryAnswer]) -> str:
    """A header and a line per job; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_columns()), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def _parquet(found: list[HistoryAnswer]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _columns().items()])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(found), schema=schema), sink, compression="zstd")
    return sink.getvalue()
