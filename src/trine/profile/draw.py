"""Simulated clusters: slowdowns for any number of GPUs, drawn from measurements of real ones. Seeded."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from trine.core.atomic_file import write_output
from trine.core.cluster import Cluster
from trine.core.errors import InputError, unknown_name
from trine.perf.variability import VariabilityTable
from trine.profile.measurements import MeasurementRecord, in_one_unit, name_order
from trine.profile.variability_profile import GPU_MEDIAN, RECORD, by_place

DRAWS = (GPU_MEDIAN, RECORD)
SEED = 42
"""The seed of the published simulations."""

Sources = Mapping[str, Sequence[MeasurementRecord]]


def draw_table(sources: Sources, gpu_count: int, seed: int = SEED, how: str = GPU_MEDIAN) -> VariabilityTable:
    """Slowdowns of ``gpu_count`` GPUs by class; ``sources`` are the records of each class, in the order to draw.

    ``record``: every GPU and class gets any single record (the published simulations' rule: one slow run becomes a
    slow GPU). ``gpu_median``: every GPU is a real one with the medians of its runs.
    """
    how = how.replace("-", "_")
    if how not in DRAWS:
        raise unknown_name("--how", "draw", how, DRAWS)
    if gpu_count < 1:
        raise InputError("--gpus", f"found {gpu_count}", "at least 1 GPU")
    for c, records in sources.items():
        if not records:
            raise InputError(f"class {c}", "no records", "at least one measurement")
    relative = {c: _relative(records) for c, records in sources.items()}
    rng = random.Random(seed)
    drawn = _records(relative, gpu_count, rng) if how == RECORD else _whole_gpus(relative, gpu_count, rng)
    return VariabilityTable(gpu_count, drawn)


def write_table(table: VariabilityTable, cluster: Cluster, path: str | Path) -> None:
    """Write ``table`` as the CSV that ``--variability`` reads, all or nothing."""
    write_output(path, table_csv(table, cluster))


def table_csv(table: VariabilityTable, cluster: Cluster) -> str:
    """One row per GPU: id, index of its node, slowdown per class."""
    columns = [table.slowdown(c) for c in table.classes]
    lines = [",".join(("gpu", "node", *(f"slowdown_{c}" for c in table.classes)))]
    for gpu, values in enumerate(zip(*columns, strict=True)):
        lines.append(",".join((str(gpu), str(cluster.node_of[gpu]), *map(repr, values))))
    return "\n".join(lines) + "\n"


def _relative(records: Sequence[MeasurementRecord]) -> list[MeasurementRecord]:
    """Times over the median of all records, in the order of the file."""
    clean, _, _ = in_one_unit(records)
    middle = median(r.perf_s for r in clean)
    return [replace(r, perf_s=r.perf_s / middle) for r in clean]


def _records(relative: Sources, gpu_count: int, rng: random.Random) -> dict[str, list[float]]:
    # GPU by GPU and class by class from one stream: the order makes the published clusters come out.
    drawn: dict[str, list[float]] = {c: [] for c in relative}
    for _ in range(gpu_count):
        for c, records in relative.items():
            drawn[c].append(rng.choice(records).perf_s)
    return drawn


def _whole_gpus(relative: Sources, gpu_count: int, rng: random.Random) -> dict[str, list[float]]:
    """The same real GPU in all classes in which it was measured; in others one more is drawn to stand in."""
    medians = _medians(relative)
    names = {c: sorted(found, key=name_order) for c, found in medians.items()}
    drawn: dict[str, list[float]] = {c: [] for c in relative}
    for _ in range(gpu_count):
        stand_ins: list[str] = []
        for c, found in medians.items():
            gpu = next((g for g in stand_ins if g in found), None)
            if gpu is None:
                gpu = rng.choice(names[c])
                stand_ins.append(gpu)
            drawn[c].append(found[gpu])
    return drawn


def _medians(relative: Sources) -> dict[str, dict[str, float]]:
    tagged = [replace(r, app_class=c) for c, records in relative.items() for r in records]
    runs: dict[str, dict[str, list[float]]] = {c: defaultdict(list) for c in relative}
    for r in by_place(tagged):
        runs[r.app_class][r.gpu].append(r.perf_s)
    return {c: {gpu: median(times) for gpu, times in gpus.items()} for c, gpus in runs.items()}
