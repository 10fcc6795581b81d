"""Classes of applications that suffer alike from slow chips: K-means over their features, most sensitive first.

Features say how busy an application keeps the GPU and its memory; they come from the shipped table and from measured
rows. A table by hand overrides what the clustering says. How an application is measured is not here (``app_run``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from statistics import mean
from typing import Any

from trine.core.errors import InputError, require_extra
from trine.inputs.yaml_reader import Mapping as YamlMapping
from trine.inputs.yaml_reader import parse_mapping, read_mapping

ASSUMED = "assumed"
WHAT = "a table of features (YAML with the key applications) or one measured row (JSON, by trine profile app)"
MAX_CLASSES = 10
SEED = 0
_STARTS = 10
_MIXED = 2.0
"""Measured spreads within a class that differ by more than this factor are worth a caution."""
_FEATURES = {"compute_util": "compute utilization", "memory_util": "memory utilization", "power_w": "power"}
_BUSY, _LIGHT = 0.7, 0.4


@dataclass(frozen=True, slots=True)
class AppFeatures:
    """One application on one GPU; utilizations are shares of the time, 0 to 1."""

    name: str
    compute_util: float
    memory_util: float
    power_w: float | None = None
    gpu_spread: float | None = None
    """How much GPUs were measured to differ with this application: robust standard deviation of the slowdowns."""
    source: str = "measured"

    @property
    def assumed(self) -> bool:
        return self.source.startswith(ASSUMED)


def shipped_features() -> list[AppFeatures]:
    """The table that comes with the package: published figures, and guesses that say so."""
    text = (files("trine.profile") / "features.yaml").read_text(encoding="utf-8")
    return _table(parse_mapping(text, "features.yaml", WHAT))


def read_features(path: str | Path) -> list[AppFeatures]:
    """The rows in ``path``: a table as the shipped one, or a single row as measured."""
    top = read_mapping(path, WHAT)
    if "applications" in top:
        return _table(top)
    return [_row(top, str(Path(path).name))]  # a measured row says more than is needed here


def merged(*tables: Iterable[AppFeatures]) -> list[AppFeatures]:
    """One row per application, sorted by name; later tables replace rows of earlier ones but keep their spread."""
    rows: dict[str, AppFeatures] = {}
    for row in (row for table in tables for row in table):
        known = rows.get(row.name)
        spread = row.gpu_spread if row.gpu_spread is not None or known is None else known.gpu_spread
        rows[row.name] = AppFeatures(row.name, row.compute_util, row.memory_util, row.power_w, spread, row.source)
    return [rows[name] for name in sorted(rows)]


def _table(top: YamlMapping) -> list[AppFeatures]:
    sources = top.mapping("sources", None)
    if sources is not None:
        sources.keys()
    rows, seen = [], set[str]()
    for value in top.list("applications"):
        entry = value.mapping()
        rows.append(_row(entry, ASSUMED))
        entry.text("detail", "")
        entry.text("spread_source", "")
        if rows[-1].name in seen:
            raise InputError(value.where, f"application {rows[-1].name!r} found twice", "each application once")
        seen.add(rows[-1].name)
    top.finish()
    return rows


def _row(entry: YamlMapping, source: str) -> AppFeatures:
    return AppFeatures(
        name=entry.text("name"),
        compute_util=entry.number("compute_util", minimum=0, maximum=1),
        memory_util=entry.number("memory_util", minimum=0, maximum=1),
        power_w=entry.number("power_w", None, above=0),
        gpu_spread=entry.number("gpu_spread", None, minimum=0),
        source=entry.text("source", source),
    )


@dataclass(frozen=True, slots=True)
class AppClass:
    """Applications that are scheduled alike; the first class is the most sensitive to slow GPUs."""

    name: str
    members: tuple[str, ...]
    compute_util: float | None = None
    memory_util: float | None = None
    spread: float | None = None
    """Mean measured spread of the GPUs over the members that were measured."""
    measured: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class ClassTable:
    """Which application is in which class, and why."""

    classes: tuple[AppClass, ...]
    silhouettes: Mapping[int, float] = field(default_factory=dict)
    """Mean silhouette by number of clusters tried; the best (the smallest of equals) was taken."""
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def class_of(self, application: str) -> str:
        """The class of ``application``; an unknown one is taken for the most sensitive kind."""
        found = (c.name for c in self.classes if application in c.members)
        return next(found, self.classes[0].name)

    def as_dict(self) -> dict[str, Any]:
        return {
            "classes": [c.as_dict() for c in self.classes],
            "unknown_application": self.classes[0].name,
            "silhouette_by_k": {str(k): score for k, score in self.silhouettes.items()},
            "features": list(self.features),
            "notes": list(self.notes),
        }


def classify(
    rows: Sequence[AppFeatures], overrides: Mapping[str, str] | None = None, k: int | None = None
) -> ClassTable:
    """Classes A, B, C ... of ``rows``; ``overrides`` gives classes by hand, ``k`` the number of clusters by hand.

    The order of the rows does not matter.
    """
    ordered = sorted(rows, key=lambda row: row.name)
    if not ordered:
        raise InputError("features", "no application", "at least one row of features")
    points, used = _scaled(ordered)
    labels, silhouettes, notes = _labels(points, k)
    groups = [[row for row, at in zip(ordered, labels, strict=True) if at == label] for label in sorted(set(labels))]
    classes = [_class(name, group) for name, group in zip(_names(), _by_sensitivity(groups), strict=False)]
    classes, by_hand = _overridden(classes, dict(overrides or {}))
    notes += [note for c in classes if (note := _mixed(c, ordered))]
    guessed = [row.name for row in ordered if row.assumed]
    if guessed:
        notes.append(f"assumed features, not measured: {', '.join(guessed)}")
    return ClassTable(tuple(classes), silhouettes, used, (*notes, *by_hand))


def _names() -> list[str]:
    return [chr(ord("A") + i) for i in range(26)]


Points = list[list[float]]


def _scaled(rows: Sequence[AppFeatures]) -> tuple[Points, tuple[str, ...]]:
    """Features with mean 0 and standard deviation 1; without those that are all equal or not known for all rows.

    Standardised, because distances would otherwise be those of the feature with the largest numbers: watts, not shares.
    """
    import numpy as np

    columns, used = [], []
    for name in ("compute_util", "memory_util", "power_w"):
        values = [getattr(row, name) for row in rows]
        if None in values or len(set(values)) == 1:
            continue
        column = np.asarray(values, dtype=float)
        columns.append((column - column.mean()) / column.std())
        used.append(name)
    return [[float(column[i]) for column in columns] for i in range(len(rows))], tuple(used)


def _labels(points: Points, k: int | None) -> tuple[list[int], dict[int, float], list[str]]:
    """Cluster of each point, the silhouette of each number of clusters tried, and notes.

    The silhouette chooses the number: the squared error that K-means minimises only falls with more clusters, while the
    silhouette falls again once a natural group is split. It is not defined for one cluster, so that one class is made
    only where there is nothing to choose between.
    """
    distinct = len({tuple(point) for point in points})
    largest = min(MAX_CLASSES, len(points) - 1, distinct)
    if k is not None and not 1 <= k <= distinct:
        raise InputError("--k", f"found {k}", f"a number of classes from 1 to {distinct}, the different applications")
    tried = {n: _kmeans(points, n) for n in range(2, largest + 1)}
    scores = {n: _silhouette(points, labels) for n, labels in tried.items()}
    if k is not None:
        return (tried.get(k) or _kmeans(points, k)), scores, [f"{k} classes, as asked for"]
    if not scores:
        return [0] * len(points), {}, ["too few different applications to tell classes apart: one class"]
    best = max(scores, key=lambda n: (round(scores[n], 9), -n))
    return tried[best], scores, []


def _kmeans(points: Points, k: int) -> list[int]:
    if k == 1:
        return [0] * len(points)
    require_extra("profile", "sklearn", purpose="grouping applications needs")
    from sklearn.cluster import KMeans

    return [int(label) for label in KMeans(k, n_init=_STARTS, random_state=SEED).fit_predict(points)]


def _silhouette(points: Points, labels: list[int]) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, labels))


def _by_sensitivity(groups: list[list[AppFeatures]]) -> list[list[AppFeatures]]:
    """Most sensitive first: by measured spread; a group without one borrows that of the nearest in compute share."""
    measured = [(_compute(group), spread) for group in groups if (spread := _spread(group)) is not None]

    def key(group: list[AppFeatures]) -> tuple[float, float, str]:
        own, busy = _spread(group), _compute(group)
        if own is None:
            own = min(measured, key=lambda known: (abs(known[0] - busy), known))[1] if measured else 0.0
        return -own, -busy, group[0].name

    return sorted(groups, key=key)


def _spread(group: list[AppFeatures]) -> float | None:
    known = [row.gpu_spread for row in group if row.gpu_spread is not None]
    return mean(known) if known else None


def _compute(group: list[AppFeatures]) -> float:
    return mean(row.compute_util for row in group)


def _class(name: str, group: list[AppFeatures]) -> AppClass:
    members = tuple(row.name for row in group)
    measured = tuple(row.name for row in group if row.gpu_spread is not None)
    return AppClass(name, members, _compute(group), mean(row.memory_util for row in group), _spread(group), measured)


def _mixed(app_class: AppClass, rows: Sequence[AppFeatures]) -> str:
    """A caution where the features put applications together that the measurements tell apart."""
    spreads = {r.name: r.gpu_spread for r in rows if r.name in app_class.members and r.gpu_spread is not None}
    low, high = min(spreads, key=spreads.__getitem__, default=""), max(spreads, key=spreads.__getitem__, default="")
    if not spreads or spreads[high] <= _MIXED * spreads[low]:
        return ""
    return (
        f"class {app_class.name} holds {high}, for which GPUs differ by {spreads[high]:.1%}, and {low} with only "
        f"{spreads[low]:.1%}: the features do not tell them apart (--k or --override can)"
    )


def _overridden(classes: list[AppClass], overrides: dict[str, str]) -> tuple[list[AppClass], list[str]]:
    """Applications moved to the classes that were given by hand; figures stay those of the clustering."""
    if not overrides:
        return classes, []
    names = sorted({c.name for c in classes} | set(overrides.values()))
    known = {c.name: c for c in classes}
    changed = []
    for name in names:
        found = known.get(name, AppClass(name, ()))
        by_hand = tuple(sorted(app for app, wanted in overrides.items() if wanted == name))
        kept = tuple(app for app in found.members if app not in overrides)
        changed.append(replace(found, members=tuple(sorted({*kept, *by_hand})), by_hand=by_hand))
    invented = [name for name in names if name not in known]
    notes = [f"class {name} exists by hand only" for name in invented]
    notes += [f"class {c.name} has no application left" for c in changed if not c.members]
    return changed, notes


# -- description -----------------------------------------------------------------------------------------------------


def describe(table: ClassTable) -> list[str]:
    """One paragraph per class, how the number of classes was found, and the notes."""
    lines: list[str] = []
    for i, app_class in enumerate(table.classes):
        lines += [*_paragraph(app_class, _rank(i, len(table.classes))), ""]
    lines.append(f"An unknown application is class {table.classes[0].name}, the most sensitive one.")
    if table.silhouettes:
        best = max(table.silhouettes.values())
        scores = ", ".join(f"{k}: {s:.3f}{' (best)' if s == best else ''}" for k, s in table.silhouettes.items())
        features = " and ".join(_FEATURES[name] for name in table.features)
        lines.append(f"Grouped by {features}. Silhouette by number of classes: {scores}.")
    return lines


def _rank(i: int, count: int) -> str:
    if count == 1:
        return "the only class"
    return "most sensitive to slow GPUs" if i == 0 else "least sensitive" if i == count - 1 else "in between"


def _paragraph(c: AppClass, rank: str) -> list[str]:
    lines = [f"Class {c.name}, {rank}: {', '.join(c.members) or 'no application'}"]
    if c.compute_util is not None and c.memory_util is not None:
        lines.append(f"  why: {_kind(c.compute_util, c.memory_util)}")
    lines.append(f"  how sensitive: {_sensitivity(c)}")
    if c.by_hand:
        lines.append(f"  by hand: {', '.join(c.by_hand)}")
    return lines


def _kind(compute: float, memory: float) -> str:
    figures = f"the GPU computes {compute:.0%} and its memory is busy {memory:.0%} of the time, on average"
    if compute >= _BUSY:
        return f"{figures}: bound by the chip, so a slow chip shows"
    if memory > compute:
        return f"{figures}: bound by memory, so a slow chip hardly shows"
    if compute < _LIGHT:
        return f"{figures}: mostly waiting for something else, so a slow chip hardly shows"
    return f"{figures}: bound by the chip in part"


def _sensitivity(c: AppClass) -> str:
    if c.spread is None:
        if c.compute_util is None:
            return "not known, the class was made by hand"
        return "not measured, placed by compute utilization (and the measured class nearest in it)"
    return f"GPUs differ by {c.spread:.2%} (robust standard deviation, measured with {', '.join(c.measured)})"
