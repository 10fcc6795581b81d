"""Sweeps on Ray: one task per item, owned by the process that talks to Ray, so that they end with it. What a sweep is,
and how it goes on after an interruption, is in ``executor.sweep``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trine.core import params
from trine.core.errors import InputError
from trine.core.process_pool import Done
from trine.executor.ray.connection import RayConnection, RayUnreachable
from trine.executor.ray.engine import RayEngine, ask_first
from trine.executor.sweep import Item, Outcome, Sweep


@dataclass
class RaySweep(Sweep[Item, Outcome]):
    """On the cluster of ``connection``; a task takes ``cpus`` cores."""

    engine: ClassVar[str] = "Ray"
    connection: RayConnection = field(kw_only=True)
    cpus: float = field(default=1.0, kw_only=True)
    _pid: int = 0
    """Of the process that owns the tasks."""

    def active(self) -> set[int]:
        found = {int(key) for key in self.connection.call("running")}
        if self.connection.pid != self._pid:  # with the one before its tasks ended, for no fault of theirs
            self._pid = self.connection.pid
            self.tries.clear()
        return found

    def submit(self, items: Sequence[int]) -> None:
        for index in items:
            command, log = [*self.command, str(index)], str(self.log(index))
            # Files are named as they were here.
            self.connection.call(
                "run", key=str(index), command=command, directory=str(Path.cwd()), log=log, cpus=self.cpus
            )

    def cancel(self) -> None:
        self.connection.close()


def work_through(
    settings: Mapping[str, Any],
    work: Callable[[Item], Outcome],
    todo: Sequence[Item],
    done: Done,
    directory: Path,
    inputs: str,
) -> list[Outcome]:
    """``work`` applied to every item on the cluster that the settings of the engine name."""
    engine: RayEngine = params.build(RayEngine, settings, "--set", "engine.")
    connection = engine.connection()
    try:
        ask_first(connection, "--workers", "running")
        sweep: RaySweep[Item, Outcome] = RaySweep(
            work, todo, directory, inputs, engine.python, connection=connection, cpus=engine.cpus_per_gpu or 1.0
        )
        return sweep.run(done)
    except RayUnreachable as error:
        where = engine.address or "the cluster of this machine"
        raise InputError("--workers", f"Ray at {where} does not answer: {error}", "HOST:PORT of a Ray") from None
    finally:
        connection.close()
