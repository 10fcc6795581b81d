"""Costs of collectives in the alpha-beta model: latency per step, and bytes over bandwidth (Thakur et al. 2005).

Nothing here knows clusters: bandwidths are effective bytes per second, latencies seconds per step of the algorithm.
"""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

Algorithm = Literal["ring", "tree", "auto"]
ALGORITHMS: tuple[Algorithm, ...] = ("ring", "tree", "auto")


class CommCost(NamedTuple):
    """Communication that takes ``fixed_s`` + ``sent_bytes`` / bandwidth, where the bandwidth may change."""

    fixed_s: float
    sent_bytes: float

    def at(self, bytes_per_s: float) -> float:
        """Seconds with this bandwidth."""
        return self.fixed_s + self.sent_bytes / bytes_per_s

    def plus(self, other: CommCost) -> CommCost:
        """One after the other."""
        return CommCost(self.fixed_s + other.fixed_s, self.sent_bytes + other.sent_bytes)

    def times(self, factor: float) -> CommCost:
        """The same ``factor`` times as long, whatever the bandwidth."""
        return CommCost(self.fixed_s * factor, self.sent_bytes * factor)


FREE = CommCost(0.0, 0.0)


def all_reduce(
    members: int, size: float, latency_s: float, algorithm: Algorithm = "ring", bytes_per_s: float = inf
) -> CommCost:
    """The cost of adding up ``size`` bytes of each of ``members``.

    A ring takes 2(p - 1) steps with 1/p of the bytes each (reduce-scatter, then all-gather): it sends the least that is
    possible, 2(p - 1)/p of the bytes, but its latency grows with p. A binary tree goes up and down in 2 log2(p) steps,
    with all bytes in each direction: better for small gradients on many members.

    ``auto`` takes what is faster at ``bytes_per_s``, the bandwidth without other jobs: libraries choose by size and
    topology, not by the load of the moment.
    """
    if members < 2 or size <= 0:
        return FREE
    ring_steps = 2 * (members - 1)
    ring = CommCost(ring_steps * latency_s, ring_steps / members * size)
    if algorithm == "ring":
        return ring
    tree = CommCost(2 * (members - 1).bit_length() * latency_s, 2.0 * size)
    if algorithm == "tree":
        return tree
    return tree if tree.at(bytes_per_s) < ring.at(bytes_per_s) else ring


def p_norm(compute_s: float, comm_s: float, overlap: float) -> float:
    """Seconds of an iteration: the sum of both if nothing overlaps (1), towards the longer of both for large values.

    Gradients of late layers are sent while earlier ones are computed, so that a step is shorter than the sum; one
    exponent per model covers what lies between no overlap and full overlap (Pollux, OSDI'21, section 3.2).
    """
    if comm_s <= 0.0:
        return compute_s
    if overlap == 1.0 or compute_s <= 0.0:
        return compute_s + comm_s
    # The ratio to the longer part stays below 1, so that large exponents do not overflow.
    long, short = (compute_s, comm_s) if compute_s >= comm_s else (comm_s, compute_s)
    return float(long * (1.0 + (short / long) ** overlap) ** (1.0 / overlap))


def other_part(total_s: float, part_s: float, overlap: float) -> float:
    """The part that makes ``total_s`` together with ``part_s``: the p-norm solved for one side; 0 if it is exceeded."""
    if part_s >= total_s:
        return 0.0
    return float(total_s * (1.0 - (part_s / total_s) ** overlap) ** (1.0 / overlap))
