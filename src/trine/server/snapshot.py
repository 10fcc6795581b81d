"""The text form of the live state: plain values that give the same state back. Files and tables are elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trine.perf.observed import Observations
from trine.perf.variability import VariabilityTable
from trine.server import records as rec
from trine.server.cluster_record import cluster_from_record, cluster_to_record
from trine.server.live_job import LiveJob, NodeState
from trine.server.service import StoryLine
from trine.server.state import LiveState

FORMAT = 1
"""Version of the snapshot; a snapshot of another version is refused."""


def to_snapshot(state: LiveState) -> dict[str, Any]:
    """JSON-ready; ``from_snapshot`` gives the same state back."""
    return {
        "format": FORMAT,
        "jobs": [_job_to_json(job) for job in state.jobs.values()],
        "nodes": {name: asdict(node) for name, node in state.nodes.items()},
        "observations": None if state.observations is None else state.observations.to_json(),
        "requests": dict(state.requests),
        "next_id": state.next_id,
        "last_s": state.last_s,
        "configured": None if state.cluster is None else _configuration(state),
        "accounts": dict(state.accounts),
    }


def _configuration(state: LiveState) -> dict[str, Any]:
    assert state.cluster is not None
    return {
        "cluster": cluster_to_record(state.cluster),
        "policy": state.policy,
        "placement": state.placement,
        "settings": state.settings,
        "round_s": state.round_s,
        "sharing": state.sharing,
    }


def from_snapshot(body: dict[str, Any]) -> LiveState:
    """The state that ``to_snapshot`` wrote; what an older version did not write has its default."""
    if body.get("format") != FORMAT:
        raise rec.JournalError(f"a snapshot of format {body.get('format')!r}; this version reads format {FORMAT}")
    found = LiveState(
        {job["id"]: _job_from_json(job) for job in body["jobs"]},
        {name: NodeState(**node) for name, node in body["nodes"].items()},
        requests=dict(body["requests"]),
        next_id=body["next_id"],
        last_s=body["last_s"],
        accounts=dict(body.get("accounts", {})),
    )
    told = body["configured"]
    if told:
        found.cluster = cluster_from_record(told["cluster"])
        found.policy, found.placement, found.settings = told["policy"], told["placement"], told["settings"]
        found.round_s, found.sharing = told["round_s"], told.get("sharing", "off")
    if found.cluster is not None and body["observations"] is not None:
        found.observations = Observations.from_json(body["observations"], VariabilityTable.of_cluster(found.cluster))
    return found


def _job_to_json(job: LiveJob) -> dict[str, Any]:
    names = [name for name in LiveJob.__slots__ if name not in ("spec", "story")]
    body = {name: getattr(job, name) for name in names}
    body["spec"] = rec.spec_to_body(job.spec)
    body["story"] = [[line.at_s, line.what, line.sentence] for line in job.story]
    return body


def _job_from_json(body: dict[str, Any]) -> LiveJob:
    story = [StoryLine(*line) for line in body["story"]]
    spec = rec.spec_from_body(body["spec"])
    return LiveJob(**{**body, "spec": spec, "story": story, "gpus": tuple(body["gpus"])})
