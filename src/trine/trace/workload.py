"""Workload tables: what is published of a cluster's jobs (sizes, durations, hours, models, users), read from YAML.

The tables of the package lie in ``workloads/``; a file put there is found by its name. Drawing jobs is ``generate``'s.
"""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trine.core.errors import unknown_name
from trine.inputs.yaml_reader import Mapping, Value, read_mapping

TABLES = Path(__file__).parent / "workloads"
HOURS = 24
BASES = ("published", "computed", "assumed")
_SECTIONS = {
    "sizes": {"cdf_percent", "gpu_time_percent"},
    "durations": {"cdf_percent"},
    "hours": {"weights"},
    "models": {"mix"},
    "users": {"count", "zipf"},
}
_TEXTS = ("title", "source", "cluster")
WHAT = "a workload table in YAML"


@dataclass(frozen=True, slots=True)
class Cdf:
    """A cumulated distribution: ``cdf[i]`` is the fraction at or below ``x[i]``; both ascend and ``cdf`` ends at 1."""

    x: tuple[float, ...]
    cdf: tuple[float, ...]

    @property
    def mass(self) -> tuple[float, ...]:
        """The fraction that falls on each ``x`` when only those values occur."""
        return tuple(b - a for a, b in zip((0.0, *self.cdf[:-1]), self.cdf, strict=True))


@dataclass(frozen=True, slots=True)
class ModelShare:
    """A model of the mix: its weight among jobs, and its variability class where one is known."""

    name: str
    weight: float
    app_class: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """One cluster's jobs as distributions. Sizes are GPUs, durations seconds."""

    name: str
    title: str
    source: str
    cluster: str
    """Name of the cluster in the published figures; empty for a mixture of several."""
    sizes: Cdf
    gpu_time: Cdf
    """Fraction of all GPU time used by jobs of at most ``x`` GPUs; its ``x`` divide the sizes into groups."""
    durations: Cdf
    hour_weights: tuple[float, ...]
    """Relative submission rate of each hour of the day, from midnight."""
    models: tuple[ModelShare, ...]
    users: int
    zipf: float
    """The k-th most active user submits in proportion to k ** -zipf."""
    basis: collections.abc.Mapping[str, str]
    """For each section: published, computed (from published figures) or assumed."""


def workload_names() -> list[str]:
    """Names of the tables shipped with the package."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))


def load_workload(name: str) -> Workload:
    """The shipped table called ``name``, or the table in the YAML file ``name``."""
    if name.endswith((".yaml", ".yml")):
        return read_workload(Path(name))
    if name not in workload_names():
        raise unknown_name("trace generate", "workload", name, workload_names())
    return read_workload(TABLES / f"{name}.yaml")


def read_workload(path: Path) -> Workload:
    """Read and check one table."""
    top = read_mapping(path, WHAT)
    top.only(*_TEXTS, *_SECTIONS)
    sections = {key: top.mapping(key) for key in _SECTIONS}
    for key, section in sections.items():
        section.only("source", "basis", *_SECTIONS[key])
        section.text("source")
    sizes = _curve(sections["sizes"], "cdf_percent")
    gpu_time = _curve(sections["sizes"], "gpu_time_percent")
    _check_sizes(sections["sizes"], sizes, gpu_time)
    return Workload(
        name=path.stem,
        title=top.text("title"),
        source=top.text("source"),
        cluster=top.text("cluster", empty=True),
        sizes=sizes,
        gpu_time=gpu_time,
        durations=_curve(sections["durations"], "cdf_percent"),
        hour_weights=_hours(sections["hours"].value("weights")),
        models=_models(sections["models"].value("mix")),
        users=int(sections["users"].number("count", minimum=1)),
        zipf=sections["users"].number("zipf", minimum=0),
        basis={key: section.choice("basis", BASES, what="basis") for key, section in sections.items()},
    )


def _curve(section: Mapping, key: str) -> Cdf:
    points = _filled(section.value(key))
    x = tuple(_point(written, value) for written, value in points.values())
    percent = tuple(value.number(minimum=0) for _, value in points.values())
    rising = all(a < b for a, b in pairwise(x))
    if not rising or list(percent) != sorted(percent) or percent[-1] != 100:
        raise section.error("a curve that is not one", "ascending values whose percentages rise to 100", key)
    return Cdf(x, tuple(value / 100 for value in percent))


def _filled(value: Value) -> Mapping:
    if not value.mapping().keys():
        raise value.error("found an empty mapping", "a mapping that is not empty")
    return value.mapping()


def _point(written: str, value: Value) -> float:
    """A key of a curve as a number."""
    try:
        x = float(written)
    except ValueError:
        x = 0.0
    if not 1 <= x < float("inf"):
        raise value.error(f"found the key {written!r}", "a number of at least 1 before the colon")
    return x


def _check_sizes(section: Mapping, sizes: Cdf, gpu_time: Cdf) -> None:
    if any(x != int(x) for x in sizes.x) or min(sizes.mass) <= 0:
        found = "a size that is not whole or that no job has"
        raise section.error(found, "whole numbers of GPUs, each with some jobs", "cdf_percent")
    if not set(gpu_time.x) <= set(sizes.x) or gpu_time.x[-1] != sizes.x[-1] or min(gpu_time.mass) <= 0:
        expected = "sizes of cdf_percent up to the largest, each with some GPU time"
        raise section.error(f"sizes {[int(x) for x in gpu_time.x]}", expected, "gpu_time_percent")


def _hours(value: Value) -> tuple[float, ...]:
    weights = tuple(entry.number(minimum=0) for entry in value.list())
    if len(weights) != HOURS:
        raise value.error(f"found {len(weights)} values", f"a list of {HOURS} numbers")
    if min(weights) <= 0:
        raise value.error("an hour of weight 0", "numbers above 0")
    return weights


def _models(mix: Value) -> tuple[ModelShare, ...]:
    models = tuple(_model(name, value) for name, value in _filled(mix).values())
    if not sum(model.weight for model in models):
        raise mix.error("only weights of 0", "a weight above 0")
    return models


def _model(name: str, value: Value) -> ModelShare:
    """``name: weight`` or ``name: {weight: 3, class: A}``."""
    if not value.is_mapping:
        return ModelShare(name, value.number(minimum=0))
    keys = value.mapping()
    keys.only("weight", "class")
    return ModelShare(name, keys.number("weight", minimum=0), keys.text("class", empty=True))
