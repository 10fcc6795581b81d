"""The variability profile: how much slower than the median each GPU is, per class, and how well that is known.

Built here from measurement records; its file is in ``profile_json``, its use for a cluster in ``profile_matching``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from trine.core.errors import InputError, unknown_name
from trine.perf.learning.evidence import robust_sd
from trine.profile.measurements import MeasurementRecord, in_one_unit, name_order

GPU_MEDIAN, RECORD, COLUMN = "gpu_median", "record", "column"
WAYS = (GPU_MEDIAN, RECORD, COLUMN)
"""How a slowdown comes about: median of the GPU's runs, one of its runs drawn, or the values as they are."""
SLOW, NOISY, FEW = "slow", "noisy", "few"
FLAGS = (SLOW, NOISY, FEW)

MIN_RUNS = 3
"""With fewer runs a GPU is flagged ``few``, and not ``slow``: one bad run would do. Where every GPU of a class has a
single record, as in files that hold one summary per GPU, nothing better is known: then both are said."""
SLOW_MARGIN = 0.05
SLOW_SPREADS = 3.0
"""Slow is more than 3 robust standard deviations of the GPUs above the median, and at least 5 %."""
SLOW_SHARE = 0.75
"""Share of the runs of a GPU that must be slow for the GPU to be slow: the median alone means only half of them."""
ONE_OFF_MARGIN = 0.10
ONE_OFF_SPREADS = 5.0
"""A one-off slow run is that much above the GPU's own median, measured in the typical spread of runs."""


@dataclass(frozen=True, slots=True)
class GpuSlowdown:
    """One GPU in one class: 1.0 is the median, larger is slower."""

    slowdown: float
    runs: int
    spread: float | None = None
    """Robust standard deviation of the runs, as a share of the class median; unknown after a single run."""
    measured_at_s: float | None = None
    """Unix time of the latest run, where the records say."""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfiledGpu:
    """One GPU as the measurements name it."""

    name: str
    node: str = ""
    classes: Mapping[str, GpuSlowdown] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """What the GPUs of one class have in common."""

    reference_s: float
    """The time that counts as 1.0: the median over all records of the class."""
    records: int
    gpus: int
    spread: float
    """Robust standard deviation of the slowdowns of the GPUs: how sensitive the class is."""
    noise: float
    """Typical (median) spread of the runs of one GPU."""
    slow_from: float
    """Slowdown from which a GPU is slow, if most of its runs agree."""


