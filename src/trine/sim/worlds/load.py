"""``load_world``: a world directory as cluster, jobs, step times by type, traffic by model and default settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trine.core.cluster import Cluster, Links, Node
from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.yaml_reader import Mapping as Keys
from trine.inputs.yaml_reader import read_mapping
from trine.perf.model_traffic import TrafficTable
from trine.perf.throughput import ThroughputTable
from trine.sim.worlds.gpus import read_gpus
from trine.sim.worlds.jobs import REFERENCE, Shape, WorldJobs, read_jobs

WHAT = "a world directory: cluster.json, gpus.csv and jobs.csv"


@dataclass(frozen=True)
class LoadedWorld:
    """All that a world directory says."""

    cluster: Cluster
    """With its links, and the slowdown per chip and class as scores."""
    jobs: list[Job]
    """In order of submission; steps are iterations, step times those of the reference type at its best."""
    jobs_path: str
    throughputs: ThroughputTable
    """Iterations per second by model, gang and type at the best placement: fewest nodes, links to itself."""
    traffic: TrafficTable
    """What the models compute (on the reference type) and send per iteration."""
    type_speeds: Mapping[str, Mapping[str, float]]
    """Compute speed by model and GPU type, 1 on the reference type: compute on a type is compute_s / speed."""
    settings: dict[str, Any]
    """Settings that the world fixes unless a run has its own: ``round_s``, ``restore_s``, ``link_sharing``."""

    @property
    def notes(self) -> list[str]:
        """Sentences for a reader of results."""
        defaults = f"rounds of {self.settings['round_s']:g} s, {self.settings['restore_s']:g} s after a stop or move"
        what = f"World of {len(self.jobs):,} jobs on {self.cluster.describe()}; {defaults} unless set otherwise."
        return [what]


@dataclass(frozen=True, slots=True)
class _ClusterFile:
    """``cluster.json``."""

    shape: Shape
    types: tuple[str, ...]
    round_s: float
    restart_s: float


def load_world(folder: str) -> LoadedWorld:
    """The world in ``folder``. Sweeps load the same one many times: the last few are kept until a file changes."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(folder, "found a file" if path.exists() else "no such directory", WHAT)
    stamps = tuple((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(path.iterdir()))
    return _load(folder, stamps)


@lru_cache(maxsize=4)
def _load(folder: str, stamps: tuple[tuple[str, int, int], ...]) -> LoadedWorld:  # noqa: ARG001
    path = Path(folder)
    stated = _read_cluster(path)
    gpus = read_gpus(path, stated.types)
    _check_shape(gpus.path, gpus.nodes, stated.shape)
    cluster = _cluster(path.name, gpus.nodes, gpus.slowdowns, stated.shape)
    found = read_jobs(path, stated.shape, cluster.types, tuple(gpus.slowdowns), stated.restart_s)
    return LoadedWorld(
        cluster=cluster,
        jobs=found.jobs,
        jobs_path=found.path,
        throughputs=_throughputs(found, stated.shape, cluster.types),
        traffic=TrafficTable({name: model.traffic for name, model in found.models.items()}),
        type_speeds={name: model.speeds for name, model in found.models.items()},
        settings={"round_s": stated.round_s, "restore_s": stated.restart_s, "link_sharing": "duty"},
    )


def _read_cluster(folder: Path) -> _ClusterFile:
    if not (folder / "cluster.json").exists():
        raise InputError(str(folder), "no file cluster.json", WHAT)
    top = read_mapping(folder / "cluster.json", "the cluster of a world")
    inside = _intra(top.mapping("intra_node_bytes_per_s"))
    links = Links(
        nic_bytes_per_s=top.number("nic_bytes_per_s", above=0),
        uplink_bytes_per_s=top.number("uplink_bytes_per_s", above=0),
    )
    shape = Shape(top.integer("gpus_per_node", minimum=1), top.integer("nodes_per_rack", minimum=1), links, inside)
    stated = _ClusterFile(shape, tuple(inside), top.number("round_s", above=0), top.number("restart_s", minimum=0))
    top.finish()
    return stated


def _intra(by_type: Keys) -> dict[str, float]:
    found = {gpu_type: value.number(above=0) for gpu_type, value in by_type.values()}
    if REFERENCE not in found:
        raise by_type.error(f"no {REFERENCE}", f"{REFERENCE}, on which work is stated, and every other GPU type")
    return found


def _check_shape(path: str, nodes: tuple[Node, ...], shape: Shape) -> None:
    """The shape decides how few nodes a gang needs: it must be that of the GPUs."""
    most_gpus, most_nodes = max(n.gpus for n in nodes), max(Counter(n.rack for n in nodes).values())
    if most_gpus != shape.gpus_per_node or most_nodes > shape.nodes_per_rack:
        found = f"{most_gpus} GPUs on the largest node, {most_nodes} nodes in the largest rack"
        expected = f"{shape.gpus_per_node} per node and at most {shape.nodes_per_rack} per rack, as in cluster.json"
        raise InputError(path, found, expected)


def _cluster(name: str, nodes: tuple[Node, ...], slowdowns: dict[str, tuple[float, ...]], shape: Shape) -> Cluster:
    types = dict.fromkeys(node.gpu_type for node in nodes)
    inside = {gpu_type: Links(intra_node_bytes_per_s=shape.intra_bytes_per_s[gpu_type]) for gpu_type in types}
    return Cluster(nodes, name=name, links=shape.links, type_links=inside, scores=slowdowns)


def _throughputs(found: WorldJobs, shape: Shape, types: tuple[str, ...]) -> ThroughputTable:
    gangs = sorted({(job.model, job.gpus) for job in found.jobs})
    return ThroughputTable(
        {
            (model, gpus): {t.lower(): 1.0 / found.models[model].best_iteration_s(gpus, t, shape) for t in types}
            for model, gpus in gangs
        }
    )
