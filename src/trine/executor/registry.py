"""Executors by name: where each is implemented, which settings it takes, how it is opened.

A new executor is one package beside ``local`` with an ``ENGINE``, and one entry here. Nothing is imported before an
executor is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

from trine.core import params
from trine.core.cluster import Cluster
from trine.core.errors import unknown_name
from trine.executor.base import Capabilities, Executor, NodeInfo, Unreachable

_MODULES = {
    "local": "trine.executor.local.executor",
    "kubernetes": "trine.executor.kubernetes.engine",
    "ray": "trine.executor.ray.engine",
    "slurm": "trine.executor.slurm.engine",
}
DEFAULT = "local"
POOLS = {"ray": "trine.executor.ray.sweep", "slurm": "trine.executor.slurm.sweep"}
"""Engines on whose clusters other work than jobs of the daemon can be done, too: ``--workers`` of a comparison."""


class ExecutorFactory(Protocol):
    """Finds the nodes of an executor and opens it: a dataclass whose fields, made with ``param``, are its settings."""

    name: ClassVar[str]

    def find_nodes(self, described: Cluster | None) -> list[NodeInfo] | Unreachable:
        """The nodes that jobs can run on: those of the cluster that was described, or what is found by itself (none,
        if there is nothing to be found). An engine that has nodes of its own takes the description for what it does
        not know of them, such as racks."""

    def capabilities(self, nodes: Sequence[NodeInfo]) -> Capabilities:
        """What it can do on these nodes."""

    def open(self, state_dir: Path, nodes: Sequence[NodeInfo]) -> Executor:
        """An executor over these nodes that keeps what it needs below ``state_dir``, and finds again what runs.

        ``nodes`` may be those of an earlier start, where the engine cannot be asked now."""


def names() -> tuple[str, ...]:
    """All that can be chosen, in alphabetical order."""
    return tuple(sorted(_MODULES))


def engine(name: str, settings: Mapping[str, Any], where: str = "--engine", prefix: str = "engine.") -> ExecutorFactory:
    """The executor of this name with its settings (texts or plain values); ``InputError`` for what does not exist."""
    if name not in _MODULES:
        raise unknown_name(where, "engine", name, _MODULES)
    found: ExecutorFactory = params.build(import_module(_MODULES[name]).ENGINE, settings, "--set", prefix)
    return found


def pool(name: str, settings: Mapping[str, Any]) -> Callable[..., list[Any]]:
    """``work_through(work, todo, done, directory, inputs)`` on the cluster of an engine with these settings."""
    return partial(import_module(POOLS[name]).work_through, settings)
