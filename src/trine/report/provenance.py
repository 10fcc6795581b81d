"""How a page was made, at its end: version, command line, checksums of the input files, the settings that were used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trine import __version__
from trine.report import page
from trine.report.page import Cell

FILE_KEYS = ("trace", "cluster", "world", "variability", "throughputs", "prices", "policy", "placement")
"""Settings of a run that may name files; in a comparison ``policies`` and ``placements``, too."""
NEEDS = {key: key for key in ("trace", "workload", "variability", "world")}
"""Groups of settings that are used only if the run has what they are about."""

PLAIN = frozenset({"run", "policy", "placement"})
"""Groups whose settings have no prefix."""


@dataclass(frozen=True)
class InputFile:
    """A file that a run read: its path as it was given, its size in bytes, its SHA-256."""

    path: str
    size: int
    sha256: str


def input_files(settings: Mapping[str, Any]) -> list[InputFile]:
    """The files that the settings name, each once, those of directories in order; names that are no files are none."""
    found: dict[str, InputFile] = {}
    for name in _named(settings):
        path = Path(name)
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            if str(file) not in found and file.is_file():
                found[str(file)] = _checked(file)
    return list(found.values())


def _named(settings: Mapping[str, Any]) -> Iterator[str]:
    for key in FILE_KEYS:
        value = settings.get(key)
        if isinstance(value, str) and value:
            # CLASS=FILE,CLASS=FILE is how chips are drawn from measurements.
            yield from (part.partition("=")[2] for part in value.split(",")) if "=" in value else (value,)
    for key in ("policies", "placements"):
        yield from settings.get(key, ())


def _checked(file: Path) -> InputFile:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return InputFile(str(file), file.stat().st_size, digest.hexdigest())


def used_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that took effect, by the names that ``--set`` gives them.

    Left out are groups without their subject, flags that are off and whatever was left open.
    """
    found = {k: v for k, v in settings.items() if k != "settings"}
    for group, values in settings.get("settings", {}).items():
        if group in NEEDS and not settings.get(NEEDS[group]):
            continue
        prefix = "" if group in PLAIN else f"{group}."
        unused = _unused(values) if group == "run" else frozenset()
        found |= {f"{prefix}{k}": v for k, v in values.items() if k not in unused and not _is_open(v)}
    return found


def _unused(run: Mapping[str, Any]) -> frozenset[str]:
    """Settings of a run that others make void."""
    unused = {"round_s"} if run.get("event_driven") else set()
    unused |= set() if run.get("background_jobs_per_h") else {"background_jobs_per_h", "background_seed"}
    unused |= {"restore_s"} if run.get("restart") == "model" else {"restart"}
    if run.get("network") == "off":
        unused |= {"link_sharing", "congestion", "oversubscription"}
    return frozenset(unused)


def _is_open(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | list | tuple | dict) and not value)


def section(what: str, settings: Mapping[str, Any], command: str = "") -> str:
    """The last section of a page about ``what``: a run, a comparison."""
    return made_with(what, used_settings(settings), input_files(settings), command)


def made_with(what: str, settings: Mapping[str, Any], files: Sequence[InputFile], command: str = "") -> str:
    """The same from settings and files that are known to have been used."""
    made = {"trine": __version__} | ({"command": command} if command else {})
    parts = [page.settings_table(made | dict(settings)), *([_file_table(files)] if files else [])]
    return page.section(f"How this {what} was made", *parts)


def _file_table(files: Iterable[InputFile]) -> str:
    header = [Cell("input file", number=False), Cell("bytes"), Cell("SHA-256", number=False)]
    rows = [
        [Cell(f.path, number=False, wrap=True), Cell(f"{f.size:,}"), Cell(f.sha256, number=False, wrap=True)]
        for f in files
    ]
    return page.table(header, rows)
