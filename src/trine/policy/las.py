"""Least attained service, one-dimensional: seconds run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.policy.base import KeyPolicy
from trine.policy.view import Floats, View


@dataclass
class Las(KeyPolicy):
    """The job that has run the fewest seconds goes first; needs no knowledge of durations."""

    name: ClassVar[str] = "las"
    title: ClassVar[str] = "least attained service (seconds run)"
    paper: ClassVar[str] = "PAL (SC'24), scheduling policies"

    def key(self, view: View) -> Floats:
        return view.attained_s
