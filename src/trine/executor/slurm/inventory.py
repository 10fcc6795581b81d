"""The nodes of a Slurm partition as ``scontrol`` shows them: GPUs and their GRES types, racks, state, which are in use,
and which of those in use are others'. Reads texts only; what is asked when is decided in ``executor``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from trine.core.cluster import Cluster
from trine.core.errors import InputError, unknown_name
from trine.executor.attempt.files import Place
from trine.executor.base import Handle, NodeGpu, NodeInfo
from trine.executor.slurm.commands import Slurm, SlurmRefused

_FIELD = re.compile(r"(?:^|\s)([A-Za-z]\w*)=")
_REASON = re.compile(r"\sReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?(?:\s+Comment=.*)?$")
_DOWN = frozenset({"DOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "FAIL", "FUTURE", "ERROR"})
_CLOSED = frozenset({"DRAIN", "DRAINED", "DRAINING", "MAINT", "FAILING", "REBOOT", "REBOOT_REQUESTED", "UNKNOWN"})
_NO_MODEL = frozenset({"", "g", "gpu", "idx", "i"})
HELD_BY_OTHERS = "held by a job of Slurm that is not trine's"
_WHOLE_NODE = "the rest of a node that Slurm gave to one job as a whole"
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node with GPUs."""

    name: str
    address: str
    gpu_type: str
    gres: tuple[str, ...]
    """The GRES type of each GPU, by index; empty where types do not tell one GPU from another: then a job gets whole
    nodes."""
    gpus: int
    cpus: int
    memory_mib: int
    up: bool
    open: bool
    """New jobs may start."""
    reason: str
    used: frozenset[int]
    """GPUs that jobs of Slurm hold, ours and others'; where only whole nodes are given, all of them or none."""
    rack: str = ""
    indices: tuple[int, ...] = ()
    """Those of its GPUs that may be used; empty: all."""

    @property
    def all_indices(self) -> tuple[int, ...]:
        return self.indices or tuple(range(self.gpus))

    def info(self, withheld: Collection[int] = (), why: str = HELD_BY_OTHERS) -> NodeInfo:
        """As the scheduler sees it, with the GPUs that others hold."""
        gpus = tuple(
            NodeGpu(i, self.gpu_type, name=self.gres[i] if self.gres else "", withheld=why if i in withheld else "")
            for i in self.all_indices
        )
        labels = {"rack": self.rack} if self.rack else {}
        memory = self.memory_mib * _MEBIBYTE
        return NodeInfo(self.name, gpus, self.cpus, memory, labels, self.up, self.up and self.open, self.reason)


def find_nodes(slurm: Slurm, partition: str, described: Cluster | None = None) -> list[SlurmNode]:
    """The nodes with GPUs of a partition (empty: Slurm's default), by name; those that were described, if any were."""
    names = _partition_nodes(slurm, partition)
    racks = find_racks(slurm)
    text = slurm.run("scontrol", "show", "node", "--oneliner", "--details")
    found = [replace(node, rack=racks.get(node.name, "")) for node in parse_nodes(text) if node.name in names]
    if described is None:
        return found
    return described_nodes(found, described)


def described_nodes(found: Sequence[SlurmNode], described: Cluster) -> list[SlurmNode]:
    """Those that a cluster file names, with the types and racks that it gives; ``InputError`` where the two differ."""
    by_name = {node.name: node for node in found}
    for node in described.nodes:
        if node.name not in by_name:
            raise unknown_name("--cluster", "node of the Slurm partition", node.name, by_name)
        if len(by_name[node.name].all_indices) != node.gpus:
            there, wanted = len(by_name[node.name].all_indices), node.gpus
            raise InputError("--cluster", f"node {node.name} has {there} GPUs in Slurm", f"{there} GPUs, not {wanted}")
    return [
        replace(by_name[node.name], gpu_type=node.gpu_type, rack=by_name[node.name].rack or node.rack)
        for node in described.nodes
    ]


def _partition_nodes(slurm: Slurm, partition: str) -> set[str]:
    partitions = [fields(line) for line in slurm.run("scontrol", "show", "partition", "--oneliner").splitlines()]
    by_name = {found["PartitionName"]: found for found in partitions if "PartitionName" in found}
    if not partition:
        partition = next((name for name, found in by_name.items() if found.get("Default") == "YES"), "")
        if not partition:
            expected = f"engine.partition, one of {', '.join(sorted(by_name)) or 'those that the cluster has'}"
            raise InputError("--engine slurm", "Slurm has no default partition", expected)
    if partition not in by_name:
        raise unknown_name("--set engine.partition", "partition", partition, by_name)
    return set(expand_hosts(by_name[partition].get("Nodes", "")))


def find_racks(slurm: Slurm) -> dict[str, str]:
    """The switch that each node hangs on; none where Slurm knows of no topology."""
    try:
        text = slurm.run("scontrol", "show", "topology")
    except SlurmRefused:
        return {}
    leaves = [found for line in text.splitlines() if (found := fields(line)).get("Level") == "0"]
    return {node: leaf["SwitchName"] for leaf in leaves for node in expand_hosts(leaf.get("Nodes", ""))}


def parse_nodes(text: str) -> list[SlurmNode]:
    """Nodes with GPUs from ``scontrol show node --oneliner --details``."""
    found = [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]
    return [node for node in found if node is not None]


