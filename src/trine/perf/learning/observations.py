"""Observations: step rates of real jobs in, refined tables, flags on GPUs that drift and errors of predictions out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, log
from statistics import fmean, median

from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.perf.learning.chip_slowdowns import ChipEstimates, Drift
from trine.perf.learning.evidence import LearningSettings, SampleId
from trine.perf.learning.rates import (
    LOG_DIGITS,
    PairKey,
    PairRateEstimates,
    RateEstimates,
    RateKey,
    RunSegments,
    TierSlowdown,
)
from trine.perf.model import LocalityPenalty
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

MOST_PREDICTIONS = 1000


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Errors as shares of the observed time; a positive bias means that jobs were predicted to take longer."""

    runs: int
    median_absolute: float
    bias: float
    """Median of the signed errors."""
    mean: float
    """Mean of the signed errors: shows the wild ones, too."""


class Predictions:
    """The latest run times with what was predicted for them, seconds."""

    def __init__(self, rows: Iterable[tuple[str, float, float]] = ()) -> None:
        self.rows: deque[tuple[str, float, float]] = deque(maxlen=MOST_PREDICTIONS)
        for model, predicted_s, observed_s in rows:
            self.add(model, predicted_s, observed_s)

    def add(self, model: str, predicted_s: float, observed_s: float) -> None:
        """A job of ``model`` was to take ``predicted_s`` and took ``observed_s`` (times of the same work)."""
        for name, value in (("predicted_s", predicted_s), ("observed_s", observed_s)):
            if not (isfinite(value) and value > 0):
                raise InputError("prediction", f"found {value}", "a finite number of seconds greater than 0", name)
        self.rows.append((model, float(predicted_s), float(observed_s)))

    def error(self, model: str | None = None) -> PredictionError | None:
        """Error over all jobs or those of ``model``; ``None`` without any."""
        shares = [(p - o) / o for name, p, o in self.rows if model in (None, name)]
        if not shares:
            return None
        return PredictionError(len(shares), median(map(abs, shares)), median(shares), fmean(shares))


