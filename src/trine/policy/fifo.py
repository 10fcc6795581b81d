"""First in, first out: strict head of line, nobody overtakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trine.policy.base import KeyPolicy
from trine.policy.view import Floats, View


@dataclass
class Fifo(KeyPolicy):
    """Jobs start in order of submission; the first one that does not fit blocks all behind it."""

    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "first in, first out, strict head of line"
    strict: ClassVar[bool] = True
    changes_with_time: ClassVar[bool] = False

    def key(self, view: View) -> Floats:
        return view.submit_s
