"""Who may have a GPU: one job, or two that name each other. What this module refuses runs nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from trine.executor.attempt import Attempt, Place
from trine.executor.base import JobLease
from trine.executor.launch import LaunchRefused


def check_holders(lease: JobLease, running: Sequence[Attempt]) -> None:
    """A GPU is given on only after the exit of its holder was seen, and a job runs once at a time.

    Two jobs hold the same GPUs only if each was declared to share with the other; a third never joins them. Whoever
    comes too early is not to blame for it.
    """
    wanted = {(node, gpu) for node, gpus in lease.placement for gpu in gpus}
    holders = [attempt for attempt in running if wanted.intersection(attempt.gpus)]
    for attempt in running:
        if attempt.handle.job_id == lease.job_id:
            raise LaunchRefused(f"{_name(attempt)} still runs", host_fault=True)
    if len(holders) == 1 and _name_each_other(lease, holders[0]) and set(holders[0].gpus) == wanted:
        return
    if holders:
        node, gpu = _first_held(wanted, holders)
        names = " and ".join(map(_name, holders))
        raise LaunchRefused(f"GPU {gpu} of {node} is still held by {names}", host_fault=True)


def may_pair(attempt: Attempt, co_runner: str, running: Sequence[Attempt]) -> bool:
    """Nobody but ``partner`` is on the GPUs of the attempt besides itself."""
    mine = set(attempt.gpus)
    others = {other.handle.job_id for other in running if other is not attempt and mine.intersection(other.gpus)}
    return others <= {co_runner}


def _name_each_other(lease: JobLease, holder: Attempt) -> bool:
    return lease.shares_with == holder.handle.job_id and holder.shares_with == lease.job_id


def _first_held(wanted: set[Place], holders: Sequence[Attempt]) -> Place:
    return min(wanted.intersection(*(set(holder.gpus) for holder in holders)) or wanted.intersection(holders[0].gpus))


def _name(attempt: Attempt) -> str:
    return f"{attempt.handle.job_id} (epoch {attempt.handle.epoch})"
