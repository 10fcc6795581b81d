"""Sweeps on Slurm: one task of a job array per item. What a sweep is, and how it goes on after an interruption, is in
``executor.sweep``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trine.core import params
from trine.core.process_pool import Done
from trine.executor.slurm.commands import Slurm, check_installed
from trine.executor.slurm.engine import SlurmEngine
from trine.executor.slurm.submission import Resources
from trine.executor.sweep import Item, Outcome, Sweep

_ARRAY = 1000
"""Slurm takes arrays of up to 1,001 tasks where nothing else is configured."""


@dataclass
class SlurmSweep(Sweep[Item, Outcome]):
    """On the cluster ``slurm``, with what ``wanted`` says of partition, account and cores."""

    engine: ClassVar[str] = "Slurm"
    slurm: Slurm = field(kw_only=True)
    wanted: Resources = field(kw_only=True)

    def active(self) -> set[int]:
        """Its comment names them, its place in the array says which it is."""
        fields = "--format=%K|%k"
        text = self.slurm.run("squeue", "--noheader", "--array", f"--name={self.name}", fields)
        return {int(line.partition("|")[0]) for line in text.splitlines() if line.partition("|")[0].isdecimal()}

    def submit(self, items: Sequence[int]) -> None:
        for start in range(0, len(items), _ARRAY):
            self._submit_array(items[start : start + _ARRAY])

    def cancel(self) -> None:
        self.slurm.cancel(f"--name={self.name}", f"--user={os.geteuid()}")

    def _submit_array(self, items: Sequence[int]) -> None:
        script = f"#!/bin/sh\nexec {shlex.join(self.command)} $SLURM_ARRAY_TASK_ID\n"
        named = {"partition": self.wanted.partition, "account": self.wanted.account}
        where = [f"--{option}={value}" for option, value in named.items() if value]
        log = [f"--output={self.log('%a')}", f"--chdir={Path.cwd()}"]  # files are named as they were here
        job = [f"--job-name={self.name}", "--no-requeue", "--ntasks=1", f"--cpus-per-task={self._cpus}"]
        array = "--array=" + ",".join(map(str, items))
        self.slurm.submit([*where, *self.wanted.options, *job, *log, *self._memory, array], script)

    @property
    def _cpus(self) -> int:
        return self.wanted.cpus_per_gpu or 1

    @property
    def _memory(self) -> list[str]:
        return [f"--mem={self.wanted.memory_per_gpu_mib}M"] if self.wanted.memory_per_gpu_mib else []


def work_through(
    settings: Mapping[str, Any],
    work: Callable[[Item], Outcome],
    todo: Sequence[Item],
    done: Done,
    directory: Path,
    inputs: str,
) -> list[Outcome]:
    """``work`` applied to every item on the cluster that the settings of the engine name."""
    engine: SlurmEngine = params.build(SlurmEngine, settings, "--set", "engine.")
    check_installed(engine.conf, engine.environ)
    sweep: SlurmSweep[Item, Outcome] = SlurmSweep(
        work, todo, directory, inputs, engine.python, slurm=engine.slurm, wanted=engine.resources
    )
    return sweep.run(done)
