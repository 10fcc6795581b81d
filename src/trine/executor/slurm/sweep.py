"""Work through many items as Slurm jobs: one array task per item, results in the order of the items and the same as
in processes of one machine. Items and results lie as files in a directory that all nodes see, so that a sweep that was
interrupted goes on where it was. Knows nothing of what is worked on."""

from __future__ import annotations

import hashlib
import os
import pickle
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from trine import __version__
from trine.core import params
from trine.core.atomic_file import atomic_stream
from trine.core.errors import TrineError
from trine.core.process_pool import Done
from trine.executor.slurm.commands import Slurm, SlurmRefused, SlurmUnreachable, check_installed
from trine.executor.slurm.engine import SlurmEngine
from trine.executor.slurm.submission import Resources

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
_ARRAY = 1000
"""Slurm takes arrays of up to 1,001 tasks where nothing else is configured."""
_TRIES = 3
_LOOK_S, _ASK_S = 0.2, 2.0


@dataclass
class SlurmPool(Generic[Item, Outcome]):
    """One sweep: ``work``, a function of a module, for every item."""

    slurm: Slurm
    wanted: Resources
    work: Callable[[Item], Outcome]
    todo: Sequence[Item]
    directory: Path
    """Where items and results lie, below one directory per sweep; all nodes see it."""
    inputs: str = ""
    """What tells these items from others that are written alike, such as a digest of the files that they name."""
    python: str = ""
    _tries: dict[int, int] = field(default_factory=dict)
    _asked_s: float = float("-inf")

    def run(self, done: Done = lambda: None) -> list[Outcome]:
        """All outcomes; the first error of an item is raised as soon as it is known. Ctrl-C ends the jobs and keeps
        the results that are there."""
        self._write_items()
        finished: dict[int, Outcome] = {}
        try:
            while len(finished) < len(self.todo):
                for index in [index for index in range(len(self.todo)) if index not in finished]:
                    if (result := self._result(index)) is not None:
                        finished[index] = result[0]
                        done()
                if len(finished) < len(self.todo):
                    self._keep_going([index for index in range(len(self.todo)) if index not in finished])
        except BaseException:
            with suppress(SlurmUnreachable, SlurmRefused):
                self.slurm.cancel(f"--name={self.name}", f"--user={os.geteuid()}")
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
        """Submit what no task works on. Slurm away: what runs there goes on, and it is asked again."""
        time.sleep(_LOOK_S)
        if time.monotonic() - self._asked_s < _ASK_S:
            return
        try:
            active = self._active()
            idle = [index for index in missing if index not in active and not self._is_there(index)]
            for start in range(0, len(idle), _ARRAY):
                self._submit(idle[start : start + _ARRAY])
        except SlurmUnreachable:
            pass
        except SlurmRefused as refusal:
            raise TrineError(f"Slurm refused the simulations: {refusal}") from None
        self._asked_s = time.monotonic()

    def _is_there(self, index: int) -> bool:
        return (self.place / f"{index}.result").exists()

    def _active(self) -> set[int]:
        """Items that a job waits or runs for; its comment names them, its place in the array says which it is."""
        fields = "--format=%K|%k"
        text = self.slurm.run("squeue", "--noheader", "--array", f"--name={self.name}", fields)
        return {int(line.partition("|")[0]) for line in text.splitlines() if line.partition("|")[0].isdecimal()}

    def _submit(self, items: Sequence[int]) -> None:
        for index in items:
            self._tries[index] = self._tries.get(index, 0) + 1
            if self._tries[index] > _TRIES:
                raise TrineError(f"simulation {index} ended {_TRIES} times without a result: see {self._log(index)}")
        command = [self.python or sys.executable, "-m", "trine.executor.slurm.sweep", str(self.place)]
        script = f"#!/bin/sh\nexec {shlex.join(command)} $SLURM_ARRAY_TASK_ID\n"
        named = {"partition": self.wanted.partition, "account": self.wanted.account}
        where = [f"--{option}={value}" for option, value in named.items() if value]
        log = [f"--output={self._log('%a')}", f"--chdir={Path.cwd()}"]  # files are named as they were here
        job = [f"--job-name={self.name}", "--no-requeue", "--ntasks=1", f"--cpus-per-task={self._cpus}"]
        array = "--array=" + ",".join(map(str, items))
        self.slurm.submit([*where, *self.wanted.options, *job, *log, *self._memory, array], script)

    @property
    def _cpus(self) -> int:
        return self.wanted.cpus_per_gpu or 1

    @property
    def _memory(self) -> list[str]:
        return [f"--mem={self.wanted.memory_per_gpu_mib}M"] if self.wanted.memory_per_gpu_mib else []

    def _log(self, index: int | str) -> Path:
        return self.place / f"{index}.log"


def work_through(
    settings: Mapping[str, Any],
    work: Callable[[Item], Outcome],
    todo: Sequence[Item],
    done: Done,
    directory: Path,
    inputs: str,
) -> list[Outcome]:
    """``work`` applied to every item on the cluster that the settings of the engine name.

    The first item is worked on here, so that a mistake in the input shows before any job is submitted."""
    engine: SlurmEngine = params.build(SlurmEngine, settings, "--set", "engine.")
    check_installed(engine.conf, engine.environ)
    first = [work(item) for item in todo[:1]]
    for _ in first:
        done()
    pool = SlurmPool(engine.slurm, engine.resources, work, todo[1:], directory, inputs, engine.python)
    return first + pool.run(done)


def _write(path: Path, value: Any) -> None:
    """As a whole or not at all: a reader on another node never sees half of it."""
    with atomic_stream(path) as stream:
        stream.write(pickle.dumps(value))


def main(arguments: Sequence[str]) -> int:
    """``DIRECTORY INDEX``: work on one item; runs on a node."""
    place, index = Path(arguments[0]), int(arguments[1])
    work, item = pickle.loads((place / f"{index}.item").read_bytes())
    try:
        _write(place / f"{index}.result", ("done", work(item)))
    except TrineError as error:  # a mistake in the input is for the person who started the sweep
        _write(place / f"{index}.result", ("error", error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
