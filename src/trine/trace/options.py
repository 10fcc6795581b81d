"""What a trace file leaves open and the caller decides: arrival rate, seed, run time. Nothing about the simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

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
        values = {key: _number(key, text) for key, text in settings.items()}
        return cls(
            jobs_per_h=values.get("jobs_per_h", cls().jobs_per_h),
            seed=_seed(values.get("seed", 0.0)),
            duration_s=values.get("duration_s"),
        )


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError("--set", f"{text!r} is not a number", "a number", key) from None


def _seed(value: float) -> int:
    if not math.isfinite(value) or value != int(value):
        raise InputError("--set", f"{value:g} is not a whole number", "a whole number", "seed")
    return int(value)


def _positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError("--set", f"{value:g}", "a positive, finite number", key)
