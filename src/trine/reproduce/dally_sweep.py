"""Where waiting pays and where not: over the speed of the network, its oversubscription, the share of sensitive models.

Nothing of this is published; the lines are JCT relative to the same policy without any wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trine.reproduce.dally_bands import Results, compared
from trine.reproduce.dally_runs import AUTO, FULL, NO_WAIT
from trine.reproduce.dally_settings import Setting, World, generated
from trine.reproduce.panels import Found, Panel, Table

SWEPT = (NO_WAIT, FULL, AUTO)
CONGESTED_NIC = 12.5


@dataclass(frozen=True)
class Axis:
    """One quantity that is varied; the others stay as in the congested scenarios."""

    name: str
    x_title: str
    points: tuple[float, ...]
    quick: tuple[float, ...]

    def given(self, world: World, x: float) -> dict[str, Any]:
        """What ``generated`` is told at ``x``."""
        congestion = world.congestion(True)
        if self.name == "network speed":
            return {"congestion": x / CONGESTED_NIC}
        if self.name == "oversubscription":
            return {"congestion": congestion, "oversubscription": x}
        return {"congestion": congestion, "sensitive_share": x}


AXES = (
    Axis("network speed", "NIC of a node (GB/s)", (1.25, 3.125, 12.5), (1.25, 12.5)),
    Axis("oversubscription", "NICs of a rack over its uplink", (1.0, 4.0, 16.0), (1.0, 16.0)),
    Axis("sensitive models", "Share of network-sensitive gangs", (0.0, 0.5, 1.0), (0.0, 1.0)),
)


@dataclass(frozen=True)
class Point:
    """A scenario of the sweep."""

    axis: Axis
    x: float
    batch: bool
    setting: Setting


def points(world: World, quick: bool, seeds: int) -> list[Point]:
    """All scenarios of the sweep."""
    found = []
    for axis in AXES:
        for x in axis.quick if quick else axis.points:
            for batch in (False,) if quick else (False, True):
                name = f"{axis.name} {x:g}, {'batch' if batch else 'Poisson'}"
                found.append(Point(axis, x, batch, generated(world, name, seeds, batch=batch, **axis.given(world, x))))
    return found


def judge(results: Results, found: list[Point]) -> Found:
    """A panel for each quantity, and all figures in one table."""
    rows = [(p.setting.name, *_cells(results, p.setting)) for p in found]
    header = ("against no wait, %", "JCT, fully consolidated", "JCT, tuned", "makespan, fully cons.", "makespan, tuned")
    panels = [_panel(results, axis, [p for p in found if p.axis is axis]) for axis in AXES]
    return Found([], panels, [Table("Where waiting pays", header, rows)])


def _cells(results: Results, setting: Setting) -> list[str]:
    pairs = [(name, key) for key in ("jct_h", "makespan_h") for name in (FULL, AUTO)]
    estimates = [compared(results, setting, name, NO_WAIT, key) for name, key in pairs]
    return [f"{e.mean:+.1f} ± {e.half:.1f}" if e.half is not None else f"{e.mean:+.1f}" for e in estimates]


def _panel(results: Results, axis: Axis, own: list[Point]) -> Panel:
    lines = []
    for name in (FULL, AUTO):
        for batch in sorted({p.batch for p in own}):
            chosen = [p for p in own if p.batch is batch]
            y = [compared(results, p.setting, name, NO_WAIT, "jct_h").mean for p in chosen]
            lines.append((f"{name}, {'batch' if batch else 'Poisson'}", [p.x for p in chosen], y))
    title = f"Where waiting pays: JCT by {axis.name}, congested unless varied"
    return Panel(title, axis.x_title, "JCT against no wait (%; below 0: waiting pays)", lines)
