"""The workloads of the Gavel paper (OSDI 2020): its 26 job types, drawn with the random streams of its public code.

Other workloads are drawn from tables (``workload``, ``generate``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.yaml_reader import read_mapping
from trine.trace.formats.gavel import batch_size

TEMPLATES = Path(__file__).parent / "gavel_templates.yaml"
SOURCE = "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020"
GANGS = (1, 2, 4, 8)
_WHERE = "trace generate"
# Offsets to the seed, as in the public code: jobs, arrivals and deadlines have streams of their own.
_JOBS, _ARRIVALS, _DEADLINES = 2, 3, 6


@dataclass(frozen=True, slots=True)
class Template:
    """A job type: its name, and steps per second of a gang on V100 GPUs by the gang's size."""

    model: str
    v100_steps_per_s: dict[int, float]

    @property
    def distributed(self) -> bool:
        return len(self.v100_steps_per_s) > 1


@dataclass(frozen=True, slots=True)
class GavelWorkload:
    """One of the paper's workloads."""

    name: str
    title: str
    several_gpus: bool
    gap_s: float
    """Mean seconds between arrivals unless another is given; 0 = all jobs at the start."""
    priorities: bool = False
    deadlines: bool = False

    @property
    def source(self) -> str:
        return SOURCE


HIERARCHY = "gavel-hierarchical"
_HIERARCHY_MODELS = (
    *("Transformer (batch size 128)", "A3C", "Transformer (batch size 256)", "ResNet-18 (batch size 32)"),
    *("ResNet-50 (batch size 128)", "LM (batch size 20)", "LM (batch size 10)", "Transformer (batch size 128)"),
    *("CycleGAN", "Transformer (batch size 16)", "LM (batch size 10)", "Transformer (batch size 64)"),
    *("LM (batch size 80)", "ResNet-50 (batch size 32)", "LM (batch size 20)", "ResNet-18 (batch size 256)"),
    *("Transformer (batch size 16)", "ResNet-18 (batch size 256)"),
)
"""Job types of the paper's example of three entities, six jobs each."""
_HIERARCHY_S = 360_000.0
"""Long enough that all jobs are still there when the last has arrived."""

_BASES = (
    GavelWorkload("gavel-continuous-single", "Gavel, Poisson arrivals, one GPU per job", False, 900.0),
    GavelWorkload("gavel-continuous-multiple", "Gavel, Poisson arrivals, 1 to 8 GPUs per job", True, 1800.0),
    GavelWorkload("gavel-static", "Gavel, all jobs at the start, 1 to 8 GPUs per job", True, 0.0),
)


def gavel_workloads() -> dict[str, GavelWorkload]:
    """By name; each also with priorities (a fifth of the jobs has weight 5) and with deadlines (``-slos``)."""
    found: dict[str, GavelWorkload] = {}
    for base in _BASES:
        plain = (base.several_gpus, base.gap_s)
        found[base.name] = base
        found[f"{base.name}-priorities"] = GavelWorkload(
            f"{base.name}-priorities", f"{base.title}, two priorities", *plain, priorities=True
        )
        found[f"{base.name}-slos"] = GavelWorkload(
            f"{base.name}-slos", f"{base.title}, with deadlines", *plain, deadlines=True
        )
    title = "Gavel, 18 long jobs of three entities, arriving one by one"
    found[HIERARCHY] = GavelWorkload(HIERARCHY, title, False, 1920.0)
    return found


@lru_cache
def templates() -> tuple[Template, ...]:
    rates: dict[str, list[float]] = read_mapping(TEMPLATES).plain()
    return tuple(Template(model, dict(zip(GANGS, values, strict=False))) for model, values in rates.items())


