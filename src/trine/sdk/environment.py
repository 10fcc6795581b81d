"""What a job is told through its environment: who it is, how many ranks it has, where its files are.

Reading only. Without these variables a script runs as it would anywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    lease_deadline_s: float | None = None
    """Unix seconds, as of the start of the job; the lease file knows better."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> JobEnvironment:
        deadline = variables.get("TRINE_LEASE_DEADLINE", "")
        return cls(
            inside=bool(variables.get("TRINE_JOB_ID") or variables.get("TRINE_RUN_DIR")),
            job_id=variables.get("TRINE_JOB_ID", ""),
            attempt=_whole(variables, "TRINE_ATTEMPT", 0),
            rank=_whole(variables, "RANK", 0),
            world_size=_whole(variables, "WORLD_SIZE", 1),
            run_dir=_folder(variables, "TRINE_RUN_DIR"),
            progress_dir=_folder(variables, "TRINE_PROGRESS_DIR"),
            checkpoint_dir=_folder(variables, "TRINE_CHECKPOINT_DIR") or Path("checkpoints"),
            lease_deadline_s=_seconds("TRINE_LEASE_DEADLINE", deadline) if deadline else None,
        )


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name}: found {text!r}; expected a whole number") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"environment variable {name}: found {text!r}; expected Unix seconds") from None


def _folder(variables: Mapping[str, str], name: str) -> Path | None:
    text = variables.get(name)
    return Path(text) if text else None
