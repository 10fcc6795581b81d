"""Any share policy as a policy: shares of time are computed at resets, and rounds realise them as whole GPUs.

Gavel (OSDI'20, section 5) calls this the round-based scheduling mechanism. A round (``ShareRounds.rank``) goes through
five numbered steps. How shares are realised is one of two rules, deficits in seconds (``deficit_scheduler``) or
priority = share over time received (``priority_rounds``); FIFO, whose shares are whole GPUs, needs neither
(``fifo_rounds``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.prices import Prices
from trine.perf.model import PerfModel
from trine.policy.base import Policy, PolicyError, Selection
from trine.policy.shares.allocation import Allocation
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem
from trine.policy.shares.rounds.deficit_scheduler import DeficitScheduler
from trine.policy.shares.rounds.fifo_rounds import FifoRounds, PassingFifo
from trine.policy.shares.rounds.job_rates import JobRateCache, LearnedPairRates
from trine.policy.shares.rounds.priority_rounds import PriorityRounds, Queueing, RoundConventions
from trine.policy.shares.rounds.problem_builder import ProblemBuilder
from trine.policy.shares.rounds.round_params import RoundParams, entities_of, type_order
from trine.policy.shares.rounds.share_ledger import JobIdIndex, Shares
from trine.policy.view import Floats, Ints, View

EARLY_ROUNDS = 2.0
"""So many rounds, and those that others stay, a job can be behind its share: deadlines are planned so much earlier."""


class RoundScheduler(Protocol):
    """Realises shares as a selection for each round, and keeps the accounts it needs for that."""

    @property
    def whole(self) -> bool:
        """Every share is 0 or 1."""

    @property
    def foresees(self) -> bool:
        """Every round is as the last until something happens, or until ``change_s``."""

    @property
    def stuck(self) -> bool:
        """No job runs, and none will until shares are computed again."""

    @property
    def change_s(self) -> float:
        """When the selection changes although nothing happens, if that is foreseen."""

    def repeats(self, now: float) -> bool:
        """With the same jobs, GPUs and shares, the last selection is right for this round too."""

    def ran(self, job_index: int, seconds: float) -> None:
        """The world's own count of the time a job ran since the last round, where it keeps one."""

    def advance(self, view: View, same_jobs: bool, moved: bool) -> bool:
        """Book the time since the last round, take note of jobs that came and left; whether shares should be new.

        ``moved``: the GPUs of the cluster changed.
        """

    def reset(self, view: View, last_s: float, shares: Callable[[], Shares]) -> None:
        """Go over to new shares; ``last_s`` is when they were new last."""

    def choose(self, view: View, again: bool) -> Selection:
        """The selection of this round; ``again``: shares or GPUs are not those of the last round."""

    def state(self, view: View) -> dict[str, Any]:
        """All accounts in plain values, jobs by id."""

    def restore(self, kept: dict[str, Any], capacity: list[int], view: View) -> tuple[Selection | None, bool]:
        """Go on from ``state``: the selection that runs, if no job came or left, and whether shares should be new."""