class Observations:
    """Memory of observed step rates, of bounded size; ``base`` is the given profile, flat if there is none."""

    def __init__(self, base: VariabilityTable, settings: LearningSettings | None = None) -> None:
        self.settings = settings or LearningSettings()
        self.rates = RateEstimates(self.settings)
        self.chips = ChipEstimates(base, self.settings)
        self.segments = RunSegments(self.settings)
        self.pairs = PairRateEstimates(self.settings)
        self.predictions = Predictions()
        self.token = 0
        """Grows whenever something changes so much that tables should be built again."""
        self.ignored = 0
        """Observations that could not be used: no model, no progress, too short."""

    def observe(
        self,
        at_s: float,
        model: str,
        app_class: str,
        gpus: tuple[int, ...],
        gpu_type: str,
        tier: Tier,
        steps_per_s: float,
        seconds: float,
        run: str = "",
        co_runner: str | None = None,
    ) -> bool:
        """During the ``seconds`` before ``at_s`` a job of ``model`` ran at ``steps_per_s`` on ``gpus``.

        ``co_runner``: all that time a job of this model ran there, too; ``None``: it was alone.

        Pieces of one run carry the same ``run`` (job and attempt), so that a long slow run does not count as many.
        False if it could not be used: jobs without a model name are comparable with nothing.
        """
        members = self._checked(gpus)
        usable = model and co_runner != "" and isfinite(at_s) and _positive(steps_per_s) and _positive(seconds)
        if not usable:
            self.ignored += 1
            return False
        app_class = self.chips.class_of(app_class)
        key = RateKey(model, len(members), gpu_type.lower(), Tier(tier))
        steps = steps_per_s * seconds
        if co_runner is not None:
            pair = PairKey(model, co_runner, *key[1:])
            changed = self.pairs.observe(
                at_s, pair, app_class, run, members, steps, seconds, self._slowest(app_class, members)
            )
            self.token += bool(changed)
            return changed is not None
        segment = self.segments.extend(run, members, key, steps, seconds)
        if segment.seconds < self.settings.shortest_s:
            self.ignored += not run
            return False
        return self._learn(segment.sample(at_s), key, app_class, members, log(segment.seconds / segment.steps))

    def _checked(self, gpus: tuple[int, ...]) -> tuple[int, ...]:
        members = tuple(sorted(set(gpus)))
        if not members or len(members) < len(gpus):
            raise InputError("observation", f"found {list(gpus)}", "one or more different GPU ids", "gpus")
        if members[0] < 0 or members[-1] >= self.chips.base.gpu_count:
            expected = f"GPU ids from 0 to {self.chips.base.gpu_count - 1}"
            raise InputError("observation", f"found {list(gpus)}", expected, "gpus")
        return members

    def _slowest(self, app_class: str, gpus: tuple[int, ...]) -> float:
        """Log slowdown of the slowest chip of a gang, as believed before this run."""
        return max(self.chips.log_slowdown(app_class, gpu) for gpu in gpus)

    def _learn(self, sample: SampleId, key: RateKey, app_class: str, gpus: tuple[int, ...], log_step_s: float) -> bool:
        """Split the time of a step into the model's share and the chip's.

        Both are unknown, so they are estimated in turn, each with the current estimate of the other taken out:
        coordinate descent, one step per run. It stays anchored because the model's rate is a median over gangs, which a
        few slow chips do not move, and because chips are judged only once ``min_peers`` gangs have run the model.
        """
        chip = self._slowest(app_class, gpus)
        changed = self.rates.put(key, app_class, gpus, sample, round(log_step_s - chip, LOG_DIGITS))
        reference = self.rates.reference_log_step_s(key)
        if reference is not None:
            changed |= self.chips.learn(sample, app_class, gpus, round(log_step_s - reference, LOG_DIGITS))
        self.token += changed
        return True

    def changed_materially_since(self, token: int) -> bool:
        """Whether tables built when ``token`` was current should be built again."""
        return self.token != token

    def rebase(self, base: VariabilityTable) -> None:
        """Use another profile of the same GPUs from now on."""
        if base.gpu_count != self.chips.base.gpu_count:
            raise ValueError(f"profile of {base.gpu_count} GPUs for {self.chips.base.gpu_count} observed ones")
        self.token += self.chips.rebase(base)

    def refined(self, base: VariabilityTable | None = None) -> VariabilityTable:
        """The profile with what was observed on top of it; the very same object if nothing departs from it."""
        return self.chips.refined(self.chips.base if base is None else base)

    def throughputs(
        self, base: ThroughputTable, types: Iterable[str] = (), slowdown: TierSlowdown | None = None
    ) -> ThroughputTable:
        """``base`` refined, and models it does not know added, at the rate of median GPUs in one node.

        ``types`` are those of the cluster: a type that a new model never ran on must not count as one it does not fit.
        ``slowdown`` is what the performance model assumes of gangs by tier: a model seen only across nodes is freed of
        it.
        """
        slowdown = slowdown or LocalityPenalty().of_gang
        return self.pairs.table(self.rates.table(base, types, slowdown), self.rates, slowdown)

    def drifts(self) -> list[Drift]:
        """GPUs that do not run as their profile says, by class and GPU."""
        return list(self.chips.drifts())

    def network_slowdowns(self) -> dict[tuple[str, Tier], float]:
        """Of models across a tier against packed into a node, for all models and tiers with evidence."""
        return self.rates.network_slowdowns()

    def predicted(self, model: str, predicted_s: float, observed_s: float) -> None:
        """Note what was predicted for a job that took ``observed_s``."""
        self.predictions.add(model, predicted_s, observed_s)

    def prediction_error(self, model: str | None = None) -> PredictionError | None:
        """How good the latest predictions were; ``None`` without any."""
        return self.predictions.error(model)


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0
