"""Delay scheduling around any placement: a job waits for GPUs close together, for as long as that pays.

Only the idea is Dally's (arXiv 2401.16492: delay timers by tier, tuned from the waits of the past); the rules here are
our own design.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from trine.core.cluster import Largest, Tier
from trine.core.errors import InputError
from trine.core.params import param
from trine.core.plugins import find
from trine.core.reason import Reason, Why
from trine.core.result import TimerChange
from trine.perf.model import PerfModel
from trine.placement.base import Ask, Placement, has_room, no_room
from trine.placement.free_index import FreePool
from trine.placement.packed import place_within
from trine.placement.timers import DEFAULT_S, HOUR_S, Timers
from trine.placement.wrapper import Wrapper

_BELOW_NETWORK = (Tier.NODE, Tier.RACK)
_WHERE = {Tier.RACK: "within one rack", Tier.NETWORK: "anywhere"}


@dataclass
class Delay(Wrapper):
    """Refuses GPUs further apart than an empty cluster would give, until the job's timers for the better tiers end.

    A better tier that has room is always taken first. A timer runs from the job's last stop, or its submission, and no
    other job resets it; after both (node to rack, rack to network) any GPUs do. Tiers that cost nothing are never
    waited for. With ``tuner=pays`` a job waits only if the worse tier would cost it more time than the better one takes
    to come: work left x what the tier adds to a step, with the harm to others on shared links counted in
    (``externality``). Jobs of one GPU never wait. What runs stays where it is: ``delay`` and ``delay-sticky`` are the
    same.
    """

    name: ClassVar[str] = "delay"
    title: ClassVar[str] = "waits for GPUs close together while that pays, around any placement"
    paper: ClassVar[str] = "Dally (arXiv 2401.16492), delay timers; rules of our own"
    sticky = True
    changes_with_starts = True

    inner: str = param("packed", "the placement that chooses the GPUs within a tier: a name or a file")
    machine_timer_s: float | None = param(
        None, "wait for GPUs of one node before those of one rack do; none = by the tuner", minimum=0
    )
    rack_timer_s: float | None = param(
        None, "then wait for GPUs of one rack before any do; none = by the tuner", minimum=0
    )
    tuner: str = param(
        "auto",
        "auto: 95th percentile of past waits; pays: the same, for jobs that would lose more in the worse tier; "
        "mean: of those that got the tier; fixed: 3 h and 6 h",
        ("auto", "pays", "mean", "fixed"),
    )
    externality: float = param(
        2.0, "tuner=pays: a worse tier costs this many times the job's own loss, as others are slowed", minimum=0
    )
    prior_work_s: float = param(HOUR_S, "work left of a job that does not say and has run for less", minimum=0)

    def __post_init__(self) -> None:
        cls = find("trine.placement", Placement, "placement", self.inner, "--set inner")
        if issubclass(cls, Delay):
            raise InputError("--set", f"{self.inner!r}", "a placement that does not wait itself", "inner")
        self.wrap(cls())
        self.timers = Timers(self.tuner)
        self._largest: dict[int, tuple[dict[int, int], Largest]] = {}
        """By index of the GPU type: GPUs out of service when it was counted, and what was counted."""

    def prepare(self, perf: PerfModel, rng: random.Random) -> None:
        super().prepare(perf, rng)
        self._perf = perf
        self.timers = Timers(self.tuner)
        self._largest = {}

    # -- offers --------------------------------------------------------------------------------------------------

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        count = ask.job.gpus
        if count == 1:
            return self.within.place(ask, pool)
        best = self._best_tier(ask, pool)
        ends_s = self._timers_end_s(ask, best)
        # Compared as points in time: now - since may round to less than a timer that is over.
        waits_for = (tier for tier in _BELOW_NETWORK if best <= tier and ask.now < ends_s[tier] and not ask.relocating)
        allowed = next(waits_for, Tier.NETWORK)
        for tier in range(best, min(allowed, ask.widest) + 1):
            found = place_within(self.within, ask.within(Tier(tier)), pool)
            if isinstance(found, list):
                return found
        if allowed >= ask.widest or not has_room(count, ask.widest, pool):
            return no_room(ask, pool)
        return self._wait(ask, pool, allowed, ends_s)

    def _best_tier(self, ask: Ask, pool: FreePool) -> Tier:
        """The lowest tier at which the GPUs of this type that are in service, all of them free, hold the gang."""
        known = self._largest.get(ask.type_index)
        if known is None or known[0] != pool.cordoned:
            cordoned = {node: mask.bit_count() for node, mask in pool.cordoned.items()}
            known = dict(pool.cordoned), pool.cluster.largest(pool.gpu_type, cordoned)
            self._largest[ask.type_index] = known
        return known[1].tier_of(ask.job.gpus)

    def _timers_end_s(self, ask: Ask, best: Tier) -> dict[Tier, float]:
        """By tier: until when the job waits for it. The timer of a rack starts where that of a node ends."""
        end_s, ends_s = ask.idle_from_s, {}
        for tier in _BELOW_NETWORK:
            if best <= tier:
                end_s += self._timer_s(ask, tier)
            ends_s[tier] = end_s
        return ends_s

    def _timer_s(self, ask: Ask, tier: Tier) -> float:
        told_s = self.machine_timer_s if tier is Tier.NODE else self.rack_timer_s
        if told_s is not None:
            return told_s
        if self.tuner == "fixed":
            return DEFAULT_S[tier]
        return 0.0 if self._not_worth_it(ask, tier) else self.timers.timer_s(ask.job.gpus, tier)

    def _not_worth_it(self, ask: Ask, tier: Tier) -> bool:
        """The next tier costs nothing or, with ``tuner=pays``, less than the wait.

        That is not the default: a job that takes GPUs far apart since that is best for itself leaves nodes and racks in
        pieces for all others, while GPUs that it declines are taken by others where jobs queue (docs/dally.md).
        """
        if self.tuner == "mean":
            return False
        if self.tuner == "auto":
            return self._cost_s(ask, tier) <= 0.0
        return self._cost_s(ask, tier) * self.externality <= self.timers.expected_s(ask.job.gpus, tier)

    def _cost_s(self, ask: Ask, tier: Tier) -> float:
        """Seconds that the next tier adds to the work left."""
        left_s = ask.work_left_s
        if left_s == float("inf"):
            left_s = max(ask.attained_s, self.prior_work_s)
        slowdowns = self._perf.tier_slowdowns(ask.job, ask.type_index)
        return left_s * max(0.0, slowdowns[tier + 1] - slowdowns[tier])

    def _wait(self, ask: Ask, pool: FreePool, allowed: Tier, ends_s: dict[Tier, float]) -> Reason:
        job, since_s = ask.job, ask.idle_from_s
        wider = [(ends_s[tier], Tier(tier + 1)) for tier in _BELOW_NETWORK if allowed <= tier < ask.widest]
        widest_at = dict(wider)  # of tiers that come at the same time, the last
        tiers = ", ".join(f"{_WHERE[tier]} once it has waited {s - since_s:.0f} s" for s, tier in widest_at.items())
        return Reason(
            Why.WAITS,
            f"job {job.id} waits for {job.gpus} GPUs within one {allowed.label}; the {pool.total} that are free are "
            "further apart.",
            {"needed": job.gpus, "free": pool.total},
            f"It takes GPUs {tiers}.",
            ends_s[allowed],
        )

    # -- what it learns ------------------------------------------------------------------------------------------

    def started(self, ask: Ask, gpus: tuple[int, ...]) -> None:
        self.within.started(ask, gpus)
        waited_s = ask.waited_s
        if len(gpus) == 1 or (waited_s == 0.0 and ask.attained_s > 0.0):
            return  # a job that is moved, or got other GPUs at once, did not wait for an offer
        got, known = self._perf.cluster.tier(gpus), self._largest.get(ask.type_index)
        if known is not None:
            self.timers.observe(ask.now, len(gpus), known[1].tier_of(len(gpus)), got, waited_s)

    @property
    def timer_changes(self) -> list[TimerChange]:
        """The timers over time, oldest change first."""
        return list(self.timers.changes)

    def timer_changes_since(self, seen: int) -> list[TimerChange]:
        new = min(self.timers.changed - seen, len(self.timers.changes))
        return list(islice(reversed(self.timers.changes), new))[::-1]

    def state(self) -> dict[str, Any]:
        inner = self.within.state()
        return self.timers.state() | ({"inner": inner} if inner else {})

    def restore(self, kept: dict[str, Any]) -> None:
        rest = dict(kept)
        if inner := rest.pop("inner", None):
            self.within.restore(inner)
        self.timers.restore(rest)
