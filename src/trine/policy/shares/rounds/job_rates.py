"""What rounds know of speeds: those of jobs, cached by job index, and those of pairs of jobs that were not measured.

A round looks at the jobs that are new to it; only a change of speeds or of the cluster makes it look at all again.
Rates of pairs are estimates, corrected by what is observed: the jobs themselves run at their true rates, only the
policy takes the estimates for the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trine.core.job import Job
from trine.perf.model import PerfModel
from trine.perf.pair_estimates import EstimatedPairs, References
from trine.perf.throughput import AskedPairs, KnowsPairs, ThroughputTable
from trine.policy.base import Selection
from trine.policy.view import Flags, Floats, Ints, View

KEPT_IDS = 10_000
"""Texts of job indices that are kept at least."""


class JobRateCache:
    """Filled as jobs arrive; speeds follow what the engine learns of them."""

    def __init__(self, types: int, types_by_name: Ints | None = None) -> None:
        self._types_by_name: list[int] = list(range(types)) if types_by_name is None else types_by_name.tolist()
        self._ids: dict[int, str] = {}
        self._rates: Floats = np.zeros((64, types))
        self._rates_by_name: Floats = np.zeros((64, types))
        self._weight: Floats = np.ones(64)
        self._deadline_s: Floats = np.full(64, np.inf)
        self._known: Flags = np.zeros(64, np.bool_)
        self._able: Flags = np.zeros(64, np.bool_)
        self._revision = -1
        self._capacity: list[int] = []
        self.generation = 0
        """Another number where the rates of jobs that were known may have changed."""

    def learn(self, view: View) -> None:
        """Take note of new jobs and of changed speeds."""
        top = int(view.job_indices[-1]) + 1 if len(view) else 0
        while top > len(self._rates):
            self._double()
        capacity = view.gpus_by_type
        if view.revision != self._revision or capacity != self._capacity:
            self._revision, self._capacity = view.revision, list(capacity)
            self._known[:] = False
            self.generation += 1
        for job_index in view.job_indices[~self._known[view.job_indices]].tolist():
            job, (gang, suits, step_s) = view.job_of(job_index), view.of(job_index)
            rates = [1.0 / s if j in suits else 0.0 for j, s in enumerate(step_s)]
            with_room = [rates[j] if gang <= capacity[j] else 0.0 for j in self._types_by_name]
            self._rates[job_index], self._rates_by_name[job_index] = rates, with_room
            self._able[job_index] = any(with_room)
            self._weight[job_index] = job.weight
            self._deadline_s[job_index] = np.inf if job.deadline_s is None else job.deadline_s
            self._known[job_index] = True

    def rates(self, job_indices: Ints) -> Floats:
        """(jobs, types): steps per second on median GPUs of each type; 0 where a job cannot run."""
        return self._rates[job_indices]

    def rates_by_name(self, job_indices: Ints) -> Floats:
        """As ``rates``, types in order of name; 0 also where the cluster has too few GPUs now."""
        return self._rates_by_name[job_indices]

    def ids(self, job_indices: tuple[int, ...]) -> tuple[str, ...]:
        """Job indices as texts."""
        ids = self._ids
        if len(ids) > 2 * len(job_indices) + KEPT_IDS:
            ids.clear()
        return tuple([ids.get(job_index) or ids.setdefault(job_index, str(job_index)) for job_index in job_indices])

    def able(self, job_indices: Ints) -> Flags:
        """Jobs that run on a type of which the cluster has enough GPUs now."""
        return self._able[job_indices]

    def weight(self, job_indices: Ints) -> Floats:
        return self._weight[job_indices]

    def deadline_s(self, job_indices: Ints) -> Floats:
        """Absolute time; infinite without a deadline."""
        return self._deadline_s[job_indices]

    def _double(self) -> None:
        self._rates = np.concatenate((self._rates, np.zeros_like(self._rates)))
        self._rates_by_name = np.concatenate((self._rates_by_name, np.zeros_like(self._rates_by_name)))
        self._known = np.concatenate((self._known, np.zeros_like(self._known)))
        self._able = np.concatenate((self._able, np.zeros_like(self._able)))
        self._weight = np.concatenate((self._weight, np.ones_like(self._weight)))
        self._deadline_s = np.concatenate((self._deadline_s, np.full_like(self._deadline_s, np.inf)))


Both = tuple[float, float]
Key = tuple[str, str, int, str]
"""Two models in order, the gang and the GPU type."""


@dataclass(frozen=True)
class EstimatedTable(ThroughputTable):
    """Rates alone as in the table, rates of pairs as ``source`` tells them."""

    source: KnowsPairs | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            # One memory of what was asked: an observation clears it.
            object.__setattr__(self, "asked", self.source.asked)

    def pair_rate(self, model: str, other: str, gang: int, gpu_type: str) -> Both | None:
        return None if self.source is None else self.source.pair_rate(model, other, gang, gpu_type)


class LearnedPairRates:
    """Rates of pairs in one run, from ``references`` models of its own table that count as measured in full and a
    part ``profiled`` of their pairs with the others. A pair that ran is known from then on.
    """

    def __init__(self, perf: PerfModel, references: int, profiled: float, seed: int) -> None:
        self._true, table = perf, perf.throughputs
        self._pairs = EstimatedPairs(References.of(table, references, seed), profiled, seed)
        self._said: dict[Key, Both] = {}
        """First answers on pairs that had not been measured."""
        self._ran: set[Key] = set()
        self.believed: PerfModel = replace(perf, throughputs=EstimatedTable(table.rates, {}, table.spread, self))
        """The performance model that the policy takes for the truth."""

    @property
    def asked(self) -> AskedPairs:
        return self._pairs.asked

    def pair_rate(self, model: str, other: str, gang: int, gpu_type: str) -> Both | None:
        """Steps per second of either while both run; ``None`` = not known."""
        found = self._pairs.pair_rate(model, other, gang, gpu_type)
        key = _key(model, other, gang, gpu_type)
        if found is not None and key not in self._said and not self._pairs.measured(*key):
            self._said[key] = found if model <= other else (found[1], found[0])
        return found

    def watch(self, view: View, chosen: Selection) -> bool:
        """Note how fast the pairs of this round are; true if one of them is not as it was taken to be."""
        changes = [self._observe(*pair) for pair in _pairs(view, chosen)]
        if any(changes):
            self.believed.forget_pairs()
        return any(changes)

    def _observe(self, one: Job, other: Job, type_index: int) -> bool:
        gpu_type = self._true.cluster.types[type_index]
        key = _key(one.model, other.model, one.gpus, gpu_type)
        if key in self._ran:
            return False
        self._ran.add(key)
        rates = self._true.rate_next_to(one, other, type_index), self._true.rate_next_to(other, one, type_index)
        if self._pairs.pair_rate(one.model, other.model, one.gpus, gpu_type) == rates:
            return False
        self._pairs.observe(one.model, other.model, one.gpus, gpu_type, rates, weight=1.0)
        return True

    def notes(self) -> list[str]:
        """How far the estimates were from the truth, before anything was observed."""
        known = self._pairs.references.models
        lead = f"Rates of pairs come from {len(known)} models measured in full and {self._pairs.profiled:.0%} of their "
        errors = [error for key, said in self._said.items() for error in self._errors(key, said)]
        if not errors:
            return [f"{lead}pairs with the others; no pair that came up was left to estimate."]
        return [
            f"{lead}pairs with the others; the {len(self._said)} pairs by GPU type that came up and were estimated are "
            f"off by {sum(errors) / len(errors):.3f} of the rate alone on average and by {max(errors):.3f} at most, "
            f"and {len(self._ran & self._said.keys())} of them ran and were observed."
        ]

    def _errors(self, key: Key, said: Both) -> list[float]:
        """Of either job, as parts of its rate alone; nothing where the truth is not known."""
        model, other, gang, gpu_type = key
        table = self._true.throughputs
        real = table.pair_rate(*key)
        alone = table.rate(model, gang, gpu_type), table.rate(other, gang, gpu_type)
        if real is None or not alone[0] or not alone[1]:
            return []
        return [abs(said[0] - real[0]) / alone[0], abs(said[1] - real[1]) / alone[1]]


def _key(model: str, other: str, gang: int, gpu_type: str) -> Key:
    return (*((model, other) if model <= other else (other, model)), gang, gpu_type.lower())


def _pairs(view: View, chosen: Selection) -> Iterator[tuple[Job, Job, int]]:
    """The jobs and the GPU type of the pairs that run now."""
    for job_index, co_runner in chosen.co_runners.items():
        if job_index < co_runner:
            yield view.job_of(job_index), view.job_of(co_runner), chosen.wanted[job_index]