@dataclass
class ShareRounds(Policy):
    """Gavel's round mechanism around a share policy."""

    shares: SharePolicy
    params: RoundParams = field(default_factory=RoundParams)
    round_s: float = 360.0
    conventions: RoundConventions = field(default_factory=RoundConventions)

    def __post_init__(self) -> None:
        self.name = self.shares.name  # type: ignore[misc]  # each instance is another policy
        self.title = self.shares.title  # type: ignore[misc]
        self.problem: Problem | None = None
        self.allocation: Allocation | None = None
        """Problem and answer of the last reset."""
        self._entities = entities_of(self.params.entities)
        self._rounds: RoundScheduler | None = None

    def prepare(self, perf: PerfModel) -> None:
        shares, params, seed = self.shares, self.params, self.params.rounds_seed or 0
        types = perf.cluster.types
        self._price_watch = PriceWatch(self.name, shares.uses_prices, perf.cluster)
        self.memory = Memory(seed)
        self._sharing = bool(shares.space_sharing)
        learned = self._sharing and params.references > 0
        self.estimates = LearnedPairRates(perf, params.references, params.profiled, seed) if learned else None
        self._builder = ProblemBuilder(
            perf if self.estimates is None else self.estimates.believed,
            self._sharing,
            self._entities,
            shares.uses_groups,
            shares.needs_pairs_on_all_types,
            shares.timeless,
        )
        self._rates = JobRateCache(len(types), self._builder.types_by_name)
        self._type_order = type_order(params.type_order, perf)
        self._no_pairs = (np.zeros((0, 2), np.int64), np.zeros((0, len(types))), np.zeros((0, 2, len(types))))
        self.conventions.prepare(seed, shares.aware)
        self._rounds = self._scheduler()
        self._reset_s: float | None = None
        """When shares were computed last."""
        self._due = False
        """Shares should be computed again as soon as that is allowed."""
        self._capacity: list[int] = []
        self._job_indices: Ints = np.zeros(0, np.int64)
        self._last = Selection({})

    def _scheduler(self) -> RoundScheduler:
        """How shares are realised."""
        self._early_s = 0.0
        if isinstance(self.shares, PassingFifo) and self.conventions.serves_arrivals:
            return FifoRounds()
        if self._by_deficit():
            stay = self.params.stay_rounds
            stay_s = self.round_s * (float(self.shares.jobs_stay) if stay is None else stay)
            self._early_s = stay_s + EARLY_ROUNDS * self.round_s
            # Where types have prices, a job stays on the type that was chosen for it.
            return DeficitScheduler(
                self._rates, self._type_order, stay_s, self.round_s, upgrades=not self.shares.uses_prices
            )
        # Half a round that counts as received, as published: without it, the first round a unit gets would put it
        # behind every unit that got none.
        ledger = self.conventions.ledger(len(self._type_order), self.round_s / 2, self._sharing)
        queueing = Queueing(self.params.one_queue, self.shares.strict)
        return PriorityRounds(
            ledger, self._rates, self._builder.measured_pairs, self._type_order, queueing, self.conventions
        )

    def _by_deficit(self) -> bool:
        """Whether shares are realised by deficits. Under policies without speeds the ratio serves better: it lets small
        gangs go first after a reset."""
        if not self.conventions.uses_deficits or self.params.rule == "ratio":
            return False
        return self.params.rule == "lag" or (self.shares.aware and not self.shares.prefers_ratio)

    def notes(self) -> list[str]:
        if self.estimates is None and self.params.references:
            return [f"references={self.params.references} changed nothing: {self.name} formed no pairs of jobs."]
        return [] if self.estimates is None else self.estimates.notes()

    # -- what the engine asks between rounds ---------------------------------------------------------------------

    @property
    def changes_with_time(self) -> bool:  # type: ignore[override]
        """Not while each round repeats the last until ``wakes_s``."""
        rounds = self._rounds
        return rounds is None or self._reset_s is None or not rounds.foresees

    @property
    def wakes_s(self) -> float:
        rounds = self._rounds or self._scheduled
        change_s = min(rounds.change_s, self._price_watch.next_s)
        if not self._due or self._reset_s is None:
            return change_s
        return min(change_s, self._next_reset_s(self._reset_s))

    def _next_reset_s(self, last_s: float) -> float:
        """The first moment that ``_may_reset`` accepts, whatever rounding makes of the sum."""
        soon_s = last_s + self.params.reset_gap_s
        return soon_s if soon_s - last_s >= self.params.reset_gap_s else math.nextafter(soon_s, math.inf)

    def ran(self, job_index: int, seconds: float) -> None:
        self._scheduled.ran(job_index, seconds)
        if seconds <= 0:
            self._due = True

    @property
    def _scheduled(self) -> RoundScheduler:
        if self._rounds is None:
            raise PolicyError(f"policy {self.name}: asked to rank before it was prepared")
        return self._rounds

    # -- a round -------------------------------------------------------------------------------------------------

    def rank(self, view: View) -> Selection:
        rounds = self._rounds or self._scheduled
        # 1. What makes a reset due although no job came or left.
        if view.now >= self._price_watch.look_s:
            self._due |= self._price_watch.changed(view.now)
        # 2. A round in which nothing happened repeats the last one.
        news = view.news
        same_jobs = view.job_indices is self._job_indices if news is None else not news[0] and not news[1]
        moved = view.gpus_by_type != self._capacity
        if same_jobs and not moved and rounds.repeats(view.now) and not (self._due and self._may_reset(view.now)):
            return self._last
        if view.news is None:
            self._job_indices = view.job_indices
        # 3. Accounts: the time since the last round, jobs that came and left.
        self._capacity = view.gpus_by_type
        self._due |= rounds.advance(view, same_jobs, moved)
        # 4. New shares, if they are due and the last ones are old enough, or if nothing can run otherwise.
        reset = self._reset_s is None or (self._due and (rounds.stuck or self._may_reset(view.now)))
        if reset:
            last_s, self._reset_s, self._due = self._reset_s or 0.0, view.now, False
            rounds.reset(view, last_s, lambda: self._new_shares(view))
        # 5. The jobs that run, each with its GPU type. Pairs that run are observed: their rates may be news.
        self._last = rounds.choose(view, reset or moved)
        if self.estimates is not None and self.estimates.watch(view, self._last):
            self._builder.forget_pairs()
            self._due = True
        return self._last

    def _may_reset(self, now: float) -> bool:
        return self._reset_s is None or self.conventions.may_reset(now, self._reset_s, self.params.reset_gap_s)

    def _new_shares(self, view: View) -> Shares:
        """Shares by job, pairs (job indices, the lower first), their shares, and the speed of either."""
        able = self._able(view)
        if not len(able):
            return np.zeros((len(view), len(self._type_order))), *self._no_pairs
        self.memory.fills_leftover = self.params.leftover == "gain" and self.conventions.fills_leftover
        found = self._solve(view, able, self._early_s)
        noise = self.conventions.noise(found)
        own = self._builder.by_cluster(_clean(found.shares, noise))
        if len(able) == len(view):
            share = own
        else:
            share = np.zeros((len(view), len(self._type_order)))
            share[able] = own
        used = np.flatnonzero((found.pair_shares > noise).any(axis=1)) if len(found.pair_shares) else ()
        if not len(used):
            return share, *self._no_pairs
        at = np.sort(able[found.pair_jobs[used]], axis=1)
        pair_share = self._builder.by_cluster(_clean(found.pair_shares[used], noise))
        return share, view.job_indices[at], pair_share, self._builder.pair_rates(view, at, self._rates)

    def _able(self, view: View) -> Ints:
        """Positions of the jobs that the policy can give a share now; the others get what is left."""
        able = self._rates.able(view.job_indices)
        return (able & (view.gpus == 1) if self.shares.single_gpu_only else able).nonzero()[0]

    def _solve(self, view: View, able: Ints, early_s: float) -> Allocation:
        self.problem = self._builder.problem(view, self._rates, able, early_s)
        self.allocation = self.shares.allocate(self.problem, self.memory)
        return self.allocation

    def fluid(self, view: View) -> tuple[Floats, Floats]:
        """What the shares mean without rounds: steps per second of each job, and its part of the time on each type."""
        self._rates.learn(view)
        self._price_watch.changed(view.now)
        rate, total = np.zeros(len(view)), np.zeros((len(view), len(self._type_order)))
        able = self._able(view)
        if len(able):
            found = self._solve(view, able, 0.0)
            rate[able], total[able] = found.effective, self._builder.by_cluster(found.total())
        return rate, total

    # -- on record -----------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        if self._rounds is None or self._reset_s is None:
            return {}
        found = memory_state(self.memory, view)
        found |= {"due": self._due, "whole": self._rounds.whole, "capacity": self._capacity, "reset_s": self._reset_s}
        return found | self._rounds.state(view)

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:
        restore_memory(self.memory, kept, JobIdIndex(view))
        self._reset_s, self._capacity = kept["reset_s"], list(kept["capacity"])
        self._rates.learn(view)
        running, due = self._scheduled.restore(kept, self._capacity, view)
        self._due = kept["due"] or stale or due
        if running is not None:  # nothing has happened: the next round may repeat
            self._job_indices, self._last = view.job_indices, running


