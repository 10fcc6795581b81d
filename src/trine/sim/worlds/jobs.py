"""``jobs.csv`` of a world: work in seconds on the reference type, and what a model computes and sends per iteration.

An iteration takes ``p_norm(compute / speed of the type x slowest chip, communication)``. ``Shape`` gives the best it
can take: fewest nodes, links to itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trine.core.cluster import Links
from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.csv_table import Row
from trine.perf.collectives import all_reduce, p_norm
from trine.perf.model_traffic import ModelTraffic
from trine.sim.worlds.table import read_table
from trine.trace.formats.gavel import batch_size

REFERENCE = "v100"
"""GPU type on which work and compute are stated."""
COLUMNS = (
    *("job_id", "submit_s", "gpus", "work_s_on_v100", "class", "model"),
    *("compute_s_per_iteration_v100", "gradient_bytes", "overlap_gamma"),
)
PREFIX = "speed_"


@dataclass(frozen=True, slots=True)
class Shape:
    """How many GPUs lie together, and the links between them."""

    gpus_per_node: int
    nodes_per_rack: int
    links: Links
    intra_bytes_per_s: Mapping[str, float]
    """Inside a node, by GPU type."""

    def best_comm_s(self, gradient_bytes: float, gpus: int, gpu_type: str) -> float:
        """Communication per iteration of a gang of one type on as few nodes as can hold it, links to itself."""
        links, per_node = self.links, min(gpus, self.gpus_per_node)
        nodes = math.ceil(gpus / self.gpus_per_node)
        inside = all_reduce(per_node, gradient_bytes, links.node_latency_s).at(self.intra_bytes_per_s[gpu_type])
        if nodes == 1:
            return inside
        nic, uplink = links.nic_bytes_per_s or math.inf, links.uplink_bytes_per_s or math.inf
        if nodes <= self.nodes_per_rack:
            return inside + all_reduce(nodes, gradient_bytes, links.rack_latency_s).at(nic)
        return inside + all_reduce(nodes, gradient_bytes, links.network_latency_s).at(min(nic, uplink))


class WorldModel(NamedTuple):
    """What ``jobs.csv`` says about a model, and where it says so first."""

    traffic: ModelTraffic
    speeds: dict[str, float]
    """Compute speed by GPU type, 1 on the reference type; 0 = does not run there."""
    line: int

    def best_iteration_s(self, gpus: int, gpu_type: str, shape: Shape) -> float:
        """Seconds per iteration on median GPUs of ``gpu_type`` at the best placement."""
        traffic, speed = self.traffic, self.speeds[gpu_type]
        if speed == 0:
            return math.inf
        comm_s = shape.best_comm_s(traffic.gradient_bytes, gpus, gpu_type)
        return p_norm(traffic.compute_s / speed, comm_s, traffic.overlap)


@dataclass(frozen=True, slots=True)
class WorldJobs:
    """Jobs in order of submission, and their models by name."""

    path: str
    jobs: list[Job]
    models: dict[str, WorldModel]


def read_jobs(
    folder: Path, shape: Shape, types: tuple[str, ...], classes: tuple[str, ...], restart_s: float
) -> WorldJobs:
    """The jobs of a world that has GPUs of ``types`` and slowdowns of ``classes``."""
    table = read_table(folder, "jobs.csv", COLUMNS, PREFIX)
    for gpu_type in (REFERENCE, *types):
        if gpu_type not in table.suffixes:
            raise InputError(f"{table.path}:1", "no such column", "a speed for every GPU type", f"{PREFIX}{gpu_type}")
    models: dict[str, WorldModel] = {}
    jobs: dict[str, Job] = {}
    for row in table.rows:
        model = _model(row, table.suffixes, restart_s)
        _check_same(row, models.setdefault(row.text("model"), model), model)
        job = _job(row, model, shape, classes)
        if job.id in jobs:
            raise InputError(row.where, f"job id {job.id!r} again, first on line {jobs[job.id].line}", "every job once")
        jobs[job.id] = job
    if not jobs:
        raise InputError(table.path, "no jobs", "at least one")
    return WorldJobs(table.path, sorted(jobs.values(), key=lambda job: job.submit_s), models)


def _model(row: Row, types: tuple[str, ...], restart_s: float) -> WorldModel:
    compute_s, overlap = _above_0(row, "compute_s_per_iteration_v100"), row.number("overlap_gamma", minimum=1)
    traffic = ModelTraffic(
        row.number("gradient_bytes"), compute_s, overlap=overlap, restart_s=restart_s, source="world directory"
    )
    speeds = {gpu_type: row.number(f"{PREFIX}{gpu_type}") for gpu_type in types}
    if not speeds[REFERENCE]:
        raise InputError(row.where, "found 0", "a speed above 0 on the reference type", f"{PREFIX}{REFERENCE}")
    return WorldModel(traffic, speeds, row.line)


def _check_same(row: Row, known: WorldModel, model: WorldModel) -> None:
    """Speeds and traffic belong to the model: rows that name the same one must agree."""
    if (known.traffic, known.speeds) != (model.traffic, model.speeds):
        found = f"other speeds or traffic of {row.text('model')!r} than on line {known.line}"
        raise InputError(row.where, found, "the same for all jobs of a model", "model")


def _job(row: Row, model: WorldModel, shape: Shape, classes: tuple[str, ...]) -> Job:
    """Steps are iterations: ``work_s_on_v100`` seconds of them on the reference type at its best."""
    gpus, app_class, name = row.whole_or_none("gpus"), row.text("class"), row.text("model")
    if not gpus:
        raise InputError(row.where, f"found {row.text('gpus')!r}", "a whole number of at least 1", "gpus")
    if not row.text("job_id") or not name:
        empty = "model" if row.text("job_id") else "job_id"
        raise InputError(row.where, "the cell is empty", "a name", empty)
    if app_class not in classes:
        raise InputError(row.where, f"unknown class {app_class!r}", f"one of {', '.join(classes)}", "class")
    step_s = model.best_iteration_s(gpus, REFERENCE, shape)
    return Job(
        id=row.text("job_id"),
        submit_s=row.number("submit_s"),
        gpus=gpus,
        steps=_above_0(row, "work_s_on_v100") / step_s,
        step_s=step_s,
        model=name,
        app_class=app_class,
        batch_size=batch_size(name),
        line=row.line,
    )


def _above_0(row: Row, column: str) -> float:
    value = row.number(column)
    if value == 0:
        raise InputError(row.where, f"found {row.text(column)!r}", "a number above 0", column)
    return value