def draw(
    workload: GavelWorkload, *, jobs: int, seed: int, gap_s: float | None = None, max_gpus: int | None = None
) -> list[Job]:
    """``jobs`` jobs in order of arrival, the first at 0; ``gap_s`` is the mean time between two (0 = all at 0).

    A longer trace begins with a shorter one. Gangs above ``max_gpus`` are drawn again.
    """
    mean_s = workload.gap_s if gap_s is None else gap_s
    if not 0 <= mean_s < math.inf:
        raise InputError(_WHERE, f"found {mean_s:g}", "a mean gap of 0 seconds or more", "gap_s")
    if max_gpus is not None and max_gpus < 1:
        raise InputError(_WHERE, f"found {max_gpus}", "at least 1, the smallest job", "max_gpus")
    if workload.name == HIERARCHY:
        return _hierarchy(jobs, mean_s)
    largest = min(max_gpus or GANGS[-1], GANGS[-1]) if workload.several_gpus else GANGS[-1]
    streams = (Random(seed + _JOBS), Random(seed + _DEADLINES))
    arrivals_s = _arrivals_s(Random(seed + _ARRIVALS), mean_s)
    return [_job(workload, number, next(arrivals_s), largest, *streams) for number in range(jobs)]


def _hierarchy(jobs: int, gap_s: float) -> list[Job]:
    """Nothing is drawn: jobs of ``entity0`` come first; every second job of an entity has twice the weight."""
    if jobs > len(_HIERARCHY_MODELS):
        raise InputError(_WHERE, f"found {jobs}", f"at most {len(_HIERARCHY_MODELS)} jobs of {HIERARCHY}", "jobs")
    rate = {template.model: template.v100_steps_per_s[1] for template in templates()}
    return [
        Job(
            id=str(number),
            submit_s=number * gap_s,
            gpus=1,
            steps=_HIERARCHY_S * rate[model],
            step_s=1.0 / rate[model],
            model=model,
            batch_size=batch_size(model),
            group=f"entity{number // 6}",
            weight=1.0 + number % 2,
        )
        for number, model in enumerate(_HIERARCHY_MODELS[:jobs])
    ]


def _arrivals_s(stream: Random, mean_s: float) -> Iterator[float]:
    at_s, rate = 0.0, 1.0 / mean_s if mean_s else 0.0
    while True:
        yield at_s
        at_s += stream.expovariate(rate) if rate else 0.0


def _job(workload: GavelWorkload, number: int, submit_s: float, largest: int, stream: Random, deadlines: Random) -> Job:
    """The order of the draws is part of the workload: gang, duration, job type, priority."""
    gang = _gang(stream, largest)
    duration_s = _duration_s(stream)
    if not workload.several_gpus:
        gang = 1
    template = _template(stream, gang)
    heavy = workload.priorities and stream.random() <= 0.2
    rate = template.v100_steps_per_s[gang]
    return Job(
        id=str(number),
        submit_s=submit_s,
        gpus=gang,
        steps=duration_s * rate,
        step_s=1.0 / rate,
        model=template.model,
        batch_size=batch_size(template.model),
        weight=5.0 if heavy else 1.0,
        deadline_s=submit_s + _slack(deadlines) * duration_s if workload.deadlines else None,
    )


def _gang(stream: Random, largest: int) -> int:
    while True:
        u = stream.random()
        gang = 1 if u < 0.7 else 2 if u < 0.8 else 4 if u < 0.95 else 8
        if gang <= largest:
            return gang


def _duration_s(stream: Random) -> float:
    """On V100 GPUs: a fifth of the jobs takes 17 to 170 hours, the others half an hour to 17 hours."""
    long = stream.random() >= 0.8
    exponent = stream.uniform(3, 4) if long else stream.uniform(1.5, 3)
    return float(60 * 10**exponent)


def _template(stream: Random, gang: int) -> Template:
    while True:
        found = stream.choice(templates())
        if gang == 1 or found.distributed:
            return found


def _slack(stream: Random) -> float:
    """Deadline as a multiple of the duration."""
    u = stream.random()
    return 1.2 if u < 0.33 else 2.0 if u < 0.67 else 10.0
