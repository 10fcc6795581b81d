"""When prices change, for policies that use them: a change of price is a reason to compute shares again.

For other policies nothing ever changes, so that they are not woken for prices they do not look at.
"""

from __future__ import annotations

import math

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.prices import Prices


class PriceWatch:
    """The prices of the cluster's GPU types, if ``used`` by the policy of this name."""

    def __init__(self, policy: str, used: bool, cluster: Cluster) -> None:
        self._types = cluster.types
        self._prices = cluster.prices.of(cluster.types) if used else Prices()
        self._known: dict[str, float] | None = None
        """Price by type at the last look."""
        self.next_s = math.inf
        """When to look again."""
        if used:
            _check(policy, cluster)

    def changed(self, now: float) -> bool:
        """A price is another than at the last look."""
        if self._known is not None and now < self.next_s:
            return False
        before, self._known = self._known, self._prices.now(self._types, now)
        self.next_s = self._prices.next_change_s(now)
        return before is not None and before != self._known


def _check(policy: str, cluster: Cluster) -> None:
    """Say what is missing before the first job comes."""
    missing = [gpu_type for gpu_type in cluster.types if not (cluster.prices.lowest(gpu_type) or 0.0) > 0]
    if missing:
        raise InputError(
            "cluster",
            f"no price for {missing[0]}" if cluster.prices.lowest(missing[0]) is None else f"{missing[0]} for nothing",
            f"a price above 0 for every GPU type, in the cluster file or by --prices: {policy} needs it",
            "prices_per_gpu_hour",
        )
