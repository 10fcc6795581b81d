"""Numbers for people: durations with a fitting unit, shares, counts, means with their interval. No HTML, no plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trine.core.result import Kind

MISSING = "–"


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time: ``seconds`` long, with its symbol and its plural."""

    seconds: float
    symbol: str
    plural: str


UNITS = (
    TimeUnit(1.0, "s", "seconds"),
    TimeUnit(60.0, "min", "minutes"),
    TimeUnit(3600.0, "h", "hours"),
    TimeUnit(86400.0, "d", "days"),
)


def time_unit(typical_s: float) -> TimeUnit:
    """The largest unit of which ``typical_s`` holds at least one and a half (days: four)."""
    fitting = [u for u in UNITS if math.isfinite(typical_s) and abs(typical_s) >= u.seconds * _least(u)]
    return fitting[-1] if fitting else UNITS[0]


def _least(unit: TimeUnit) -> float:
    # Hours stay readable up to about a hundred; "1.2 h" says more than "72 min" but "36 h" more than "1.5 d".
    return {"s": 0.0, "min": 1.5, "h": 1.0, "d": 4.0}[unit.symbol]


def number(value: float, digits: int = 3) -> str:
    """``value`` with about ``digits`` significant digits, thousands separated, no exponent: ``1,234``, ``0.57``."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float, digits: int = 2) -> str:
    """A duration in the unit that fits: ``1.2 h``, ``36 min``, ``0.5 s``."""
    if not math.isfinite(seconds):
        return MISSING
    unit = time_unit(seconds)
    return f"{number(seconds / unit.seconds, max(digits, _whole_digits(seconds / unit.seconds)))} {unit.symbol}"


def _whole_digits(value: float) -> int:
    return len(str(int(abs(value))))


def share(fraction: float) -> str:
    """``0.785`` as ``79 %``; small shares keep a digit so that they do not read as none."""
    if not math.isfinite(fraction):
        return MISSING
    percent = 100 * fraction
    near_an_end = 0 < percent < 1 or 99 < percent < 100
    return f"{percent:.1f} %" if near_an_end else f"{percent:.0f} %"


def times(factor: float) -> str:
    """A slowdown: ``3.2×``."""
    return f"{number(factor, 2 if factor < 100 else 3)}×" if math.isfinite(factor) else MISSING


def written(kind: Kind, value: Any) -> str:
    """A value of the summary as people read it; values by GPU type one after the other."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {written(kind, inner)}" for name, inner in value.items())
    if kind == "duration":
        return duration(value)
    if kind == "share":
        return share(value)
    if kind == "ratio":
        return f"{value:.3g}"
    if kind == "amount":
        return number(value, 4)
    return f"{value:,}" if kind == "count" else str(value)


def count(n: float, noun: str) -> str:
    """``1 job``, ``1,204 jobs``."""
    return f"{n:,.0f} {noun}" if n == 1 else f"{n:,.0f} {noun}s"


def when_decided(settings: Mapping[str, Any]) -> str:
    """``in rounds of 300 s``: when jobs could start in a run with these settings; empty if they do not say."""
    run = settings.get("settings", {}).get("run", {})
    if run.get("ideal"):
        return "without rounds"
    if run.get("event_driven"):
        return "at arrivals and completions"
    return f"in rounds of {run['round_s']:g} s" if "round_s" in run else ""


def with_interval(mean: float, half: float | None) -> str:
    """``12.3 ± 0.4``: as many decimals as the interval's two leading digits warrant; no interval, no ``±``."""
    if not math.isfinite(mean):
        return MISSING
    if half is None or not math.isfinite(half):
        return number(mean, max(3, _whole_digits(mean)))
    if half == 0:
        return f"{number(mean, max(3, _whole_digits(mean)))} ± 0"
    decimals = min(6, max(0, 1 - math.floor(math.log10(half))))
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}"


def with_bounds(mean: float, low: float | None, high: float | None) -> str:
    """``12.3 [9.8, 15.4]``, all with the decimals that the nearer end warrants; no interval, no brackets."""
    if not math.isfinite(mean):
        return MISSING
    if low is None or high is None or low == high:
        return number(mean, max(3, _whole_digits(mean)))
    near = min(abs(mean - low), abs(high - mean)) or abs(high - low)
    decimals = min(6, max(0, 1 - math.floor(math.log10(near))))
    return f"{mean:,.{decimals}f} [{low:,.{decimals}f}, {high:,.{decimals}f}]"


def median(values: Iterable[float]) -> float:
    """The middle of the finite values, NaN if there is none; only used to choose units."""
    ordered = sorted(v for v in values if math.isfinite(v))
    return ordered[len(ordered) // 2] if ordered else math.nan


_MARKS = ((1, 3, 10, 30), (1, 3, 10, 30), (1, 3, 10), (1, 3, 10, 30, 100, 300))


def log_ticks(low_s: float, high_s: float) -> list[tuple[float, str]]:
    """Marks of a logarithmic time axis from ``low_s`` to ``high_s`` and what they say; fewer over many decades."""
    sparse = low_s > 0 and high_s / low_s > 2000
    pairs = [
        (m, u) for u, marks in zip(UNITS, _MARKS, strict=True) for m in marks if not (sparse and m in {3, 30, 300})
    ]
    return [(m * u.seconds, f"{m} {u.symbol}") for m, u in pairs]