def _clean(share: Floats, noise: float) -> Floats:
    """Without the noise of a solver, so that whole shares are seen as such."""
    whole = np.rint(share)
    return np.where(np.abs(share - whole) <= noise, whole, share)


# -- prices ----------------------------------------------------------------------------------------------------------


class PriceWatch:
    """When prices change, for policies that use them: a change of price is a reason to compute shares again.

    For other policies nothing ever changes, so that they are not woken for prices they do not look at.
    """

    def __init__(self, policy: str, used: bool, cluster: Cluster) -> None:
        """``used``: the policy of this name looks at the prices of the cluster's GPU types."""
        self._types = cluster.types
        self._prices = cluster.prices.of(cluster.types) if used else Prices()
        self._known: dict[str, float] | None = None
        """Price by type at the last look."""
        self.next_s = math.inf
        """When prices change next, as far as was looked."""
        self.look_s = -math.inf
        """When to look again."""
        if used:
            _check_prices(policy, cluster)

    def changed(self, now: float) -> bool:
        """A price is another than at the last look."""
        if now < self.look_s:
            return False
        before, self._known = self._known, self._prices.now(self._types, now)
        self.next_s = self.look_s = self._prices.next_change_s(now)
        return before is not None and before != self._known


def _check_prices(policy: str, cluster: Cluster) -> None:
    """Say what is missing before the first job comes."""
    missing = [gpu_type for gpu_type in cluster.types if not (cluster.prices.lowest(gpu_type) or 0.0) > 0]
    if missing:
        raise InputError(
            "cluster",
            f"no price for {missing[0]}" if cluster.prices.lowest(missing[0]) is None else f"{missing[0]} for nothing",
            f"a price above 0 for every GPU type, in the cluster file or by --prices: {policy} needs it",
            "prices_per_gpu_hour",
        )


