"""``trine nodes``, ``drain``, ``undrain``: the GPUs, and what may start on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, verb

if TYPE_CHECKING:
    from trine.client import NodeAnswer
    from trine.client.answers import GpuAnswer

HEADER = ("node", "rack", "state", "gpu", "type", "job", "score", "flags", "reason")
RIGHT = ("gpu", "job")

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.", show_default=False)]


@verb
def nodes(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Only these.")] = None,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """List GPUs: who holds them, how fast they are, what is odd."""
    with connected(state) as client:
        found = _chosen(client.nodes(), names or [])
    if output is Form.JSON:
        print_json(found)
    else:
        from trine.cli.live.columns import print_columns

        print_columns(HEADER, [row for node in found for row in rows(node)], RIGHT)


@verb
def drain(
    node: NodeName,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who look later.")] = "",
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Start nothing more on a node."""
    with connected(state) as client:
        _told(client.drain(node, reason), output)


@verb
def undrain(node: NodeName, state: State = None, output: Output = Form.TABLE) -> None:
    """Let jobs start on a node again."""
    with connected(state) as client:
        _told(client.undrain(node), output)


def _chosen(nodes: list[NodeAnswer], names: list[str]) -> list[NodeAnswer]:
    from trine.core.errors import InputError, nearest

    by_name = {node["name"]: node for node in nodes}
    for name in names:
        if name not in by_name:
            raise InputError(
                "nodes", f"unknown node {name!r}{nearest(name, by_name)}", "a name that `trine nodes` lists"
            )
    return [by_name[name] for name in names] or nodes


def rows(node: NodeAnswer) -> list[list[str]]:
    """One row per GPU, so that lines can be searched and sorted."""
    from trine.cli.live.words import NOTHING

    return [
        [
            node["name"],
            node["rack"] or NOTHING,
            node["state"],
            str(gpu["index"]),
            gpu["gpu_type"],
            "+".join(holders(gpu)) or NOTHING,
            " ".join(f"{name}={score:.2f}" for name, score in sorted(gpu["scores"].items())) or NOTHING,
            ",".join(gpu["flags"]) or NOTHING,
            node["reason"] or NOTHING,
        ]
        for gpu in node["gpus"]
    ]


def holders(gpu: GpuAnswer) -> list[str]:
    """The job on the GPU, or both."""
    return [job for job in (gpu["job"], gpu.get("second_job")) if job]


def _told(node: NodeAnswer, output: Form) -> None:
    if output is Form.JSON:
        print_json(node)
        return
    left = sorted({job for gpu in node["gpus"] for job in holders(gpu)})
    running = f", still held by {', '.join(left)}" if left else ""
    typer.echo(f"{node['name']} {node['state']}{running}")
