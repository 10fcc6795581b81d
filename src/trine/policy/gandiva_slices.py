"""Gandiva-like time slicing: when GPUs are short, jobs share them in time slices, and running jobs move to pack.

Not the share policy ``gandiva``, which packs two jobs on one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.base import Policy, Ranking, Relocation
from trine.policy.view import View


@dataclass
class GandivaSlices(Policy):
    """The job that has waited longest since its last slice goes next; a run gives way once it has had a slice.

    Only while jobs wait that fit no free GPUs does any give way: the one whose slice has lasted longest first. With a
    sticky placement a running gang that sits badly moves to better GPUs as soon as that pays, since suspending and
    moving are meant to be cheap here. Time slices are as long as rounds at least.
    """

    name: ClassVar[str] = "gandiva-slices"
    title: ClassVar[str] = "round robin in time slices, with moves that pack"
    paper: ClassVar[str] = "Gandiva (OSDI'18), sections 3.1 and 3.2"

    slice_s: float = param(60.0, "seconds that a time slice lasts while others wait", minimum=1e-3)
    pack: bool = param(True, "running gangs move to better GPUs if they gain more than the move costs")

    def rank(self, view: View) -> Ranking:
        since_turn_s = np.where(view.assigned, -view.run_s, view.idle_s)
        ranks_below = -view.priority
        order = np.lexsort((view.submit_s, -since_turn_s, ranks_below))
        # A waiting job may stop any running one that has had its slice, of its own priority or a lower one.
        _, below = np.unique(ranks_below, return_inverse=True)
        level = (view.assigned + 2.0 * below)[order]
        return Ranking(
            order,
            level=level,
            victim_order=np.where(view.assigned, -view.run_s - 1e12 * below, 0.0)[order],
            quantum_s=np.full(len(view), self.slice_s),
            stop_reason="whose turn it is",
            relocation=Relocation(cost_factor=1.0, quantum_s=self.slice_s) if self.pack else None,
        )
