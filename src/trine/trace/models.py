"""Models for jobs that have none: mixes to draw from, and the draw, which depends on the seed and the job's id only.

A mix is a list of models with weights. Which of them are network-sensitive decides how many gangs suffer from a bad
placement, so their share among gangs can be set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import accumulate

from trine.core.errors import InputError, unknown_name
from trine.core.job import Job
from trine.perf.collectives import all_reduce, p_norm
from trine.perf.model_traffic import shipped_table
from trine.trace.gavel_workload import GavelWorkload, gavel_workloads, templates
from trine.trace.workload import Workload, load_workload, workload_names

DEFAULT_MIX = "draw"
GAVEL_MIX = "gavel"

SENSITIVE_FROM = 1.3
"""Slowdown from which a model counts as network-sensitive (``spread_slowdown``): no model lies close to it."""
_SPREAD_NODES, _NIC_BYTES_PER_S, _LATENCY_S = 4, 1.85e9, 20e-6
"""Four nodes of one rack on 50 Gb/s Ethernet, of which 1.3 to 2.4 GB/s arrive."""


@dataclass(frozen=True, slots=True)
class MixModel:
    """A model of a mix, its weight among jobs, and what a job that draws it takes over."""

    name: str
    weight: float = 1.0
    app_class: str = ""
    several_gpus: bool = True
    """False: it runs on one GPU only and is not drawn for gangs."""
    steps_per_s: Mapping[int, float] = field(default_factory=dict)
    """On V100 GPUs by gang size, where a throughput table knows the model: its steps are then counted as there."""

    @property
    def sensitive(self) -> bool:
        return network_sensitive(self.name)


@dataclass(frozen=True, slots=True)
class Mix:
    """Models to draw from."""

    name: str
    models: tuple[MixModel, ...]


DEFAULT_MODELS = (
    *("ResNet-50", "ResNet-101", "ResNet-152", "Inception-v3", "SSD300", "YOLOv3", "GPT-2"),
    *("ResNet-18", "VGG-16", "VGG-19", "AlexNet", "BERT-base", "BERT-large", "GNMT", "Transformer-XL", "DLRM"),
)
"""Well-known models of the traffic table, drawn in equal parts: our choice, no trace says what its jobs trained."""


def network_sensitive(model: str) -> bool:
    """Whether a gang of this model runs much slower spread over nodes than on one."""
    return spread_slowdown(model) >= SENSITIVE_FROM


@cache
def spread_slowdown(model: str) -> float:
    """Iteration of four GPUs on four nodes of 50 Gb/s Ethernet over its compute alone, from the table of traffic."""
    traffic = shipped_table().of(model)
    comm_s = all_reduce(_SPREAD_NODES, traffic.gradient_bytes, _LATENCY_S).at(_NIC_BYTES_PER_S)
    comm_s += 2 * (_SPREAD_NODES - 1) / _SPREAD_NODES * traffic.all_to_all_bytes / _NIC_BYTES_PER_S
    return p_norm(traffic.compute_s, comm_s, traffic.overlap) / traffic.compute_s


def mix_names() -> list[str]:
    """Mixes that exist: the default one, Gavel's job types, and those of the workload tables."""
    return [DEFAULT_MIX, GAVEL_MIX, *workload_names()]


def find_mix(name: str, where: str, key: str) -> Mix:
    """The mix called ``name``; ``where`` and ``key`` say in an error which option named it."""
    if name == DEFAULT_MIX:
        return Mix(name, tuple(map(MixModel, DEFAULT_MODELS)))
    if name == GAVEL_MIX:
        return own_mix(next(iter(gavel_workloads().values())))
    if name not in workload_names():
        raise unknown_name(where, "mix of models", name, mix_names(), key)
    return own_mix(load_workload(name))


def own_mix(workload: Workload | GavelWorkload) -> Mix:
    """The models that a workload is drawn with if nothing else is asked for."""
    if isinstance(workload, GavelWorkload):
        types = [MixModel(t.model, 1.0, "", t.distributed, t.v100_steps_per_s) for t in templates()]
        return Mix(GAVEL_MIX, tuple(types))
    return Mix(workload.name, tuple(MixModel(m.name, m.weight, m.app_class) for m in workload.models))


