"""``trine profile``: profiles of GPUs, classes of applications. Parses, calls, prints; measuring has its own file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli import profile_measure, profile_models
from trine.core.errors import InputError

if TYPE_CHECKING:
    from trine.core.cluster import Cluster
    from trine.profile.app_classes import AppFeatures
    from trine.profile.measurements import Measurements
    from trine.profile.variability_profile import ProfiledGpu, VariabilityProfile

app = typer.Typer(no_args_is_help=True, help="Measure GPUs and applications; make profiles of them.")
app.command("gpus")(profile_measure.gpus)
app.command("app")(profile_measure.app)
app.command("estimate")(profile_models.estimate)
app.command("network")(profile_models.network)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
ClassFiles = Annotated[
    list[str] | None,
    typer.Option("--class", metavar="CLASS=FILE", help="Measurements of one class; several with commas or repeated."),
]
Column = Annotated[str, typer.Option("--column", help="Read this column of the files in place of the times.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw.")]


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="PROFILE", help="JSON profile.", show_default=False)],
    every: Annotated[bool, typer.Option("--all", help="All GPUs, not only the flagged ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the GPUs of a profile: slowdown per class, runs, spread, flags."""
    from trine.profile.profile_json import load_profile, profile_text

    profile = load_profile(path)
    if as_json:
        typer.echo(profile_text(profile), nl=False)
        return
    _print_profile(profile, every)


@app.command()
def build(
    out: Annotated[Path, typer.Option("--out", help="JSON profile to write.", show_default=False)],
    records: Annotated[
        list[Path] | None, typer.Argument(metavar="RECORDS", help="CSV of measurements with a column class.")
    ] = None,
    class_files: ClassFiles = None,
    how: Annotated[str, typer.Option("--how", help="gpu_median, record or column.")] = "gpu_median",
    column: Column = "",
    seed: Seed = 42,
) -> None:
    """Build a variability profile from measurements."""
    from trine.profile.profile_json import save_profile
    from trine.profile.variability_profile import COLUMN, build_profile

    way = how.replace("-", "_")
    if (way == COLUMN) != bool(column):
        raise InputError("--how", f"{how!r} with --column {column!r}", "--how column together with --column NAME")
    read = _measurements(records or [], class_files or [], column)
    notes = [note for m in read for note in m.notes]
    profile = build_profile((r for m in read for r in m.records), way, seed, [m.source for m in read], notes)
    save_profile(profile, out)
    typer.echo(f"Wrote {out}: {_described(profile)}", err=True)
    for note in profile.notes:
        typer.echo(f"note: {note}", err=True)


@app.command()
def draw(
    class_files: ClassFiles = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Number of GPUs, 4 to a node.")] = None,
    cluster_spec: Annotated[
        str | None, typer.Option("--cluster", metavar="SPEC", help="Cluster to draw for, in place of --gpus.")
    ] = None,
    how: Annotated[
        str, typer.Option("--how", help="gpu-median: whole real GPUs; record: any single record.")
    ] = "gpu-median",
    seed: Seed = 42,
    out: Annotated[Path, typer.Option("--out", help="CSV to write, for --variability; - for stdout.")] = Path("-"),
) -> None:
    """Draw the slowdowns of a simulated cluster from measurements of real GPUs."""
    from trine.profile.draw import draw_table, table_csv, write_table

    cluster = _drawn_cluster(gpus, cluster_spec)
    read = _measurements([], class_files or [], "")
    sources = {m.records[0].app_class: m.records for m in sorted(read, key=lambda m: m.records[0].app_class)}
    if len(sources) < len(read):
        raise InputError("--class", "a class found twice", "one file per class")
    table = draw_table(sources, cluster.gpu_count, seed, how)
    if str(out) == "-":
        typer.echo(table_csv(table, cluster), nl=False)
    else:
        write_table(table, cluster, out)
        typer.echo(f"Wrote {out}: {cluster.describe()}, drawn by {how} with seed {seed}.", err=True)
    for note in (note for m in read for note in m.notes):
        typer.echo(f"note: {note}", err=True)


