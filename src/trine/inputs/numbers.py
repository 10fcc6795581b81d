"""Reads a column of numbers from a small file, one per line, a header line allowed: samples for policies that learn."""

from __future__ import annotations

import math

from trine.core.errors import InputError
from trine.inputs.text_file import read_text

WHAT = "a file with one number per line"


def read_numbers(path: str) -> tuple[float, ...]:
    """All numbers of the file; blank lines are passed over, a first line of text counts as a header."""
    numbers: list[float] = []
    for line, text in enumerate(read_text(path, WHAT).splitlines(), 1):
        word = text.strip().rstrip(",")
        if not word:
            continue
        try:
            value = float(word)
        except ValueError:
            if line == 1:
                continue
            raise InputError(f"{path}:{line}", f"{word[:40]!r}", WHAT) from None
        if not math.isfinite(value):
            raise InputError(f"{path}:{line}", word, "a finite number")
        numbers.append(value)
    if not numbers:
        raise InputError(path, "no numbers", WHAT)
    return tuple(numbers)
