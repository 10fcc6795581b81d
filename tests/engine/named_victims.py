"""A policy whose levels, victim order, quanta and relocation are written down in a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tests.engine.live import LiveWorld
from tests.sim.tiny import build_engine
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster
from trine.policy.base import Policy, Ranking, Relocation
from trine.policy.view import View


@dataclass
class Named(Policy):
    """Jobs by level, then in order of arrival; what is not in a book counts as 0."""

    name: ClassVar[str] = "named"
    title: ClassVar[str] = "named victims"

    levels: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, float] | None = None
    quantum_s: float | None = None
    relocation: Relocation | None = None
    gap: float = 1.0

    def rank(self, view: View) -> Ranking:
        ids = [view.name(job_index) for job_index in view.job_indices.tolist()]
        level = np.array([self.levels.get(i, 0.0) for i in ids])
        order = np.lexsort((view.submit_s, level))
        keys = None if self.keys is None else np.array([self.keys.get(i, 0.0) for i in ids])[order]
        quantum = None if self.quantum_s is None else np.full(len(ids), self.quantum_s)
        return Ranking(
            order,
            level=level[order],
            gap=self.gap,
            victim_order=keys,
            quantum_s=quantum,
            stop_reason="which is more important",
            relocation=self.relocation,
        )


def named_world(cluster: Cluster, policy: Policy, placement: str = "packed-sticky", **values: Any) -> LiveWorld:
    """A live world whose engine runs ``policy``."""
    world = LiveWorld(cluster, "fifo", placement, **values)
    settings = resolve("fifo", placement, {k.replace("__", "."): v for k, v in values.items()})
    world.engine = build_engine(cluster, replace(settings, policy=policy))
    return world
