"""First in, first out: strict head of line, or filling up with whatever fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.base import KeyPolicy, Ranking
from trine.policy.view import Floats, View


@dataclass
class Fifo(KeyPolicy):
    """Jobs start in order of submission; the first one that does not fit blocks all behind it.

    With ``backfill`` those behind it that fit start all the same, and nothing is ever stopped for it, so that a wide
    job may wait long; ``strict=false`` means the same.
    """

    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "first in, first out, strict head of line"
    strict: ClassVar[bool] = True
    changes_with_time: ClassVar[bool] = False

    backfill: bool = param(False, "jobs behind one that does not fit may start, and nothing is stopped for it")

    _fills: bool = field(default=False, init=False, repr=False)
    """Jobs behind one that does not fit may start."""

    def __post_init__(self) -> None:
        if self.backfill:
            self.without_blocking()

    @property
    def queue(self) -> str:
        return "" if self._fills else "strict"

    @property
    def is_strict(self) -> bool:
        return not self._fills

    @property
    def is_preemptive(self) -> bool:
        return not self._fills

    def without_blocking(self) -> None:
        """Fill up, and stop nothing: a job that overtook the head of the line would only be stopped for it again."""
        self._fills = self.changes_with_starts = True
        self.rank = self._rank_running_first  # type: ignore[method-assign]  # no call layer without it

    def _rank_running_first(self, view: View) -> Ranking:
        """Placements that place every job anew must not stop running jobs either."""
        return Ranking(np.lexsort((view.submit_s, -view.priority, ~view.assigned)))

    def rank(self, view: View) -> Ranking:
        """The jobs of a view are in order of arrival already."""
        return super().rank(view) if view.prioritised else Ranking(np.arange(len(view)))

    def key(self, view: View) -> Floats:
        return view.submit_s
