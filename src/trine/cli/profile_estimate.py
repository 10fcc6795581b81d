"""``trine profile estimate``: rates of pairs, or of a model on new GPU types. Parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.core.errors import InputError

if TYPE_CHECKING:
    from trine.perf.throughput import ThroughputTable


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
    from trine.perf.estimate_alone import estimated_rates

    told = _rates(measured, table.types)
    found = estimated_rates(table, told, gang, seed)
    if target is not None:
        _write_with(table, target, gang, found, f"measured on {', '.join(sorted(told))}; the rest estimated")
    if as_json:
        _echo_json({"steps_per_s": found, "measured": sorted(told)})
        return
    from trine.cli.tables import print_table

    rows = [[t, f"{rate:.4g}", "measured" if t in told else "estimated"] for t, rate in found.items()]
    print_table([["gpu type", "steps/s", "from"], *rows])


def _write_with(
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
    from trine.perf.estimate import EstimatedPairs, References
    from trine.perf.estimate_error import matches, pair_error

    found = EstimatedPairs(References.of(table, references, seed), profiled, seed)
    error, stands_for = pair_error(found, table, gang), matches(found, table.models)
    if out is not None:
        write_output(out, table_csv(found.table((gang,)), f"estimated, {profiled:g} profiled, seed {seed}"))
    if as_json:
        _echo_json({"error": error.as_dict(), "references": list(found.references.models), "matches": stands_for})
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
    from trine.core.errors import unknown_name

    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name.lower() not in types:
            raise unknown_name("--measured", "GPU type", name, types)
        try:
            found[name.lower()] = float(value)
        except ValueError:
            raise InputError("--measured", f"{part.strip()!r}", "TYPE=RATE, as in v100=12.5") from None
    return found


def _echo_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
