"""The trine placement: the fastest place by chip and network together, among equals the one that does least damage."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.job import Job
from trine.core.reason import Reason
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement, no_room, too_few
from trine.placement.candidates import NEAR, Chips, NodePlaces, Place, RackPlaces, Shape
from trine.placement.free_index import FreePool

_GOOD_ENOUGH = 0.97
"""Speed over the best there could be from which on wider places are not looked at."""


@dataclass
class TrinePlacement(Placement):
    """Candidates on one node, in one rack and anywhere, with slow chips hidden at several depths.

    The performance model quotes each under the present traffic. Within 2 % of the fastest, a gang takes the place on
    the fewest nodes that leaves the fewest GPUs over, and chips that the most sensitive class could use least.
    """

    name: ClassVar[str] = "trine"
    title: ClassVar[str] = "fastest by chip and network together, least damage among equals"
    reads_chips: ClassVar[bool] = True
    sticky = True

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:  # noqa: ARG002
        self._perf = perf
        classes = perf.variability.classes
        self._sensitive = perf.variability.slowdown(min(classes, key=perf.variability.rank_of)) if classes else None
        self._chips: dict[tuple[str, str], Chips] = {}
        self._on_node: dict[tuple[str, str, int], NodePlaces] = {}
        self._in_rack: dict[tuple[str, str, int], RackPlaces] = {}
        self._bounds: dict[tuple[str, int | None, str, float | None, int, str], dict[Shape, float]] = {}

    def use_model(self, perf: PerfModel) -> None:
        if perf.variability is not self._perf.variability:
            indices: list[NodePlaces | RackPlaces] = [*self._on_node.values(), *self._in_rack.values()]
            for index in indices:
                index.close()
            self.prepare(perf, random.Random(0))
        self._perf = perf
        self._bounds = {}

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        count = ask.job.gpus
        if pool.total < count:
            return too_few(ask.job, pool)
        chips = self._chips_of(ask.job, pool)
        on_node = self._places_on_node(chips, ask.job).best() if count <= pool.largest_node else None
        if count == 1 and on_node is not None:
            return list(on_node)
        if ask.widest <= Tier.NODE:
            return no_room(ask, pool) if on_node is None else list(on_node)
        return self._with_wider_places(ask, chips, on_node)

    def _with_wider_places(self, ask: Ask, chips: Chips, on_node: Sequence[int] | None) -> list[int] | Reason:
        """Racks where no node is good enough, and then the whole type."""
        count, pool, quotes = ask.job.gpus, chips.pool, _Quotes(ask, self._perf, self._bounds_of(ask.job, chips.pool))
        target = _GOOD_ENOUGH / self._perf.step_s_by_type(ask.job)[ask.type_index]
        places = list[Place]()
        if on_node is not None:
            free = pool.free_on[pool.node_of[on_node[0]]].bit_count()
            places = [chips.place(tuple(on_node), 1, count, free - count)]
            if quotes.speed(places[0]) >= target:
                return list(on_node)
        places += self._places_in_rack(chips, ask.job).all()
        fastest = quotes.fastest(places)
        if ask.widest > Tier.RACK and fastest < target:
            anywhere = chips.places(-1, count)
            quotes.bound_by_route(anywhere)
            places += anywhere
            fastest = max(fastest, quotes.fastest(anywhere))
        return quotes.least_damage(places, fastest) if places else no_room(ask, pool)

    def explain(self, job: Job, gpus: tuple[int, ...], pool: FreePool) -> str:
        """How close the place comes to the best there could be, links to itself."""
        speed = self._perf.speed(job, gpus)
        type_index = self._perf.cluster.types.index(pool.gpu_type)
        part = speed.steps_per_s * self._perf.step_s_by_type(job)[type_index]
        chip = f"slowest chip {speed.chip:.2f}" if self._perf.variability.classes else "chips alike"
        place = "" if len(gpus) == 1 else f", one {speed.tier.label}"
        return f"That is {part:.0%} of its best speed on {pool.gpu_type} ({chip}{place})."

    # -- indices, made when a class or gang is first met ---------------------------------------------------------------

    def _chips_of(self, job: Job, pool: FreePool) -> Chips:
        variability = self._perf.variability
        key = (pool.gpu_type, variability.class_of(job.app_class))
        found = self._chips.get(key)
        if found is None or found.pool is not pool:
            found = self._chips[key] = Chips(pool, variability.slowdown(job.app_class), self._sensitive)
        return found

    def _places_on_node(self, chips: Chips, job: Job) -> NodePlaces:
        key = (chips.pool.gpu_type, self._perf.variability.class_of(job.app_class), job.gpus)
        found = self._on_node.get(key)
        if found is None or found.chips is not chips:
            found = self._on_node[key] = NodePlaces(chips, job.gpus)
        return found

    def _places_in_rack(self, chips: Chips, job: Job) -> RackPlaces:
        key = (chips.pool.gpu_type, self._perf.variability.class_of(job.app_class), job.gpus)
        found = self._in_rack.get(key)
        if found is None or found.chips is not chips:
            found = self._in_rack[key] = RackPlaces(chips, job.gpus)
        return found

    def _bounds_of(self, job: Job, pool: FreePool) -> dict[Shape, float]:
        """Speeds by shape of all jobs like this one: racks of one type have the same links inside."""
        key = (job.model, job.batch_size, job.app_class, job.step_s, job.gpus, pool.gpu_type)
        return self._bounds.setdefault(key, {})


@dataclass
class _Quotes:
    """Speeds of one gang on its candidates, steps/s; asked of the model only as far as the answer depends on them."""

    ask: Ask
    perf: PerfModel
    by_shape: dict[Shape, float]
    """With the links to itself: what it has next to others is no more."""
    _bounds: dict[tuple[int, ...], float] = field(default_factory=dict)
    """The same of places that are not inside one rack."""
    _known: dict[tuple[int, ...], float] = field(default_factory=dict)

    def bound(self, place: Place) -> float:
        """Speed with the links to itself."""
        found = self._bounds.get(place.gpus)
        if found is None:
            found = self.by_shape.get(place.shape)
            if found is None:
                found = self.by_shape[place.shape] = self._alone(place)
        return found

    def bound_by_route(self, places: Iterable[Place]) -> None:
        """These may span racks, whose links depend on which racks they are."""
        self._bounds |= {place.gpus: self._alone(place) for place in places}

    def _alone(self, place: Place) -> float:
        return self.perf.speed(self.ask.job, tuple(sorted(place.gpus))).steps_per_s

    def speed(self, place: Place, fastest: float = 0.0) -> float:
        """Speed next to what sends over the same links now; exact where it is about as much as ``fastest`` so far."""
        found = self._known.get(place.gpus)
        if found is None:
            quote = self.ask.quote
            where, least = tuple(sorted(place.gpus)), (1.0 - NEAR) * fastest
            found = self.bound(place) if quote is None else quote(self.ask.job_index, where, least)
            self._known[place.gpus] = found
        return found

    def fastest(self, places: Sequence[Place]) -> float:
        """Speed of the fastest place, 0 without any.

        Best first by the speed a place could have: with the links to itself, then next to what sends there now, which
        is cheap to bound; the fixed point of sharing is computed for those that could still be the fastest.
        """
        found = 0.0
        heap = [(-self.bound(place), False, at) for at, place in enumerate(places)]
        heapify(heap)
        while heap and -heap[0][0] > found:
            _, bounded, at = heappop(heap)
            if bounded or self.ask.quote is None or places[at].nodes == 1:
                found = max(found, self.speed(places[at], found))
            else:
                most = self.ask.quote(self.ask.job_index, tuple(sorted(places[at].gpus)), inf)
                heappush(heap, (-most, True, at))
        return found

    def least_damage(self, places: Iterable[Place], fastest: float) -> list[int]:
        """Among the places that are about as fast, the one that others would miss least."""
        least = (1.0 - NEAR) * fastest
        for place in sorted([p for p in places if self.bound(p) >= least]):
            if self.speed(place, fastest) >= least:
                return list(place.gpus)
        raise AssertionError("no place is as fast as the fastest")
