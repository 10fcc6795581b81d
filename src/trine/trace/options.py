"""What a trace file leaves open and the caller decides: arrival rate, seed, run time. Nothing about the simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trine.core.errors import InputError, unknown_name


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Used only by files that lack the value concerned; a file's own figures always win."""

    jobs_per_h: float = 10.0
    """Rate of the Poisson arrivals drawn for files without submission times."""
    seed: int = 0
    duration_s: float | None = None
    """Run time of every job, seconds, for files without run times."""

    def __post_init__(self) -> None:
        _positive("jobs_per_h", self.jobs_per_h)
        if self.duration_s is not None:
            _positive("duration_s", self.duration_s)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> ImportOptions:
        """From ``--set key=value`` texts; an unknown key is an error that names the nearest one."""
        for key in settings:
            if key not in cls.names():
                raise unknown_name("--set", "key", key, cls.names())
        given: dict[str, Any] = {key: _value(key, text) for key, text in settings.items()}
        return cls(**given)


def _value(key: str, text: str) -> float:
    try:
        return int(text) if key == "seed" else float(text)
    except ValueError:
        expected = "a whole number" if key == "seed" else "a number"
        raise InputError("--set", f"found {text!r}", expected, key) from None


def _positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError("--set", f"{value:g}", "a positive, finite number", key)
