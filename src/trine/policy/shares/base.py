"""The interface of a policy that computes time shares, and what it may remember from round to round."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from trine.core.errors import TrineError
from trine.core.params import param
from trine.policy.shares.allocation import Allocation, allocation, by_prices, exact
from trine.policy.shares.problem import Problem
from trine.policy.shares.solver.polytope import InfeasibleError, UnservableError
from trine.policy.view import Floats

if TYPE_CHECKING:
    from trine.policy.shares.solver.highs import HighsSession
    from trine.policy.shares.solver.interior import Warm
    from trine.policy.shares.solver.lexicographic_vertex import LexicographicVertex

Kept = TypeVar("Kept")
_SLACK = 1e-6
"""Relative; of rounding."""
REFERENCE_TYPE = "v100"
REFERENCE_DOC = "type whose speed stands for all when not aware; the first by name if the cluster has none of it"


@dataclass
class Memory:
    """State of one policy between rounds. Pass the same object to every call; a new one forgets everything.

    Each policy uses its own part. Jobs that are gone from the problem are forgotten.
    """

    seed: int = 0
    fills_leftover: bool = False
    """Among shares that are equally good, those that leave no time unused that would help a job; otherwise the middle
    of them all."""
    held: dict[str, str] = field(default_factory=dict)
    """GPU type a job keeps (AlloX, FIFO that does not know speeds)."""
    co_runners: dict[str, str] = field(default_factory=dict)
    """The job that shares the GPUs of a job, both ways (Gandiva)."""
    shared: list[tuple[str, str]] = field(default_factory=list)
    """Jobs that had time together in the last answer, where the program has classes of jobs: of many pairs that are
    equally good, those stay."""
    isolated: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Steps left, isolated seconds so far and isolated steps/s at the last call (finish-time fairness)."""
    warm: dict[str, Any] = field(default_factory=dict)
    """Starting points for the solver."""
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @property
    def start(self) -> Warm:
        """Where the interior-point solver begins: near the last answer."""
        from trine.policy.shares.solver.interior import Warm

        return self._kept(Warm)

    @property
    def vertices(self) -> LexicographicVertex:
        """The simplex solver of levels, which starts from where its rows were."""
        from trine.policy.shares.solver.lexicographic_vertex import LexicographicVertex

        return self._kept(LexicographicVertex)

    @property
    def session(self) -> HighsSession:
        """The simplex solver, which starts from its last basis."""
        from trine.policy.shares.solver.highs import HighsSession

        return self._kept(HighsSession)

    def _kept(self, solver: type[Kept]) -> Kept:
        """The one of this run, made when first asked for."""
        if solver.__name__ not in self.warm:
            self.warm[solver.__name__] = solver()
        found: Kept = self.warm[solver.__name__]
        return found


