"""The Slurm executor: one batch job per lease, and what follows from what Slurm says of it. What has started and how it
ended is read from the files of the attempt.

Which commands are run for that is in ``carriers``, when they are run in ``attempt.remote``; which job goes where is
decided elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trine.executor.attempt.fence import KILL_S
from trine.executor.attempt.leader import conclude, write_end
from trine.executor.attempt.shared_dir import KILLED_RC, SharedDirExecutor, Times
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import Handle, NodeInfo
from trine.executor.slurm.attempt import SlurmAttempt
from trine.executor.slurm.carriers import Answer, Carrier
from trine.executor.slurm.inventory import Occupancy, SlurmNode


class SlurmExecutor(SharedDirExecutor[SlurmAttempt, Answer]):
    """Runs jobs through a ``Carrier``; takes up again what runs in ``state_dir``, which all nodes must see."""

    engine = "Slurm"

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        carrier: Carrier,
        times: Times,
        *,
        environ: Mapping[str, str] = os.environ,
        api_url: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(state_dir, nodes, times, environ=environ, api_url=api_url, clock=clock)
        self._carrier = carrier
        self._occupancy = Occupancy()
        self._silent: set[str] = set()
        """Nodes that did not answer Slurm when it was last asked."""
        self._open()

    def cordon(self, node: str, reason: str) -> None:
        super().cordon(node, reason)
        self._order(lambda: self._carrier.drain(node, reason))

    def uncordon(self, node: str) -> None:
        super().uncordon(node)
        self._order(lambda: self._carrier.resume(node))

    def _new_attempt(self, handle: Handle) -> SlurmAttempt:
        return SlurmAttempt(handle, self._state.run_dir(handle), ask_first_s=time.monotonic())

    # -- requests to Slurm and its answers ----------------------------------------------------------------------------

    def _hand_in(self, attempt: SlurmAttempt) -> None:
        try:
            self._carrier.submit(attempt)
        except OSError as error:  # the fault is on this side, and the job is refused as by Slurm
            raise LaunchRefused(str(error)) from error

    def _handed_in(self, attempt: SlurmAttempt, refused: str) -> None:
        attempt.submitted_s = time.monotonic()
        if refused:
            self._unlaunched(attempt, f"Slurm refused it: {refused}")

    def _question(self, running: Sequence[SlurmAttempt]) -> Answer:
        return self._carrier.ask(running)

    def _answered(self, answer: Answer, asked_s: float) -> None:
        for handle, attempt in self._attempts.items():
            if attempt.submitted_s is None or attempt.submitted_s < asked_s:
                attempt.note_jobs(answer.jobs.get(handle, ()), asked_s)
        self._cancel_unknown(answer)
        if answer.nodes is not None:
            self._note_nodes(self._node_infos(answer.nodes, answer))

    def _cancel_unknown(self, answer: Answer) -> None:
        """Jobs of ours that are followed no longer: repeated submissions of attempts that ended."""
        for handle, jobs in answer.jobs.items():
            attempt = self._attempts.get(handle)
            if (attempt is None or attempt.ended) and any(job.state == "PENDING" for job in jobs):
                stale = SlurmAttempt(handle, self._state.run_dir(handle), jobs=tuple(jobs))
                self._order(partial(self._carrier.cancel, stale, pending_only=True))

    def _node_infos(self, nodes: Sequence[SlurmNode], answer: Answer) -> list[NodeInfo]:
        self._silent = {node.name for node in nodes if not node.up}
        held = {handle for handle, jobs in answer.jobs.items() if any(job.active for job in jobs)}
        held |= {attempt.handle for attempt in self._running()}
        return self._occupancy.infos(nodes, held)

    # -- what the files say -------------------------------------------------------------------------------------------

    def _take_up(self, attempt: SlurmAttempt) -> None:
        super()._take_up(attempt)
        self._occupancy.note(attempt.handle, attempt.gpus)

    def _follow(self, attempt: SlurmAttempt) -> None:
        self._report_start(attempt)
        if attempt.started:
            self._report_progress(attempt)
        if (end := attempt.end()) is not None:
            self._end(attempt, end)
        elif not self._away and not attempt.submitting:
            self._follow_unended(attempt)

    def _follow_unended(self, attempt: SlurmAttempt) -> None:
        """What is to be done about an attempt whose end is not on record."""
        now_s = time.monotonic()
        if attempt.submitted_s is None:
            if self._asked_s > attempt.ask_first_s:  # Slurm was asked since, and does not have it
                self._follow_unsubmitted(attempt)
        elif attempt.active:
            self._follow_active(attempt, now_s)
        elif self._asked_s > attempt.submitted_s:
            self._follow_over(attempt, now_s)

    def _follow_unsubmitted(self, attempt: SlurmAttempt) -> None:
        if attempt.claimed:  # it ran, so Slurm had it, and has forgotten it since
            attempt.submitted_s = attempt.ask_first_s
        elif attempt.requested:
            self._stopped_before_start(attempt)
        else:
            self._submit(attempt)

    def _follow_active(self, attempt: SlurmAttempt, now_s: float) -> None:
        if attempt.pending and attempt.requested:
            self._cancel(attempt, now_s, pending_only=True)
        elif now_s >= attempt.cancel_due_s:
            self._cancel(attempt, now_s)
        elif attempt.pending and attempt.pending_from_s is not None:
            waited_s = now_s - attempt.pending_from_s
            if waited_s > self._times.pending_s:
                why = ", ".join(dict.fromkeys(job.reason for job in attempt.jobs if job.active))
                attempt.withdrawn = f"Slurm kept it waiting for {waited_s:.0f} s ({why})"
                self._cancel(attempt, now_s, pending_only=True)

    def _cancel(self, attempt: SlurmAttempt, now_s: float, pending_only: bool = False) -> None:
        """Not again before Slurm was asked what came of it."""
        if attempt.ask_first_s <= self._asked_s:
            attempt.ask_first_s = now_s
            self._order(lambda: self._carrier.cancel(attempt, pending_only=pending_only))
            self._ask.set()

    def _follow_over(self, attempt: SlurmAttempt, now_s: float) -> None:
        """Slurm has no running job for it. Its record may be under way from another node; if none comes, it is lost,
        which is reported when its end is proven or its lease and grace are over."""
        if attempt.over_from_s is None:
            attempt.over_from_s = now_s
        if not attempt.claimed:
            if attempt.requested:
                self._stopped_before_start(attempt)
            elif attempt.withdrawn:
                self._unlaunched(attempt, attempt.withdrawn)
            else:
                self._explain_unlaunched(attempt)
        elif self._is_given_up(attempt):
            self._conclude(attempt, now_s)

    def _conclude(self, attempt: SlurmAttempt, now_s: float) -> None:
        """Its leader is gone without a record: the parts may have left theirs."""
        end = conclude(str(attempt.run_dir), attempt.spec, attempt.why_over())
        if end is None and (self._fences.over(attempt.handle) or self._is_proven(attempt, now_s)):
            end = {"kind": "lost", "rc": KILLED_RC, "reason": attempt.why_over()}
        if end is not None:
            write_end(str(attempt.run_dir), end)
            self._look.set()

    def _is_proven(self, attempt: SlurmAttempt, now_s: float) -> bool:
        """Slurm saw its end; parts that it lost sight of have left their ranks a grace, and are gone by now, too."""
        assert attempt.over_from_s is not None
        left_s = attempt.over_from_s + self._times.visible_s + attempt.grace_s + KILL_S
        return now_s >= left_s and attempt.ended_in_slurm(self._silent)

    def _stopped_before_start(self, attempt: SlurmAttempt) -> None:
        if attempt.withdraw():
            super()._stopped_before_start(attempt)

    def _unlaunched(self, attempt: SlurmAttempt, reason: str) -> None:
        """Whatever Slurm's reason, it is no fault of the job: it may be started again, elsewhere or later."""
        if attempt.withdraw():
            self._end(attempt, attempt.record_unlaunched(self._clock(), reason))

    def _explain_unlaunched(self, attempt: SlurmAttempt) -> None:
        """Slurm ended it before it began: ask why, then report it."""
        attempt.submitting = True  # nothing else is done about it meanwhile

        def ask_and_tell() -> None:
            said = self._carrier.explain_end(attempt)
            reason = f"{attempt.why_over()} before it started"
            with self._lock:
                attempt.submitting = False
                self._unlaunched(attempt, f"{reason}: {said}" if said else reason)

        self._order(ask_and_tell)
