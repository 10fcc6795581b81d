"""What training a model computes and sends per iteration: gradient bytes, compute seconds, overlap, cost of a restart.

Names as traces write them are matched by family and batch size with the table in ``trine.perf.model_families``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trine.perf.model_families import ALIASES, FAMILIES, ModelFamily


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """One iteration of a model on each GPU of a data-parallel gang."""

    gradient_bytes: float
    """Bytes that are all-reduced."""
    compute_s: float
    """Seconds of compute on a median reference GPU (V100 in the shipped table)."""
    all_to_all_bytes: float = 0.0
    """Bytes that each GPU exchanges with all others, once forward and once backward (embedding models)."""
    overlap: float = 2.0
    """Exponent of the p-norm of compute and communication: 1 adds them, 10 hides the shorter one."""
    restart_s: float = 60.0
    """Seconds from a start on new GPUs to the first iteration."""
    source: str = ""


DEFAULT = ModelTraffic(100e6, 0.2, source="default: a gradient as ResNet-50's, 0.2 s of compute, no embeddings")
"""For models that the table does not know."""


_BATCH = re.compile(r"\(?\s*(?:batch[ _]?size|batch|bs)[ _=:]*(\d+)\s*\)?", re.IGNORECASE)


def family_and_batch(model: str) -> tuple[str, int | None]:
    """``resnet18`` and 64 of ``ResNet-18 (batch size 64)``: letters and digits of the name, and the batch size."""
    found = _BATCH.search(model)
    name = model if found is None else model[: found.start()] + model[found.end() :]
    return re.sub(r"[^a-z0-9]", "", name.lower()), None if found is None else int(found.group(1))


@dataclass
class TrafficTable:
    """Traffic by model name. Exact names win over families; a model in neither takes the default, and is remembered."""

    models: Mapping[str, ModelTraffic] = field(default_factory=dict)
    families: Mapping[str, ModelFamily] = field(default_factory=dict)
    default: ModelTraffic = DEFAULT
    reference_type: str = "v100"
    """GPU type that the compute seconds belong to."""
    _known: dict[tuple[str, int | None], ModelTraffic] = field(default_factory=dict, init=False, repr=False)
    _unknown: set[str] = field(default_factory=set, init=False, repr=False)

    def of(self, model: str, batch_size: int | None = None) -> ModelTraffic:
        """The traffic of ``model``; a batch size in the name wins over ``batch_size``."""
        key = (model, batch_size)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(model, batch_size)
        return known

    def _find(self, model: str, batch_size: int | None) -> ModelTraffic:
        if model in self.models:
            return self.models[model]
        name, batch = family_and_batch(model)
        family = self.families.get(ALIASES.get(name, name))
        if family is None:
            self._unknown.add(model)
            return self.default
        return _traffic(family, batch or batch_size or family.batch or min(family.compute_s))

    def unknown_models(self) -> tuple[str, ...]:
        """Names asked for so far that took the default, sorted."""
        return tuple(sorted(self._unknown))

    def with_models(self, models: Mapping[str, ModelTraffic]) -> TrafficTable:
        """The same table with other figures for some models."""
        return replace(self, models={**self.models, **models})


def _traffic(family: ModelFamily, batch: int) -> ModelTraffic:
    return ModelTraffic(
        gradient_bytes=family.gradient_bytes,
        compute_s=family.compute_at(batch),
        all_to_all_bytes=batch * family.sample_all_to_all_bytes,
        overlap=family.overlap,
        restart_s=family.restart_s,
        source=family.source,
    )


def shipped_table() -> TrafficTable:
    """A new table of the shipped figures; each remembers the unknown models of its own run."""
    return TrafficTable(families=FAMILIES)