# -- what a policy remembers, on record ------------------------------------------------------------------------------


def memory_state(memory: Memory, view: View) -> dict[str, Any]:
    """What the policy itself remembers, without starting points of solvers: those only save time."""
    found: dict[str, Any] = {
        "held": {view.name(int(job)): gpu_type for job, gpu_type in memory.held.items()},
        "partners": {view.name(int(job)): view.name(int(co_runner)) for job, co_runner in memory.co_runners.items()},
        "isolated": {view.name(int(job)): list(known) for job, known in memory.isolated.items()},
    }
    drawn = memory.rng.getstate()
    if drawn != random.Random(memory.seed).getstate():
        found["random"] = [drawn[0], list(drawn[1]), drawn[2]]
    return {key: value for key, value in found.items() if value}


def restore_memory(memory: Memory, kept: Mapping[str, Any], ids: JobIdIndex) -> None:
    """Go on from what ``memory_state`` gave; of jobs that are gone policies remember nothing."""
    held, co_runners, isolated = (kept.get(name, {}) for name in ("held", "partners", "isolated"))
    memory.held = {str(ids[job]): gpu_type for job, gpu_type in held.items() if job in ids}
    pairs = {job: co_runner for job, co_runner in co_runners.items() if job in ids and co_runner in ids}
    memory.co_runners = {str(ids[job]): str(ids[co_runner]) for job, co_runner in pairs.items()}
    memory.isolated = {str(ids[job]): tuple(known) for job, known in isolated.items() if job in ids}
    if "random" in kept:
        version, inside, spare = kept["random"]
        memory.rng.setstate((version, tuple(inside), spare))
