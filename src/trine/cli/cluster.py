"""``trine cluster``: say what a cluster description was understood as, and write it as YAML. Parses nothing itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.core.errors import InputError

if TYPE_CHECKING:
    from trine.core.cluster import Cluster, Links

app = typer.Typer(no_args_is_help=True, help="Look at cluster descriptions and convert them.")

Spec = Annotated[str, typer.Argument(metavar="SPEC", help="16x4, 4x8x8, v100=8x1,k80=4x2, a YAML file or a shape file")]


@app.command()
def info(
    spec: Spec, as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False
) -> None:
    """Show what SPEC was understood as."""
    from trine.inputs.cluster import load_cluster

    cluster = load_cluster(spec)
    if as_json:
        import json

        typer.echo(json.dumps(summary(cluster), indent=1))
        return
    for line in _lines(cluster):
        typer.echo(line)
    for note in cluster.notes:
        typer.echo(f"note: {note}", err=True)


@app.command()
def convert(
    spec: Spec,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="YAML file to write; - for stdout")],
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Write SPEC as a YAML cluster file."""
    from trine.inputs.cluster import dump_cluster, load_cluster

    cluster = load_cluster(spec)
    text = dump_cluster(cluster)
    if str(out) == "-":
        typer.echo(text, nl=False)
    else:
        _write(out, text, force)
        typer.echo(f"{out}: {cluster.describe()}", err=True)
    for note in cluster.notes:
        typer.echo(f"note: {note}", err=True)


def summary(cluster: Cluster) -> dict[str, Any]:
    """The object of ``info --json``."""
    return {
        "name": cluster.name,
        "gpus": cluster.gpu_count,
        "nodes": len(cluster.nodes),
        "racks": len(cluster.racks),
        "gpus_by_type": cluster.gpus_by_type,
        "nodes_by_gpus": _counted(node.gpus for node in cluster.nodes),
        "racks_by_nodes": _counted(_rack_sizes(cluster)),
        "links": _links(cluster.links),
        "links_by_type": {t: _links(links) for t, links in cluster.type_links.items()},
        "prices_per_gpu_hour": cluster.prices_per_gpu_h,
        "slowdown_classes": sorted(cluster.scores),
        "notes": list(cluster.notes),
    }


def _lines(cluster: Cluster) -> list[str]:
    lines = [f"{cluster.name}: {cluster.describe()}" if cluster.name else cluster.describe()]
    lines.append(f"nodes: {_sizes(_counted(node.gpus for node in cluster.nodes), 'GPUs')}")
    sizes = _counted(_rack_sizes(cluster))
    lines.append(f"racks: {_sizes(sizes, 'nodes')}{' (uneven)' if len(sizes) > 1 else ''}")
    lines.append(f"links: {_link_text(cluster.links)}")
    lines += [f"links of {t}: {_link_text(links)}" for t, links in cluster.type_links.items()]
    prices = ", ".join(f"{t} {price:g}" for t, price in cluster.prices_per_gpu_h.items())
    lines.append(f"prices per GPU hour: {prices or 'none'}")
    lines.append(f"slowdown classes: {', '.join(sorted(cluster.scores)) or 'none'}")
    return lines


def _rack_sizes(cluster: Cluster) -> list[int]:
    return list(Counter(node.rack for node in cluster.nodes).values())


def _counted(sizes: Any) -> dict[str, int]:
    """How often each size occurs, by size."""
    return {str(size): count for size, count in sorted(Counter(sizes).items())}


def _sizes(counted: dict[str, int], unit: str) -> str:
    return ", ".join(f"{count} with {size} {unit}" for size, count in counted.items())


def _links(links: Links) -> dict[str, float | None]:
    """Bandwidths, and of the rest what is not as by default."""
    from dataclasses import fields

    values = {f.name: (getattr(links, f.name), f.default) for f in fields(links)}
    first = ("intra_node_bytes_per_s", "nic_bytes_per_s", "uplink_bytes_per_s")
    return {name: value for name, (value, default) in values.items() if name in first or value != default}


def _link_text(links: Links) -> str:
    from trine.inputs.links import links_tree

    known = [f"{name} {value:g} GB/s" for name, value in _bandwidths(links)]
    known += [_setting_text(name, value) for name, value in links_tree(links).items() if not isinstance(value, str)]
    return ", ".join(known) or "not modelled"


def _bandwidths(links: Links) -> list[tuple[str, float]]:
    found = [(name, value) for name, value in _links(links).items() if name.endswith("_bytes_per_s")]
    return [(name.removesuffix("_bytes_per_s"), value / 1e9) for name, value in found if value is not None]


def _setting_text(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} of {part} {number:g}" for part, number in value.items())
    return f"{name} {value:g}"


def _write(out: Path, text: str, force: bool) -> None:
    from trine.core.atomic_file import write_output

    if out.exists() and not force:
        raise InputError(str(out), "the file exists", "a new file, or --force")
    write_output(out, text, "a path in a folder that exists")