@dataclass(frozen=True)
class VariabilityProfile:
    """GPUs in counting order of node and name, classes by name; the first class is the most sensitive one."""

    gpus: tuple[ProfiledGpu, ...]
    classes: Mapping[str, ClassFigures]
    how: str = GPU_MEDIAN
    seed: int | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def build_profile(
    records: Iterable[MeasurementRecord],
    how: str = GPU_MEDIAN,
    seed: int = 42,
    sources: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> VariabilityProfile:
    """The profile of all GPUs in ``records``; ``seed`` matters for ``record`` only.

    Times are divided by the median over all records of their class; with ``column`` they are slowdowns already.
    """
    if how not in WAYS:
        raise unknown_name("--how", "way", how, WAYS)
    runs, more = _cleaned(list(records), how)
    if not runs:
        raise InputError("measurements", "no records", "at least one measurement")
    by_class = _by_class_and_gpu(runs)
    figures = {c: _figures(gpus, how) for c, gpus in by_class.items()}
    slowdowns = {c: _slowdowns(by_class[c], figures[c]) for c in by_class}
    if how == RECORD:
        slowdowns = _drawn(by_class, figures, slowdowns, seed)
    gpus = _profiled(runs, slowdowns)
    cautions = _cautions(gpus, figures)
    drawn_seed = seed if how == RECORD else None
    return VariabilityProfile(gpus, figures, how, drawn_seed, tuple(sources), (*notes, *more, *cautions))


Runs = dict[str, list[MeasurementRecord]]


def _cleaned(records: list[MeasurementRecord], how: str) -> tuple[list[MeasurementRecord], list[str]]:
    """Each run once, under one name per GPU, in one unit per class; and what had to be done for that."""
    # Without a time a copy cannot be distinguished from a repeated run.
    unique = list({(r if r.at_s is not None else i): r for i, r in enumerate(records)}.values())
    notes = []
    if len(unique) < len(records):
        notes.append(f"{len(records) - len(unique)} measurements found twice and counted once")
    joined = by_place(unique)
    if joined != unique:
        notes.append("GPUs with different names in different files were matched by cabinet, node and device")
    if how == COLUMN:
        return joined, notes
    clean, _, unit_notes = in_one_unit(joined)
    return clean, [*notes, *unit_notes]


def by_place(records: list[MeasurementRecord]) -> list[MeasurementRecord]:
    """GPUs renamed to their places, if every record has one and files of different classes name them differently.

    Two names in one place within one class are two chips (one was replaced): then nothing is renamed.
    """
    names: dict[str, set[str]] = defaultdict(set)
    per_class: dict[tuple[str, str], set[str]] = defaultdict(set)
    for r in records:
        names[r.place].add(r.gpu)
        per_class[r.place, r.app_class].add(r.gpu)
    differ = any(len(found) > 1 for found in names.values())
    if "" in names or not differ or any(len(found) > 1 for found in per_class.values()):
        return records
    return [replace(r, gpu=r.place) for r in records]


def _by_class_and_gpu(records: list[MeasurementRecord]) -> dict[str, Runs]:
    """Runs by class and GPU, classes by name and GPUs in counting order, whatever the order of the records."""
    found: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for r in records:
        found[r.app_class][r.gpu].append(r)
    return {c: {g: found[c][g] for g in sorted(found[c], key=name_order)} for c in sorted(found)}


def _figures(gpus: Runs, how: str) -> ClassFigures:
    times = [r.perf_s for runs in gpus.values() for r in runs]
    # Over all records, as in the published profiles (PAL, SC'24), not over GPUs: runs of busy GPUs count more.
    reference_s = 1.0 if how == COLUMN else median(times)
    between = robust_sd([median(r.perf_s for r in runs) / reference_s for runs in gpus.values()])
    spreads = [robust_sd([r.perf_s for r in runs]) / reference_s for runs in gpus.values() if len(runs) >= MIN_RUNS]
    slow_from = 1.0 + max(SLOW_MARGIN, SLOW_SPREADS * between)
    return ClassFigures(reference_s, len(times), len(gpus), between, median(spreads) if spreads else 0.0, slow_from)


def _slowdowns(gpus: Runs, figures: ClassFigures) -> dict[str, GpuSlowdown]:
    return {gpu: _slowdown([r.perf_s / figures.reference_s for r in runs], runs, figures) for gpu, runs in gpus.items()}


def _slowdown(relative: list[float], runs: list[MeasurementRecord], figures: ClassFigures) -> GpuSlowdown:
    times = [r.at_s for r in runs if r.at_s is not None]
    spread = robust_sd(relative) if len(relative) > 1 else None
    return GpuSlowdown(median(relative), len(runs), spread, max(times, default=None), _flags(relative, figures))


def _flags(relative: list[float], figures: ClassFigures) -> tuple[str, ...]:
    """``slow`` asks for most runs to agree; ``noisy`` is a GPU with runs far above its own median.

    The median alone would call a GPU slow although nearly half of its runs were as fast as those of others.
    """
    middle = median(relative)
    slow_runs = sum(v >= figures.slow_from for v in relative)
    one_off = middle * (1.0 + max(ONE_OFF_MARGIN, ONE_OFF_SPREADS * figures.noise))
    few = len(relative) < MIN_RUNS
    slow = (
        (not few or figures.records == figures.gpus)
        and middle >= figures.slow_from
        and slow_runs >= SLOW_SHARE * len(relative)
    )
    noisy = any(v > one_off for v in relative)
    return tuple(flag for flag, holds in zip(FLAGS, (slow, noisy, few), strict=True) if holds)


def _drawn(
    by_class: dict[str, Runs],
    figures: dict[str, ClassFigures],
    slowdowns: dict[str, dict[str, GpuSlowdown]],
    seed: int,
) -> dict[str, dict[str, GpuSlowdown]]:
    """Every GPU as one of its own runs shows it: what a profile measured only once would have said."""
    rng = random.Random(seed)
    return {
        c: {
            gpu: replace(slowdowns[c][gpu], slowdown=rng.choice(runs).perf_s / figures[c].reference_s)
            for gpu, runs in gpus.items()
        }
        for c, gpus in by_class.items()
    }


def _profiled(
    records: list[MeasurementRecord], slowdowns: dict[str, dict[str, GpuSlowdown]]
) -> tuple[ProfiledGpu, ...]:
    nodes = {r.gpu: "" for r in records}
    for r in sorted((r for r in records if r.node), key=lambda r: (r.at_s or 0.0, r.node)):
        nodes[r.gpu] = r.node  # where it was last seen
    order = sorted(nodes, key=lambda gpu: (name_order(nodes[gpu]), name_order(gpu)))
    return tuple(ProfiledGpu(g, nodes[g], {c: s[g] for c, s in slowdowns.items() if g in s}) for g in order)


def _cautions(gpus: tuple[ProfiledGpu, ...], figures: dict[str, ClassFigures]) -> list[str]:
    """What a reader of the profile must know about how little was measured."""
    notes = []
    for c, known in figures.items():
        once = sum(c in gpu.classes and gpu.classes[c].runs == 1 for gpu in gpus)
        if known.gpus == 1:
            notes.append(f"class {c}: only one GPU was measured, so there is nothing to compare it with")
        if once:
            notes.append(f"class {c}: {once} of {known.gpus} GPUs measured once only, so a one-off slow run would pass")
        if known.gpus < len(gpus):
            missing = len(gpus) - known.gpus
            notes.append(f"class {c}: {missing} of {len(gpus)} GPUs not measured; they count as median GPUs")
    return notes
