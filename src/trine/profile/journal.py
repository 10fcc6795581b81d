"""The files of a measuring session: settings, and a journal of records that grows line by line and survives an
interrupt. A session is resumed from them; a different one is refused."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trine.core.atomic_file import write_output
from trine.core.errors import InputError
from trine.inputs.text_file import read_text
from trine.profile.records import COLUMNS, MeasurementRecord, read_records

_HEADER = ",".join(COLUMNS) + "\n"


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """Where a session keeps its files."""

    profile: Path
    records: Path
    settings: Path
    page: Path

    @classmethod
    def at(cls, out: Path) -> SessionFiles:
        """``out`` names the profile if it ends in .json, a folder otherwise."""
        if out.suffix == ".json" and not out.is_dir():
            stem = out.with_suffix("")
            return cls(out, *(stem.with_name(stem.name + end) for end in (".records.csv", ".session.json", ".html")))
        return cls(*(out / name for name in ("profile.json", "records.csv", "session.json", "profile.html")))


class Journal:
    """Appends records; every line is complete on disk before the next measurement starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: MeasurementRecord) -> None:
        line = io.StringIO()
        writer = csv.writer(line, lineterminator="\n")
        at = "" if record.at_s is None else repr(record.at_s)
        cells = {"gpu": record.gpu, "node": record.node, "place": record.place, "class": record.app_class}
        cells |= {"run": str(record.run), "perf_s": repr(record.perf_s), "at_s": at}
        writer.writerow([cells[column] for column in COLUMNS])
        with self._path.open("a", encoding="utf-8", newline="") as stream:
            stream.write(line.getvalue())


def open_journal(
    files: SessionFiles, settings: dict[str, Any], resume: bool
) -> tuple[Journal, tuple[MeasurementRecord, ...]]:
    """The journal to write to and the records it already holds. ``settings`` must be those of the session resumed."""
    if resume and files.records.exists():
        _check_same(files.settings, settings)
        return Journal(files.records), _taken(files.records)
    if files.records.exists():
        expected = "a new place, or --resume to go on with that session"
        raise InputError(str(files.records), "a session's records are already there", expected)
    _create(files, settings)
    return Journal(files.records), ()


def _create(files: SessionFiles, settings: dict[str, Any]) -> None:
    try:
        files.records.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        found = f"cannot be made ({error.strerror})"
        raise InputError(str(files.records.parent), found, "a folder to write to") from None
    write_output(files.settings, json.dumps(settings, indent=2) + "\n")
    write_output(files.records, _HEADER)


def _check_same(path: Path, settings: dict[str, Any]) -> None:
    try:
        before = json.loads(read_text(path, "the settings of the session to resume"))
    except ValueError as error:
        raise InputError(str(path), f"not valid JSON ({error})", "the settings of the session to resume") from None
    for key, value in settings.items():
        found = before.get(key) if isinstance(before, dict) else None
        if found != value:
            raise InputError(str(path), f"the session was begun with {found!r}", f"the same as now, {value!r}", key)


def _taken(path: Path) -> tuple[MeasurementRecord, ...]:
    """Records so far. A last line without an end was cut off when the machine went down: it is measured again."""
    text = read_text(path, "the records of the session to resume")
    whole = text[: text.rfind("\n") + 1]
    if not whole:
        whole = _HEADER
    if whole != text:
        write_output(path, whole)
    return read_records(path).records if whole.count("\n") > 1 else ()
