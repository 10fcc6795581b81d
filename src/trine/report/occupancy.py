"""The Gantt chart of GPUs: which job held which GPU when, as a grid of rows (GPUs or nodes) by columns of time.

Grids are built here; colours and hover texts are given to them by the page's script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trine.core.cluster import Cluster
from trine.core.result import RunResult
from trine.report.series import Floats, Holdings, Ints, clock_span, holdings, without_overlap

MAX_GPU_ROWS = 256
MAX_NODE_ROWS = 160
MAX_CELLS = 160_000
"""Keeps the page quick to draw and its share of the file at a few megabytes."""
MAX_COLUMNS = 1600
JOB_COLOURS = 8


@dataclass(frozen=True)
class JobMap:
    """One row per GPU; every cell names the segment that held the GPU, -1 for none."""

    edges_s: Floats
    cells: NDArray[np.int32]
    exact: bool
    """True if columns end where something changed, False if the grid was sampled at equal steps."""
    segments: Ints
    """Indices into ``RunResult.segments`` by cell value."""


@dataclass(frozen=True)
class LoadMap:
    """One row per node or group of nodes; every cell is the share of the row's GPU time that was in use."""

    edges_s: Floats
    share: Floats
    nodes_per_row: int


def build_map(result: RunResult, max_cells: int = MAX_CELLS) -> JobMap | LoadMap | None:
    """The most detailed map that stays readable; ``None`` if no GPU was ever held."""
    held = holdings(result.segments)
    start_s, end_s = clock_span(result)
    if not len(held.gpu) or end_s <= start_s:
        return None
    if result.cluster.gpu_count <= MAX_GPU_ROWS:
        return _job_map(held, result.cluster.gpu_count, (start_s, end_s), max_cells)
    return _load_map(without_overlap(held), result.cluster, (start_s, end_s), max_cells)


def _job_map(held: Holdings, gpus: int, span: tuple[float, float], max_cells: int) -> JobMap:
    edges, exact = _edges(held, span, min(MAX_COLUMNS, max(50, max_cells // gpus)))
    # A cell belongs to the job that holds the GPU at its middle; where jobs share, to the one that started last.
    middle = (edges[:-1] + edges[1:]) / 2
    first = np.searchsorted(middle, held.start_s, side="left")
    last = np.searchsorted(middle, held.end_s, side="left")
    cells = np.full((gpus, len(middle)), -1, np.int32)
    for i in np.argsort(held.start_s, kind="stable"):
        cells[held.gpu[i], first[i] : last[i]] = held.segment[i]
    shown, packed = np.unique(cells, return_inverse=True)
    idle = int(shown[0] == -1)
    return JobMap(edges, (packed.reshape(cells.shape) - idle).astype(np.int32), exact, shown[idle:].astype(np.int64))


def _edges(held: Holdings, span: tuple[float, float], columns: int) -> tuple[Floats, bool]:
    changes = np.unique(np.concatenate([held.start_s, held.end_s, np.asarray(span)]))
    if len(changes) - 1 <= columns:
        return changes, True
    return np.linspace(span[0], span[1], columns + 1), False


def _load_map(held: Holdings, cluster: Cluster, span: tuple[float, float], max_cells: int) -> LoadMap:
    nodes_per_row = -(-len(cluster.nodes) // MAX_NODE_ROWS)
    row_of_gpu = np.asarray(cluster.node_of, np.int64) // nodes_per_row
    rows = int(row_of_gpu[-1]) + 1
    columns = min(MAX_COLUMNS // 2, max(50, max_cells // 2 // rows))
    edges = np.linspace(span[0], span[1], columns + 1)
    row = row_of_gpu[held.gpu]
    busy = _since(row, held.start_s, edges, rows) - _since(row, held.end_s, edges, rows)
    gpus_in_row = np.bincount(row_of_gpu, minlength=rows)
    return LoadMap(edges, np.clip(busy / np.maximum(gpus_in_row, 1)[:, None], 0.0, 1.0), nodes_per_row)


def _since(row: Ints, at_s: Floats, edges: Floats, rows: int) -> Floats:
    """Per row and column, how many intervals have begun, the column in which one begins counted by its part.

    The busy time of a cell is what has begun minus what has ended. Each interval is added at its first column and the
    next one only, and a cumulative sum carries it on: cost by intervals and cells, not by their product.
    """
    columns, width = len(edges) - 1, edges[1] - edges[0]
    column = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, columns - 1)
    part = np.clip((edges[column + 1] - at_s) / width, 0.0, 1.0)
    size = rows * (columns + 1)
    flat = row * (columns + 1) + column
    begun = np.bincount(flat, part, size) + np.bincount(flat + 1, 1.0 - part, size)
    summed: Floats = np.cumsum(begun.reshape(rows, columns + 1), axis=1)[:, :columns]
    return summed


def row_labels(cluster: Cluster, nodes_per_row: int = 0, most: int = 32) -> tuple[list[float], list[str]]:
    """Where the rows' marks stand and what they say, ``most`` of them; ``nodes_per_row`` 0 means one row per GPU."""
    if nodes_per_row:
        names = row_names(cluster, nodes_per_row)
        places = [float(i) for i in range(len(names))]
    else:
        names = [n.name for n in cluster.nodes]
        places = [f + (n.gpus - 1) / 2 for f, n in zip(cluster.first_gpu, cluster.nodes, strict=True)]
    every = -(-len(names) // most)
    return places[::every], names[::every]


def row_names(cluster: Cluster, nodes_per_row: int) -> list[str]:
    return [_range_name(cluster, i, nodes_per_row) for i in range(0, len(cluster.nodes), nodes_per_row)]


def _range_name(cluster: Cluster, first: int, nodes: int) -> str:
    names = [n.name for n in cluster.nodes[first : first + nodes]]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def run_lengths(row: NDArray[np.int32]) -> list[int]:
    """A row of cells as ``length, value, length, value ...``: what the page's script unpacks."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(row)) + 1])
    lengths = np.diff(np.append(starts, len(row)))
    flat: list[int] = np.column_stack([lengths, row[starts]]).ravel().tolist()
    return flat


def job_table(result: RunResult, shown: Ints) -> dict[str, list[Any]]:
    """What the hover texts need of the segments that the map shows, column by column, each job named once."""
    segments = [result.segments[i] for i in shown]
    jobs = {job_id: i for i, job_id in enumerate(dict.fromkeys(s.job_id for s in result.segments))}
    used = sorted({jobs[s.job_id] for s in segments})
    place = {old: new for new, old in enumerate(used)}
    names = list(jobs)
    return {
        "jobs": [names[i] for i in used],
        "colour": [i % JOB_COLOURS for i in used],
        "job": [place[jobs[s.job_id]] for s in segments],
        "gpus": [len(s.gpus) for s in segments],
        "tier": [s.tier for s in segments],
        "slowdown": [round(s.slowdown, 3) for s in segments],
        "start_s": [round(s.start_s, 1) for s in segments],
        "end_s": [round(s.end_s, 1) for s in segments],
        "background": [int(not s.tracked) for s in segments],
    }
