"""Tiresias' placement rule: only models with one dominant tensor are consolidated, the others go anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.core.params import param
from trine.core.reason import Reason
from trine.placement.base import Ask, too_few
from trine.placement.consolidate import Consolidate
from trine.placement.free_index import FreePool, bits
from trine.placement.packed import Packed

SKEWS = {
    "vgg19": 0.72,
    "vgg16": 0.74,
    "vgg11": 0.77,
    "alexnet": 0.61,
    "resnet152": 0.06,
    "resnet101": 0.08,
    "resnet50": 0.11,
    "inception4": 0.04,
    "inceptionv4": 0.04,
    "inception3": 0.14,
    "inceptionv3": 0.14,
}
"""Largest tensor over all parameters, as in the public simulator of Tiresias (NSDI'19); any limit from 0.2 to 0.6 gives
the same two groups."""


@dataclass
class Skew(Consolidate):
    """A model whose largest tensor makes up more than ``limit`` of its parameters waits for the fewest nodes.

    All others, and models of which nothing is known, take any GPUs: those on the fullest nodes first, so that whole
    nodes are left for models that need them.
    """

    name: ClassVar[str] = "skew"
    title: ClassVar[str] = "consolidates only models with one dominant tensor"
    paper: ClassVar[str] = "Tiresias (NSDI'19), section 3.3"

    limit: float = param(0.4, "share of the largest tensor above which a model is consolidated", minimum=0, maximum=1)
    skews: tuple[str, ...] = param((), "shares of models that are not built in, MODEL=SHARE, separated by commas")
    _known: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _by_model: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._known = dict(SKEWS)
        for given in self.skews:
            model, _, share = given.partition("=")
            try:
                self._known[_plain(model)] = float(share)
            except ValueError:
                raise InputError("--set", f"{given!r}", "MODEL=SHARE with a share from 0 to 1", "skews") from None

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        if self.skew_of(ask.job.model) > self.limit:
            return super().place(ask, pool)
        if ask.job.gpus == 1 or ask.widest < Tier.NETWORK:
            return Packed.place(self, ask, pool)
        return _anywhere(ask.job.gpus, pool) or too_few(ask.job, pool)

    def skew_of(self, model: str) -> float:
        """Of the longest known name that the model's begins with (``ResNet-50 (batch size 16)``); 0: none is known."""
        if model not in self._by_model:
            names = [name for name in self._known if _plain(model).startswith(name)]
            self._by_model[model] = self._known[max(names, key=len)] if names else 0.0
        return self._by_model[model]


def _plain(model: str) -> str:
    """Letters and digits only, in small letters: VGG-16 and vgg16 are one model."""
    return re.sub(r"[^a-z0-9]", "", model.lower())


def _anywhere(count: int, pool: FreePool) -> list[int]:
    """Free GPUs of the nodes with the fewest of them first, lowest ids first; empty if there are too few."""
    if pool.total < count:
        return []
    chosen: list[int] = []
    for free in range(1, pool.largest_node + 1):
        for node in bits(pool.nodes_with[free]):
            chosen += pool.lowest(node, count - len(chosen))
            if len(chosen) == count:
                return chosen
    return chosen
