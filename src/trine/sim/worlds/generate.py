"""Draws a world directory: a cluster in which GPUs differ by type, chip and place, and jobs that feel it.

Speeds by type are those of Gavel's 26 job types (shipped table ``gavel-simulation``); sizes and run times follow the
mix of a shared research cluster, arrivals come in bursts. Same parameters and seed, same bytes; every part has a random
stream of its own, so that a change of load moves submission times only.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

from trine.core.atomic_file import write_output
from trine.core.errors import InputError
from trine.inputs.throughputs import load_throughputs
from trine.sim.worlds.load import LoadedWorld, load_world

KINDS = {
    "TVN": "types, slow chips and a shared network",
    "T": "types only",
    "V": "slow chips on one type, a fast network",
    "N": "a congested network on one type",
}
TYPES = ("v100", "p100", "k80")
INTRA_BYTES_PER_S = {"v100": 20e9, "p100": 10e9, "k80": 6e9}
NIC_BYTES_PER_S = 2.5e9
OVERSUBSCRIPTION = 4.0
CONGESTION = {"TVN": 0.6, "T": 100.0, "V": 1.0, "N": 0.25}
"""Bandwidth of NICs and uplinks over the nominal one, by kind."""

SIZES, SIZE_WEIGHTS = (1, 2, 4, 8, 16, 32), (0.775, 0.016, 0.085, 0.104, 0.0165, 0.0035)
"""Assumed, after the sizes of Philly jobs as Gavel draws them, with some wider gangs."""
QUANTILES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
RUN_S = {
    1: (2600.0, 4400.0, 6500.0, 11_000.0, 21_700.0, 123_000.0, 245_000.0),
    2: (2800.0, 8200.0, 22_900.0, 70_000.0, 150_000.0, 187_000.0, 255_000.0),
}
"""Run time on V100 GPUs at these quantiles, of single GPUs and of gangs; log-linear in between. Assumed: short jobs
dominate in number, long gangs in GPU time."""
BURSTINESS = 2.1
"""Standard deviation of the logarithm of the gaps between arrivals (lognormal)."""

CLASS_SPREAD = {"A": 0.022, "B": 0.005, "C": 0.005, "D": 0.008}
"""Standard deviation of chip slowdowns by class: about that of the medians of 336 GPUs of Longhorn (PAL, SC'24)."""
SLOW_SHARE, SLOW_RANGE = 0.025, (1.5, 2.2)
SLOW_EXCESS = {"A": 1.0, "B": 0.6, "C": 0.6, "D": 0.2}
"""Share of slow GPUs, their slowdown for class A, and how much of the excess the other classes feel."""


@dataclass(frozen=True, slots=True)
class JobFamily:
    """What the job types of one family send per iteration, and which chips slow them."""

    app_class: str
    gradient_bytes: float
    overlap: float


FAMILIES = {
    "ResNet-18": JobFamily("A", 4.7e7, 2.0),
    "ResNet-50": JobFamily("A", 1.02e8, 3.0),
    "Transformer": JobFamily("B", 2.4e8, 2.0),
    "LM": JobFamily("B", 1.1e8, 1.5),
    "Recommendation": JobFamily("D", 0.0, 2.0),
    "A3C": JobFamily("D", 0.0, 2.0),
    "CycleGAN": JobFamily("A", 0.0, 2.0),
}
"""Gradients of 32-bit parameters; families without any run on one GPU only. Overlap: 1 none, larger hides more."""


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """Parameters of a world."""

    kind: str = "TVN"
    load: float = 0.9
    """Work over capacity, if every job used the types in proportion, between the first submission and the last."""
    seed: int = 1
    jobs: int = 1500
    racks: int = 9
    """In all; one type each, the types by turns."""
    nodes_per_rack: int = 8
    gpus_per_node: int = 4
    congestion: float | None = None
    """In place of that of the kind; smaller is slower."""
    round_s: float = 360.0
    restart_s: float = 30.0

    def check(self) -> None:
        """Raise ``InputError`` for what cannot be drawn."""
        if self.kind not in KINDS:
            expected = ", ".join(f"{kind} ({what})" for kind, what in KINDS.items())
            raise InputError("kind of world", f"found {self.kind!r}", f"one of {expected}")
        for name, least in (("jobs", 1), ("racks", 1), ("nodes_per_rack", 1), ("gpus_per_node", 1)):
            if getattr(self, name) < least:
                raise InputError(f"--{name.replace('_', '-')}", f"found {getattr(self, name)}", f"at least {least}")
        for name in ("load", "round_s", "congestion"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"--{name.removesuffix('_s')}", f"found {value:g}", "a number above 0")
        if not 0 <= self.restart_s < math.inf:
            raise InputError("--restart", f"found {self.restart_s:g}", "0 or more seconds")

    @property
    def types(self) -> tuple[str, ...]:
        return TYPES if self.kind in ("TVN", "T") else TYPES[:1]

    def rack_types(self) -> list[str]:
        """Type of each rack; racks of a type lie together."""
        return sorted((self.types[i % len(self.types)] for i in range(self.racks)), key=self.types.index)


def generate_world(folder: Path, spec: WorldSpec) -> None:
    """Write ``cluster.json``, ``gpus.csv.gz`` and ``jobs.csv.gz`` into ``folder``, which is made."""
    spec.check()
    folder.mkdir(parents=True, exist_ok=True)
    write_output(folder / "cluster.json", json.dumps(_cluster(spec), indent=1) + "\n")
    write_output(folder / "gpus.csv.gz", _csv(_gpus(spec)))
    write_output(folder / "jobs.csv.gz", _csv(_jobs(spec)))


@lru_cache(maxsize=4)
def drawn_world(spec: WorldSpec) -> LoadedWorld:
    """The world as if it had been written and read: both ways give the same results. Sweeps draw the same one often."""
    spec.check()
    with TemporaryDirectory() as parent:
        folder = Path(parent) / f"{spec.kind}-load{spec.load:g}-seed{spec.seed}"
        generate_world(folder, spec)
        return load_world(str(folder))


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cluster(spec: WorldSpec) -> dict[str, object]:
    scale = CONGESTION[spec.kind] if spec.congestion is None else spec.congestion
    nic = NIC_BYTES_PER_S * scale
    uplink = nic * spec.nodes_per_rack * (1.0 if spec.kind == "V" else 1.0 / OVERSUBSCRIPTION)
    return {
        "nic_bytes_per_s": nic,
        "uplink_bytes_per_s": uplink,
        "intra_node_bytes_per_s": INTRA_BYTES_PER_S,
        "gpus_per_node": spec.gpus_per_node,
        "nodes_per_rack": spec.nodes_per_rack,
        "round_s": spec.round_s,
        "restart_s": spec.restart_s,
    }


def _gpus(spec: WorldSpec) -> Iterable[Sequence[object]]:
    yield ("gpu", "node", "rack", "type", *(f"slowdown_{name}" for name in CLASS_SPREAD))
    chips = random.Random(f"{spec.seed}/chips")
    per_rack, types = spec.nodes_per_rack * spec.gpus_per_node, spec.rack_types()
    for gpu in range(spec.racks * per_rack):
        slowdowns = _chip(chips) if spec.kind in ("TVN", "V") else [1.0] * len(CLASS_SPREAD)
        rack = gpu // per_rack
        yield (gpu, gpu // spec.gpus_per_node, rack, types[rack], *(f"{v:.4f}" for v in slowdowns))


def _chip(chips: random.Random) -> list[float]:
    """Slowdown by class; classes of one chip are drawn independently, slow chips are slow for all."""
    excess = chips.uniform(*SLOW_RANGE) - 1.0 if chips.random() < SLOW_SHARE else 0.0
    return [
        max(0.9, chips.gauss(1.0, CLASS_SPREAD[name])) * (1.0 + excess * SLOW_EXCESS[name]) for name in CLASS_SPREAD
    ]


@dataclass(frozen=True, slots=True)
class _JobType:
    model: str
    family: JobFamily
    step_s: float
    speeds: tuple[float, ...]
    """By ``TYPES``, 1 on a V100."""


def _job_types() -> list[_JobType]:
    rates = load_throughputs("gavel-simulation").rates
    found = []
    for (model, gpus), by_type in rates.items():
        if gpus == 1:
            family = FAMILIES[model.split(" (")[0]]
            speeds = tuple(by_type.get(t, 0.0) / by_type["v100"] for t in TYPES)
            found.append(_JobType(model, family, 1.0 / by_type["v100"], speeds))
    return found


def _jobs(spec: WorldSpec) -> Iterable[Sequence[object]]:
    sizes, runs = random.Random(f"{spec.seed}/sizes"), random.Random(f"{spec.seed}/durations")
    models = random.Random(f"{spec.seed}/models")
    types = _job_types()
    several = [t for t in types if t.family.gradient_bytes]
    widest = spec.racks * spec.nodes_per_rack * spec.gpus_per_node // len(spec.types)
    drawn: list[tuple[int, float, _JobType]] = []
    for _ in range(spec.jobs):
        size = min(sizes.choices(SIZES, SIZE_WEIGHTS)[0], widest)
        kind = models.choice(types if size == 1 else several)
        drawn.append((size, _quantile(RUN_S[min(size, 2)], runs.random()), kind))
    racks = spec.rack_types()
    submit_s = _arrivals_s(spec, sum(g * run_s / _mean_speed(racks, kind) for g, run_s, kind in drawn))
    yield (
        *("job_id", "submit_s", "gpus", "work_s_on_v100", "class", "model"),
        *(f"speed_{t}" for t in TYPES),
        *("compute_s_per_iteration_v100", "gradient_bytes", "overlap_gamma"),
    )
    for i, (at_s, (gpus, run_s, kind)) in enumerate(zip(submit_s, drawn, strict=True)):
        family = kind.family
        yield (
            *(i, f"{at_s:.2f}", gpus, f"{run_s:.2f}", family.app_class, kind.model),
            *(f"{speed:.5f}" for speed in kind.speeds),
            *(f"{kind.step_s:.6f}", f"{family.gradient_bytes:g}", f"{family.overlap:g}"),
        )


def _mean_speed(rack_types: Sequence[str], kind: _JobType) -> float:
    return sum(kind.speeds[TYPES.index(t)] for t in rack_types) / len(rack_types)


def _quantile(values: Sequence[float], at: float) -> float:
    """Log-linear between the quantiles."""
    i = min(bisect_right(QUANTILES, at), len(QUANTILES) - 1)
    part = (at - QUANTILES[i - 1]) / (QUANTILES[i] - QUANTILES[i - 1])
    return float(values[i - 1] ** (1.0 - part) * values[i] ** part)


def _arrivals_s(spec: WorldSpec, work_gpu_s: float) -> list[float]:
    """Lognormal gaps, stretched so that the load is as asked for."""
    gaps = random.Random(f"{spec.seed}/arrivals")
    at = list(accumulate((gaps.lognormvariate(0.0, BURSTINESS) for _ in range(spec.jobs - 1)), initial=0.0))
    span_s = work_gpu_s / (spec.racks * spec.nodes_per_rack * spec.gpus_per_node * spec.load)
    return [x * span_s / at[-1] for x in at] if spec.jobs > 1 else at
