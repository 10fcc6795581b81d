"""A figure beside its published and reference values, and whether it lies in the stated band."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One figure of one experiment. ``held`` is ``None`` where there is nothing to hold it against."""

    experiment: str
    what: str
    ours: str
    reference: str = "-"
    published: str = "-"
    held: bool | None = None
    band: str = ""


@dataclass(frozen=True)
class Curve:
    """A line of a plot: one contender in one panel, with half the width of its interval where there is one."""

    panel: str
    name: str
    x: list[float]
    y: list[float]
    half: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Reproduction:
    """All that one paper's experiments gave."""

    paper: str
    checks: list[Check]
    curves: list[Curve]
    notes: list[str]

    @property
    def held(self) -> bool:
        return all(check.held is not False for check in self.checks)

    def sentence(self) -> str:
        """What held and what did not, in one sentence."""
        judged = [c for c in self.checks if c.held is not None]
        missed = [c for c in judged if not c.held]
        if not missed:
            return f"All {len(judged)} figures that can be held against a reference lie in their bands."
        names = "; ".join(f"{c.experiment} {c.what}: {c.ours}, expected {c.reference} ({c.band})" for c in missed[:3])
        return f"{len(judged) - len(missed)} of {len(judged)} figures lie in their bands; outside: {names}."

    def as_dict(self) -> dict[str, Any]:
        return {
            "paper": self.paper,
            "held": self.held,
            "sentence": self.sentence(),
            "checks": [asdict(c) for c in self.checks],
            "curves": [asdict(c) for c in self.curves],
            "notes": self.notes,
        }
