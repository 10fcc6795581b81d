"""Which GPUs on the nodes of Slurm jobs of others hold: they are withheld, those of our own jobs never."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trine.executor.attempt.files import Place
from trine.executor.base import Handle, NodeInfo
from trine.executor.slurm.inventory import HELD_BY_OTHERS, SlurmNode

WHOLE_NODE = "the rest of a node that Slurm gave to one job as a whole"


class Occupancy:
    """Remembers which GPUs our attempts were given, and what others held when Slurm was asked before."""

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
        infos = [node.info(now[node.name] & self._before.get(node.name, frozenset()), _why(node)) for node in nodes]
        self._before = now
        return infos


def _others(node: SlurmNode, ours: set[int]) -> frozenset[int]:
    if node.gres or not ours:
        return node.used - ours
    return frozenset(range(node.gpus)) - ours


def _why(node: SlurmNode) -> str:
    return HELD_BY_OTHERS if node.gres else f"{HELD_BY_OTHERS}, or {WHOLE_NODE}"
