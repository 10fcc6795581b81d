"""Bandwidths as people write them (``10 GB/s``, ``25 Gb/s``) to bytes per second and back."""

from __future__ import annotations

import re

from trine.inputs.yaml_reader import Mapping, Value

_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_WRITTEN = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([kKMGT]i?|)(B|b|bit)(?:/s|ps)")
_EXPECTED = "a bandwidth such as '10 GB/s' (bytes), '25 Gb/s' (bits) or a plain number of bytes per second"

MIN_BARE = 1e6
"""Smallest plain number taken as bytes per second: below it the unit was surely forgotten (``nic: 25``)."""


def bandwidth(section: Mapping, key: str) -> float | None:
    """Effective bytes per second at ``key``; nothing if the key is absent. ``B`` is bytes, ``b`` is bits."""
    value = section.get(key)
    if value is None:
        return None
    bytes_per_s = _parsed(value)
    if not 0 < bytes_per_s < 1e18:
        raise value.wrong(f"a bandwidth greater than 0 and below 1e18 bytes per second; {_EXPECTED}")
    return bytes_per_s


def _parsed(value: Value) -> float:
    plain = value.plain()
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        if 0 < plain < MIN_BARE:
            raise value.error(f"found {plain} without a unit", _EXPECTED)
        return float(plain)
    match = _WRITTEN.fullmatch(value.text().strip())
    if match is None:
        raise value.wrong(_EXPECTED)
    number, scale, unit = match.groups()
    try:
        amount = float(number)
    except ValueError:
        raise value.wrong(_EXPECTED) from None
    return amount * (_SCALES | _BINARY)[scale] / (1.0 if unit == "B" else 8.0)


def written(bytes_per_s: float) -> str:
    """The shortest text that reads back as exactly ``bytes_per_s``: ``12.5 GB/s`` or ``1234.5 B/s``."""
    scaled = bytes_per_s / 1e9
    short = f"{scaled:g} GB/s"
    return short if scaled >= 0.001 and float(f"{scaled:g}") * 1e9 == bytes_per_s else f"{bytes_per_s!r} B/s"
