"""``load_cluster``: a shape such as 16x4, a YAML file or a public node list, distinguished by content."""

from __future__ import annotations

import os
from pathlib import Path

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.inputs.cluster_csv import FORMATS, ShapeOptions, detect, header, read_shape
from trine.inputs.cluster_shape import EXAMPLES, is_shape, parse_shape, resembles_shape
from trine.inputs.cluster_yaml import dump_cluster, parse_cluster
from trine.inputs.text_file import read_text

__all__ = ["dump_cluster", "load_cluster"]

_YAML_SUFFIXES = (".yaml", ".yml", ".json")
_FILE_SUFFIXES = (*_YAML_SUFFIXES, ".csv", ".gz", ".txt", ".trace", ".tsv")
_TRACE_COLUMNS = (
    {"job_id", "job", "job_type", "model_name", "user", "num_gpus", "num_gpu", "gpu_milli", "gpu_time", "scale_factor"}
    | {"submit_time", "submit_s", "submission_time", "arrival_s", "arrival_time", "timestamp", "creation_time"}
    | {"duration", "duration_s", "iterations", "iteration", "num_iters", "steps", "total_steps"}
)
_GAVEL_COLUMNS = 7
"""Traces of the Gavel family have no header and at least this many columns between tabs."""


def load_cluster(spec: str) -> Cluster:
    """The cluster of ``16x4``, ``v100=8x1,k80=4x2``, ``4x8x8``, a YAML file or a public shape file (gzip'ed or not)."""
    spec = spec.strip()
    where = f"cluster {spec!r}"
    if not spec:
        raise InputError("cluster", "found nothing", f"{EXAMPLES}, or a file")
    if is_shape(spec):
        return parse_shape(spec, where)
    if os.path.lexists(spec):
        return _from_file(spec)
    if resembles_shape(spec) and not _names_file(spec):
        return parse_shape(spec, where)
    if _names_file(spec):
        raise InputError(spec, "no such file", "a cluster file that exists")
    raise InputError(where, "neither a cluster shape nor a file that exists", f"{EXAMPLES}, or a file")


def _names_file(spec: str) -> bool:
    return "/" in spec or os.sep in spec or spec.lower().endswith(_FILE_SUFFIXES)


def _from_file(path: str) -> Cluster:
    if Path(path).is_dir():
        raise InputError(path, "found a directory", "a cluster file (a world directory is given with --world)")
    text = read_text(path, "a cluster file")
    kind = detect(text)
    if kind is not None:
        return read_shape(kind, text, path, ShapeOptions())
    _refuse_trace(text, path)
    if _is_table(text, path):
        known = "; ".join(f"{f.name} ({','.join(f.columns)})" for f in FORMATS)
        raise InputError(f"{path}:1", f"columns {_shown(header(text))}", f"a YAML file or one of: {known}")
    return parse_cluster(text, path)


def _refuse_trace(text: str, path: str) -> None:
    columns = {column.lower() for column in header(text)}
    tabs = text[:10_000].partition("\n")[0].count("\t")
    if len(columns & _TRACE_COLUMNS) >= 2 or tabs >= _GAVEL_COLUMNS - 1:
        raise InputError(path, "looks like a job trace (give it with --trace)", f"a cluster: {EXAMPLES}, or a file")


def _is_table(text: str, path: str) -> bool:
    name = path.lower().removesuffix(".gz")
    return not name.endswith(_YAML_SUFFIXES) and (name.endswith((".csv", ".tsv")) and bool(text.strip()))


def _shown(columns: list[str]) -> str:
    text = ",".join(columns)
    return repr(text if len(text) <= 80 else text[:77] + "...")
