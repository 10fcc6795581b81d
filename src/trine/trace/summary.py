"""What an import says about itself: counts, rules applied, sentences for people. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trine.core.job import Job


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """``rows`` = ``jobs`` + ``skipped_rows``: every row is accounted for."""

    source: str
    format: str
    title: str
    rows: int
    jobs: int
    skipped_rows: int
    skipped: dict[str, int]
    """Rows left out, by reason; a row with two reasons counts under both."""
    changed: dict[str, int]
    """Rows kept after a repair, by rule."""
    found: dict[str, int]
    """Rows showing a trait, kept or not: reasons overlap here."""
    span_s: float
    """From the first to the last submission."""
    gpus_max: int
    duration_p50_s: float | None
    """Median run time on reference GPUs; ``None`` if only a throughput table can tell."""
    groups: dict[str, int]
    """Jobs by group (virtual cluster), of all groups that the file names, whether or not they were asked for."""
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sentences": list(self.sentences)}


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission (ties in file order)."""

    jobs: list[Job]
    summary: ImportSummary
    source: str


def median(values: Sequence[float]) -> float | None:
    """The middle value, or the mean of the middle two; ``None`` of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else ordered[half - 1] / 2 + ordered[half] / 2
