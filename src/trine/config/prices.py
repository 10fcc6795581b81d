"""What a GPU costs per hour, by type and time: named tables, ``TYPE=PRICE`` lists, or a CSV of price changes.

No job and no currency in here: a price is a number per GPU and hour, whatever it is counted in.
"""

from __future__ import annotations

import bisect
import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trine.config.text_file import read_text
from trine.core.errors import InputError, unknown_name

COLUMNS = ("time_s", "gpu_type", "price_per_h")
WHAT = f"a CSV with the columns {','.join(COLUMNS)}"
EXPECTED = f"TYPE=PRICE,..., the name of a table, or {WHAT}"
HOUR_S = 3600.0

PUBLISHED: dict[str, dict[str, float]] = {
    # Cloud prices per GPU and hour as used in the cost experiments of Gavel (OSDI 2020).
    "gavel-spot": {"v100": 0.74, "p100": 0.43, "k80": 0.135},
    "gavel-on-demand": {"v100": 2.85, "p100": 1.68, "k80": 0.52},
}


@dataclass(frozen=True)
class Prices:
    """``steps[gpu_type]`` = times (s, ascending) and the prices per GPU and hour from each on; types in lower case.

    Before its first time a type costs what it costs then.
    """

    steps: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]

    @classmethod
    def constant(cls, by_type: Mapping[str, float]) -> Prices:
        return cls({name.lower(): ((0.0,), (price,)) for name, price in by_type.items()})

    def at(self, gpu_type: str, time_s: float) -> float | None:
        """Per GPU and hour; ``None`` if no price of the type is known."""
        known = self.steps.get(gpu_type.lower())
        if known is None:
            return None
        times, prices = known
        return prices[max(bisect.bisect_right(times, time_s) - 1, 0)]

    def cost(self, gpu_type: str, gpus: float, start_s: float, end_s: float) -> float | None:
        """What ``gpus`` GPUs cost from ``start_s`` to ``end_s``; ``None`` if no price of the type is known."""
        known = self.steps.get(gpu_type.lower())
        if known is None:
            return None
        times, prices = known
        if len(times) == 1:
            return prices[0] * gpus * (end_s - start_s) / HOUR_S
        first = max(bisect.bisect_right(times, start_s) - 1, 0)
        last = max(bisect.bisect_left(times, end_s) - 1, first)
        edges = (start_s, *times[first + 1 : last + 1], end_s)
        spans = zip(prices[first : last + 1], edges[:-1], edges[1:], strict=True)
        return math.fsum(price * (until - since) for price, since, until in spans) * gpus / HOUR_S

    def next_change_s(self, after_s: float) -> float:
        """When the next price changes; infinite if none does."""
        changes = [times[at] for times, _ in self.steps.values() if (at := _next(times, after_s)) < len(times)]
        return min(changes, default=math.inf)

    def now(self, types: tuple[str, ...], time_s: float) -> dict[str, float]:
        """Price by type, for those types that have one."""
        found = {gpu_type: self.at(gpu_type, time_s) for gpu_type in types}
        return {gpu_type: price for gpu_type, price in found.items() if price is not None}


def _next(times: tuple[float, ...], after_s: float) -> int:
    """Position of the first change after ``after_s``; the first time of a type is where it starts, not a change."""
    return max(bisect.bisect_right(times, after_s), 1)


def load_prices(spec: str) -> Prices:
    """``gavel-spot``, ``v100=0.74,k80=0.135`` or a CSV of (time_s, gpu_type, price_per_h), plain or gzip'ed."""
    if spec in PUBLISHED:
        return Prices.constant(PUBLISHED[spec])
    if "=" in spec and not Path(spec).exists():
        return Prices.constant(_listed(spec))
    if not Path(spec).exists() and "/" not in spec and "." not in spec:
        raise unknown_name("prices", "table", spec, PUBLISHED)
    return _read(spec)


def _listed(spec: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in spec.split(","):
        name, sign, text = (word.strip() for word in part.partition("="))
        if not (name and sign) or name.lower() in found:
            raise InputError("prices", f"{part.strip()!r}", "TYPE=PRICE, every type once")
        found[name.lower()] = _price("prices", name, text)
    return found


def _price(where: str, field: str, text: str, what: str = "a price per GPU and hour, 0 or more") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(where, f"found {text!r}", what, field)
    return value


def _read(path: str) -> Prices:
    steps: dict[str, dict[float, float]] = {}
    for line, cells in enumerate(csv.reader(io.StringIO(read_text(path, WHAT))), 1):
        where = f"{path}:{line}"
        row = [cell.strip() for cell in cells]
        if line == 1:
            if tuple(row) != COLUMNS:
                raise InputError(where, f"the columns {','.join(row)}", WHAT)
        elif row and not row[0].startswith("#"):
            _read_row(steps, where, row)
    if not steps:
        raise InputError(path, "no prices", f"{WHAT} and at least one row")
    ordered = {name: sorted(known.items()) for name, known in steps.items()}
    return Prices({name: (tuple(t for t, _ in known), tuple(p for _, p in known)) for name, known in ordered.items()})


def _read_row(steps: dict[str, dict[float, float]], where: str, row: list[str]) -> None:
    if len(row) != len(COLUMNS):
        raise InputError(where, f"{len(row)} cells", f"{len(COLUMNS)}: {','.join(COLUMNS)}")
    time_s = _price(where, "time_s", row[0], "seconds since the start, 0 or more")
    if not row[1]:
        raise InputError(where, "the cell is empty", "a GPU type", "gpu_type")
    known = steps.setdefault(row[1].lower(), {})
    if time_s in known:
        raise InputError(where, f"a second price of {row[1]} at {time_s:g} s", "one price per type and time")
    known[time_s] = _price(where, "price_per_h", row[2])
