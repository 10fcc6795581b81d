"""Reads the files of a run back: its jobs, the stretches in which they held GPUs, and the cluster, as columns.

What ``data_files`` and ``files`` write; nothing is computed here but who holds what at a given time.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, require_extra
from trine.report.compare import label

TIMELINE, JOBS = "timeline.parquet", "jobs.csv"
_EXPECTED = "the directory of a run, as `trine sim run --out DIR` writes it"
_ASSUMED_GPUS = 8
"""Per node, where a file does not tell the cluster."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RecordedJob:
    """A job. Times in seconds of the trace; a job without a line in ``jobs.csv`` is known by its stretches only."""

    id: str
    submit_s: float
    start_s: float
    finish_s: float
    gpus: int
    model: str = ""
    user: str = ""


@dataclass(frozen=True)
class RecordedRun:
    """A run, by columns: stretch ``i`` is that of job ``job_of[i]`` on ``gpus_of(i)``."""

    title: str
    policy: str
    placement: str
    cluster: Cluster
    jobs: list[RecordedJob]
    job_of: Ints
    start_s: Floats
    end_s: Floats
    started: list[str]
    """Reason codes."""
    ended: list[str]
    slowdown: Floats
    gpu_offsets: Ints
    gpu_ids: Ints
    version: str = ""
    """Another one for other files."""
    stretches_of: dict[int, list[int]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """All settings of the run, as they took effect."""
    now_s: float | None = None
    """Up to when it has come, of a run that goes on: jobs and stretches that have not ended end at infinity, jobs that
    have not started start at NaN. ``None``: it is over."""

    def gpus_of(self, stretch: int) -> list[int]:
        return [int(gpu) for gpu in self.gpu_ids[self.gpu_offsets[stretch] : self.gpu_offsets[stretch + 1]]]

    @cached_property
    def submit_s(self) -> Floats:
        return np.array([job.submit_s for job in self.jobs])

    @cached_property
    def finish_s(self) -> Floats:
        return np.array([job.finish_s for job in self.jobs])

    @cached_property
    def job_index(self) -> dict[str, int]:
        return {job.id: index for index, job in enumerate(self.jobs)}

    @property
    def begin_s(self) -> float:
        return float(self.submit_s.min(initial=np.inf)) if self.jobs else 0.0

    @property
    def last_s(self) -> float:
        if self.now_s is not None:
            return self.now_s
        return max(float(self.end_s.max(initial=self.begin_s)), float(self.finish_s.max(initial=self.begin_s)))

    def running_at(self, at_s: float) -> list[int]:
        """The stretches that last at this time."""
        return [int(i) for i in np.flatnonzero((self.start_s <= at_s) & (at_s < self.end_s))]


def version_of(folder: Path) -> str:
    """Changes with the files; empty while there are none."""
    try:
        found = (folder / TIMELINE).stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns}.{found.st_size}"


def read_run(folder: Path) -> RecordedRun:
    """The run in a directory, or ``InputError``."""
    require_extra("report", "pyarrow", purpose="timeline.parquet needs")
    import pyarrow as pa
    import pyarrow.parquet as pq

    version = version_of(folder)
    try:
        table = pq.read_table(folder / TIMELINE)
        with (folder / JOBS).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        return _run(table, lines, version, folder)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name if error.filename else TIMELINE  # pyarrow does not say
        found = f"no {missing}" if folder.exists() else "no such directory, and no run that goes on"
        raise InputError(str(folder), found, _EXPECTED) from None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise InputError(str(folder), f"files that cannot be read ({error})", _EXPECTED) from None


def _run(table: Any, lines: list[dict[str, str]], version: str, folder: Path) -> RecordedRun:
    metadata = table.schema.metadata or {}
    about = json.loads(metadata.get(b"trine", b"{}"))
    ids = table["job_id"].to_pylist()
    starts, ends = (np.asarray(table[name].to_numpy(), np.float64) for name in ("start_s", "end_s"))
    gpus = table["gpus"].combine_chunks()
    offsets = np.asarray(gpus.offsets, np.int64)
    flat = np.asarray(gpus.values, np.int64)
    jobs = _jobs(lines, ids, starts, ends, offsets)
    index = {job.id: i for i, job in enumerate(jobs)}
    stretches: dict[int, list[int]] = {}
    for stretch, job_id in enumerate(ids):
        stretches.setdefault(index[job_id], []).append(stretch)
    return RecordedRun(
        run_title(folder.name, about),
        str(about.get("policy", "")),
        str(about.get("placement", "")),
        _cluster(metadata.get(b"cluster"), int(flat.max(initial=-1)) + 1),
        jobs,
        np.array([index[job_id] for job_id in ids], np.int64),
        starts,
        ends,
        table["started"].to_pylist(),
        table["ended"].to_pylist(),
        np.asarray(table["slowdown"].to_numpy(), np.float64),
        offsets,
        flat,
        version,
        stretches,
        about,
    )


def run_title(name: str, about: dict[str, Any]) -> str:
    """Of the directory ``name``, by the settings of its run."""
    policy, placement = label(about.get("policy", "")), label(about.get("placement", ""))
    return f"{name}: {policy} with {placement}, seed {about.get('seed', '')}"


def _jobs(
    lines: list[dict[str, str]], ids: list[str], starts: Floats, ends: Floats, offsets: Ints
) -> list[RecordedJob]:
    jobs = {
        line["job_id"]: RecordedJob(
            line["job_id"],
            float(line["submit_s"]),
            float(line["start_s"]),
            float(line["finish_s"]),
            int(line["gpus"]),
            line["model"],
            line["user"],
        )
        for line in lines
    }
    for i in np.argsort(starts, kind="stable"):
        job_id, start_s, end_s = ids[i], float(starts[i]), float(ends[i])
        known = jobs.get(job_id)
        if known is None or (known.finish_s < end_s and not known.model and not known.user):
            first_s = start_s if known is None else known.submit_s
            jobs[job_id] = RecordedJob(job_id, first_s, first_s, end_s, int(offsets[i + 1] - offsets[i]))
    return list(jobs.values())


def _cluster(described: bytes | None, gpus: int) -> Cluster:
    """As the file says; older files do not, and are shown as nodes of eight GPUs."""
    if described is None:
        full, rest = divmod(gpus, _ASSUMED_GPUS)
        sizes = [_ASSUMED_GPUS] * full + ([rest] if rest else [])
        return Cluster(
            tuple(Node(f"GPUs {i * _ASSUMED_GPUS}-{i * _ASSUMED_GPUS + n - 1}", n) for i, n in enumerate(sizes))
        )
    return cluster_from_json(json.loads(described))


def cluster_from_json(found: dict[str, Any]) -> Cluster:
    """What ``data_files.described_cluster`` made."""
    nodes = tuple(Node(name, int(count), gpu_type, rack) for name, count, gpu_type, rack in found["nodes"])
    return Cluster(nodes, scores={name: tuple(values) for name, values in found["scores"].items()})
