"""Data files of reports: JSON, CSV and the timeline as Parquet. Same values in, same bytes out, on every machine."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from trine.core.result import Segment

ROW_GROUP_ROWS = 131_072


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


def write_timeline(path: Path, segments: list[Segment], settings: dict[str, Any]) -> None:
    """One row per segment; the run's settings as JSON in the schema's metadata, key ``trine``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(_timeline_fields(), metadata={"trine": json.dumps(plain(settings), sort_keys=True)})
    columns = [_timeline_column(f, segments) for f in schema]
    pq.write_table(
        pa.Table.from_arrays(columns, schema=schema), path, compression="zstd", row_group_size=ROW_GROUP_ROWS
    )


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