def draw_models(jobs: Iterable[Job], mix: Mix, seed: int, sensitive_share: float | None = None) -> list[Job]:
    """The jobs, each with a model drawn from ``mix``; run times on reference GPUs stay as they are.

    ``sensitive_share`` is the probability that a gang's model is network-sensitive; without it the weights of the mix
    decide. What a job draws depends on ``seed`` and its id, never on other jobs, and a larger share only turns
    insensitive gangs into sensitive ones.
    """
    draw = _Draw(mix, sensitive_share)
    return [_with_model(job, draw.model(job, seed)) for job in jobs]


class _Draw:
    """The models of a mix, sorted by the jobs that may draw them."""

    def __init__(self, mix: Mix, sensitive_share: float | None) -> None:
        self._share = sensitive_share
        gangs = [model for model in mix.models if model.several_gpus]
        self._for_single, self._for_gang = _Choice(mix.models), _Choice(gangs)
        self._sensitive = _Choice([model for model in gangs if model.sensitive])
        self._insensitive = _Choice([model for model in gangs if not model.sensitive])
        if sensitive_share is not None:
            self._check(mix, sensitive_share)

    def _check(self, mix: Mix, share: float) -> None:
        if (share > 0 and not self._sensitive) or (share < 1 and not self._insensitive):
            lacking = "insensitive" if self._sensitive else "sensitive"
            found = f"{share:g}, and no model of the mix {mix.name!r} for gangs is network-{lacking}"
            raise InputError("--set", found, "a mix with both kinds", "sensitive_share")

    def model(self, job: Job, seed: int) -> MixModel:
        kind, which = _uniform_pair(seed, job.id)
        if job.gpus == 1:
            return self._for_single.at(which)
        if self._share is None:
            return self._for_gang.at(which)
        return (self._sensitive if kind < self._share else self._insensitive).at(which)


class _Choice:
    """Models by weight."""

    def __init__(self, models: Sequence[MixModel]) -> None:
        self._models = [model for model in models if model.weight > 0]
        self._cumulated = list(accumulate(model.weight for model in self._models))

    def __bool__(self) -> bool:
        return bool(self._models)

    def at(self, uniform: float) -> MixModel:
        """The model at a position in [0, 1) of the cumulated weights."""
        from bisect import bisect_right

        position = bisect_right(self._cumulated, uniform * self._cumulated[-1])
        return self._models[min(position, len(self._models) - 1)]


def _uniform_pair(seed: int, job_id: str) -> tuple[float, float]:
    """Two numbers in [0, 1) that belong to this seed and job: a hash, so that no other job has a part in them."""
    digest = blake2b(f"{seed}/{job_id}".encode(), digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    return (first >> 11) / (1 << 53), (second >> 11) / (1 << 53)


def _with_model(job: Job, model: MixModel) -> Job:
    from trine.trace.formats.gavel import batch_size

    # A class that came with another model goes with it; one that the file states without a model stays.
    app_class = model.app_class if job.model else job.app_class or model.app_class
    drawn = replace(job, model=model.name, app_class=app_class, batch_size=batch_size(model.name))
    if not model.steps_per_s or job.ideal_s is None:
        return drawn
    rate = _gang_rate(model.steps_per_s, job.gpus)
    return replace(drawn, steps=job.ideal_s * rate, step_s=1.0 / rate)


def _gang_rate(steps_per_s: Mapping[int, float], gpus: int) -> float:
    """Steps per second of a gang; a size that was not measured takes the per-GPU rate of the nearest, as in tables."""
    nearest = min(steps_per_s, key=lambda size: (abs(size - gpus), -size))
    return steps_per_s[nearest] / nearest * gpus


def drawn_sentence(jobs: Sequence[Job], drawn: int, mix: str) -> str:
    """What a reader should know about the models drawn for ``drawn`` of ``jobs``."""
    if not drawn:
        return "No model drawn: every job of the file names one."
    gangs = [job for job in jobs if job.gpus > 1]
    sensitive = sum(network_sensitive(job.model) for job in gangs)
    of_gangs = f"{sensitive:,} of {len(gangs):,} gangs are network-sensitive"
    return f"Models of {drawn:,} jobs drawn from the mix {mix!r}; {of_gangs}."
