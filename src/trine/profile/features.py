"""Features of applications: how busy they keep the GPU and its memory. Reads the shipped table and measured rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from trine.core.errors import InputError
from trine.inputs.yaml_reader import Mapping, parse_mapping, read_mapping

ASSUMED = "assumed"
WHAT = "a table of features (YAML with the key applications) or one measured row (JSON, by trine profile app)"


@dataclass(frozen=True, slots=True)
class AppFeatures:
    """One application on one GPU; utilisations are shares of the time, 0 to 1."""

    name: str
    compute_util: float
    memory_util: float
    power_w: float | None = None
    gpu_spread: float | None = None
    """How much GPUs were measured to differ with this application: robust standard deviation of the slowdowns."""
    source: str = "measured"

    @property
    def assumed(self) -> bool:
        return self.source.startswith(ASSUMED)


def shipped_features() -> list[AppFeatures]:
    """The table that comes with the package: published figures, and guesses that say so."""
    text = (files("trine.profile") / "features.yaml").read_text(encoding="utf-8")
    return _table(parse_mapping(text, "features.yaml", WHAT))


def read_features(path: str | Path) -> list[AppFeatures]:
    """The rows in ``path``: a table as the shipped one, or a single row as measured."""
    top = read_mapping(path, WHAT)
    if "applications" in top:
        return _table(top)
    return [_row(top, str(Path(path).name))]  # a measured row says more than is needed here


def merged(*tables: Iterable[AppFeatures]) -> list[AppFeatures]:
    """One row per application, sorted by name; later tables replace rows of earlier ones but keep their spread."""
    rows: dict[str, AppFeatures] = {}
    for row in (row for table in tables for row in table):
        known = rows.get(row.name)
        spread = row.gpu_spread if row.gpu_spread is not None or known is None else known.gpu_spread
        rows[row.name] = AppFeatures(row.name, row.compute_util, row.memory_util, row.power_w, spread, row.source)
    return [rows[name] for name in sorted(rows)]


def _table(top: Mapping) -> list[AppFeatures]:
    sources = top.mapping("sources", None)
    if sources is not None:
        sources.keys()
    rows, seen = [], set[str]()
    for value in top.list("applications"):
        entry = value.mapping()
        rows.append(_row(entry, ASSUMED))
        entry.text("detail", "")
        entry.text("spread_source", "")
        if rows[-1].name in seen:
            raise InputError(value.where, f"application {rows[-1].name!r} found twice", "each application once")
        seen.add(rows[-1].name)
    top.finish()
    return rows


def _row(entry: Mapping, source: str) -> AppFeatures:
    return AppFeatures(
        name=entry.text("name"),
        compute_util=entry.number("compute_util", minimum=0, maximum=1),
        memory_util=entry.number("memory_util", minimum=0, maximum=1),
        power_w=entry.number("power_w", None, above=0),
        gpu_spread=entry.number("gpu_spread", None, minimum=0),
        source=entry.text("source", source),
    )
