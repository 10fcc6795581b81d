"""Background load: the trace once more, with new arrivals, for as long as tracked jobs run."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trine.core.job import Job


def repeat(jobs: Sequence[Job], jobs_per_h: float, seed: int) -> Iterator[Job]:
    """Untracked copies of ``jobs`` in order, again and again, arriving as a Poisson process in whole seconds.

    The rule of PAL's Sia-Philly experiments: gaps are rounded up to a second and count from the last arrival.
    """
    rng = random.Random(seed)
    at_s = jobs[-1].submit_s
    number = len(jobs)
    while True:
        for job in jobs:
            at_s += math.ceil(-math.log(1.0 - rng.random()) / jobs_per_h * 3600.0)
            yield replace(job, id=f"background-{number}", submit_s=at_s, tracked=False)
            number += 1
