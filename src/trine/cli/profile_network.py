"""``trine profile network``: parameters of the network model from step times by placement. Parses, calls, prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.core.errors import unknown_name

if TYPE_CHECKING:
    from trine.perf.collectives import Algorithm
    from trine.perf.network_fit import NetworkFit, StepRow

_SHOWN_ROWS = 5


def network(
    steps: Annotated[
        Path,
        typer.Argument(
            metavar="STEPS", help="CSV: model,gpus,nodes,racks,step_s[,bytes][,compute_s].", show_default=False
        ),
    ],
    algorithm: Annotated[str, typer.Option("--algorithm", help="All-reduce: ring, tree or auto.")] = "ring",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="YAML", help="Write the links, for a cluster file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Fit bandwidths, latencies, compute and overlap to measured step times."""
    from trine.perf.collectives import ALGORITHMS
    from trine.perf.network_fit import fit_network
    from trine.profile.network_csv import read_steps

    if algorithm not in ALGORITHMS:
        raise unknown_name("--algorithm", "algorithm", algorithm, ALGORITHMS)
    rows = read_steps(steps)
    fit = fit_network(rows, algorithm=algorithm)
    unseen = _unseen_error(rows, fit.algorithm)
    if out is not None:
        _write(out, fit)
    if as_json:
        typer.echo(json.dumps(_as_dict(fit, rows, unseen), indent=1, ensure_ascii=False))
        return
    _print(fit, rows, unseen)


def _unseen_error(rows: Sequence[StepRow], algorithm: Algorithm) -> float | None:
    """Median error on every second row, with parameters from the others; nothing with too few rows to halve."""
    from statistics import median

    from trine.perf.network_fit import fit_network, halves

    fitted, kept = halves(rows)
    if len(fitted) < 4 or {row.model for row in kept} - {row.model for row in fitted}:
        return None
    predicted = fit_network(fitted, algorithm=algorithm).predict(kept)
    return median(abs(step / row.step_s - 1.0) for step, row in zip(predicted, kept, strict=True))


def _as_dict(fit: NetworkFit, rows: Sequence[StepRow], unseen: float | None) -> dict[str, Any]:
    return {
        "links": {name: getattr(fit.links, name) for name in fit.fitted},
        "models": {m: {"compute_s": t.compute_s, "overlap": t.overlap} for m, t in fit.traffic.items()},
        "rows": len(rows),
        "median_error": fit.median_error,
        "median_error_unseen": unseen,
        "errors": list(fit.errors),
    }


def _write(out: Path, fit: NetworkFit) -> None:
    import yaml

    from trine.core.atomic_file import write_output
    from trine.inputs.links import links_tree

    tree = {"links": links_tree(fit.links)}
    write_output(out, yaml.safe_dump(tree, sort_keys=False, default_flow_style=False))
    typer.echo(f"Wrote {out}.", err=True)


def _print(fit: NetworkFit, rows: Sequence[StepRow], unseen: float | None) -> None:
    from trine.cli.tables import print_table

    print_table([["link", "fitted"], *([name, _shown(name, getattr(fit.links, name))] for name in fit.fitted)])
    models = [[m, f"{t.compute_s:.4g}", f"{t.overlap:.2f}"] for m, t in fit.traffic.items()]
    print_table([["model", "compute s", "overlap"], *models])
    worst = sorted(zip(fit.errors, rows, strict=True), key=lambda pair: -abs(pair[0]))[:_SHOWN_ROWS]
    for error, row in worst:
        shape = f"{row.gpus} GPUs on {row.nodes} nodes in {row.racks} racks"
        typer.echo(f"off by {error:+.1%}: {row.model}, {shape}, {row.step_s:g} s", err=True)
    other = "" if unseen is None else f"; {unseen:.1%} on the half of them left out of a fit"
    typer.echo(f"{len(rows)} rows: off by {fit.median_error:.1%} in the median{other}.", err=True)


def _shown(name: str, value: float) -> str:
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e9:.4g} GB/s"
    return f"{value * 1e6:.4g} us" if name.endswith("_s") else f"{value:.3g}"
