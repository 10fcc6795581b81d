"""Copies of an engine or parts of it, each to be run forward by itself. Jobs, cluster and performance model are shared.

Pickled once and unpickled for every copy, which is many times as fast as ``copy.deepcopy``.
"""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any, Generic, TypeVar

from trine.core.cluster import Cluster
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.perf.model import PerfModel

_SHARED = (Job, Cluster, PerfModel, FunctionType, type)
"""Values that no run changes but for caches of what they compute. Functions may be lambdas and classes come from
a file that a user named: neither could be found by its name when unpickled."""


What = TypeVar("What")


class Image(Generic[What]):
    """Something as it is now; ``copy`` gives one that stands there, as often as wanted."""

    def __init__(self, what: What) -> None:
        self._shared: list[Any] = []
        written = io.BytesIO()
        _Writer(written, self._shared).dump(what)
        self._image = written.getvalue()

    def copy(self) -> What:
        found: What = _Reader(io.BytesIO(self._image), self._shared).load()
        return found


class EngineImage(Image[Engine]):
    """Of an engine."""


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._kept = shared
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, _SHARED):
            return None
        number = self._numbers.setdefault(id(obj), len(self._kept))
        if number == len(self._kept):
            self._kept.append(obj)
        return number


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._kept = shared

    def persistent_load(self, pid: int) -> Any:
        return self._kept[pid]
