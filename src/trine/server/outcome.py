"""What the end of an attempt means for its job: the one place that decides it. Pure: no clock, no I/O.

Five things can have happened: the job is done, it failed by itself, it was stopped (or left to be started again), it
was lost with its supervisor, or the host could not run it. Only the second is the job's fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trine.server.interface import JobState
    from trine.server.live_job import LiveJob
    from trine.server.records import ExitReported

CHECKPOINTED_RC, TERMINATED_RC, KILLED_RC = 85, 128 + 15, 128 + 9
SHORT_RUN_S = 60.0
"""An attempt that ends by itself earlier than this, without having done anything, counts as vain."""
MAX_VAIN = 10
"""A job of which so many attempts in a row were vain is held: whatever is wrong does not pass by itself."""
MAX_PASSING = 30
"""A job of which so many starts in a row failed for passing reasons is held: with pauses of up to five minutes that is
about two hours, and what has not passed by then needs a person."""
SHORTEST_LOSS_SHOWN_S = 0.5
"""Less would be shown as 0 s."""
_LONGEST_PAUSE_S = 300.0
_FIRST_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class StateAfterExit:
    """Where a job goes when an attempt at it has ended."""

    state: JobState
    what: str
    """In a word or two, for the job's history."""
    sentence: str = ""
    pause_s: float = 0.0
    """It is not started again before so many seconds have passed."""
    vain: int = 0
    """Attempts in a row that came to nothing."""
    failures: int = 0
    """Attempts that failed by themselves so far."""
    lost_s: float = 0.0
    """Seconds of work that have to be done again."""


def state_after_exit(job: LiveJob, record: ExitReported) -> StateAfterExit:
    """Where ``job``, as it was before ``record``, goes from there."""
    failures = job.failures
    if record.outcome == "done":
        return StateAfterExit("done", "done", record.detail, failures=failures)
    if job.requested_action in _ENDED_BY_REQUEST:
        state = _ENDED_BY_REQUEST[job.requested_action]
        return StateAfterExit(state, state, record.detail, failures=failures)
    if record.outcome == "failed" and job.state != "stopping":
        return _after_failure(job, record)
    if record.outcome in ("host-fault", "lost"):
        return _after_fault(job, record)
    return _after_stop(job, record)


_ENDED_BY_REQUEST: dict[str, JobState] = {"cancel": "cancelled", "timeout": "timed out"}


def _after_failure(job: LiveJob, record: ExitReported) -> StateAfterExit:
    failures, retries = job.failures + 1, job.spec.retries or 0
    if failures > retries:
        return StateAfterExit("failed", "failed", record.detail, failures=failures)
    pause_s = _pause_s(_FIRST_RETRY_S, failures)
    sentence = f"{_sentence(record.detail)} Retry {failures} of {retries} in {pause_s:g} s."
    return StateAfterExit(
        "waiting", "failed", sentence.strip(), pause_s, failures=failures, lost_s=_lost_s(job, record)
    )


def _after_fault(job: LiveJob, record: ExitReported) -> StateAfterExit:
    """Host or engine are to blame: the job goes back, after a pause that grows. It is never failed for it."""
    vain = job.vain + 1 if record.outcome == "host-fault" or _is_short(job, record) else 1
    what = "lost" if record.outcome == "lost" else "host fault"
    lost_s = _lost_s(job, record)
    if vain >= (MAX_VAIN if record.outcome == "lost" else MAX_PASSING):
        happened = "attempts in a row were lost" if record.outcome == "lost" else "starts in a row failed"
        sentence = f"{_sentence(record.detail)} {vain} {happened}, so it is held."
        return StateAfterExit("held", what, sentence, vain=vain, failures=job.failures, lost_s=lost_s)
    # A first loss may be anything: it starts again at once.
    pause_s = _pause_s(1.0, vain) if record.outcome == "host-fault" or vain > 1 else 0.0
    sentence = _sentence(record.detail) + (f" It is started again in {pause_s:g} s at the earliest." if pause_s else "")
    return StateAfterExit(_waits(job), what, sentence.strip(), pause_s, vain, job.failures, lost_s)


def _after_stop(job: LiveJob, record: ExitReported) -> StateAfterExit:
    lost_s = _lost_s(job, record)
    if job.state == "stopping":
        return StateAfterExit(
            _waits(job), "stopped", _stopped(job, record, lost_s), failures=job.failures, lost_s=lost_s
        )
    if record.detail or not _is_short(job, record):  # what the executor gives a reason for was not the job's own idea
        return StateAfterExit(_waits(job), "stopped", record.detail, failures=job.failures, lost_s=lost_s)
    vain = job.vain + 1
    left = f"It left by itself {vain} times in a row, each time within {SHORT_RUN_S:g} s and without progress"
    if vain >= MAX_VAIN:
        return StateAfterExit("held", "stopped", f"{left}, so it is held.", vain=vain, failures=job.failures)
    pause_s = _pause_s(1.0, vain)
    sentence = f"It left by itself without progress and is started again in {pause_s:g} s at the earliest."
    return StateAfterExit(_waits(job), "stopped", sentence, pause_s, vain, job.failures)


def _stopped(job: LiveJob, record: ExitReported, lost_s: float) -> str:
    """How a job that was asked to stop did so, and from where it goes on."""
    step = job.safe if record.step is None else record.step
    how = ""
    if record.rc == KILLED_RC:
        how = f"It did not leave within its grace of {job.spec.checkpoint.grace_s:g} s and was killed."
    elif record.rc == TERMINATED_RC:
        how = "It ended at once on SIGTERM, without saving."
    if lost_s > 0:
        lost = f"; {duration(lost_s)} of work is lost" if lost_s >= SHORTEST_LOSS_SHOWN_S else ""
        how += f" It restarts from step {step:g}{lost}."
    elif step > 0:
        how += f" It resumes from step {step:g}."
    return f"{_sentence(record.detail)} {how}".strip()


def _waits(job: LiveJob) -> JobState:
    return "held" if job.requested_action == "hold" else "waiting"


def _is_short(job: LiveJob, record: ExitReported) -> bool:
    """The attempt ended early and left nothing behind that was not there before."""
    ran_s = record.at_s - job.run_from_s
    return ran_s < SHORT_RUN_S and (record.step is None or record.step <= job.safe)


def _lost_s(job: LiveJob, record: ExitReported) -> float:
    """Seconds of work since the last checkpoint that is known of."""
    if record.rc == CHECKPOINTED_RC:
        return 0.0  # it says itself that it saved its work
    ran_s = max(record.at_s - job.attempt_from_s, 0.0) if job.attempt_from_s else 0.0
    if record.step is None or record.step <= job.safe:
        return ran_s
    return min((job.done - record.step) / job.rate, ran_s) if job.rate > 0 and job.done > record.step else 0.0


def _pause_s(first_s: float, count: int) -> float:
    """Doubles with every attempt, up to five minutes."""
    return min(first_s * 2.0 ** (count - 1), _LONGEST_PAUSE_S)


def _sentence(detail: str) -> str:
    return detail if not detail or detail.endswith(".") else f"{detail}."


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
