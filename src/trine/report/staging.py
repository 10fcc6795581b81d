"""All or nothing: files are written aside and moved into place together. What the files contain is not known here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from trine.core.errors import InputError

OWN_FILES = frozenset({"summary.json", "jobs.csv", "timeline.parquet", "compare.json", "compare.csv", "report.html"})
STAGING_PREFIX = ".trine-partial-"


def write_all(out_dir: Path | str, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write into an empty directory, then make its files the content of ``out_dir``.

    Whatever happens before the last step, an interrupt included, ``out_dir`` stays as it was. Files of an earlier
    report are replaced; a directory that holds anything else is refused before any work is done.
    """
    out = Path(out_dir).resolve()
    check_target(out)
    try:
        _write(out, fill)
    except OSError as error:
        raise InputError(
            str(out_dir), f"cannot write ({error.strerror or error})", "a directory to write to"
        ) from error


def check_target(out_dir: Path | str) -> None:
    """Raise ``InputError`` unless ``out_dir`` is new, empty or holds nothing but files of ours."""
    out = Path(out_dir)
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(str(out_dir), "is a file", "an empty or new directory")
    foreign = sorted(p.name for p in out.iterdir() if not _is_ours(p))
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InputError(str(out_dir), f"holds other files ({foreign[0]}{more})", "an empty or new directory")


def _is_ours(path: Path) -> bool:
    return path.name.startswith(STAGING_PREFIX) or (path.name in OWN_FILES and path.is_file())


def _write(out: Path, fill: Callable[[Path], None]) -> None:
    made = _make_parents(out)
    try:
        # An existing directory is staged inside itself: it may be a mount point, which cannot be renamed over.
        staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=out if out.is_dir() else out.parent))
        try:
            new = staging / "new"
            new.mkdir()
            fill(new)
            _move_into_place(new, out, staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except BaseException:
        for parent in made:
            parent.rmdir()
        raise


def _make_parents(out: Path) -> list[Path]:
    """Create what is missing above ``out``; returns it, deepest first."""
    missing = [p for p in out.parents if not p.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    return missing


def _move_into_place(new: Path, out: Path, staging: Path) -> None:
    if not out.is_dir():
        new.rename(out)
        return
    old = staging / "old"
    old.mkdir()
    moves = [(p, old / p.name) for p in sorted(out.iterdir()) if p.name in OWN_FILES]
    moves += [(p, out / p.name) for p in sorted(new.iterdir())]
    try:
        for source, target in moves:
            source.rename(target)
    except BaseException:
        _undo(moves)
        raise


def _undo(moves: list[tuple[Path, Path]]) -> None:
    """Move back whatever has been moved; what was not done is seen from the files themselves."""
    for source, target in reversed(moves):
        if target.exists() and not source.exists():
            target.rename(source)