class SharePolicy(ABC):
    """Says which part of the time each job should spend on each GPU type.

    A subclass is a dataclass whose fields are its parameters, in a file of its name.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    goes_with: ClassVar[str] = "packed-sticky"
    """The placement that a simulation takes where none is named."""
    objective: ClassVar[str] = "objective"
    """What the number ``Allocation.objective`` is, for people."""
    takes_classes: ClassVar[bool] = False
    """Works on pairs by class as they are; for others all pairs of jobs are listed, which grows as jobs squared."""

    timeless: ClassVar[bool] = False
    """Shares depend on which jobs there are and how fast, not on progress, waiting or deadlines: those may be left
    out."""

    # What the round mechanism (``rounds.mechanism``) must know of a policy.
    aware: bool = True
    """Uses the speed of each job on each type. A parameter where a policy exists with and without (``aware_param``)."""
    space_sharing: bool | None = False
    """Runs pairs of jobs on the same GPUs. A parameter where that is a choice (``sharing_param``)."""
    strict: ClassVar[bool] = False
    """No job overtakes another: the first one without room ends the filling of free GPUs."""
    single_gpu_only: ClassVar[bool] = False
    """Computes shares for jobs of one GPU only; gangs get GPUs that are left."""
    uses_prices: ClassVar[bool] = False
    """Needs a price for every GPU type, and new shares when one changes; jobs stay on the types it chose."""
    uses_groups: ClassVar[bool] = False
    """Shares time between groups of jobs (entities) first."""
    needs_pairs_on_all_types: ClassVar[bool] = False
    """Treats types alike: two jobs may share GPUs only if they can on every type."""
    jobs_stay: ClassVar[bool] = True
    """By default a running job keeps its GPUs for a round although others are further behind. Not where the last job
    to finish counts."""
    prefers_ratio: ClassVar[bool] = False
    """Rounds go by share over time received by default, as under every policy that is not ``aware``."""

    def allocate(self, problem: Problem, memory: Memory | None = None) -> Allocation:
        """Valid shares: no job above full time, no type above its GPUs. Nothing for no jobs."""
        if not len(problem):
            return allocation(problem, np.zeros((0, len(problem.types))), exact(0.0))
        try:
            stated = problem if self.takes_classes else problem.listed()
            found = self.compute(stated, Memory() if memory is None else memory)
        except (InfeasibleError, UnservableError) as error:
            raise TrineError(
                f"policy {self.name}: no proven answer ({error}); are the numbers very far apart?"
            ) from error
        if not type(self).__module__.startswith("trine."):  # those of ours are proven and tested
            _check_shares(self.name, stated, found)
        return found

    @abstractmethod
    def compute(self, problem: Problem, memory: Memory) -> Allocation:
        """What ``allocate`` answers for at least one job."""

    def explain(self, problem: Problem, found: Allocation) -> list[str]:
        """One sentence per job: why it got its share."""
        return by_prices(problem, found)


def _check_shares(name: str, problem: Problem, found: Allocation) -> None:
    """``TrineError`` about a policy from a file or a notebook that gives out more time than there is."""
    time = found.total().sum(axis=1)
    if not (time <= 1 + _SLACK).all():  # also of shares that are no numbers
        job = int(np.argmax(~(time <= 1 + _SLACK)))
        total = f"shares of job {problem.ids[job]} add up to {time[job]:.3g}"
        raise TrineError(f"policy {name}: {total}; expected at most 1")
    held = (found.shares * problem.gang[:, None]).sum(axis=0)
    held += (found.pair_shares * problem.gang[found.pair_jobs[:, 0], None]).sum(axis=0)
    for type_index, (gpu_type, gpus) in enumerate(zip(problem.types, problem.capacity, strict=True)):
        taken = float(held[problem.column_type == type_index].sum())
        if not taken <= gpus * (1 + _SLACK):
            raise TrineError(
                f"policy {name}: shares of {gpu_type} take {taken:.4g} GPUs; expected at most its {gpus:g}"
            )


TRAITS = (
    "name",
    "title",
    "objective",
    "aware",
    "space_sharing",
    "strict",
    "single_gpu_only",
    "uses_prices",
    "uses_groups",
    "jobs_stay",
    "prefers_ratio",
)
"""What a variant takes over from the policy it stands for."""


@dataclass
class PolicyVariant(SharePolicy):
    """A policy that stands for ``meant``, under its name, and computes something else."""

    meant: SharePolicy

    def __post_init__(self) -> None:
        for trait in TRAITS:
            setattr(self, trait, getattr(self.meant, trait))


def aware_param() -> Any:
    """The parameter ``aware`` of policies that exist with and without knowledge of speeds."""
    return param(True, "use the throughput of each job on each type; false = treat all types alike")


def sharing_param() -> Any:
    """The parameter ``space_sharing`` of policies that can run two jobs on the same GPUs."""
    return param(None, "run pairs of jobs on the same GPUs; none = whenever the problem lists pairs")


def shares_space(problem: Problem, wanted: bool | None) -> bool:
    """Whether pairs take part."""
    return wanted is not False and (len(problem.pairs) > 0 or problem.class_pairs is not None)


def reference_rates(problem: Problem, gpu_type: str) -> Floats:
    """Rates of a policy that takes every type to be as fast as ``gpu_type``; 0 where a job cannot run.

    A job that cannot run on that type is taken at its fastest.
    """
    own = problem.types.index(gpu_type) if gpu_type in problem.types else 0
    speed = problem.rates[:, own]
    speed = np.where(speed > 0, speed, problem.rates.max(axis=1, initial=0.0))
    return np.where(problem.rates > 0, speed[:, None], 0.0)


def equal_rates(problem: Problem) -> Floats:
    """Rates of a policy that counts time only: 1 wherever a job can run."""
    return (problem.rates > 0).astype(np.float64)
