"""Shortest remaining service first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.policy.base import KeyPolicy, whole_microseconds
from trine.policy.view import Floats, View


@dataclass
class Srsf(KeyPolicy):
    """Remaining time x gang size: the job with the fewest GPU-seconds left goes first."""

    name: ClassVar[str] = "srsf"
    title: ClassVar[str] = "shortest remaining service (GPU-seconds) first"
    paper: ClassVar[str] = "Tiresias (NSDI'19), section 3"

    def key(self, view: View) -> Floats:
        return whole_microseconds(view.remaining_s * view.gpus)
