"""Cluster shapes in one word: ``16x4``, ``4x8x8``, ``v100=8x1,p100=16x1``; and the size limit of all loaders."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError

MAX_GPUS = 1_000_000
EXAMPLES = "'16x4' (nodes x GPUs per node), '4x8x8' (racks x nodes x GPUs) or 'v100=8x1,p100=16x1'"

_SHAPE = re.compile(r"[^\s=,/\\]+=\S*|[-+0-9.]*[xX×][-+0-9xX×.]*(,\S*)?|[-+]?[0-9.]+")
_COMPLETE = re.compile(r"([^\s=,/\\]+=)?[0-9]+([xX×][0-9]+){1,2}(,[^\s=,/\\]+=[0-9]+([xX×][0-9]+){1,2})*")
_NAMES = {2: ("nodes", "GPUs per node"), 3: ("racks", "nodes per rack", "GPUs per node")}


@dataclass(frozen=True, slots=True)
class Group:
    """One part of a shape: equal nodes of one type. ``racks`` 0 means that racks are not stated."""

    gpu_type: str
    racks: int
    nodes: int
    gpus: int

    @property
    def gpu_count(self) -> int:
        return max(self.racks, 1) * self.nodes * self.gpus


def is_shape(spec: str) -> bool:
    """Whether ``spec`` is a whole shape, whatever files exist."""
    return _COMPLETE.fullmatch(spec.strip()) is not None


def resembles_shape(spec: str) -> bool:
    """Whether ``spec`` was probably meant as a shape rather than a file."""
    return _SHAPE.fullmatch(spec.strip()) is not None


def parse_shape(spec: str, where: str) -> Cluster:
    """The cluster of a shape. Without racks all nodes stand in one rack."""
    groups = [_group(part, where) for part in spec.strip().split(",")]
    _check_types(groups, where)
    if len({group.racks > 0 for group in groups}) > 1:
        raise InputError(
            where, "some parts state racks and some do not", "racks x nodes x GPUs in all parts or in none"
        )
    check_size(sum(group.gpu_count for group in groups), where)
    return Cluster(_nodes(groups))


def check_size(gpu_count: int, where: str, field: str = "") -> None:
    """Refuse clusters beyond ``MAX_GPUS``, before they are built."""
    if gpu_count > MAX_GPUS:
        raise InputError(where, f"{gpu_count:,} GPUs", f"at most {MAX_GPUS:,} GPUs in all", field)


def _group(part: str, where: str) -> Group:
    gpu_type, equals, numbers = part.rpartition("=")
    if equals and not gpu_type.strip():
        raise InputError(where, f"no GPU type before '=' in {part!r}", EXAMPLES)
    words = re.split("[xX×]", numbers.strip())
    names = _NAMES.get(len(words))
    if names is None:
        raise InputError(where, f"found {part!r}" if part else "found nothing after a comma", EXAMPLES)
    counts = [_count(word.strip(), name, where) for word, name in zip(words, names, strict=True)]
    racks = counts[0] if len(counts) == 3 else 0
    return Group(gpu_type.strip(), racks, counts[-2], counts[-1])


def _count(word: str, name: str, where: str) -> int:
    found = f"found {word!r}" if word else "found nothing"
    if not re.fullmatch("[0-9]+", word) or not word.strip("0"):
        raise InputError(where, found, "a whole number of at least 1, as in '16x4' or '4x8x8'", name)
    if len(word) > len(str(MAX_GPUS)):
        raise InputError(where, found, f"at most {MAX_GPUS:,} GPUs in all", name)
    return int(word)


def _check_types(groups: list[Group], where: str) -> None:
    seen: set[str] = set()
    for group in groups:
        if not group.gpu_type and len(groups) > 1:
            raise InputError(where, "several parts, one of them without a GPU type", "'TYPE=NODESxGPUS' in every part")
        if group.gpu_type.lower() in seen:
            raise InputError(
                where, f"GPU type {group.gpu_type!r} found twice", "each GPU type once (a YAML file can mix)"
            )
        seen.add(group.gpu_type.lower())


def _nodes(groups: list[Group]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    first_rack = 0
    for group in groups:
        for i in range(max(group.racks, 1) * group.nodes):
            rack = f"rack{first_rack + i // group.nodes}"
            nodes.append(Node(f"node{len(nodes)}", group.gpus, group.gpu_type or "gpu", rack))
        first_rack += group.racks
    return tuple(nodes)
