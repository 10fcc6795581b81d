"""The least capacity that meets a target: how many nodes of which type, by what they cost per hour.

Every candidate is a simulation of the same jobs. More nodes are taken to serve jobs no worse, so that the fewest nodes
of a type are found by halving; of two types together, a staircase from the one alone to the other alone is walked.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations

from trine.core.errors import InputError, unknown_name
from trine.core.job import Job
from trine.core.prices import Prices
from trine.core.result import Summary
from trine.engine.explain import never_fits
from trine.inputs.cluster_shape import MAX_GPUS as MOST_CLUSTER_GPUS
from trine.inputs.job_rules import GPU_TYPE, seconds
from trine.perf.model import PerfModel
from trine.sim.scenario import Scenario, jobs_and_model, run

METRICS = tuple(each.name.removesuffix("_s") for each in fields(Summary) if each.name.startswith(("wait_", "jct_")))
"""What a target may be about."""
MOST_NODES = 4096
MOST_GPUS = MOST_CLUSTER_GPUS // MOST_NODES
"""Of a node."""


@dataclass(frozen=True)
class Target:
    """``metric`` of the summary may not exceed ``limit_s`` seconds."""

    metric: str
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """``wait_p95=1h``."""
        name, sign, limit = text.partition("=")
        if not sign:
            raise InputError("--target", repr(text), "METRIC=DURATION such as wait_p95=1h")
        if name not in METRICS:
            raise unknown_name("--target", "metric", name, METRICS)
        try:
            return cls(name, seconds(float(limit) if limit.replace(".", "", 1).isdecimal() else limit))
        except ValueError:
            raise InputError("--target", repr(limit), "a duration such as 30m, 1h or 3600") from None

    def value(self, summary: Summary) -> float:
        return float(getattr(summary, f"{self.metric}_s"))


@dataclass(frozen=True)
class NodeType:
    """Nodes that can be had."""

    gpu_type: str
    gpus: int
    price_per_h: float
    """Of a node. Without prices, its GPUs."""

    @classmethod
    def parse(cls, text: str, prices: Prices) -> NodeType:
        """``v100=8``: nodes of eight V100."""
        name, sign, count = text.partition("=")
        if not (sign and re.fullmatch(GPU_TYPE, name) and re.fullmatch("0*[1-9][0-9]{0,8}", count)):
            raise InputError("--nodes", repr(text), "TYPE=GPUS of a node, such as v100=8")
        if int(count) > MOST_GPUS:
            raise InputError("--nodes", repr(text), f"at most {MOST_GPUS} GPUs in a node")
        price = prices.lowest(name) if prices else 1.0
        if price is None:
            raise InputError("--prices", f"no price for {name}", "one for every type of --nodes")
        return cls(name, int(count), int(count) * price)


def parse_types(texts: Sequence[str], prices: Prices) -> list[NodeType]:
    """What ``--nodes`` says, each type once."""
    found = [NodeType.parse(text, prices) for text in texts]
    names = Counter(each.gpu_type for each in found)
    for name, count in names.items():
        if count > 1:
            raise InputError("--nodes", f"{name} {count} times", "each type once")
    return found


@dataclass(frozen=True)
class Candidate:
    """A cluster that was simulated; ``value_s`` infinity: some job can never run there."""

    nodes: tuple[int, ...]
    """Nodes of each type."""
    price_per_h: float
    value_s: float
    meets: bool
    figures: tuple[float, ...] = ()
    """All of ``METRICS``; empty if some job can never run there."""


@dataclass
class Search:
    """Finds the cheapest cluster for ``scenario``; remembers what it tried."""

    scenario: Scenario
    target: Target
    types: Sequence[NodeType]
    done: Callable[[Candidate], None] = lambda _: None
    tried: dict[tuple[int, ...], Candidate] = field(default_factory=dict)
    saturated: list[Candidate] = field(default_factory=list)
    """Clusters that miss the target and that twice as many nodes serve no better, one for each type."""
    round_s: float = 0.0
    """Seconds between decisions of the simulations; 0 where free GPUs are given out at once."""

    def check_possible(self) -> None:
        """``InputError`` about the first job that no number of nodes of any type could run: nothing is simulated."""
        first = None
        for each in self.types:
            jobs, perf = self._jobs_and_model(each)
            never = next((job for job in jobs if not perf.types_for(job)), None)
            if never is None:
                return
            first = (
                first
                or f"job {never.id} can never run: on {MOST_NODES:,} nodes of {each.gpu_type}={each.gpus} "
                + (never_fits(never, perf))
            )
        raise InputError("--nodes", str(first), "types of nodes on which every job fits")

    def cheapest(self) -> Candidate | None:
        """Of one type, or of two; ``None`` if no number of nodes up to ``MOST_NODES`` meets the target, or more change
        nothing."""
        alone = {i: self._fewest(i) for i in range(len(self.types))}
        for one, two in combinations(range(len(self.types)), 2):
            self._staircase(one, two, alone[one], alone[two])
        met = [each for each in self.tried.values() if each.meets]
        return min(met, key=lambda each: (each.price_per_h, sum(each.nodes), each.nodes), default=None)

    def is_least(self, candidate: Candidate) -> bool:
        """Several nodes of one type, of which fewer do not hold the largest job, so that none was tried."""
        (each, count), *more = ((t, n) for t, n in zip(self.types, candidate.nodes, strict=True) if n)
        return not more and 0 < (count - 1) * each.gpus < self.largest_gang

    def cluster(self, candidate: Candidate) -> str:
        """As ``--cluster`` takes it."""
        pairs = zip(self.types, candidate.nodes, strict=True)
        return ",".join(f"{each.gpu_type}={count}x{each.gpus}" for each, count in pairs if count)

    def _fewest(self, at: int) -> int | None:
        """Nodes of one type alone: from as many as the largest job needs doubled until they suffice, then halved in
        between."""
        high = math.ceil(self.largest_gang / self.types[at].gpus)
        low = high - 1
        before = self._try(self._of(at, high))
        while not before.meets:
            low, high = high, high * 2
            if high > MOST_NODES:
                return None
            found = self._try(self._of(at, high))
            # All figures, not that of the target alone: a quantile may stay while others still wait less.
            if found.figures and found.figures == before.figures:
                self.saturated.append(before)
                return None
            before = found
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._try(self._of(at, middle)).meets else (middle, high)
        return high

    def _staircase(self, one: int, two: int, most_one: int | None, most_two: int | None) -> None:
        """From all of the first type to all of the second: one node less where that suffices, else one more of the
        other. Clusters that cost more than the cheapest so far are not simulated."""
        if most_one is None or most_two is None:
            return
        ones, twos = most_one, 0
        while ones >= 0 and twos <= most_two:
            nodes = self._of(one, ones, two, twos)
            met = [each.price_per_h for each in self.tried.values() if each.meets]
            suffices = self._holds_each_job(nodes) and (self._price(nodes) >= min(met) or self._try(nodes).meets)
            ones, twos = (ones - 1, twos) if suffices else (ones, twos + 1)

    @cached_property
    def largest_gang(self) -> int:
        """GPUs of the largest job, 1 at least. A job runs on GPUs of one type: a cluster that has fewer of each is not
        worth a simulation."""
        return max((job.gpus for job in self._jobs_and_model(self.types[0])[0]), default=1)

    def _jobs_and_model(self, node: NodeType) -> tuple[list[Job], PerfModel]:
        """Of as many nodes of the type as may be had."""
        most = replace(self.scenario, cluster=f"{node.gpu_type}={MOST_NODES}x{node.gpus}", prices="")
        return jobs_and_model(most)

    def _holds_each_job(self, nodes: tuple[int, ...]) -> bool:
        gpus = (count * each.gpus for count, each in zip(nodes, self.types, strict=True))
        return max(gpus) >= self.largest_gang

    def _of(self, *pairs: int) -> tuple[int, ...]:
        counts = dict(zip(pairs[::2], pairs[1::2], strict=True))
        return tuple(counts.get(i, 0) for i in range(len(self.types)))

    def _price(self, nodes: tuple[int, ...]) -> float:
        return sum(count * each.price_per_h for count, each in zip(nodes, self.types, strict=True))

    def _try(self, nodes: tuple[int, ...]) -> Candidate:
        if nodes not in self.tried:
            summary = self._simulate(Candidate(nodes, 0.0, 0.0, False))
            value_s = self.target.value(summary) if summary else math.inf
            figures = tuple(float(getattr(summary, f"{name}_s")) for name in METRICS) if summary else ()
            found = Candidate(nodes, self._price(nodes), value_s, value_s <= self.target.limit_s, figures)
            self.tried[nodes] = found
            self.done(found)
        return self.tried[nodes]

    def _simulate(self, candidate: Candidate) -> Summary | None:
        """``None``: some job can never run there."""
        scenario = replace(self.scenario, cluster=self.cluster(candidate), prices="")
        skipping = replace(scenario, values=scenario.values | {"oversize": "skip"})
        try:
            result = run(skipping, keep_segments=False)
        except InputError as error:
            if "can ever run" in str(error):
                return None
            raise
        took = result.settings["settings"]["run"]
        at_once = took["fill"] or took["event_driven"]
        self.round_s = 0.0 if at_once else float(took["round_s"])
        left_out = any("can never run here were skipped" in note for note in result.notes)
        return None if left_out else result.summary
