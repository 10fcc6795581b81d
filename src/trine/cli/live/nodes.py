"""``trine nodes``, ``drain``, ``undrain``: the GPUs, and what may start on them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from trine.cli.live.verb import Form, Output, State, connected, print_json, verb

if TYPE_CHECKING:
    from trine.client import NodeAnswer
    from trine.client.answers import GpuAnswer

HEADER = ("node", "rack", "state", "gpu", "type", "job", "score", "flags", "reason")
RIGHT = ("gpu", "job")

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_GPUS = "indices of GPUs, as in node0:3, node0:1,3 or node0:0-3"

Places = Annotated[
    list[str],
    typer.Argument(metavar="NODE[:GPUS]...", help="Nodes, or GPUs of nodes: node0:3, node0:1,3.", show_default=False),
]


class NodeGpus(NamedTuple):
    """A node, or the GPUs of it with these indices."""

    node: str
    gpus: tuple[int, ...] = ()


@verb
def nodes(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Only these.")] = None,
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """List GPUs: their jobs, how fast they are, what is odd."""
    with connected(state) as client:
        found = _chosen(client.nodes(), names or [])
    if output is Form.JSON:
        print_json(found)
    else:
        from trine.cli.tables import print_columns

        print_columns(HEADER, [row for node in found for row in rows(node)], RIGHT)


@verb
def drain(
    places: Places,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, to be read later.")] = "",
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Start nothing more on nodes, or on single GPUs."""
    asked = [parse_place(text) for text in places]
    with connected(state) as client:
        _check(client.nodes(), asked)
        changed = [client.drain(place.node, reason, place.gpus) for place in asked]
    _tell(asked, changed, output)


@verb
def undrain(places: Places, state: State = None, output: Output = Form.TABLE) -> None:
    """Let jobs start on nodes, or on single GPUs, again."""
    asked = [parse_place(text) for text in places]
    with connected(state) as client:
        before = {node["name"]: node for node in client.nodes()}
        _check(list(before.values()), asked)
        changed = [client.undrain(place.node, place.gpus) for place in asked]
    _tell(asked, changed, output, [[] if place.gpus else _drained_alone(before[place.node]) for place in asked])


def parse_place(text: str) -> NodeGpus:
    """``node0``, ``node0:3``, ``node0:1,3`` or ``node0:0-3``."""
    from trine.core.errors import InputError

    node, colon, indices = text.partition(":")
    if not colon:
        return NodeGpus(node)
    gpus: set[int] = set()
    for part in indices.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError("GPUs", f"found {text!r}", _GPUS)
        gpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return NodeGpus(node, tuple(sorted(gpus)))


def _check(nodes: list[NodeAnswer], asked: list[NodeGpus]) -> None:
    """All of it exists: of several, either all are changed or none."""
    from trine.cli.live.job_text import ranges
    from trine.core.errors import InputError

    for place, node in zip(asked, _chosen(nodes, [place.node for place in asked]), strict=True):
        known = [gpu["index"] for gpu in node["gpus"]]
        missing = [index for index in place.gpus if index not in known]
        if missing:
            raise InputError("GPUs", f"no GPU {missing[0]} on {place.node}", f"one of {ranges(known)}")


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
    from trine.cli.live.job_text import NOTHING

    return [
        [
            node["name"],
            node["rack"] or NOTHING,
            _state(node, gpu),
            str(gpu["index"]),
            gpu["gpu_type"],
            "+".join(holders(gpu)) or NOTHING,
            " ".join(f"{name}={score:.2f}" for name, score in sorted(gpu["scores"].items())) or NOTHING,
            ",".join(gpu["flags"]) or NOTHING,
            node["reason"] or gpu.get("reason") or NOTHING,
        ]
        for gpu in node["gpus"]
    ]


def holders(gpu: GpuAnswer) -> list[str]:
    """The job on the GPU, or both."""
    return [job for job in (gpu["job"], gpu.get("second_job")) if job]


def _state(node: NodeAnswer, gpu: GpuAnswer) -> str:
    """That of its node, unless the GPU was drained by itself or the engine withholds it."""
    if node["state"] != "up":
        return node["state"]
    return "drained" if gpu.get("drained") else "withheld" if gpu.get("withheld") else "up"


def _drained_alone(node: NodeAnswer) -> list[int]:
    return [gpu["index"] for gpu in node["gpus"] if gpu.get("drained")]


def _tell(
    asked: list[NodeGpus], changed: list[NodeAnswer], output: Form, lifted: list[list[int]] | None = None
) -> None:
    """What became of each place; one value for one, a list for several."""
    if output is Form.JSON:
        print_json(changed if len(changed) > 1 else changed[0])
        return
    for i, (place, node) in enumerate(zip(asked, changed, strict=True)):
        typer.echo(_sentence(place, node, lifted[i] if lifted else []))


def _sentence(place: NodeGpus, node: NodeAnswer, lifted: list[int]) -> str:
    from trine.cli.live.job_text import ranges

    meant = [gpu for gpu in node["gpus"] if not place.gpus or gpu["index"] in place.gpus]
    name = f"{place.node}:{ranges(place.gpus)}" if place.gpus else place.node
    state = _state(node, meant[0]) if place.gpus else node["state"]
    jobs = sorted({job for gpu in meant for job in holders(gpu)})
    parts = [f"{name} {state}"]
    if place.gpus and node["state"] != "up":
        parts.append(f"as all of {place.node} is")
    if jobs and state != "up":
        parts.append(f"still held by {', '.join(jobs)}")
    if lifted:
        parts.append(f"its GPUs {ranges(lifted)}, drained by themselves, too")
    return ", ".join(parts)
