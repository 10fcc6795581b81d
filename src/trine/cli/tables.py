"""Tables for people at a terminal; plain columns where the output is not one."""

from __future__ import annotations

from collections.abc import Sequence

from trine.core.result import RunResult, Summary


def print_table(rows: Sequence[Sequence[str]], numbers_from: int = 2) -> None:
    """The first row is the header; columns from ``numbers_from`` on are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if i >= numbers_from else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 240
    console.print(table)


_LINES = ("JCT", "wait", "makespan", "utilization", "preemptions", "cost")
"""Lines of metrics in this order; further ones follow."""


def run_lines(result: RunResult) -> list[str]:
    """The summary of one run, one subject a line."""
    s = result.summary
    values = {
        "cluster": result.cluster.describe(),
        "policy": f"{s.policy} with {s.placement}",
        "jobs": f"{s.jobs} ({s.finished} finished)",
        **_metric_lines(s),
        "simulated": f"{s.rounds} rounds in {s.sim_cpu_s:.2f} s of processor time",
    }
    return [f"{name:<12} {value}" for name, value in values.items()]


def _metric_lines(s: Summary) -> dict[str, str]:
    """Metrics by the line they stand in; a line of nothing but optional ones that are 0 is left out."""
    from trine.report.text import written

    values: dict[str, list[str]] = {name: [] for name in _LINES}
    needed: set[str] = set()
    for metric in s.metrics():
        if metric.line is None:
            continue
        name, label = metric.line
        value = getattr(s, metric.key)
        text = str(value) if metric.kind == "count" else written(metric.kind, value)
        values.setdefault(name, []).append(f"{label} {text}".lstrip())
        if value > 0 or not metric.optional:
            needed.add(name)
    return {name: ", ".join(texts) for name, texts in values.items() if name in needed}
