"""The earlier name of ``free_index``, which placement files of users may still import."""

from __future__ import annotations

import warnings
from typing import Any

from trine.placement import free_index


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(free_index, name)
    warnings.warn("trine.placement.free is called trine.placement.free_index now", FutureWarning, stacklevel=2)
    return found
