"""A site on which two models share a GPU well: a table, a policy that pairs, and specs of jobs that may share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.server.site import Site, spec
from trine.inputs.job_spec import JobSpec
from trine.perf.throughput import ThroughputTable
from trine.server.build import Model

TABLE = ThroughputTable(
    rates={(model, gang): {"gpu": 1.0} for model in ("big", "small", "lone") for gang in (1, 2)},
    pairs={("big", "small", gang): {"gpu": (0.9, 0.8)} for gang in (1, 2)}
    | {("small", "small", gang): {"gpu": (0.7, 0.7)} for gang in (1, 2)},
)
PAIRED = Model(TABLE)


def pair_site(home: Path, gpus: str = "1x1", policy: str = "max-min-fairness", **more: Any) -> Site:
    settings = {"space_sharing": "true"} if policy != "gandiva" else {}
    return Site(home, gpus, policy, settings=settings | more.pop("settings", {}), round_s=360.0, model=PAIRED, **more)


def trains(model: str, gpus: int = 1, **values: Any) -> JobSpec:
    return spec(gpus, model=model, steps=values.pop("steps", 1000.0), **values)
