"""Explains a table of classes in words, for people. Decides nothing."""

from __future__ import annotations

from trine.profile.classes import AppClass, ClassTable

_FEATURES = {"compute_util": "compute utilisation", "memory_util": "memory utilisation", "power_w": "power"}
_BUSY, _LIGHT = 0.7, 0.4


def explained(table: ClassTable) -> list[str]:
    """One paragraph per class, how the number of classes was found, and the notes."""
    lines: list[str] = []
    for i, app_class in enumerate(table.classes):
        lines += [*_paragraph(app_class, _rank(i, len(table.classes))), ""]
    lines.append(f"An unknown application is class {table.classes[0].name}, the most sensitive one.")
    if table.silhouettes:
        best = max(table.silhouettes.values())
        scores = ", ".join(f"{k}: {s:.3f}{' (best)' if s == best else ''}" for k, s in table.silhouettes.items())
        features = " and ".join(_FEATURES[name] for name in table.features)
        lines.append(f"Grouped by {features}. Silhouette by number of classes: {scores}.")
    return lines


def _rank(i: int, count: int) -> str:
    if count == 1:
        return "the only class"
    return "most sensitive to slow GPUs" if i == 0 else "least sensitive" if i == count - 1 else "in between"


def _paragraph(c: AppClass, rank: str) -> list[str]:
    lines = [f"Class {c.name}, {rank}: {', '.join(c.members) or 'no application'}"]
    if c.compute_util is not None and c.memory_util is not None:
        lines.append(f"  why: {_kind(c.compute_util, c.memory_util)}")
    lines.append(f"  how sensitive: {_sensitivity(c)}")
    if c.by_hand:
        lines.append(f"  by hand: {', '.join(c.by_hand)}")
    return lines


def _kind(compute: float, memory: float) -> str:
    figures = f"the GPU computes {compute:.0%} and its memory is busy {memory:.0%} of the time, on average"
    if compute >= _BUSY:
        return f"{figures}: bound by the chip, so a slow chip shows"
    if memory > compute:
        return f"{figures}: bound by memory, so a slow chip hardly shows"
    if compute < _LIGHT:
        return f"{figures}: mostly waiting for something else, so a slow chip hardly shows"
    return f"{figures}: bound by the chip in part"


def _sensitivity(c: AppClass) -> str:
    if c.spread is None:
        if c.compute_util is None:
            return "not known, the class was made by hand"
        return "not measured, placed by compute utilisation (and the measured class nearest in it)"
    return f"GPUs differ by {c.spread:.2%} (robust standard deviation, measured with {', '.join(c.measured)})"
