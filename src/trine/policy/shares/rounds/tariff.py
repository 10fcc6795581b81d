"""When prices change, as the round mechanism wants to know it: only for policies that look at prices."""

from __future__ import annotations

import math

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.prices import Prices

PRICED = ("min-cost",)
"""Policies that cannot do without prices."""


class Tariff:
    """The prices that the policy ``name`` looks at. For one that looks at none, nothing ever changes."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self._types = cluster.types
        self._prices = cluster.prices.of(cluster.types) if name in PRICED else Prices()
        self._known: dict[str, float] | None = None
        """Price by type at the last look."""
        self.next_s = math.inf
        """When to look again."""
        if name in PRICED:
            _check(name, cluster)

    def changed(self, now: float) -> bool:
        """A price is another than at the last look."""
        if self._known is not None and now < self.next_s:
            return False
        before, self._known = self._known, self._prices.now(self._types, now)
        self.next_s = self._prices.next_change_s(now)
        return before is not None and before != self._known


def _check(name: str, cluster: Cluster) -> None:
    """Say what is missing before the first job comes."""
    missing = [gpu_type for gpu_type in cluster.types if not (cluster.prices.lowest(gpu_type) or 0.0) > 0]
    if missing:
        raise InputError(
            "cluster",
            f"no price for {missing[0]}" if cluster.prices.lowest(missing[0]) is None else f"{missing[0]} for nothing",
            f"a price above 0 for every GPU type, in the cluster file or by --prices: {name} needs it",
            "prices_per_gpu_hour",
        )
