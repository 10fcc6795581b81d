"""Which live jobs wait for which others to end: predecessors (``after``), and turns in an array of limited width.

Pure bookkeeping over the jobs of the live state, which carries out what follows. What users write is in
``inputs.job_relations``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trine.inputs.job_relations import Predecessor, parse_array, predecessor
from trine.server.live_job import LiveJob

_WANTED = {"ok": "had to end well first", "failed": "had to fail first"}
_ENDED = {"done": "ended well", "failed": "failed", "cancelled": "was cancelled", "timed out": "timed out"}


def satisfied(job: LiveJob, term: Predecessor) -> bool:
    """Whether ``job``, which has ended, ended as it had to."""
    return term.condition == "any" or (job.state == "done") == (term.condition == "ok")


def unmet(job: LiveJob, term: Predecessor) -> str:
    """Why a job that waits for ``job`` can never start, in a clause."""
    return f"job {job.id}, which {_WANTED.get(term.condition, 'had to end first')}, {_ENDED.get(job.state, job.state)}"


@dataclass
class Consequences:
    """What the end of one job means for others."""

    eligible: list[LiveJob] = field(default_factory=list)
    """They wait for GPUs and nothing else from now on."""
    impossible: list[tuple[LiveJob, str]] = field(default_factory=list)
    """They can never start, and why, in a sentence."""


class Dependencies:
    """Who waits for whom, among ``live`` jobs by id."""

    def __init__(self, live: Mapping[str, LiveJob]) -> None:
        self._live = live
        self._dependents: dict[str, list[tuple[str, str]]] = {}
        """By the id of a job: jobs that wait for its end, each with the term of its ``after`` that says so. Elements of
        one array may wait for all of another: terms are many, and none is looked at before its job ends."""
        self._limited: dict[str, list[str]] = {}
        """Live elements, in order, of arrays of which only some may be under way at once, by id of the array."""
        for job in live.values():
            self.enter(job)

    def enter(self, job: LiveJob) -> None:
        """A live job, from now on."""
        for term in job.after:
            self._dependents.setdefault(predecessor(term).job, []).append((job.id, term))
        if _most_at_once(job) is not None:
            self._limited.setdefault(job.array_id, []).append(job.id)

    def has_turn(self, job: LiveJob) -> bool:
        """Whether a new element of an array may be under way beside those that are."""
        most = _most_at_once(job)
        elements = self._limited.get(job.array_id, ())
        return most is None or sum(self._live[job_id].in_turn for job_id in elements) < most

    def ended(self, job: LiveJob) -> Consequences:
        """``job`` is live no more. Jobs that waited for it wait for one less, or in vain."""
        found = Consequences()
        waited: dict[str, list[str]] = {}
        for job_id, term in self._dependents.pop(job.id, ()):
            waited.setdefault(job_id, []).append(term)
        for job_id, terms in waited.items():
            if job_id in self._live:
                self._without(self._live[job_id], job, terms, found)
        self._pass_turn(job, found)
        return found

    def _without(self, dependent: LiveJob, job: LiveJob, terms: Sequence[str], found: Consequences) -> None:
        left = list(dependent.after)
        for term in terms:
            left.remove(term)
        dependent.after = tuple(left)
        failing = next((term for term in map(predecessor, terms) if not satisfied(job, term)), None)
        if failing is not None:
            found.impossible.append((dependent, f"{unmet(job, failing).capitalize()}."))
        elif not dependent.blocked:
            found.eligible.append(dependent)

    def _pass_turn(self, job: LiveJob, found: Consequences) -> None:
        """The next element of its array may be under way in its place."""
        if job.array_id not in self._limited:
            return
        elements = [job_id for job_id in self._limited[job.array_id] if job_id in self._live]
        self._limited[job.array_id] = elements
        following = next((self._live[job_id] for job_id in elements if not self._live[job_id].in_turn), None)
        if job.in_turn and following is not None:
            following.in_turn = True
            if not following.blocked:
                found.eligible.append(following)
        if not elements:
            del self._limited[job.array_id]


def _most_at_once(job: LiveJob) -> int | None:
    return parse_array(job.spec.array).most_at_once if job.array_id else None
