"""Parts that are not installed by default: says in one sentence which extra of the distribution brings what is missing.

Looks for modules and loads none, so that a command can ask before it begins its work.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from trine.core.errors import TrineError

Extra = Literal["report", "profile", "postgres"]


class MissingExtraError(TrineError):
    """A part of trine was asked for that this installation does not have."""


def require_extra(extra: Extra, *modules: str, purpose: str) -> None:
    """Raise unless all ``modules`` are installed; ``purpose`` begins the sentence, as in ``"a report needs"``."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} {' and '.join(missing)}, not part of this installation: pip install 'trine[{extra}]'"
        )
