"""Learning from what is observed: step rates of real jobs refine throughputs and the scores of GPUs, and flag drift.

Pure and deterministic: times are passed in, nothing is read or written. The parts are in the modules ``observed_*``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite, log

from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.perf.model import LocalityPenalty
from trine.perf.observed_chips import Chips
from trine.perf.observed_evidence import (
    ChipEstimate,
    Drift,
    LearningSettings,
    NetworkEstimate,
    ThroughputEstimate,
    TierSlowdown,
)
from trine.perf.observed_pairs import PairKey, PairPaces
from trine.perf.observed_predictions import PredictionError, Predictions
from trine.perf.observed_rates import PaceKey, Paces
from trine.perf.observed_stretches import Stretches
from trine.perf.observed_window import Sample
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

_DIGITS = 6  # of logarithms: a millionth of a step time is far below any noise


class Observations:
    """Memory of observed step rates, of bounded size; ``base`` is the given profile, flat if there is none."""

    def __init__(self, base: VariabilityTable, settings: LearningSettings | None = None) -> None:
        self.settings = settings or LearningSettings()
        self.paces = Paces(self.settings)
        self.chips = Chips(base, self.settings)
        self.stretches = Stretches(self.settings)
        self.pairs = PairPaces(self.settings)
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

        ``partner``: all that time a job of this model ran there, too; ``None``: it was alone.

        Pieces of one run carry the same ``run`` (job and attempt), so that a long slow run does not count as many.
        False if it could not be used: jobs without a model name are comparable with nothing.
        """
        members = self._checked(gpus)
        usable = model and co_runner != "" and isfinite(at_s) and _positive(steps_per_s) and _positive(seconds)
        if not usable:
            self.ignored += 1
            return False
        if co_runner is not None:
            beside = PairKey(model, co_runner, len(members), gpu_type.lower(), Tier(tier))
            kind, steps = self.chips.class_of(app_class), steps_per_s * seconds
            chip = max(self.chips.believed(kind, gpu) for gpu in members)
            changed = self.pairs.observe(at_s, beside, kind, run, members, steps, seconds, chip)
            self.token += bool(changed)
            return changed is not None
        key = PaceKey(model, len(members), gpu_type.lower(), Tier(tier))
        stretch = self.stretches.extend(run, members, key, steps_per_s * seconds, seconds)
        if stretch.seconds < self.settings.shortest_s:
            self.ignored += not run
            return False
        step_s = stretch.seconds / stretch.steps
        return self._learn(stretch.sample(at_s), key, self.chips.class_of(app_class), members, log(step_s))

    def _checked(self, gpus: tuple[int, ...]) -> tuple[int, ...]:
        members = tuple(sorted(set(gpus)))
        if not members or len(members) < len(gpus):
            raise InputError("observation", f"found {list(gpus)}", "one or more different GPU ids", "gpus")
        if members[0] < 0 or members[-1] >= self.chips.base.gpu_count:
            expected = f"GPU ids from 0 to {self.chips.base.gpu_count - 1}"
            raise InputError("observation", f"found {list(gpus)}", expected, "gpus")
        return members

    def _learn(self, sample: Sample, key: PaceKey, app_class: str, gpus: tuple[int, ...], log_step_s: float) -> bool:
        chip = max(self.chips.believed(app_class, gpu) for gpu in gpus)
        changed = self.paces.put(key, app_class, gpus, sample, round(log_step_s - chip, _DIGITS))
        yardstick = self.paces.yardstick(key)
        if yardstick is not None:
            changed |= self.chips.learn(sample, app_class, gpus, round(log_step_s - yardstick, _DIGITS))
        self.token += changed
        return True

    def changed_materially_since(self, token: int) -> bool:
        """Whether tables built when ``token`` was current should be built again."""
        return self.token != token

    def rebase(self, base: VariabilityTable) -> None:
        """Reckon with another profile of the same GPUs from now on."""
        if base.gpu_count != self.chips.base.gpu_count:
            raise ValueError(f"profile of {base.gpu_count} GPUs for {self.chips.base.gpu_count} observed ones")
        self.token += self.chips.rebase(base)

    def refined(self, base: VariabilityTable | None = None) -> VariabilityTable:
        """The profile with what was observed on top of it; the very same object if nothing departs from it."""
        return self.chips.refined(self.chips.base if base is None else base)

    def throughputs(
        self, base: ThroughputTable, types: Iterable[str] = (), slowdown: TierSlowdown | None = None
    ) -> ThroughputTable:
        """``base`` refined, and models it does not know added, at the pace of median GPUs in one node.

        ``types`` are those of the cluster: a type that a new model never ran on must not count as one it does not fit.
        ``slowdown`` is what the performance model assumes of gangs by tier: a model seen only across nodes is freed of
        it.
        """
        slowdown = slowdown or LocalityPenalty().of_gang
        return self.pairs.table(self.paces.table(base, types, slowdown), self.paces, slowdown)

    def throughput_estimates(self) -> list[ThroughputEstimate]:
        """Observed paces by model, gang, type and tier, with number of runs and spread."""
        return self.paces.estimates()

    def chip(self, gpu: int, app_class: str) -> ChipEstimate:
        """What is known of one GPU in one class."""
        self._checked((gpu,))
        return self.chips.estimate(gpu, app_class)

    def drifts(self) -> list[Drift]:
        """GPUs that do not run as their profile says, by class and GPU."""
        return list(self.chips.drifts())

    def network(self) -> list[NetworkEstimate]:
        """Slowdown of gangs by how far they are spread, as far as comparable gangs were seen."""
        return self.paces.network()

    def network_slowdown(self, model: str, tier: Tier) -> float | None:
        """Of ``model`` across ``tier`` against packed into a node; ``None`` without evidence."""
        return self.paces.network_slowdown(model, tier)

    def network_slowdowns(self) -> dict[tuple[str, Tier], float]:
        """The same for all models and tiers with evidence."""
        return self.paces.network_slowdowns()

    def predicted(self, model: str, predicted_s: float, observed_s: float) -> None:
        """Note what was predicted for a job that took ``observed_s``."""
        self.predictions.add(model, predicted_s, observed_s)

    def prediction_error(self, model: str | None = None) -> PredictionError | None:
        """How good the latest predictions were; ``None`` without any."""
        return self.predictions.error(model)

    def to_json(self) -> str:
        """All of it but profile and settings; equal memories give equal text."""
        from trine.perf.observed_json import to_json

        return to_json(self)

    @classmethod
    def from_json(
        cls,
        text: str,
        base: VariabilityTable,
        settings: LearningSettings | None = None,
        gpu_ids: Mapping[int, int] | None = None,
        where: str = "observations",
    ) -> Observations:
        """What ``to_json`` wrote. ``gpu_ids``: new id by old, where the cluster changed; other GPUs are lost."""
        from trine.perf.observed_json import from_json

        return from_json(text, cls(base, settings), gpu_ids, where)


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0
