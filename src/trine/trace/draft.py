"""A job as a format read it, before the rules of the schema: what the file says, in seconds and GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Draft:
    """Numbers are finite and not negative already (``Row`` sees to that); the rest is up to ``trine.trace.rules``.

    Work is any of: ``steps`` and ``step_s``; ``steps`` and ``duration_s``; ``duration_s`` alone (steps of one second);
    ``steps`` alone (only a throughput table can tell the time); nothing (the caller's ``duration_s`` is used).
    """

    id: str
    submit_s: float | None
    """``None``: the file has no arrivals, one is drawn."""
    gpus: float
    """May be zero or a fraction."""
    steps: float | None = None
    step_s: float | None = None
    duration_s: float | None = None
    model: str = ""
    user: str = ""
    group: str = ""
    app_class: str = ""
    batch_size: int | None = None
    priority: float = 0.0
    weight: float = 1.0
    deadline_s: float | None = None
    gpu_types: tuple[str, ...] = ()
    restore_s: float | None = None
    migration_s: float | None = None
    checkpoint_every_s: float | None = None
    tracked: bool = True
    line: int = 0
    skip: str = ""
    """Reason why this row is no job, if the format knows one."""
    changes: tuple[str, ...] = ()
    """Rules the format itself applied to the row."""
