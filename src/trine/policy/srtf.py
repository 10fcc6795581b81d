"""Shortest remaining time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.policy.base import KeyPolicy, whole_microseconds
from trine.policy.view import Floats, View


@dataclass
class Srtf(KeyPolicy):
    """The job with the least work left (in seconds on median GPUs) goes first, preempting the others.

    Times are compared to the microsecond: a newcomer that needs exactly as long as a running job does not stop it.
    """

    name: ClassVar[str] = "srtf"
    title: ClassVar[str] = "shortest remaining time first"
    paper: ClassVar[str] = "PAL (SC'24), scheduling policies"

    def key(self, view: View) -> Floats:
        return whole_microseconds(view.remaining_s)
