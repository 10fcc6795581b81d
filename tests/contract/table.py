"""The table of what the contract suite asks of each engine, in ``docs/engines.md``: one line per test, one column per
entry of ``ENGINES``. ``python -m tests.contract.table`` writes it; a test keeps it up to date."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract import test_executors

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
BEGIN, END = "<!-- contract: made by `make docs` from the tests -->\n", "<!-- end of contract -->"


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE} has no place for the table"
    return f"{before}{BEGIN}{_table()}{END}{after}"


def _table() -> str:
    engines: dict[str, Any] = {name: drivers[0].values[0] for name, drivers in test_executors.ENGINES.items()}
    head = ["case", "times", *engines]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, test in vars(test_executors).items():
        if name.startswith("test_") and (asked := {"driver", "sharing"} & {*inspect.signature(test).parameters}):
            shares = "sharing" in asked
            runs = ["✓" if engine.shares_gpus or not shares else "–" for engine in engines.values()]
            lines.append(_line([_sentence(name), str(_cases(test)), *runs]))
    return "".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _sentence(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")


def _cases(test: Callable[..., Any]) -> int:
    """How often the suite calls a test for each engine."""
    marks = getattr(test, "pytestmark", [])
    return math.prod(len(mark.args[1]) for mark in marks if mark.name == "parametrize")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
