"""Workload tables: what is published of a cluster's jobs (sizes, durations, hours, models, users), read from YAML.

The tables of the package lie in ``workloads/``; a file put there is found by its name. Drawing jobs is ``generate``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from trine.core.errors import InputError, nearest, unknown_name

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


@dataclass(frozen=True, slots=True)
class Curve:
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
    sizes: Curve
    gpu_time: Curve
    """Fraction of all GPU time used by jobs of at most ``x`` GPUs; its ``x`` divide the sizes into groups."""
    durations: Curve
    hour_weights: tuple[float, ...]
    """Relative submission rate of each hour of the day, from midnight."""
    models: tuple[ModelShare, ...]
    users: int
    zipf: float
    """The k-th most active user submits in proportion to k ** -zipf."""
    basis: Mapping[str, str]
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
    where, raw = str(path), _parse(path)
    _known_keys(where, "", raw, {*_TEXTS, *_SECTIONS})
    texts = {key: _text(where, key, raw[key]) for key in _TEXTS}
    sections = {key: _section(where, key, raw[key]) for key in _SECTIONS}
    sizes = _curve(where, "sizes.cdf_percent", sections["sizes"]["cdf_percent"])
    gpu_time = _curve(where, "sizes.gpu_time_percent", sections["sizes"]["gpu_time_percent"])
    _check_sizes(where, sizes, gpu_time)
    return Workload(
        name=path.stem,
        sizes=sizes,
        gpu_time=gpu_time,
        durations=_curve(where, "durations.cdf_percent", sections["durations"]["cdf_percent"]),
        hour_weights=_hours(where, sections["hours"]["weights"]),
        models=_models(where, sections["models"]["mix"]),
        users=int(_number(where, "users.count", sections["users"]["count"], least=1)),
        zipf=_number(where, "users.zipf", sections["users"]["zipf"], least=0),
        basis={key: section["basis"] for key, section in sections.items()},
        **texts,
    )


def _parse(path: Path) -> dict[str, Any]:
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read ({error})", "a workload table in YAML") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError(f"{path}:{line}", f"not YAML: {error.problem}", "a workload table in YAML") from None
    except yaml.YAMLError as error:
        raise InputError(str(path), f"not YAML ({error})", "a workload table in YAML") from None
    if not isinstance(raw, dict):
        raise InputError(str(path), f"found {type(raw).__name__}", "a mapping of sections")
    return raw


def _known_keys(where: str, field: str, raw: Mapping[Any, Any], known: Iterable[str]) -> None:
    names = sorted(known)
    for key in raw:
        if key not in names:
            raise InputError(
                where, f"unknown key {key!r}{nearest(str(key), names)}", f"one of {', '.join(names)}", field
            )
    for name in names:
        if name not in raw:
            raise InputError(where, f"no key {name!r}", f"all of {', '.join(names)}", field)


def _section(where: str, key: str, raw: object) -> dict[str, Any]:
    section = _mapping(where, key, raw)
    _known_keys(where, key, section, {"source", "basis", *_SECTIONS[key]})
    _text(where, f"{key}.source", section["source"])
    if section["basis"] not in BASES:
        raise InputError(where, f"found {section['basis']!r}", f"one of {', '.join(BASES)}", f"{key}.basis")
    return section


def _mapping(where: str, field: str, raw: object) -> dict[Any, Any]:
    if not isinstance(raw, dict) or not raw:
        raise InputError(where, f"found {raw!r}", "a mapping that is not empty", field)
    return raw


def _text(where: str, field: str, raw: object) -> str:
    if not isinstance(raw, str):
        raise InputError(where, f"found {raw!r}", "text", field)
    return raw.strip()


def _number(where: str, field: str, raw: object, least: float) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not least <= raw < float("inf"):
        raise InputError(where, f"found {raw!r}", f"a number of at least {least:g}", field)
    return float(raw)


def _curve(where: str, field: str, raw: object) -> Curve:
    points = _mapping(where, field, raw)
    x = tuple(_number(where, field, key, least=1) for key in points)
    percent = tuple(_number(where, f"{field}.{key}", value, least=0) for key, value in points.items())
    rising = all(a < b for a, b in pairwise(x))
    if not rising or list(percent) != sorted(percent) or percent[-1] != 100:
        raise InputError(where, "a curve that is not one", "ascending values whose percentages rise to 100", field)
    return Curve(x, tuple(value / 100 for value in percent))


def _check_sizes(where: str, sizes: Curve, gpu_time: Curve) -> None:
    if any(x != int(x) for x in sizes.x) or min(sizes.mass) <= 0:
        found = "a size that is not whole or that no job has"
        raise InputError(where, found, "whole numbers of GPUs, each with some jobs", "sizes.cdf_percent")
    if not set(gpu_time.x) <= set(sizes.x) or gpu_time.x[-1] != sizes.x[-1] or min(gpu_time.mass) <= 0:
        expected = "sizes of cdf_percent up to the largest, each with some GPU time"
        raise InputError(where, f"sizes {[int(x) for x in gpu_time.x]}", expected, "sizes.gpu_time_percent")


def _hours(where: str, raw: object) -> tuple[float, ...]:
    if not isinstance(raw, list) or len(raw) != HOURS:
        raise InputError(where, f"found {raw!r}", f"a list of {HOURS} numbers", "hours.weights")
    weights = tuple(_number(where, "hours.weights", value, least=0) for value in raw)
    if min(weights) <= 0:
        raise InputError(where, "an hour of weight 0", "numbers above 0", "hours.weights")
    return weights


def _models(where: str, raw: object) -> tuple[ModelShare, ...]:
    mix = _mapping(where, "models.mix", raw)
    models = tuple(_model(where, str(name), value) for name, value in mix.items())
    if not sum(model.weight for model in models):
        raise InputError(where, "only weights of 0", "a weight above 0", "models.mix")
    return models


def _model(where: str, name: str, raw: object) -> ModelShare:
    """``name: weight`` or ``name: {weight: 3, class: A}``."""
    field = f"models.mix.{name}"
    if not isinstance(raw, dict):
        return ModelShare(name, _number(where, field, raw, least=0))
    _known_keys(where, field, raw, {"weight", "class"})
    return ModelShare(name, _number(where, field, raw["weight"], least=0), _text(where, f"{field}.class", raw["class"]))
