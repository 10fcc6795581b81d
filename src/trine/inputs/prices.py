"""Reads what a GPU costs per hour: named tables, ``TYPE=PRICE`` lists, or a CSV of price changes."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from trine.core.errors import InputError, unknown_name
from trine.core.prices import Prices
from trine.inputs.text_file import read_text

COLUMNS = ("time_s", "gpu_type", "price_per_h")
WHAT = f"a CSV with the columns {','.join(COLUMNS)}"
EXPECTED = f"TYPE=PRICE,..., the name of a table, or {WHAT}"

PUBLISHED: dict[str, dict[str, float]] = {
    # Cloud prices per GPU and hour as used in the cost experiments of Gavel (OSDI 2020).
    "gavel-spot": {"v100": 0.74, "p100": 0.43, "k80": 0.135},
    "gavel-on-demand": {"v100": 2.85, "p100": 1.68, "k80": 0.52},
}


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
