"""Which chips the simulated cluster has: a table or profile of real GPUs, or chips drawn from measurement records."""

from __future__ import annotations

from functools import lru_cache

from trine.assembly.settings import VariabilitySettings
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.perf.variability import VariabilityTable
from trine.profile.draw import draw_table
from trine.profile.measurements import MeasurementRecord, read_records
from trine.profile.profile_matching import load_any


def chips(
    source: str, cluster: Cluster, told: VariabilitySettings, seed: int, classes: set[str]
) -> tuple[VariabilityTable, list[str]]:
    """Slowdowns for the GPUs of ``cluster`` and what a reader should know about them.

    ``source`` is a file (table or profile), or ``A=FILE,B=FILE ...``: records of real GPUs per class to draw from.
    """
    if not source:
        table, notes = VariabilityTable.of_cluster(cluster), list[str]()
    elif "=" in source:
        drawn_with = seed if told.seed is None else told.seed
        table = draw_table(_sources(source), cluster.gpu_count, drawn_with, told.draw)
        notes = [f"Chips drawn from measurements ({told.draw})."]
    else:
        table, notes = load_any(source, cluster, classes)
    return (table, notes) if told.cap is None else _capped(table, told.cap, notes)


def _sources(source: str) -> dict[str, tuple[MeasurementRecord, ...]]:
    sources: dict[str, tuple[MeasurementRecord, ...]] = {}
    for part in source.split(","):
        name, equals, path = part.partition("=")
        if not (equals and name.strip() and path.strip()) or name.strip() in sources:
            raise InputError("--variability", f"{part!r}", "a file, or CLASS=FILE once per class, separated by commas")
        sources[name.strip()] = _records(path.strip(), name.strip())
    return sources


@lru_cache(maxsize=16)
def _records(path: str, app_class: str) -> tuple[MeasurementRecord, ...]:
    """Sweeps draw from the same records again and again."""
    return tuple(read_records(path, app_class).records)


def _capped(table: VariabilityTable, cap: float, notes: list[str]) -> tuple[VariabilityTable, list[str]]:
    """GPUs slower than ``cap`` count as median ones: what is left when the outliers are mended."""
    mended = {c: [1.0 if v > cap else v for v in table.slowdown(c)] for c in table.classes}
    count = sum(v > cap for c in table.classes for v in table.slowdown(c))
    return VariabilityTable(table.gpu_count, mended), [*notes, f"{count} slowdowns above {cap:g} were set to 1."]
