"""Tiresias: discretised two-dimensional least attained service, in queues with demotion and promotion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.base import KeyPolicy
from trine.policy.las import log2_queues
from trine.policy.promotion import Promotion, QueueEntries
from trine.policy.view import Floats, View


@dataclass
class Tiresias(KeyPolicy):
    """Jobs sink to the next queue at each limit of GPU-seconds; inside a queue, running first, then order of arrival.

    Queues instead of the raw attained service keep jobs of similar age from preempting each other all the time. A job
    that has waited ``promote_after`` times as long as it ever ran counts as new again, so that no job starves.

    The authors' public simulator differs in two rules (``rules=simulator``): inside a queue jobs go in the order in
    which they came into it, running or not, and all waiting since the last promotion adds up.
    """

    name: ClassVar[str] = "tiresias"
    title: ClassVar[str] = "discretised 2D-LAS: queues by attained GPU-seconds"
    paper: ClassVar[str] = "Tiresias (NSDI'19), section 4"

    queue_limits_gpu_s: tuple[float, ...] = param(
        (3250.0,), "attained GPU-seconds at which a job sinks one queue", minimum=0
    )
    promote_after: float = param(
        8.0, "waiting time over run time at which a job returns to the first queue; 0 = never", minimum=0
    )
    queues: str = param("limits", "queues end at queue_limits_gpu_s, or double from a GPU-hour on", ("limits", "log2"))
    rules: str = param(
        "paper",
        "inside a queue running jobs and then the oldest go first, and a wait ends with a run; or as in the authors' "
        "simulator: order of entry into the queue, and all waiting since the last promotion adds up",
        ("paper", "simulator"),
    )
    _promotion: Promotion = field(init=False, repr=False)
    _entries: QueueEntries = field(default_factory=QueueEntries, init=False, repr=False)

    def __post_init__(self) -> None:
        self._promotion = Promotion(self.promote_after, adds_up=self.rules == "simulator")

    def key(self, view: View) -> tuple[Floats, ...]:
        queue = self._queue(self._promotion.service_gpu_s(view))
        if self.rules == "simulator":
            return queue, self._entries.numbers(view, queue)
        return queue, (~view.assigned).astype(np.float64), view.submit_s

    def state(self, view: View) -> dict[str, Any]:
        found = {"promoted": self._promotion.state(view), "entries": self._entries.state(view)}
        return {key: value for key, value in found.items() if value}

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:  # noqa: ARG002
        self._promotion.restore(kept.get("promoted", {}), view)
        if "entries" in kept:
            self._entries.restore(kept["entries"], view)

    def _queue(self, service_gpu_s: Floats) -> Floats:
        if self.queues == "log2":
            return log2_queues(service_gpu_s)
        limits = np.sort(self.queue_limits_gpu_s)
        return np.searchsorted(limits, service_gpu_s, side="right").astype(np.float64)
