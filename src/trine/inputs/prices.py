"""Reads what a GPU costs per hour: named tables, ``TYPE=PRICE`` lists, or a CSV of price changes."""

from __future__ import annotations

import math
from pathlib import Path

from trine.core.errors import InputError, unknown_name
from trine.core.prices import Prices
from trine.inputs.csv_table import CsvTable, Ragged, Row
from trine.inputs.text_file import read_text

COLUMNS = ("time_s", "gpu_type", "price_per_h")
WHAT = f"a CSV with the columns {','.join(COLUMNS)}"
A_PRICE = "a price per GPU and hour, 0 or more"
_RAGGED = Ragged("{count} cells", f"{len(COLUMNS)}: {','.join(COLUMNS)}")

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
        found[name.lower()] = _price(name, text)
    return found


def _price(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError("prices", f"found {text!r}", A_PRICE, name)
    return value


def _read(path: str) -> Prices:
    table = CsvTable(path, read_text(path, WHAT), comments=True, ragged=_RAGGED)
    if table.names and tuple(table.names) != COLUMNS:
        raise InputError(table.where, f"the columns {','.join(table.names)}", WHAT)
    steps: dict[str, dict[float, float]] = {}
    for row in table:
        _read_row(steps, row)
    if not steps:
        raise InputError(path, "no prices", f"{WHAT} and at least one row")
    ordered = {name: sorted(known.items()) for name, known in steps.items()}
    return Prices({name: (tuple(t for t, _ in known), tuple(p for _, p in known)) for name, known in ordered.items()})


def _read_row(steps: dict[str, dict[float, float]], row: Row) -> None:
    time_s = row.number("time_s", expected="seconds since the start, 0 or more")
    gpu_type = row.filled("gpu_type", "a GPU type")
    known = steps.setdefault(gpu_type.lower(), {})
    if time_s in known:
        raise InputError(row.where, f"a second price of {gpu_type} at {time_s:g} s", "one price per type and time")
    known[time_s] = row.number("price_per_h", expected=A_PRICE)
