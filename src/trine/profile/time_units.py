"""Brings the records of a class into one unit of time: chips differ by a few times, units by a thousand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from trine.core.errors import InputError
from trine.profile.records import MeasurementRecord

GAP = 30.0
"""Neighbouring times further apart than this factor are not two chips but two units, or a run that hung."""
_UNITS = (1e3, 1e6, 1e9)
_NEAR = 3.0
"""Two groups differ by a unit if their medians are within this factor of a thousand, a million ..."""
_HUNG_SHARE = 0.05
"""A group of slow runs below this share of a class may be runs that hung; above it, the file is refused."""
_HUNG_LONGEST = 1e5


def in_one_unit(
    records: Sequence[MeasurementRecord], wheres: Sequence[str] = ()
) -> tuple[list[MeasurementRecord], int, tuple[str, ...]]:
    """The records in one unit per class, how many were rescaled, and notes. ``wheres`` are the places for errors.

    Groups whose medians differ by a thousand (a million ...) are the same unit times that: the larger is divided.
    Rare slow runs at another factor are kept as they are; two large groups at another factor are refused.
    """
    clean, rescaled, notes = list(records), 0, []
    for app_class in sorted({r.app_class for r in records}):
        while split := _split([(r.perf_s, i) for i, r in enumerate(clean) if r.app_class == app_class]):
            low, high = split
            ratio = median(t for t, _ in high) / median(t for t, _ in low)
            factor = next((u for u in _UNITS if u / _NEAR <= ratio <= u * _NEAR), None)
            if factor is None:
                notes.append(_kept_or_refused(clean, low, high, ratio, wheres))
                break
            for time, i in high:
                clean[i] = replace(clean[i], perf_s=time / factor)
            rescaled += len(high)
            notes.append(f"class {app_class}: {len(high)} of {len(low) + len(high)} times divided by {factor:,.0f}")
    return clean, rescaled, tuple(notes)


Times = list[tuple[float, int]]


def _split(times: Times) -> tuple[Times, Times] | None:
    """The times below and above the widest gap, if there is one."""
    ordered = sorted(times)
    gaps = [(high[0] / low[0], i + 1) for i, (low, high) in enumerate(pairwise(ordered))]
    widest, at = max(gaps, default=(1.0, 0))
    return (ordered[:at], ordered[at:]) if widest > GAP else None


def _kept_or_refused(
    records: Sequence[MeasurementRecord], low: Times, high: Times, ratio: float, wheres: Sequence[str]
) -> str:
    odd = high[0][1] if len(high) <= len(low) else low[0][1]
    gpu, app_class = records[odd].gpu, records[odd].app_class
    if ratio > _HUNG_LONGEST or len(high) > max(1, _HUNG_SHARE * (len(low) + len(high))):
        where = wheres[odd] if wheres else f"measurement of GPU {gpu}"
        found = f"times of class {app_class} in two groups a factor {ratio:,.0f} apart (GPU {gpu} and others)"
        raise InputError(where, found, "times of one application in one unit", "perf_s")
    return f"class {app_class}: {len(high)} runs took {ratio:,.0f} times as long as the others (GPU {gpu} and others)"
