"""The environment variables of a job: its id and attempt, its ranks, where its files are.

Reading only. Without these variables a script runs as it would anywhere else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class JobEnvironment(NamedTuple):
    """The variables of a job. ``inside`` says whether trine started this process."""

    inside: bool = False
    job_id: str = ""
    attempt: int = 0
    rank: int = 0
    world_size: int = 1
    run_dir: Path | None = None
    progress_dir: Path | None = None
    checkpoint_dir: Path = Path("checkpoints")
    lease_s: float | None = None
    """Seconds that the lease holds from the start of the job; the lease file knows better."""

    @classmethod
    def read(
        cls, variables: Mapping[str, str] = os.environ, unix_clock: Callable[[], float] = time.time
    ) -> JobEnvironment:
        return cls(
            inside=bool(variables.get("TRINE_JOB_ID") or variables.get("TRINE_RUN_DIR")),
            job_id=variables.get("TRINE_JOB_ID", ""),
            attempt=_whole(variables, "TRINE_ATTEMPT", 0),
            rank=_whole(variables, "RANK", 0),
            world_size=_whole(variables, "WORLD_SIZE", 1),
            run_dir=_folder(variables, "TRINE_RUN_DIR"),
            progress_dir=_folder(variables, "TRINE_PROGRESS_DIR"),
            checkpoint_dir=_folder(variables, "TRINE_CHECKPOINT_DIR") or Path("checkpoints"),
            lease_s=_lease_s(variables, unix_clock),
        )


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name}: found {text!r}; expected a whole number") from None


def _lease_s(variables: Mapping[str, str], unix_clock: Callable[[], float]) -> float | None:
    """By its duration; where only its end is given, what is left of it now.

    An end that is past when the job starts says that two clocks differ, and nothing about the lease.
    """
    lease_s = _seconds(variables, "TRINE_LEASE_S", "seconds")
    if lease_s is not None:
        return lease_s
    deadline_s = _seconds(variables, "TRINE_LEASE_DEADLINE", "Unix seconds")
    left_s = 0.0 if deadline_s is None else deadline_s - unix_clock()
    return left_s if left_s > 0 else None


def _seconds(variables: Mapping[str, str], name: str, expected: str) -> float | None:
    text = variables.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"environment variable {name}: found {text!r}; expected {expected}") from None


def _folder(variables: Mapping[str, str], name: str) -> Path | None:
    text = variables.get(name)
    return Path(text) if text else None
