"""``trine gc``: remove now what the daemon keeps no longer, and say what that was. What is due the daemon's own options
say (``trine up --keep-jobs, --keep-ended, --keep-journal``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, verb

if TYPE_CHECKING:
    from trine.client.answers import CollectedAnswer

_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@verb
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")] = False,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Remove logs, directories and records that are kept no longer.

    The daemon does so by itself once an hour; what is old its options say (--keep-jobs, --keep-ended, --keep-journal).
    """
    with connected(state) as client:
        found = client.collect(dry_run)
        while found["more"] and not dry_run:
            found = _sum(found, client.collect())
    if output is Form.JSON:
        print_json(found)
    else:
        typer.echo("\n".join(sentences(found, dry_run)))


def _sum(done: CollectedAnswer, more: CollectedAnswer) -> CollectedAnswer:
    """What stays is found again every time; what was removed adds up."""
    jobs, used = done["jobs"] + more["jobs"], done["job_bytes"] + more["job_bytes"]
    return {**more, "jobs": jobs, "job_bytes": used, "records": done["records"] + more["records"]}


def sentences(found: CollectedAnswer, dry_run: bool) -> list[str]:
    """What was removed, or would be, and what stays although it is old."""
    verb = "would be removed" if dry_run else "removed"
    jobs, kept = found["jobs"], found["kept_for_checkpoints"]
    verb = f"{verb} so far, and there is more" if found["more"] else verb
    lines = [f"Directories of {_many(jobs, 'ended job')} ({_size(found['job_bytes'])}) {verb}."]
    lines += [f"{_many(found['records'], 'record')} of the journal {verb}."] if found["records"] else []
    if kept:
        stay = "There are checkpoints in them; `trine up --keep-jobs T` removes those, too."
        lines.append(f"Directories of {_many(kept, 'job')} as old stay. {stay}")
    return lines


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _size(used: int) -> str:
    for unit, name in _SIZES:
        if used >= unit:
            return f"{used / unit:.1f} {name}"
    return f"{used} bytes"
