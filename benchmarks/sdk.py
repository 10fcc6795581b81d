"""What the SDK adds to a training step: processor time of its loop over that of a bare one.

Steps are simulated by a clock that jumps, so that files are looked at and written as often as in steps of that length.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from trine.sdk.loop import Loop, LoopOptions
from trine.sdk.session import JobEnvironment, Session


def microseconds(step_s: float, ranks: int = 1, inside: bool = True, steps: int = 5_000) -> float:
    """Microseconds per step of ``step_s`` seconds, in a job of ``ranks`` ranks or outside any."""
    with tempfile.TemporaryDirectory() as folder:
        return min(_once(Path(folder), step_s, ranks, inside, steps) for _ in range(5)) - _bare(steps)


def _once(folder: Path, step_s: float, ranks: int, inside: bool, steps: int) -> float:
    lease = {"job": "1", "epoch": 1, "lease_s": 1e6, "renewal": 0, "stop": False}
    (folder / "lease.json").write_text(json.dumps(lease))
    job = JobEnvironment(inside, "1", 1, 0, ranks, folder, folder) if inside else JobEnvironment()
    now_s = [0.0]
    session = Session(job, lambda: now_s[0], lambda: 0.0)
    return _spent_us(Loop(session, LoopOptions(0, steps)).run(range(steps)), steps, step_s, now_s)


def _bare(steps: int) -> float:
    return min(_spent_us(iter(enumerate(range(steps))), steps, 1.0, [0.0]) for _ in range(3))


def _spent_us(loop: Iterator[tuple[int, int]], steps: int, step_s: float, now_s: list[float]) -> float:
    began = time.process_time_ns()
    for _step, _batch in loop:
        now_s[0] += step_s
    return (time.process_time_ns() - began) / steps / 1000
