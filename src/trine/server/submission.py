"""What one submission asks for: arrays become their elements, names of predecessors become ids. Pure: no state, no I/O.

A job can only name jobs that were submitted before it, so that no two jobs ever wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trine.inputs.job_relations import Predecessor, parse_array, predecessor
from trine.inputs.job_rules import MAX_JOBS
from trine.inputs.job_spec import JobSpec
from trine.server.dependencies import satisfied, unmet
from trine.server.interface import Refused
from trine.server.live_job import LiveJob


@dataclass(frozen=True, slots=True)
class Entry:
    """A job of a submission, as it is to be put on record."""

    spec: JobSpec
    array_id: str = ""
    """Id of the first element of its array; empty: it belongs to none."""
    array_index: int | None = None


def entries_of(specs: Sequence[JobSpec], next_id: int) -> list[Entry]:
    """The jobs with the ids from ``next_id`` on, arrays as their elements; ``Refused`` if a name is not known."""
    entries: list[Entry] = []
    named: dict[str, list[str]] = {}
    for spec in specs:
        first = next_id + len(entries)
        spec = spec.model_copy(update={"after": _with_ids(spec, named)}) if spec.after else spec
        made = _elements(spec, str(first)) if spec.array else [Entry(spec)]
        entries += made
        if spec.array and len(entries) > MAX_JOBS:
            raise Refused(
                "too-many", f"{len(entries):,} jobs with the elements of arrays; expected at most {MAX_JOBS:,}"
            )
        named.setdefault(spec.name, []).extend(str(first + number) for number in range(len(made)))
    return entries


def _elements(spec: JobSpec, array_id: str) -> list[Entry]:
    return [Entry(_element(spec, index), array_id, index) for index in parse_array(spec.array).indices]


def _element(spec: JobSpec, index: int) -> JobSpec:
    """Elements must not write over each other's checkpoints."""
    if spec.checkpoint.dir is None:
        return spec
    own = spec.checkpoint.model_copy(update={"dir": f"{spec.checkpoint.dir}/{index}"})
    return spec.model_copy(update={"checkpoint": own})


def _with_ids(spec: JobSpec, named: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Predecessors by their ids; a name stands for all jobs of that name before this one in the submission."""
    found: dict[str, None] = {}
    for term in map(predecessor, spec.after):
        if not term.is_id and term.job not in named:
            raise Refused(
                "unknown-job",
                f"job {spec.name!r} is to start after {term.job!r}; expected the id of a job, or the name of one "
                "before it in the same submission; any: or failed: may stand before it",
            )
        ids = [term.job] if term.is_id else named[term.job]
        found |= dict.fromkeys(str(Predecessor(job_id, term.condition)) for job_id in ids)
    return tuple(found)


def check_predecessors(entries: Iterable[Entry], next_id: int, visible: Mapping[str, LiveJob]) -> None:
    """``Refused`` if a job is to start after one that is not there, or that ended otherwise than it had to."""
    for number, entry in enumerate(entries):
        for term in map(predecessor, entry.spec.after):
            if next_id <= int(term.job) < next_id + number:
                continue  # a job of the same submission, before this one
            job, name = visible.get(term.job), entry.spec.name
            if job is None:
                raise Refused("unknown-job", f"job {name!r} is to start after job {term.job}; there is no such job")
            if not job.live and not satisfied(job, term):
                raise Refused("never-runs", f"job {name!r} can never run: {unmet(job, term)}")
