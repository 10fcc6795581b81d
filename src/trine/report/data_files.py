"""Files of reports: JSON, CSV and the timeline as Parquet, the same bytes for the same values on every machine; and how
they appear, all together or not at all. What a report contains is decided in ``files``.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.result import Segment

ROW_GROUP_ROWS = 131_072
OWN_FILES = frozenset({"summary.json", "jobs.csv", "timeline.parquet", "compare.json", "compare.csv", "report.html"})
STAGING_PREFIX = ".trine-partial-"


def write_json(path: Path, value: Any) -> None:
    """Two spaces of indent, keys in the order given, values that JSON cannot hold as ``null``."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def number_cell(value: float) -> str:
    """At most microseconds, no trailing zeros, empty for what is not a number: ``360``, ``98.5``."""
    if not math.isfinite(value):
        return ""
    if value == int(value):
        return str(int(value))
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it, the same in every process: no NaN, sets in order, other objects as text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(v) for v in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    return str(value)


def write_timeline(path: Path, segments: list[Segment], settings: dict[str, Any], cluster: Cluster) -> None:
    """``timeline_table`` as Parquet."""
    import pyarrow.parquet as pq

    pq.write_table(timeline_table(segments, settings, cluster), path, compression="zstd", row_group_size=ROW_GROUP_ROWS)


def timeline_table(segments: list[Segment], settings: dict[str, Any], cluster: Cluster | None = None) -> Any:
    """An Arrow table with one row per segment.

    In the schema's metadata, as JSON: the run's settings (key ``trine``) and the cluster (key ``cluster``).
    """
    import pyarrow as pa

    metadata = {"trine": json.dumps(plain(settings), sort_keys=True)}
    if cluster is not None:
        metadata["cluster"] = json.dumps(described_cluster(cluster), separators=(",", ":"))
    schema = pa.schema(_timeline_fields(), metadata=metadata)
    columns = [_timeline_column(f, segments) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def timeline_settings(path: Path) -> dict[str, Any]:
    """The settings of the run that wrote the file."""
    import pyarrow.parquet as pq

    found: dict[str, Any] = json.loads((pq.read_schema(path).metadata or {})[b"trine"])
    return found


def described_cluster(cluster: Cluster) -> dict[str, Any]:
    """Nodes with name, GPUs, type and rack, and the slowdown of each GPU by class, where GPUs differ."""
    nodes = [[node.name, node.gpus, node.gpu_type, node.rack] for node in cluster.nodes]
    scores = {
        name: [round(float(v), 4) for v in values] for name, values in cluster.scores.items() if set(values) != {1.0}
    }
    return {"nodes": nodes, "scores": scores}


def _timeline_fields() -> list[Any]:
    import pyarrow as pa

    return [
        pa.field("job_id", pa.string()),
        pa.field("start_s", pa.float64()),
        pa.field("end_s", pa.float64()),
        pa.field("gpus", pa.list_(pa.int32())),
        pa.field("tier", pa.string()),
        pa.field("slowdown", pa.float64()),
        pa.field("started", pa.string()),
        pa.field("ended", pa.string()),
        pa.field("tracked", pa.bool_()),
    ]


def _timeline_column(field: Any, segments: list[Segment]) -> Any:
    import pyarrow as pa

    if field.name == "gpus":
        return _gpu_lists(segments)
    values = [getattr(s, field.name) for s in segments]
    if pa.types.is_string(field.type):
        values = [str(v) for v in values]
    return pa.array(values, field.type)


def _gpu_lists(segments: list[Segment]) -> Any:
    """Offsets and one flat array: many times quicker than a Python list per row."""
    import numpy as np
    import pyarrow as pa

    offsets = np.zeros(len(segments) + 1, np.int32)
    np.cumsum([len(s.gpus) for s in segments], out=offsets[1:])
    flat = np.fromiter((g for s in segments for g in s.gpus), np.int32, int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


# -- all or nothing: files are written aside and moved into place together -------------------------------------------


def write_all(out_dir: Path | str, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write into an empty directory, then make its files the content of ``out_dir``.

    Whatever happens before the last step, an interrupt included, ``out_dir`` stays as it was. Files of an earlier
    report are replaced; a directory that holds anything else is refused before any work is done.
    """
    out = Path(out_dir).resolve()
    check_target(out)
    try:
        _fill_and_move(out, fill)
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


def _fill_and_move(out: Path, fill: Callable[[Path], None]) -> None:
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
