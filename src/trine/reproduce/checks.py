"""A figure beside its published and reference values, and whether it lies in the stated band.

The functions here judge one figure each. They read it from outcomes of runs; where such a run failed, the check says so
and counts as out of tolerance, so that one failure does not lose the other figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

EQUAL = 0.001
"""Averages this close are taken for equal."""
SAME_S = 1.0
"""Finish times this close are taken for equal."""


class RunFailed(Exception):  # noqa: N818 - a fact about a run, caught where a figure is judged
    """A figure was read of a run that failed; the message says how."""


class Finishes(Protocol):
    """What is compared job by job."""

    @property
    def finishes_s(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Check:
    """One figure of one experiment. ``held`` is ``None`` where there is nothing to hold it against.

    Only a band that a figure can miss on both sides says how faithful a reproduction is. Directions, times that may be
    shorter and processor times are shown with whether they are as expected, but not ``counted``.
    """

    experiment: str
    what: str
    ours: str
    reference: str = "-"
    published: str = "-"
    held: bool | None = None
    band: str = ""
    counted: bool = True


def check(
    experiment: str,
    what: str,
    measure: Callable[[], tuple[str, bool | None]],
    reference: str = "-",
    published: str = "-",
    band: str = "",
    *,
    counted: bool = True,
) -> Check:
    """``measure`` gives our figure as text and whether it lies within tolerance. A failed run always counts."""
    try:
        ours, held = measure()
    except RunFailed as failure:
        ours, held, counted = f"failed: {failure}", False, True
    return Check(experiment, what, ours, reference, published, held, band, counted)


@dataclass(frozen=True)
class Band:
    """What a figure may be: at most ``half_width`` above or below ``expected``. All counted figures are judged here."""

    expected: float
    half_width: float
    words: str = ""
    """The band as the page says it."""

    @classmethod
    def part(cls, expected: float, fraction: float) -> Band:
        """A fraction of what is expected."""
        return cls(expected, abs(expected) * fraction, f"within {100 * fraction:g} %")

    def holds(self, value: float) -> bool:
        # The slack is for the rounding of a subtraction, so that an edge belongs to the band.
        return abs(value - self.expected) <= self.half_width * (1 + 1e-9)


def banded(
    experiment: str,
    what: str,
    measure: Callable[[], float],
    band: Band,
    show: Callable[[float], str],
    reference: str = "-",
    published: str = "-",
) -> Check:
    """A counted figure: it can miss its band on both sides."""

    def judge() -> tuple[str, bool]:
        value = measure()
        return show(value), band.holds(value)

    return check(experiment, what, judge, reference, published, band.words)


def shown(experiment: str, what: str, measure: Callable[[], str]) -> Check:
    """A figure that is not judged."""
    return check(experiment, what, lambda: (measure(), None))


def within(
    experiment: str,
    what: str,
    measure: Callable[[], float],
    expected: float,
    band: float,
    published: str = "-",
    *,
    digits: int = 3,
) -> Check:
    """A figure that may differ from the reference by the fraction ``band`` of it, in both directions."""

    allowed = Band.part(expected, band)
    return banded(
        experiment,
        what,
        measure,
        allowed,
        lambda v: with_change(v, expected, digits),
        f"{expected:.{digits}f}",
        published,
    )


def no_worse(
    experiment: str, what: str, measure: Callable[[], float], expected: float, *, judged: bool = True
) -> Check:
    """A time that may not be longer than that of the reference; not counted."""

    def judge() -> tuple[str, bool | None]:
        value = measure()
        return with_change(value, expected), value <= expected * (1 + EQUAL) if judged else None

    band = f"no worse than the reference (to {100 * EQUAL:g} %)" if judged else ""
    return check(experiment, what, judge, f"{expected:.3f}", band=band, counted=False)


def ratios(
    experiment: str,
    what: str,
    measure: Callable[[], Sequence[float]],
    published: str = "-",
    *,
    holds: Callable[[Sequence[float]], bool] = lambda times: min(times) >= 1,
    band: str = "at least 1",
) -> Check:
    """How many times as long one takes as the other, at each point of a sweep: a direction, not counted."""

    def judge() -> tuple[str, bool]:
        times = measure()
        return " ".join(f"{x:.2f}" for x in times), holds(times)

    return check(experiment, what, judge, "-", published, band, counted=False)


def same_finishes(experiment: str, what: str, found: Finishes, expected: dict[str, float]) -> Check:
    """How many jobs finish when the reference says."""

    def judge() -> tuple[str, bool]:
        finishes_s = found.finishes_s
        # The last round of the authors' run ends after the last measured job; what ended in it may be missing here.
        there = {job: at for job, at in expected.items() if job in finishes_s}
        off = [abs(finishes_s[job] - at) for job, at in there.items()]
        same = sum(Band(at, SAME_S).holds(finishes_s[job]) for job, at in there.items())
        ended_s = max(finishes_s.values(), default=0.0)
        missing = [job for job, at in expected.items() if job not in there and at < ended_s - SAME_S]
        ours = f"{same} of {len(there)} equal, largest difference {max(off, default=0.0):.3g} s"
        return ours, bool(off) and same == len(off) and not missing

    return check(experiment, what, judge, f"{len(expected)} jobs", band=f"every job within {SAME_S:g} s")


def with_change(value: float, expected: float, digits: int = 3) -> str:
    """A figure, and by how many percent it is above or below what is expected."""
    return f"{value:.{digits}f} ({100 * (value / expected - 1):+.1f} %)"
