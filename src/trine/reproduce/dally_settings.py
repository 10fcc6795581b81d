"""The scenarios of Dally's experiments as files: links, generated traces, stretches of the Philly trace.

The world is not the paper's, of which nothing is known, but a design of this project (``dally.yaml``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.cluster import load_cluster
from trine.reproduce.dally_runs import Ask, Contender
from trine.reproduce.dally_workload import DENSE, MIX, generated_jobs
from trine.sim.scenario import Scenario
from trine.trace import ImportOptions, load, write_trace
from trine.trace.models import DEFAULT_MIX, Mix, draw_models, find_mix


@dataclass(frozen=True)
class World:
    """Where files of the runs go, and what ``dally.yaml`` says about the setting."""

    scratch: Path
    figures: dict[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        told = self.figures["prototype"]
        lines = [f"  {key}: {told[key]}" for key in ("intra_node", "nic", "oversubscription")]
        Path(self.network).write_text("\n".join(["links:", *lines, ""]), encoding="utf-8")

    @property
    def network(self) -> str:
        return str(self.scratch / "links.yaml")

    def congestion(self, congested: bool) -> float:
        return float(self.figures["prototype"]["congestion"]) if congested else 1.0


@dataclass(frozen=True)
class Setting:
    """One scenario: a cluster, its links, and a trace for each seed."""

    name: str
    cluster: str
    node_gpus: int
    congested: bool
    traces: tuple[str, ...]
    """Trace files by seed."""
    values: dict[str, Any] = field(hash=False)

    @property
    def seeds(self) -> range:
        return range(len(self.traces))

    def ask(self, contender: Contender, seed: int) -> Ask:
        values = self.values | dict(contender.values)
        told = Scenario(self.cluster, contender.policy, contender.placement, trace=self.traces[seed], seed=seed)
        return Ask(replace(told, values=values), self.node_gpus)

    def first(self, seeds: int) -> Setting:
        """The same with fewer seeds."""
        return replace(self, traces=self.traces[:seeds])


def _values(world: World, congestion: float, **more: Any) -> dict[str, Any]:
    return {"network": world.network, "congestion": congestion, **world.figures["prototype"]["settings"], **more}


# -- generated workloads -------------------------------------------------------------------------------------------


def generated(
    world: World,
    name: str,
    seeds: int,
    *,
    batch: bool,
    congestion: float,
    sensitive_share: float | None = None,
    mix: Mix = MIX,
    **more: Any,
) -> Setting:
    """The prototype's cluster and jobs, Poisson arrivals or all at once; ``more`` are further settings of the run."""
    told = world.figures["prototype"]
    traces = tuple(_generated_trace(world, seed, batch, sensitive_share, mix) for seed in range(seeds))
    values = _values(world, congestion, **more)
    return Setting(name, told["cluster"], told["node_gpus"], congestion < 1, traces, values)


def _generated_trace(world: World, seed: int, batch: bool, sensitive_share: float | None, mix: Mix) -> str:
    told = world.figures["prototype"]
    path = world.scratch / f"{'batch' if batch else 'poisson'}-{len(mix.models)}-{sensitive_share}-{seed}.csv"
    if not path.exists():
        given = {"jobs": told["jobs"], "gpus": load_cluster(told["cluster"]).gpu_count}
        offered = None if batch else float(told["load"])
        write_trace(generated_jobs(seed, load=offered, sensitive_share=sensitive_share, mix=mix, **given), path)
    return str(path)


def prototypes(world: World, seeds: int) -> list[Setting]:
    """Congested and not, Poisson and batch."""
    return [
        generated(
            world,
            f"{'batch' if batch else 'Poisson'}, {'congested' if congested else 'free network'}",
            seeds,
            batch=batch,
            congestion=world.congestion(congested),
        )
        for congested in (True, False)
        for batch in (False, True)
    ]


def without_embeddings(world: World, seeds: int) -> list[Setting]:
    """The congested ones without the model that suffers most."""
    congestion = world.congestion(True)
    return [
        generated(world, f"{name}, congested, no DLRM", seeds, batch=batch, congestion=congestion, mix=DENSE)
        for name, batch in (("Poisson", False), ("batch", True))
    ]


# -- virtual clusters of Philly ------------------------------------------------------------------------------------


def philly_trace(folder: str, file: str) -> Path | None:
    """The trace below ``folder`` or its ``data``, if it is there; a folder that does not exist is a mistake."""
    roots = (Path(folder), Path(folder) / "data")
    if folder and not roots[0].is_dir():
        raise InputError("--data", f"no directory {folder}", "the folder that holds traces/, or none at all")
    return next((root / file for root in roots if (root / file).is_file()), None)


def philly(world: World, trace: Path, seeds: int) -> list[Setting]:
    """The virtual clusters, congested; each seed takes another stretch of the trace and draws other models."""
    told, jobs = world.figures["philly"], load(str(trace), None, ImportOptions()).jobs
    return [
        Setting(
            f"Philly {group}, congested",
            own["cluster"],
            own["node_gpus"],
            True,
            _stretches(world, group, [job for job in jobs if job.group == group], seeds),
            _values(world, world.congestion(True)),
        )
        for group, own in told["clusters"].items()
    ]


def _stretches(world: World, group: str, jobs: list[Job], seeds: int) -> tuple[str, ...]:
    """Files of the stretches of one virtual cluster, with models drawn by seed."""
    mix, length = find_mix(DEFAULT_MIX, "dally", "models"), world.figures["philly"]["jobs"]
    paths = [world.scratch / f"philly-{group}-{seed}.csv" for seed in range(seeds)]
    for seed, path in enumerate(paths):
        write_trace(draw_models(stretch(jobs, seed, seeds, length), mix, seed), path)
    return tuple(map(str, paths))


def stretch(jobs: list[Job], number: int, count: int, length: int) -> list[Job]:
    """``length`` consecutive jobs; ``count`` such stretches start at equal distances from the first job to the last."""
    begin = (len(jobs) - length) * number // max(1, count - 1) if len(jobs) > length else 0
    part = jobs[begin : begin + length]
    return [replace(job, submit_s=job.submit_s - part[0].submit_s) for job in part]
