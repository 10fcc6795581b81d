"""Power of GPUs by type: a table of published board powers (``board_power.csv``), and what a user states instead.

Board power is what a card may draw at most, in watts; energies computed from it are upper bounds of what GPUs take.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from trine.core.errors import InputError
from trine.inputs.csv_table import CsvTable


class BoardPower(NamedTuple):
    """Watts of one GPU of a type, and the document that states them."""

    gpu_type: str
    watts: float
    source: str


@lru_cache(maxsize=1)
def published_powers() -> tuple[BoardPower, ...]:
    """The shipped table, in its order; types in lower case."""
    path = files("trine.inputs").joinpath("board_power.csv")
    table = CsvTable("board_power.csv", path.read_text(encoding="utf-8"), comments=True)
    return tuple(
        BoardPower(r.filled("gpu_type", "a type"), r.number("watts"), r.filled("source", "a document")) for r in table
    )


def gpu_watts(stated: tuple[str, ...] = ()) -> dict[str, float]:
    """Watts by GPU type in lower case: the published ones, and over them ``("v100=250", ...)``."""
    return {power.gpu_type: power.watts for power in published_powers()} | dict(map(_stated, stated))


def _stated(part: str) -> tuple[str, float]:
    name, _, text = (word.strip() for word in part.partition("="))
    try:
        watts = float(text)
    except ValueError:
        watts = math.nan
    if not name or not 0 < watts < math.inf:
        raise InputError("--set", f"{part!r}", "TYPE=WATTS with a positive number", "watts")
    return name.lower(), watts