def _node(line: str) -> SlurmNode | None:
    reason = _REASON.search(line)
    shown = fields(line[: reason.start()] if reason else line)
    name, types = shown["NodeName"], gpu_types(shown.get("Gres", ""))
    count = sum(number for _, number in types)
    if not count:
        return None
    gres = types_by_index([kind for kind, number in types if number == 1]) if count == len(types) else ()
    states = frozenset(re.split(r"[+]", shown["State"].rstrip("*$~#!%@^-")))
    up = "*" not in shown["State"] and not states & _DOWN
    return SlurmNode(
        name,
        shown.get("NodeAddr", name),
        _model(name, types, gres),
        gres,
        count,
        int(shown.get("CPUEfctv") or shown.get("CPUTot") or 1),
        int(shown.get("RealMemory") or 0),
        up,
        not states & _CLOSED,
        _why(reason[1] if reason else "", shown["State"], up and not states & _CLOSED),
        _used(shown, gres, count),
    )


def _why(reason: str, state: str, takes_jobs: bool) -> str:
    if takes_jobs:
        return ""
    return reason.strip() if reason.strip() not in ("", "none") else f"Slurm says {state}"


def _model(name: str, types: Sequence[tuple[str, int]], gres: Sequence[str]) -> str:
    if gres:
        prefix = gres[0][: -len("0")]
        model = prefix.rstrip("_-.").lower()
        if model in _NO_MODEL:
            return "gpu"
        # Of a single GPU of type v100 the 0 is no index.
        return gres[0].lower() if len(gres) == 1 and prefix == prefix.rstrip("_-.") else model
    kinds = sorted({kind for kind, _ in types})
    if len(kinds) > 1:
        found = f"node {name} has GPUs of types {', '.join(kinds)}"
        raise InputError("--engine slurm", found, "nodes with GPUs of one type, or one GRES type per GPU index")
    return kinds[0].lower() or "gpu"


def _used(shown: Mapping[str, str], gres: Sequence[str], count: int) -> frozenset[int]:
    everything = frozenset(range(count))
    if not gres:  # whole nodes only: a job on a part of one holds all of it
        return everything if int(shown.get("CPUAlloc", "0")) > 0 else frozenset()
    held = [entry for entry in _entries(shown.get("GresUsed", "")) if entry[0] == "gpu" and entry[2] > 0]
    index = {kind: i for i, kind in enumerate(gres)}
    return frozenset(index[kind] for _, kind, _ in held if kind in index)


def gpu_types(gres: str) -> list[tuple[str, int]]:
    """Types and counts of the GPUs in a ``Gres=`` of a node."""
    return [(kind, count) for name, kind, count in _entries(gres) if name == "gpu"]


def _entries(gres: str) -> list[tuple[str, str, int]]:
    """``gpu:v100:4(S:0-1),gpu:2`` as names, types (empty where there is none) and counts."""
    found = []
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = entry.strip().split(":")
        if rest and rest[-1].isdecimal():
            found.append((name, rest[0] if len(rest) > 1 else "", int(rest[-1])))
    return found


def types_by_index(types: Sequence[str]) -> tuple[str, ...]:
    """GRES types that end with the index of their GPU (``v100_0``, ``v100_1``), by index; none if they do not."""
    for first in types:
        prefix = first[:-1] if first.endswith("0") else None
        by_index = tuple(f"{prefix}{i}" for i in range(len(types)))
        if prefix is not None and set(by_index) == set(types):
            return by_index
    return ()


def expand_hosts(hosts: str) -> list[str]:
    """``node[1-2,07],gate`` as names."""
    found: list[str] = []
    for name in re.split(r",(?![^\[]*\])", hosts) if hosts != "(null)" else ():
        parts = [[part] if i % 2 == 0 else _numbers(part) for i, part in enumerate(re.split(r"\[([^\]]*)\]", name))]
        found += ["".join(chosen) for chosen in product(*parts)]
    return [name for name in found if name]


def _numbers(ranges: str) -> list[str]:
    """``1-2,07`` as texts, as wide as they are written."""
    found = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return found


def fields(line: str) -> dict[str, str]:
    """``Key=value`` pairs of one line of ``scontrol``; values may hold blanks."""
    starts = list(_FIELD.finditer(line))
    ends = [match.start() for match in starts[1:]] + [len(line)]
    return {match[1]: line[match.end() : end].strip() for match, end in zip(starts, ends, strict=True)}


# -- which GPUs others hold ------------------------------------------------------------------------------------------


class Occupancy:
    """Which GPUs jobs of others hold: they are withheld, those of our own jobs never. Remembers which GPUs our attempts
    were given, and what others held when Slurm was asked before."""

    def __init__(self) -> None:
        self._places: dict[Handle, frozenset[Place]] = {}
        self._before: dict[str, frozenset[int]] = {}

    def note(self, handle: Handle, gpus: Sequence[Place]) -> None:
        """These are an attempt's own from now on, until Slurm has released all of it."""
        self._places[handle] = frozenset(gpus)

    def infos(self, nodes: Sequence[SlurmNode], held: Collection[Handle]) -> list[NodeInfo]:
        """The nodes with what others hold there; ``held``: our attempts that run, or that Slurm still has a job for."""
        self._places = {handle: places for handle, places in self._places.items() if handle in held}
        ours: dict[str, set[int]] = {}
        for places in self._places.values():
            for node, gpu in places:
                ours.setdefault(node, set()).add(gpu)
        now = {node.name: _others(node, ours.get(node.name, set())) for node in nodes}
        # Withheld only when seen twice: nodes and jobs are two questions, and what changes between them is no news.
        infos = [
            node.info(now[node.name] & self._before.get(node.name, frozenset()), _why_withheld(node)) for node in nodes
        ]
        self._before = now
        return infos


def _others(node: SlurmNode, ours: set[int]) -> frozenset[int]:
    if node.gres or not ours:
        return node.used - ours
    return frozenset(range(node.gpus)) - ours


def _why_withheld(node: SlurmNode) -> str:
    return HELD_BY_OTHERS if node.gres else f"{HELD_BY_OTHERS}, or {_WHOLE_NODE}"
