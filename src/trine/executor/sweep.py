"""Work through many items on the nodes of a cluster: results in the order of the items and the same as in processes of
one machine. Items and results lie as files in a directory that all nodes see, so that a sweep that was interrupted goes
on where it was. How an engine starts work on an item is its own; knows nothing of what is worked on.

``python -m trine.executor.sweep DIRECTORY INDEX`` works on one item; it runs on a node."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from trine import __version__
from trine.core.atomic_file import atomic_stream
from trine.core.errors import TrineError
from trine.core.process_pool import Done
from trine.executor.attempt.processes import die_with_parent
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
_TRIES = 3
_LOOK_S, _ASK_S = 0.2, 2.0


@dataclass
class Sweep(ABC, Generic[Item, Outcome]):
    """One sweep: ``work``, a function of a module, for every item."""

    engine: ClassVar[str]
    work: Callable[[Item], Outcome]
    todo: Sequence[Item]
    directory: Path
    """Where items and results lie, below one directory per sweep; all nodes see it."""
    inputs: str = ""
    """What tells these items from others that are written alike, such as a digest of the files that they name."""
    python: str = ""
    tries: dict[int, int] = field(default_factory=dict)
    """How often work on an item was begun."""
    _asked_s: float = float("-inf")

    @abstractmethod
    def active(self) -> set[int]:
        """Items that something waits or runs for. ``EngineUnreachable`` and ``EngineRefused`` from here and below."""

    @abstractmethod
    def submit(self, items: Sequence[int]) -> None:
        """Have these worked on, each by ``command`` with its index."""

    @abstractmethod
    def cancel(self) -> None:
        """End all that waits or runs."""

    def run(self, done: Done = lambda: None) -> list[Outcome]:
        """All outcomes; the first error of an item is raised as soon as it is known. Ctrl-C ends what runs and keeps
        the results that are there. The first item is worked on here, so that a mistake in the input shows at once."""
        first = [self.work(item) for item in self.todo[:1]]
        for _ in first:
            done()
        finished = dict(enumerate(first))
        self._write_items()
        try:
            while len(finished) < len(self.todo):
                for index in self._missing(finished):
                    if (result := self._result(index)) is not None:
                        finished[index] = result[0]
                        done()
                if missing := self._missing(finished):
                    self._keep_going(missing)
        except BaseException:
            with suppress(EngineUnreachable, EngineRefused):
                self.cancel()
            raise
        shutil.rmtree(self.place, ignore_errors=True)
        return [finished[index] for index in range(len(self.todo))]

    @cached_property
    def digest(self) -> str:
        """Of all that the outcomes follow from: the same sweep finds its results again, another never does."""
        everything = pickle.dumps((__version__, self.inputs, self.work, list(self.todo)))
        return hashlib.blake2b(everything, digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        return f"trine-sweep-{self.digest}"

    @property
    def place(self) -> Path:
        return self.directory.absolute() / f".{self.name}"

    @property
    def command(self) -> list[str]:
        """Works on the item whose index is added to it."""
        return [self.python or sys.executable, "-m", "trine.executor.sweep", str(self.place)]

    def log(self, index: int | str) -> Path:
        return self.place / f"{index}.log"

    def _missing(self, finished: dict[int, Outcome]) -> list[int]:
        return [index for index in range(len(self.todo)) if index not in finished]

    def _write_items(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        for index, item in enumerate(self.todo):
            path = self.place / f"{index}.item"
            if not path.exists():
                _write(path, (self.work, item))

    def _result(self, index: int) -> tuple[Outcome] | None:
        try:
            kind, value = pickle.loads((self.place / f"{index}.result").read_bytes())
        except FileNotFoundError:
            return None
        if kind == "error":
            (self.place / f"{index}.result").unlink()  # it may be put right before the next try
            raise value
        return (value,)

    def _keep_going(self, missing: Sequence[int]) -> None:
        """Submit what nothing works on. Engine away: what runs there goes on, and it is asked again."""
        time.sleep(_LOOK_S)
        if time.monotonic() - self._asked_s < _ASK_S:
            return
        try:
            active = self.active()
            idle = [index for index in missing if index not in active and not self._is_there(index)]
            self._count(idle)
            if idle:
                self.submit(idle)
        except EngineUnreachable:
            pass
        except EngineRefused as refusal:
            raise TrineError(f"{self.engine} refused the simulations: {refusal}") from None
        self._asked_s = time.monotonic()

    def _is_there(self, index: int) -> bool:
        return (self.place / f"{index}.result").exists()

    def _count(self, items: Sequence[int]) -> None:
        for index in items:
            self.tries[index] = self.tries.get(index, 0) + 1
            if self.tries[index] > _TRIES:
                raise TrineError(f"simulation {index} ended {_TRIES} times without a result: see {self.log(index)}")


def _write(path: Path, value: Any) -> None:
    """As a whole or not at all: a reader on another node never sees half of it."""
    with atomic_stream(path) as stream:
        stream.write(pickle.dumps(value))


def main(arguments: Sequence[str]) -> int:
    """``DIRECTORY INDEX``: work on one item; this process ends with its parent."""
    die_with_parent()
    place, index = Path(arguments[0]), int(arguments[1])
    work, item = pickle.loads((place / f"{index}.item").read_bytes())
    try:
        _write(place / f"{index}.result", ("done", work(item)))
    except TrineError as error:  # a mistake in the input is for the person who started the sweep
        _write(place / f"{index}.result", ("error", error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
