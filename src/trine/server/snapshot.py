"""The text form of the live state: plain values that give the same state back. Files and tables are elsewhere.

In one body with all jobs (format 1), or compact (format 2): ended jobs, which never change, have texts of their own
and are written once, not with every snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

from trine.inputs.job_spec import JobSpec
from trine.perf.learning.observations_json import observations_from_json, observations_to_json
from trine.perf.variability import VariabilityTable
from trine.server import records as rec
from trine.server.interface import StoryLine
from trine.server.live_job import LiveJob, NodeState
from trine.server.quotas import QuotaChange
from trine.server.state import LiveState

FORMAT, COMPACT = 1, 2
"""Versions of the snapshot; a snapshot of any other is refused."""
_FIELDS = tuple(name for name in LiveJob.__slots__ if name not in ("spec", "story"))
_KEY_OF = {"co_runner": "partner", "colocated_s": "company_s", "requested_action": "wish"}
"""Keys that differ from the names of ``LiveJob``: snapshots outlive names in the code, so these never change."""
_FIELD_OF = {key: name for name, key in _KEY_OF.items()}
_KEYS = tuple(_KEY_OF.get(name, name) for name in _FIELDS)
_VALUES = attrgetter(*_FIELDS)
_AT_ONCE = 500


def to_snapshot(state: LiveState) -> dict[str, Any]:
    """JSON-ready; ``from_snapshot`` gives the same state back."""
    return {"format": FORMAT, "jobs": [_job_to_json(job) for job in state.jobs.values()], **_rest(state)}


def _rest(state: LiveState) -> dict[str, Any]:
    """All but the jobs; nothing in it changes when the state does."""
    return {
        "nodes": {name: asdict(node) for name, node in state.nodes.items()},
        "observations": None if state.observations is None else observations_to_json(state.observations),
        "requests": dict(state.requests),
        "digests": dict(state.digests),
        "quotas": {subject: asdict(change) for subject, change in state.quotas.items()},
        "next_id": state.next_id,
        "last_s": state.last_s,
        "clock": state.clock,
        "fallback": None if state.fallback is None else rec.to_body(state.fallback),
        "skipped": state.skipped,
        "configured": None if state.cluster is None else _configuration(state),
        "accounts": dict(state.accounts),
    }


def _configuration(state: LiveState) -> dict[str, Any]:
    assert state.cluster is not None
    return {
        "cluster": rec.cluster_to_record(state.cluster),
        "policy": state.policy,
        "placement": state.placement,
        "settings": state.settings,
        "round_s": state.round_s,
        "sharing": state.sharing,
    }


@dataclass(frozen=True)
class Capture:
    """The state at one moment, to be serialised later, in another thread, while the state itself moves on."""

    live: list[tuple[Any, ...]]
    """Values of the live jobs, which change."""
    ended: list[LiveJob]
    """Ended jobs that have no text yet, to be written apart from the rest."""
    ended_count: int
    """All ended jobs."""
    forgotten: list[str]
    """Ended jobs that have a text but are not part of the state any more."""
    rest: dict[str, Any]

    def text(self, live: Iterable[str] | None = None) -> str:
        """The body of a compact snapshot; ``live``: what ``live_text`` made of the live jobs, a slice at a time.

        In small pieces: other threads can run only between two of them.
        """
        jobs = ",".join(live if live is not None else [live_text(self.live)] if self.live else [])
        parts = [f'"format":{COMPACT}', f'"ended":{self.ended_count}', f'"jobs":[{jobs}]']
        for name, value in self.rest.items():
            parts.append(f"{_dumps(name)}:{_object(value) if isinstance(value, dict) else _dumps(value)}")
        return f"{{{','.join(parts)}}}"


def capture(state: LiveState) -> Capture:
    """What a compact snapshot of ``state`` needs; quick, since nothing else happens meanwhile."""
    return Capture(
        [(_VALUES(job), job.spec, list(job.story)) for job in state.live.values()],
        list(state.unsaved.values()),
        len(state.jobs) - len(state.live),
        list(state.forgotten),
        _rest(state),
    )


def saved(state: LiveState, taken: Capture) -> None:
    """The snapshot is whole: the next one need not hold again what never changes."""
    for job in taken.ended:
        state.unsaved.pop(job.id, None)
    del state.forgotten[: len(taken.forgotten)]


def live_text(jobs: Iterable[tuple[Any, ...]]) -> str:
    """Live jobs as they were captured, as JSON."""
    return ",".join(_dumps(_values_to_json(*values)) for values in jobs)


def job_text(job: LiveJob) -> str:
    """An ended job as a compact snapshot keeps it."""
    return _dumps(_job_to_json(job))


def _object(value: dict[str, Any]) -> str:
    """A JSON object, made a piece at a time."""
    pieces: Iterator[str] = (_dumps(dict(part))[1:-1] for part in _batched(value.items(), _AT_ONCE))
    return f"{{{','.join(pieces)}}}"


def _batched(items: Iterable[tuple[str, Any]], size: int) -> Iterator[list[tuple[str, Any]]]:
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def from_snapshot(body: dict[str, Any], ended: Iterable[dict[str, Any]] = ()) -> LiveState:
    """The state that was written; what an older version did not write has its default."""
    if body.get("format") not in (FORMAT, COMPACT):
        raise rec.JournalError(
            f"a snapshot of format {body.get('format')!r}; this version reads format {FORMAT} or {COMPACT}"
        )
    jobs = [_job_from_json(job) for job in (*body["jobs"], *ended)]
    if body["format"] == COMPACT:
        jobs.sort(key=lambda job: int(job.id))  # in order of arrival
    found = LiveState(
        {job.id: job for job in jobs},
        {name: NodeState(**node) for name, node in body["nodes"].items()},
        requests=dict(body["requests"]),
        digests=dict(body.get("digests", {})),
        quotas={subject: QuotaChange(**change) for subject, change in body.get("quotas", {}).items()},
        next_id=body["next_id"],
        last_s=body["last_s"],
        accounts=dict(body.get("accounts", {})),
        clock=body.get("clock"),
        skipped=list(body.get("skipped", ())),
    )
    fallback = body.get("fallback")
    if fallback:
        found.fallback = rec.FellBack(**fallback)
    if body["format"] == COMPACT:
        found.unsaved = {}
    configured = body["configured"]
    if configured:
        found.cluster = rec.cluster_from_record(configured["cluster"])
        found.policy, found.placement = configured["policy"], configured["placement"]
        found.settings = configured["settings"]
        found.round_s, found.sharing = configured["round_s"], configured.get("sharing", "off")
    if found.cluster is not None and body["observations"] is not None:
        found.observations = observations_from_json(body["observations"], VariabilityTable.of_cluster(found.cluster))
    return found


def _job_to_json(job: LiveJob) -> dict[str, Any]:
    return _values_to_json(_VALUES(job), job.spec, job.story)


def _values_to_json(values: tuple[Any, ...], spec: JobSpec, story: list[StoryLine]) -> dict[str, Any]:
    body = dict(zip(_KEYS, values, strict=True))
    body["spec"] = rec.spec_to_body(spec)
    body["story"] = [[line.at_s, line.what, line.sentence] for line in story]
    return body


def _job_from_json(body: dict[str, Any]) -> LiveJob:
    story = [StoryLine(*line) for line in body["story"]]
    spec = rec.spec_from_body(body["spec"])
    named = {_FIELD_OF.get(key, key): value for key, value in body.items()}
    known = {name: value for name, value in named.items() if name in LiveJob.__slots__}
    lists = {"gpus": tuple(body["gpus"]), "after": tuple(body.get("after", ()))}
    return LiveJob(**{**known, **lists, "spec": spec, "story": story})
