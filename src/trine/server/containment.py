"""Keeps one fault one fault: finds the job that a round cannot be decided with, or that the policy itself is to blame.

Decisions are tried on engines of their own, built from the state; nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.events import Submitted

FALLBACK_POLICY, FALLBACK_PLACEMENT = "fifo", "packed-sticky"
MAX_ASIDE = 20
"""Jobs that are set aside for one round at most; with more than that it is not the jobs."""

FAULTS = (Exception, SystemExit)
"""What is contained: errors, and a plug-in that calls ``exit``."""

Trial = Callable[[Collection[str], bool], BaseException | None]
"""Decides the round with only these jobs (and, if so said, a harmless one); what went wrong, if anything."""


def culprit(jobs: Sequence[str], trial: Trial) -> str | None:
    """The job without which a round that fails may succeed; ``None`` if the policy fails whatever the jobs are.

    The jobs are bisected: one bad job among thousands is found in a dozen trials. Where jobs fail only together,
    the newest of the smallest set that fails is named."""
    if trial((), True) is not None:
        return None
    suspects = list(jobs)
    while len(suspects) > 1:
        half = len(suspects) // 2
        older, newer = suspects[:half], suspects[half:]
        if trial(newer, False) is not None:
            suspects = newer
        elif trial(older, False) is not None:
            suspects = older
        else:
            break
    return suspects[-1] if suspects else None


def submit_harmless(engine: Engine, now: float) -> None:
    """A job of one GPU and one hour about which any policy can decide."""
    engine.handle(Submitted(now, Job("0", now, 1, 3600.0)))
