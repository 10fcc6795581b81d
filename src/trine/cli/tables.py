"""Tables for people at a terminal; plain columns where the output is not one."""

from __future__ import annotations

from collections.abc import Sequence

from trine.core.result import RunResult


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


def run_lines(result: RunResult) -> list[str]:
    """The summary of one run, one number a line."""
    from trine.report.text import duration, number, share

    s = result.summary
    values = {
        "cluster": result.cluster.describe(),
        "policy": f"{s.policy} with {s.placement}",
        "jobs": f"{s.jobs} ({s.finished} finished)",
        "JCT": f"mean {duration(s.jct_mean_s)}, median {duration(s.jct_p50_s)}, p95 {duration(s.jct_p95_s)}, "
        f"p99 {duration(s.jct_p99_s)}",
        "wait": f"mean {duration(s.wait_mean_s)}, p95 {duration(s.wait_p95_s)}",
        "makespan": duration(s.makespan_s),
        "utilization": share(s.utilization),
        "preemptions": f"{s.preemptions}, migrations {s.migrations}, lost work {duration(s.lost_work_s)}",
        **({"cost": number(s.cost, 4)} if s.cost > 0 else {}),
        "simulated": f"{s.rounds} rounds in {s.sim_cpu_s:.2f} s of processor time",
    }
    return [f"{name:<12} {value}" for name, value in values.items()]
