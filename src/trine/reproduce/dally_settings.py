"""The settings of Dally's experiments: links, generated jobs, stretches of the Philly trace.

The paper's own cluster and workload are not known; these are a design of this project (``dally.yaml``). Same arguments,
same jobs: every column has a random stream of its own, so that a setting changes what it names and nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.cluster import load_cluster
from trine.reproduce.experiment import HOUR_S, Inputs
from trine.reproduce.paired_comparison import Setting
from trine.sim.scenario import Scenario
from trine.trace import ImportOptions, load, write_trace
from trine.trace.models import DEFAULT_MIX, Mix, MixModel, draw_models, find_mix

SIZES = (1, 2, 4, 8, 16, 32, 64)
SIZE_WEIGHTS = (0.30, 0.12, 0.15, 0.23, 0.12, 0.06, 0.02)
MEDIAN_S, SIGMA, LONGEST_S = 2 * HOUR_S, 1.1, 48 * HOUR_S
"""Run times are lognormal, and none is longer than the last."""
MODELS = (
    *("ResNet-50", "ResNet-152", "Inception-v3", "YOLOv3"),
    *("VGG-16", "AlexNet", "BERT-base", "BERT-large", "GNMT", "DLRM"),
)
MIX = Mix("dally", tuple(map(MixModel, MODELS)))
"""Ten models in equal parts; those of the second line are network-sensitive."""

DENSE = Mix("dally without embeddings", tuple(model for model in MIX.models if model.name != "DLRM"))
"""Without the model that slows down most when it is spread: how much of a gain is its doing?"""
ARRIVALS = {False: "Poisson", True: "batch"}


class DallyInputs(Inputs):
    """The network of the prototype as a file, and the Philly trace where it is at hand."""

    @property
    def network(self) -> str:
        """A file with the links, written at first use."""
        path, prototype = self.scratch / "links.yaml", self.figures["prototype"]
        if not path.exists():
            lines = [f"  {key}: {prototype[key]}" for key in ("intra_node", "nic", "oversubscription")]
            path.write_text("\n".join(["links:", *lines, ""]), encoding="utf-8")
        return str(path)

    def congestion(self, congested: bool) -> float:
        return float(self.figures["prototype"]["congestion"]) if congested else 1.0

    def values(self, congestion: float, **more: Any) -> dict[str, Any]:
        """Settings of every run."""
        return {"network": self.network, "congestion": congestion, **self.figures["prototype"]["settings"], **more}

    @property
    def philly(self) -> Path | None:
        """The trace below the root or its ``data``, if it is there."""
        file = self.figures["philly"]["file"]
        paths = (self.root / file, self.root / "data" / file)
        return next((path for path in paths if path.is_file()), None)


def dally_inputs(folder: str, scratch: Path, figures: Mapping[str, Any], quick: bool) -> DallyInputs:
    """Without a folder there is no Philly trace; a folder that does not exist is a mistake."""
    if folder and not Path(folder).is_dir():
        raise InputError("--data", f"no directory {folder}", "the folder that holds traces/, or none at all")
    return DallyInputs(Path(folder) if folder else scratch, scratch, figures, quick)


# -- generated workloads -------------------------------------------------------------------------------------------


def generated(
    inputs: DallyInputs,
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
    cluster, values = inputs.figures["prototype"]["cluster"], inputs.values(congestion, **more)
    traces = [_generated_trace(inputs, seed, batch, sensitive_share, mix) for seed in range(seeds)]
    scenarios = [Scenario(cluster, trace=trace, seed=seed, values=values) for seed, trace in enumerate(traces)]
    return Setting(name, tuple(scenarios), judged=congestion < 1)


def _generated_trace(inputs: DallyInputs, seed: int, batch: bool, sensitive_share: float | None, mix: Mix) -> str:
    prototype = inputs.figures["prototype"]
    path = inputs.scratch / f"{ARRIVALS[batch]}-{len(mix.models)}-{sensitive_share}-{seed}.csv"
    if not path.exists():
        given = {"jobs": prototype["jobs"], "gpus": load_cluster(prototype["cluster"]).gpu_count}
        offered = None if batch else float(prototype["load"])
        write_trace(generated_jobs(seed, load=offered, sensitive_share=sensitive_share, mix=mix, **given), path)
    return str(path)


def generated_jobs(
    seed: int,
    *,
    jobs: int,
    gpus: int,
    load: float | None = 1.0,
    sensitive_share: float | None = None,
    mix: Mix = MIX,
) -> list[Job]:
    """Jobs in the order of submission, the first at 0; ``load`` ``None`` submits all of them at 0.

    ``load`` is the GPU-seconds asked for per GPU-second of ``gpus`` GPUs between the first submission and the last.
    """
    sizes = random.Random(f"{seed}/sizes").choices(SIZES, SIZE_WEIGHTS, k=jobs)
    drawn = random.Random(f"{seed}/durations")
    durations_s = [min(drawn.lognormvariate(math.log(MEDIAN_S), SIGMA), LONGEST_S) for _ in range(jobs)]
    submit_s = [0.0] * jobs
    if load is not None:
        work_gpu_s = sum(size * duration_s for size, duration_s in zip(sizes, durations_s, strict=True))
        submit_s = _poisson_s(seed, jobs, work_gpu_s / (gpus * load))
    rows = zip(submit_s, sizes, durations_s, strict=True)
    plain = [Job(str(i), round(at_s, 3), size, round(duration_s, 3)) for i, (at_s, size, duration_s) in enumerate(rows)]
    return draw_models(plain, mix, seed, sensitive_share)


def _poisson_s(seed: int, jobs: int, span_s: float) -> list[float]:
    """Times of a Poisson process, stretched so that the last one is ``span_s``."""
    arrivals = random.Random(f"{seed}/arrivals")
    at = list(accumulate((arrivals.expovariate(1.0) for _ in range(jobs - 1)), initial=0.0))
    return [x * span_s / at[-1] for x in at] if jobs > 1 else at


def prototypes(inputs: DallyInputs, seeds: int) -> list[Setting]:
    """Congested and not, Poisson and batch."""
    networks = {True: "congested", False: "free network"}
    return [
        generated(inputs, f"{arrivals}, {network}", seeds, batch=batch, congestion=inputs.congestion(congested))
        for congested, network in networks.items()
        for batch, arrivals in ARRIVALS.items()
    ]


def without_embeddings(inputs: DallyInputs, seeds: int) -> list[Setting]:
    """The congested ones without the model that suffers most."""
    congestion = inputs.congestion(True)
    return [
        generated(inputs, f"{arrivals}, congested, no DLRM", seeds, batch=batch, congestion=congestion, mix=DENSE)
        for batch, arrivals in ARRIVALS.items()
    ]


# -- virtual clusters of Philly ------------------------------------------------------------------------------------


def philly(inputs: DallyInputs, seeds: int) -> list[Setting]:
    """The virtual clusters, congested; each seed takes another stretch of the trace and draws other models."""
    if inputs.philly is None:
        return []
    jobs, values = load(str(inputs.philly), None, ImportOptions()).jobs, inputs.values(inputs.congestion(True))
    found = []
    for group, cluster in inputs.figures["philly"]["clusters"].items():
        traces = _stretches(inputs, group, [job for job in jobs if job.group == group], seeds)
        scenarios = [Scenario(cluster, trace=trace, seed=seed, values=values) for seed, trace in enumerate(traces)]
        found.append(Setting(f"Philly {group}, congested", tuple(scenarios)))
    return found


def _stretches(inputs: DallyInputs, group: str, jobs: list[Job], seeds: int) -> list[str]:
    """Files of the stretches of one virtual cluster, with models drawn by seed."""
    mix, length = find_mix(DEFAULT_MIX, "dally", "models"), inputs.figures["philly"]["jobs"]
    paths = [inputs.scratch / f"philly-{group}-{seed}.csv" for seed in range(seeds)]
    for seed, path in enumerate(paths):
        write_trace(draw_models(stretch(jobs, seed, seeds, length), mix, seed), path)
    return list(map(str, paths))


def stretch(jobs: list[Job], number: int, count: int, length: int) -> list[Job]:
    """``length`` consecutive jobs; ``count`` such stretches start at equal distances from the first job to the last."""
    begin = (len(jobs) - length) * number // max(1, count - 1) if len(jobs) > length else 0
    part = jobs[begin : begin + length]
    return [replace(job, submit_s=job.submit_s - part[0].submit_s) for job in part]
