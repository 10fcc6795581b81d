"""How jobs share links: max-min fair rates by progressive filling, or by the duty of the others. Pure functions.

A flow is one multi-node gang; its bytes cross all of its links at the same rate. Links are numbers, as in
``trine.perf.network``; capacities are bytes per second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, chain
from math import fsum, inf
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trine.core.sums import Floats

Id = TypeVar("Id", bound=Hashable)
Capacities = Sequence[float] | Floats
"""Bytes per second by link; as an array where it is used again and again."""


class Flow(NamedTuple):
    """What one job sends."""

    links: tuple[int, ...]
    demand: float
    """Bytes per second on average, if nothing else used its links: bytes per iteration over its duration."""


class DutyFlow(NamedTuple):
    """What one job sends, for sharing by duty."""

    links: tuple[int, ...]
    duty_at: Callable[[float], float]
    """Share of an iteration in which it communicates, given the bytes per second it gets."""
    alone: float
    """The same with its links to itself."""


def max_min(flows: Mapping[Id, Flow], capacity: Sequence[float]) -> dict[Id, float]:
    """Average bytes per second of each flow: max-min fair, none above its demand, no link above its capacity.

    Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): all rates rise together; a flow stops where its
    demand is met or one of its links is full. Each pass fixes at least one flow or one link.
    """
    rates: dict[Id, float] = {flow_id: flow.demand for flow_id, flow in flows.items() if not flow.links}
    left, users = _load(flows, capacity)
    by_demand = sorted([i for i, flow in flows.items() if flow.links], key=lambda i: flows[i].demand, reverse=True)
    while by_demand:
        level = min([left[link] / len(on_link) for link, on_link in users.items()])
        if flows[by_demand[-1]].demand <= level:
            fixed = [by_demand.pop()]
            while by_demand and flows[by_demand[-1]].demand <= level:
                fixed.append(by_demand.pop())
            rates.update({i: flows[i].demand for i in fixed})
        else:  # no demand is met at this level: the links that set it are full, and hold all their flows there
            full = [on_link for link, on_link in users.items() if left[link] / len(on_link) <= level]
            fixed = list(dict.fromkeys(i for on_link in full for i in on_link))
            rates.update(dict.fromkeys(fixed, level))
            by_demand = [i for i in by_demand if i not in rates]
        for flow_id in fixed:
            _take(flows[flow_id].links, flow_id, rates[flow_id], left, users)
    return rates


def _load(flows: Mapping[Id, Flow], capacity: Sequence[float]) -> tuple[dict[int, float], dict[int, dict[Id, None]]]:
    """Capacity left and flows that still rise, by link."""
    users: dict[int, dict[Id, None]] = {}
    for flow_id, flow in flows.items():
        for link in flow.links:
            users.setdefault(link, {})[flow_id] = None
    return {link: capacity[link] for link in users}, users


def _take(
    links: Sequence[int], flow_id: Id, rate: float, left: dict[int, float], users: dict[int, dict[Id, None]]
) -> None:
    """The flow rises no further: its rate is taken from its links."""
    for link in links:
        on_link = users[link]
        del on_link[flow_id]
        left[link] = max(0.0, left[link] - rate)  # rounding must not leave a full link below nothing
        if not on_link:
            del users[link]


class LinkLoad:
    """Average rates of the flows on one link, and what that leaves to each of them while it sends.

    All figures are bytes per second. Sums are exact (``fsum``), or follow the rates in ascending order: they depend on
    which flows are on the link, not on the order in which they came.
    """

    __slots__ = ("_capacity", "_largest", "_rates", "_sorted_sums", "_used")

    def __init__(self, rates: Sequence[float], capacity: float) -> None:
        self._rates, self._capacity = rates, capacity
        self._used, self._largest = fsum(rates), max(rates)
        self._sorted_sums: tuple[list[float], list[float]] | None = None

    def greedy_share(self, rate: float) -> float:
        """Max-min share of the flow with average ``rate``, if it always had something to send and the others did not
        change: the level x with x + (sum of min(rate of another flow, x)) = capacity.
        """
        left = self._capacity - self._used + rate
        if left >= self._largest:  # no other flow is above the level, so none is cut
            return left
        if self._sorted_sums is None:
            ascending = sorted(self._rates)
            self._sorted_sums = ascending, list(accumulate(ascending, initial=0.0))
        return max(left, self._level(rate, *self._sorted_sums))

    def _level(self, rate: float, ascending: list[float], sums: list[float]) -> float:
        """The level, where ``sums[k]`` is the sum of the ``k`` smallest rates; the flow itself is one of those.

        With the k smallest flows below the level and the other n - k cut to it, the flow and those share what is left.
        """
        count = len(ascending)

        def level(below: int) -> float:
            return (self._capacity - (sums[below] - rate)) / (count - below + 1)

        # Shares fall as long as the next smallest flow is cut, so the first k whose next flow is above the level is it.
        below = bisect_left(range(count), True, lo=1, key=lambda k: ascending[k] >= level(k))
        return level(below)


def burst_bandwidth(links: Sequence[int], rate: float, loads: Mapping[int, LinkLoad]) -> float:
    """Bytes per second of a flow while it sends, ``rate`` being its average: its greedy share of the scarcest link.

    Flows do not send all the time. One that fills its link on average sends at its average rate, which is what
    ``max_min`` left to it. One that sends rarely meets flows that it may push back to an equal share meanwhile, and
    which catch up while it computes. Two properties follow:

    - It is at least capacity / users of the scarcest link and at most its capacity: cutting the others at the level
      leaves no flow more than the level.
    - Over time no link carries more than its capacity. A flow below its demand has a full link on which none has a
      higher rate (max-min); there the level is its own rate. A flow whose demand is met may send faster than that,
      but bytes per iteration over the duration of an iteration never exceed the demand, which is counted already.

    What the averages of the others leave (capacity - their sum) would not do for the second kind: next to flows that
    fill the link it is the demand itself, so that a flow with little to send would take a whole iteration for it.
    """
    return max(min([loads[link].greedy_share(rate) for link in links]), rate) if links else float("inf")


class DutyShare(NamedTuple):
    """What sharing by duty leaves to a flow."""

    bandwidth: float
    """Bytes per second."""
    duty: float
    """The share of its time in which it sends that the bandwidths of the others follow from."""


def duty(
    flows: Mapping[Id, DutyFlow], capacity: Capacities, passes: int = 5, damping: float = 0.5
) -> dict[Id, DutyShare]:
    """Shares of each flow: on each link capacity / (1 + duties of the others), the least over its links.

    Duties follow from bandwidths and the other way round: ``passes`` damped steps towards the fixed point, from what
    each flow does alone.
    """
    steps = _DutySteps(list(flows.values()), capacity, damping)
    for _ in range(passes - 1):
        steps.approach()
    return {i: DutyShare(*share) for i, share in zip(flows, zip(steps.left(), steps.duties, strict=True), strict=True)}


def duty_of_one(
    one: Id, flows: Mapping[Id, DutyFlow], capacity: Capacities, passes: int = 5, damping: float = 0.5
) -> float:
    """The same bandwidth as by ``duty``, of one flow only: the last steps concern it and those on its links alone.

    Its bandwidth follows from the last duties on its own links: the last step is needed of the flows there, and only
    the steps before it of all.
    """
    steps = _DutySteps(list(flows.values()), capacity, damping)
    for _ in range(passes - 2):
        steps.approach()
    if passes > 1:
        mine = set(flows[one].links)
        steps.approach([at for at, flow in enumerate(flows.values()) if not mine.isdisjoint(flow.links)])
    return steps.left_to(list(flows).index(one))


class _DutySteps:
    """Flows as columns, with an entry for each link that each crosses: the innermost loop of quotes under traffic.

    Arrays, but every number is what plain loops over flows and then over their links give, to the last bit: sums are
    taken in that order (``bincount`` adds one by one), and the duties themselves are not left to numpy.
    """

    def __init__(self, flows: Sequence[DutyFlow], capacity: Capacities, damping: float) -> None:
        self._own_links = links = [flow.links for flow in flows]
        lengths = np.array([len(each) for each in links], np.int64)
        self._links = np.array(list(chain.from_iterable(links)), np.int64)
        self._flow_of = np.repeat(np.arange(len(flows)), lengths)
        self._used: list[int] = lengths.nonzero()[0].tolist()
        """Flows that cross a link at all."""
        self._firsts: NDArray[np.int64] = (np.cumsum(lengths) - lengths)[self._used]
        self._capacity = np.asarray(capacity, np.float64)
        self._capacity_of = self._capacity[self._links]
        self._duty_at = [flow.duty_at for flow in flows]
        self._damping = damping
        self.duties = [flow.alone for flow in flows]

    def left(self) -> list[float]:
        """What the others leave each flow on its scarcest link, bytes per second."""
        left = [inf] * len(self.duties)
        if not self._used:
            return left
        own, sums = self._own_and_sums()
        offered = self._capacity_of / (1.0 + sums[self._links] - own)
        least: list[float] = np.minimum.reduceat(offered, self._firsts).tolist()
        if len(least) == len(left):
            return least
        for at, bandwidth in zip(self._used, least, strict=True):
            left[at] = bandwidth
        return left

    def left_to(self, one: int) -> float:
        """The same of one flow."""
        links = list(self._own_links[one])
        if not links:
            return inf
        _, sums = self._own_and_sums()
        return float(np.min(self._capacity[links] / (1.0 + sums[links] - self.duties[one])))

    def _own_and_sums(self) -> tuple[Floats, Floats]:
        """The duty of the flow at each crossing of a link, and by link the sum of those of all that cross it."""
        own: Floats = np.array(self.duties)[self._flow_of]
        # With weights ``bincount`` gives floats, which its types do not say.
        return own, np.bincount(self._links, own, len(self._capacity)).astype(np.float64, copy=False)

    def approach(self, only: Sequence[int] | None = None) -> None:
        """One damped step of all duties, or of those at some positions."""
        part, duties, duty_at, left = self._damping, self.duties, self._duty_at, self.left()
        if only is None:
            self.duties = [
                own + part * (at(bandwidth) - own) for own, at, bandwidth in zip(duties, duty_at, left, strict=True)
            ]
            return
        for i in only:
            duties[i] += part * (duty_at[i](left[i]) - duties[i])
