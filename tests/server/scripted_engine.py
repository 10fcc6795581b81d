"""An engine whose answers a test chooses: what it can do, which nodes it has, whether it can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from trine.core.cluster import Cluster
from trine.core.params import param
from trine.executor import registry
from trine.executor.base import Capabilities, Executor, NodeGpu, NodeInfo, Unreachable


@dataclass(frozen=True)
class ScriptedEngine:
    """Two nodes of two GPUs, unless it is away."""

    name: ClassVar[str] = "scripted"
    away: str = param("", "why it cannot be asked")
    exact: bool = param(True, "it gives exact GPUs")
    shares: bool = param(True, "two jobs may share GPUs")
    separates: bool = param(True, "jobs run as their users")
    racks: bool = param(False, "it knows where its nodes stand")

    def find_nodes(self, described: Cluster | None) -> list[NodeInfo] | Unreachable:
        if self.away:
            return Unreachable(self.away)
        labels = [{"rack": f"switch{i}"} if self.racks else {} for i in range(2)]
        return [NodeInfo(f"n{i}", (NodeGpu(0, "v100"), NodeGpu(1, "v100")), labels=labels[i]) for i in range(2)]

    def capabilities(self, nodes: Sequence[NodeInfo]) -> Capabilities:
        return Capabilities(self.exact, self.shares, self.separates)

    def open(self, state_dir: Path, nodes: Sequence[NodeInfo]) -> Executor:
        raise AssertionError(f"nothing runs in {state_dir} on {nodes}")


ENGINE = ScriptedEngine


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``--engine scripted`` mean this one."""
    monkeypatch.setitem(registry._MODULES, "scripted", __name__)
