"""Loads measured throughputs: Gavel's JSON, our own CSV, or a table shipped with the package by its name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from trine.core.errors import unknown_name
from trine.inputs.text_file import read_text
from trine.inputs.throughput_csv import read_csv
from trine.inputs.throughput_json import read_json
from trine.perf.throughput import ThroughputTable

SHIPPED = Path(__file__).parent / "tables"
WHAT = "throughputs as Gavel's JSON or as CSV, or the name of a shipped table (see docs/throughputs.md)"


def table_names() -> list[str]:
    """Names of the throughput tables shipped with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.csv"))


def load_throughputs(name: str) -> ThroughputTable:
    """The table in the file ``name`` (plain or gzip'ed), or the shipped table called ``name``."""
    if name in table_names():
        return _shipped(name)
    if not Path(name).exists() and "/" not in name and "." not in name:
        raise unknown_name("--throughputs", "table", name, table_names())
    return _read(name)


@lru_cache
def _shipped(name: str) -> ThroughputTable:
    return _read(str(SHIPPED / f"{name}.csv"))


def _read(path: str) -> ThroughputTable:
    text = read_text(path, WHAT)
    read = read_json if text.lstrip()[:1] in ("{", "[") else read_csv
    return read(path, text).table()
