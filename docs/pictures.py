"""Draws the picture of ``docs/trine.md``: one small world under two schedulers, every GPU a line, time to the right.

``python docs/pictures.py`` simulates and writes ``docs/images/trine.svg``; same code, same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from trine.core.result import JobRecord, RunResult
from trine.sim.scenario import Scenario, run

OUT = Path(__file__).parent / "images" / "trine.svg"
WORLD = {"world.jobs": 70, "world.racks": 3, "world.nodes_per_rack": 3, "world.load": 1.0}
SCHEDULERS = {
    "max-min-fairness with packed-sticky": ("max-min-fairness", "packed-sticky"),
    "trine": ("trine", "trine"),
}
SEED = 7
"""One of those in which chips are slow; an illustration, not a measurement."""
HOUR_S = 3600.0
SHOWN_H = 120.0
LEFT, WIDTH, LINE, GAP, TOP = 110.0, 900.0, 7.0, 4.0, 46.0
SINGLE = ("#c9d1d9", "#b3bcc6")
GANGS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#e7298a", "#8c564b", "#17becf", "#e6ab02")
SLOW = 1.15
"""Chips slower than this, for the most sensitive class, are marked."""


def main() -> None:
    results = {
        title: run(Scenario(world="TVN", policy=policy, placement=placement, seed=SEED, values=dict(WORLD)))
        for title, (policy, placement) in SCHEDULERS.items()
    }
    height = sum(_height(result) for result in results.values()) + 20
    parts: list[str] = []
    y = 0.0
    for title, result in results.items():
        parts += _chart(title, result, y)
        y += _height(result)
    parts.append(
        _text(LEFT + WIDTH / 2, height - 6, "hours; coloured: gangs, grey: jobs of one GPU, pale: free", "middle")
    )
    size = f'viewBox="0 0 {LEFT + WIDTH + 20:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    background = '<rect width="100%" height="100%" fill="white"/>'
    OUT.write_text("\n".join([head, background, *parts, "</svg>", ""]), encoding="utf-8")


def _height(result: RunResult) -> float:
    return TOP + LINE * result.cluster.gpu_count + GAP * len(result.cluster.nodes) + 30


def _chart(title: str, result: RunResult, y: float) -> Iterable[str]:
    """A heading, the GPUs with their nodes and types, and every run of a job as a bar."""
    jct_h, rho = result.summary.jct_mean_s / HOUR_S, result.summary.rho_max
    stops = (result.summary.preemptions + result.summary.migrations) / result.summary.jobs
    words = f"{title}: JCT {jct_h:.1f} h on average, largest rho {rho:.2f}, {stops:.1f} stops and moves per job"
    yield _text(LEFT, y + 24, words, size=15)
    lines = _lines(result, y + TOP)
    yield from _labels(result, lines)
    colours = _colours(result.jobs)
    for segment in result.segments:
        x, end = (min(at / HOUR_S, SHOWN_H) / SHOWN_H * WIDTH for at in (segment.start_s, segment.end_s))
        if end > x:
            for first, count in _together(segment.gpus, result.cluster.node_of):
                yield _bar(LEFT + x, lines[first], end - x, colours[segment.job_id], count)
    bottom = max(lines) + LINE
    for hour in range(0, int(SHOWN_H) + 1, 12):
        yield _text(LEFT + hour / SHOWN_H * WIDTH, bottom + 16, str(hour), "middle")


def _together(gpus: Iterable[int], node_of: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours on one node, as the first of them and their number."""
    found: list[tuple[int, int]] = []
    for gpu in sorted(gpus):
        first, count = found[-1] if found else (-1, 0)
        if found and gpu == first + count and node_of[gpu] == node_of[first]:
            found[-1] = (first, count + 1)
        else:
            found.append((gpu, 1))
    return found


def _lines(result: RunResult, top: float) -> list[float]:
    """Upper edge of the line of each GPU; nodes stand apart."""
    node_of = result.cluster.node_of
    return [top + LINE * gpu + GAP * node_of[gpu] for gpu in range(result.cluster.gpu_count)]


def _labels(result: RunResult, lines: list[float]) -> Iterable[str]:
    """The type at its first node, and a mark at every slow chip."""
    cluster, seen = result.cluster, set[str]()
    slowdowns = cluster.scores["A"]
    for gpu, y in enumerate(lines):
        gpu_type = cluster.nodes[cluster.node_of[gpu]].gpu_type
        if gpu_type not in seen:
            seen.add(gpu_type)
            yield _text(8, y + 10, gpu_type.upper())
        yield _bar(LEFT, y, WIDTH, "#f3f4f6")
        if slowdowns[gpu] > SLOW:
            yield _text(LEFT - 6, y + 7, f"slow chip {slowdowns[gpu]:.1f}x", "end", 9, "#b91c1c")


def _colours(jobs: Iterable[JobRecord]) -> dict[str, str]:
    """By job, the same under every scheduler: gangs by turns, in the order of submission."""
    found: dict[str, str] = {}
    counts = {True: 0, False: 0}
    for job in jobs:
        colours = GANGS if job.gpus > 1 else SINGLE
        found[job.job_id] = colours[counts[job.gpus > 1] % len(colours)]
        counts[job.gpus > 1] += 1
    return found


def _bar(x: float, y: float, width: float, colour: str, lines: int = 1) -> str:
    height = LINE * lines - 1
    return f'<rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{height:.0f}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, colour: str = "#111827") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}">{escape(words)}</text>'


if __name__ == "__main__":
    main()