@app.command()
def classes(
    features: Annotated[
        list[Path] | None, typer.Option("--features", metavar="FILE", help="Table of features or a measured row.")
    ] = None,
    records: Annotated[
        list[str] | None,
        typer.Option("--records", metavar="MODEL=FILE", help="Measurements of GPUs with this application."),
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="MODEL=CLASS", help="Class by hand; or a YAML file.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Number of classes, in place of the best silhouette.")] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped/--no-shipped", help="Use the table that comes with trine as well.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Group applications into classes by their features, and say why."""
    from trine.profile.app_classes import classify, describe

    rows = _features(features or [], shipped)
    table = classify(_with_spreads(rows, records or []), _overrides(override or []), k)
    if as_json:
        _echo_json(table.as_dict())
        return
    for line in describe(table):
        typer.echo(line)
    for note in table.notes:
        typer.echo(f"note: {note}", err=True)


def _pairs(option: str, texts: Sequence[str], expected: str) -> list[tuple[str, str]]:
    """``A=x,B=y`` and repeated options as pairs."""
    pairs = []
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            raise InputError(option, f"found {text!r}", expected)
        pairs.append((name, value))
    return pairs


def _measurements(paths: Sequence[Path], class_files: Sequence[str], column: str) -> list[Measurements]:
    from trine.profile.measurements import read_records

    pairs = _pairs("--class", class_files, "CLASS=FILE, as in A=resnet.csv.gz")
    if not paths and not pairs:
        raise InputError("--class", "no measurements", "at least one file, as in --class A=resnet.csv.gz")
    read = [read_records(path, column=column) for path in paths]
    return read + [read_records(path, name, column) for name, path in pairs]


def _drawn_cluster(gpus: int | None, spec: str | None) -> Cluster:
    from trine.core.cluster import Cluster, Node
    from trine.inputs.cluster import load_cluster

    if (gpus is None) == (spec is None):
        raise InputError("--gpus", "both or neither of --gpus and --cluster", "one of them")
    if spec is not None:
        return load_cluster(spec)
    assert gpus is not None
    return Cluster(tuple(Node(f"node{i}", min(4, gpus - 4 * i)) for i in range((gpus + 3) // 4)))


def _features(paths: Sequence[Path], shipped: bool) -> list[AppFeatures]:
    from trine.profile.app_classes import merged, read_features, shipped_features

    return merged(shipped_features() if shipped else [], *(read_features(path) for path in paths))


def _with_spreads(rows: list[AppFeatures], records: Sequence[str]) -> list[AppFeatures]:
    """Rows with the spread of the GPUs as measured with the application."""
    from dataclasses import replace

    from trine.core.errors import unknown_name
    from trine.profile.measurements import read_records
    from trine.profile.variability_profile import build_profile

    files = dict(_pairs("--records", records, "MODEL=FILE, as in resnet50=resnet.csv.gz"))
    for model in files:
        if model not in {row.name for row in rows}:
            raise unknown_name("--records", "application", model, [row.name for row in rows])
    spreads = {m: build_profile(read_records(path, m).records).classes[m].spread for m, path in files.items()}
    return [replace(row, gpu_spread=spreads[row.name]) if row.name in spreads else row for row in rows]


def _overrides(texts: Sequence[str]) -> dict[str, str]:
    from trine.inputs.yaml_reader import read_mapping

    found: dict[str, str] = {}
    for text in texts:
        if "=" in text:
            found |= dict(_pairs("--override", [text], "MODEL=CLASS, as in resnet50=A, or a YAML file"))
        else:
            table = read_mapping(text, "a YAML file of applications and their classes, as in resnet50: A")
            found |= {model: value.text() for model, value in table.values()}
    return found


def _described(profile: VariabilityProfile) -> str:
    classes = ", ".join(f"{c} ({f.gpus} GPUs, {f.records} runs)" for c, f in profile.classes.items())
    return f"{len(profile.gpus)} GPUs by {profile.how}; classes {classes}."


def _print_profile(profile: VariabilityProfile, every: bool) -> None:
    from trine.cli.tables import print_table

    typer.echo(_described(profile))
    for c, f in profile.classes.items():
        typer.echo(
            f"class {c}: GPUs differ by {f.spread:.2%}, runs of one GPU by {f.noise:.2%} (robust standard deviations); "
            f"slow from {f.slow_from:.3f}"
        )
    chosen = list(profile.gpus) if every else sorted(_flagged(profile), key=_worst_first)
    if chosen:
        print_table([_header(profile), *(_cells(gpu, profile) for gpu in chosen)])
    if not every:
        typer.echo(f"{len(chosen)} of {len(profile.gpus)} GPUs are flagged; --all shows the others.", err=True)
    for note in profile.notes:
        typer.echo(f"note: {note}", err=True)


def _flagged(profile: VariabilityProfile) -> list[ProfiledGpu]:
    return [gpu for gpu in profile.gpus if any(s.flags for s in gpu.classes.values())]


def _worst_first(gpu: ProfiledGpu) -> tuple[bool, float]:
    """Consistently slow GPUs before noisy ones, the slowest first."""
    slow = any("slow" in s.flags for s in gpu.classes.values())
    return not slow, -max(s.slowdown for s in gpu.classes.values())


def _header(profile: VariabilityProfile) -> list[str]:
    columns = ("slowdown", "runs", "spread", "flags")
    return ["gpu", "node", *(f"{c} {column}" for c in profile.classes for column in columns), "measured"]


def _cells(gpu: ProfiledGpu, profile: VariabilityProfile) -> list[str]:
    cells = [gpu.name, gpu.node]
    for c in profile.classes:
        s = gpu.classes.get(c)
        if s is None:
            cells += ["-", "0", "-", ""]
        else:
            spread = "-" if s.spread is None else f"{s.spread:.3f}"
            cells += [f"{s.slowdown:.3f}", str(s.runs), spread, ", ".join(s.flags)]
    return [*cells, _day(max((s.measured_at_s or 0.0 for s in gpu.classes.values()), default=0.0))]


def _day(at_s: float) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d") if at_s else "-"
    except (OverflowError, ValueError, OSError):
        return "-"


def _echo_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
