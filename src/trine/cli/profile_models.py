"""``trine profile estimate`` and ``trine profile network``: parameters of the performance model from measurements.

Rates of pairs or of a model on new GPU types, and links from step times by placement. Parses, calls, prints.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from trine.perf.collectives import Algorithm
    from trine.perf.network_fit import NetworkFit, StepRow
    from trine.perf.throughput import ThroughputTable

_SHOWN_ROWS = 5


def estimate(
    throughputs: Annotated[str, typer.Option("--throughputs", metavar="FILE", help="Measured rates, pairs included.")],
    references: Annotated[
        int | None, typer.Option("--references", min=1, help="Models measured in full [default: all].")
    ] = None,
    profiled: Annotated[
        float, typer.Option("--profiled", min=0, max=1, help="Fraction of the other pairs that is measured.")
    ] = 1.0,
    measured: Annotated[
        str,
        typer.Option(
            "--measured", metavar="TYPE=RATE,...", help="Instead: rates of a new model, to estimate the rest."
        ),
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="With --measured and --out: what the new model is called.")
    ] = "",
    gang: Annotated[int, typer.Option("--gpus", min=1, help="Size of the gang.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of what is drawn.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", metavar="CSV", help="Write the estimated table.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Estimate how fast jobs run together, or on GPU types they have not seen, and how far off that is."""
    from trine.inputs.throughputs import load_throughputs

    table = load_throughputs(throughputs)
    if measured:
        _alone(table, measured, gang, seed, as_json, _target(table, model, gang, out))
    else:
        _pairs(table, references, profiled, gang, seed, out, as_json)


def _target(table: ThroughputTable, model: str, gang: int, out: Path | None) -> tuple[str, Path] | None:
    """The name of a new model and the file for the table with it, if one is wanted."""
    if out is None:
        return None
    if not model:
        raise InputError("--out", "a new model without a name", "--model NAME beside --measured")
    if (model, gang) in table.rates:
        raise InputError("--model", f"{model} is in the table already, with {gang} GPUs", "a new name")
    return model, out


def _alone(
    table: ThroughputTable, measured: str, gang: int, seed: int, as_json: bool, target: tuple[str, Path] | None
) -> None:
    from trine.perf.matrix_completion import estimated_rates

    rates = _rates(measured, table.types)
    found = estimated_rates(table, rates, gang, seed)
    if target is not None:
        _write_table(table, target, gang, found, f"measured on {', '.join(sorted(rates))}; the rest estimated")
    if as_json:
        _print_json({"steps_per_s": found, "measured": sorted(rates)})
        return
    from trine.cli.tables import print_table

    rows = [[t, f"{rate:.4g}", "measured" if t in rates else "estimated"] for t, rate in found.items()]
    print_table([["gpu type", "steps/s", "from"], *rows])


def _write_table(
    table: ThroughputTable, target: tuple[str, Path], gang: int, rates: dict[str, float], source: str
) -> None:
    """The table with the new model below the others, and where its rates come from."""
    from trine.core.atomic_file import write_output
    from trine.inputs.throughputs import table_csv
    from trine.perf.throughput import ThroughputTable

    model, out = target
    below = table_csv(ThroughputTable({(model, gang): rates}), source).splitlines(keepends=True)[1:]
    write_output(out, table_csv(table) + "".join(below))


def _pairs(
    table: ThroughputTable,
    references: int | None,
    profiled: float,
    gang: int,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    from trine.core.atomic_file import write_output
    from trine.inputs.throughputs import table_csv
    from trine.perf.pair_estimates import EstimatedPairs, References, matches, pair_error

    found = EstimatedPairs(References.of(table, references, seed), profiled, seed)
    error, stands_for = pair_error(found, table, gang), matches(found, table.models)
    if out is not None:
        write_output(out, table_csv(found.table((gang,)), f"estimated, {profiled:g} profiled, seed {seed}"))
    if as_json:
        _print_json({"error": error.as_dict(), "references": list(found.references.models), "matches": stands_for})
        return
    from trine.cli.tables import print_table

    print_table([["model", "behaves like"], *([model, other] for model, other in stands_for.items())])
    typer.echo(
        f"{error.pairs} pairs by GPU type against the table: off by {error.mean:.1%} on average, {error.median:.1%} in "
        f"the median, {error.p90:.1%} at the 90th percentile; {error.missed} said not to fit that do, {error.wrong} "
        "said to fit that do not.",
        err=True,
    )


def _rates(text: str, types: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (text.strip() for text in part.partition("="))
        if name.lower() not in types:
            raise unknown_name("--measured", "GPU type", name, types)
        try:
            found[name.lower()] = float(value)
        except ValueError:
            raise InputError("--measured", f"{part.strip()!r}", "TYPE=RATE, as in v100=12.5") from None
    return found


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
    from trine.profile.steps import read_steps

    if algorithm not in ALGORITHMS:
        raise unknown_name("--algorithm", "algorithm", algorithm, ALGORITHMS)
    rows = read_steps(steps)
    fit = fit_network(rows, algorithm=algorithm)
    unseen = _unseen_error(rows, fit.algorithm)
    if out is not None:
        _write_links(out, fit)
    if as_json:
        _print_json(_as_dict(fit, rows, unseen))
        return
    _print_fit(fit, rows, unseen)


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


def _write_links(out: Path, fit: NetworkFit) -> None:
    import yaml

    from trine.core.atomic_file import write_output
    from trine.inputs.links import links_tree

    tree = {"links": links_tree(fit.links)}
    write_output(out, yaml.safe_dump(tree, sort_keys=False, default_flow_style=False))
    typer.echo(f"Wrote {out}.", err=True)


def _print_fit(fit: NetworkFit, rows: Sequence[StepRow], unseen: float | None) -> None:
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


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
