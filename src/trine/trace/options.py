"""What the caller decides about a trace: columns, groups and time to keep, load; and values where the file has none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trine.core.errors import InputError, unknown_name


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Figures are used only by files that lack the value concerned; a file's own always win."""

    jobs_per_h: float = 10.0
    """Rate of the Poisson arrivals drawn for files without submission times."""
    seed: int = 0
    duration_s: float | None = None
    """Run time of every job, seconds, for files without run times."""
    group: tuple[str, ...] = ()
    """Keep only jobs of these groups (virtual clusters); empty keeps all."""
    models: str = ""
    """Mix from which jobs that name no model draw one (``trine.trace.models``); empty leaves them without."""
    sensitive_share: float | None = None
    """Share of gangs whose drawn model is network-sensitive; ``None`` leaves it to the weights of the mix."""
    columns: tuple[str, ...] = ()
    """Where a table of no known format keeps what: ``submit=COLUMN``, ``duration=COLUMN:min`` ..."""
    since: str = ""
    """Keep jobs submitted at this time or later: seconds on the clock of the trace, or an ISO date."""
    until: str = ""
    """Keep jobs submitted before this time."""
    scale_load: float = 1.0
    """The gaps between submissions are divided by this."""

    def __post_init__(self) -> None:
        _positive("jobs_per_h", self.jobs_per_h)
        _positive("scale_load", self.scale_load)
        if self.duration_s is not None:
            _positive("duration_s", self.duration_s)
        if self.sensitive_share is not None:
            _check_share(self.sensitive_share, self.models)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> ImportOptions:
        """From ``--set key=value`` texts; an unknown key is an error that names the nearest one.

        Keys may be written as ``trine sim`` has them, with ``trace.`` in front.
        """
        given: dict[str, Any] = {}
        for key, text in settings.items():
            name = key.removeprefix("trace.")
            if name not in cls.names():
                raise unknown_name("--set", "key", key, cls.names())
            given[name] = _value(name, text)
        return cls(**given)


def _value(key: str, text: str) -> float | str | tuple[str, ...]:
    if key in ("models", "since", "until"):
        return text
    if key in ("group", "columns"):
        return tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        return int(text) if key == "seed" else float(text)
    except ValueError:
        expected = "a whole number" if key == "seed" else "a number"
        raise InputError("--set", f"found {text!r}", expected, key) from None


def _check_share(share: float, models: str) -> None:
    if not 0 <= share <= 1:
        raise InputError("--set", f"{share:g}", "a share from 0 to 1", "sensitive_share")
    if not models:
        raise InputError("--set", "a share of models, and none are drawn", "models=draw beside it", "sensitive_share")


def _positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError("--set", f"{value:g}", "a positive, finite number", key)
