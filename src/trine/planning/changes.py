"""Changes that can be tried on a live state, which is a copy, before anything happens: each is a few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, unknown_name
from trine.inputs.job_rules import MAX_PRIORITY, seconds
from trine.inputs.job_spec import JobSpec
from trine.inputs.quota_text import QUOTA_FORM, parse_quota
from trine.server.live_job import LiveJob, NodeState
from trine.server.quotas import QuotaChange
from trine.server.state import LiveState

GRAMMAR = {
    "policy": "policy NAME",
    "placement": "placement NAME",
    "add": "add COUNTxGPUS[:TYPE]",
    "lose": "lose NODE",
    "cancel": "cancel JOB",
    "hold": "hold JOB",
    "release": "release JOB",
    "priority": "priority JOB NUMBER",
    "submit": "submit GPUS [TIME]",
    "quota": f"quota {QUOTA_FORM}",
}
"""Every change by its first word."""
EXAMPLES = {
    "policy": "policy las",
    "placement": "placement pal-sticky",
    "add": "add 2x8 (two nodes of eight GPUs)",
    "lose": "lose node3",
    "cancel": "cancel 17",
    "hold": "hold 17",
    "release": "release 17",
    "priority": "priority 17 5",
    "submit": "submit 8 1h",
    "quota": "quota user:ann=16",
}
APPLICABLE = ("cancel", "hold", "release", "priority", "quota", "lose")
"""Those that a daemon carries out; a node that is to be lost is drained."""
INSTEAD = {
    "policy": "start the daemon anew with --policy; jobs that run go on meanwhile",
    "placement": "start the daemon anew with --placement; jobs that run go on meanwhile",
    "submit": "`trine whatif ... --apply -- CMD` or `trine submit`, with the command to run",
    "add": "add the nodes to the cluster that the daemon runs on",
}
"""What to do about changes that a daemon does not carry out."""


def words_of(change: str) -> list[str]:
    """The words of a change, the first of which is known."""
    words = change.split()
    if not words:
        raise InputError("what-if", "an empty change", f"one of: {'; '.join(GRAMMAR.values())}")
    if words[0] not in GRAMMAR:
        raise unknown_name("what-if", "change", words[0], list(GRAMMAR))
    return words


def instead_of(changes: Sequence[str]) -> dict[str, str]:
    """What to do about those of the changes that a daemon does not carry out."""
    return {change: INSTEAD[first] for change in changes if (first := words_of(change)[0]) not in APPLICABLE}


@dataclass(frozen=True)
class Moment:
    """When changes are tried, and for whom."""

    now_s: float
    user: str = "what-if"
    """A job that is submitted is this user's, with its quota and share."""
    queue: str = "default"


def changed(state: LiveState, changes: Sequence[str], moment: Moment) -> LiveState:
    """The state after all ``changes``, one after the other."""
    for change in changes:
        first, *rest = words_of(change)
        try:
            _APPLY[first](state, rest, moment)
        except InputError as error:  # an unknown policy, say, which here is no option
            raise InputError("what-if", error.found, error.expected) from None
        except (ValueError, IndexError):
            raise _malformed(change, first) from None
    return state


def _malformed(change: str, first: str) -> InputError:
    return InputError("what-if", repr(change), f"{GRAMMAR[first]}, such as {EXAMPLES[first]}")


def submission(change: str) -> dict[str, Any]:
    """What a ``submit`` says of its job, as a job file would: GPUs, and the limit of its run time if it names one."""
    try:
        gpus, *limit = words_of(change)[1:]
        if len(limit) > 1:
            raise ValueError(change)
        return {"gpus": {"count": int(gpus)}, **({"max_runtime": _seconds(limit[0])} if limit else {})}
    except ValueError:
        raise _malformed(change, "submit") from None


def _seconds(text: str) -> float:
    return seconds(float(text) if text.replace(".", "", 1).isdecimal() else text)


def _policy(state: LiveState, words: list[str], moment: Moment) -> None:
    (name,) = words
    resolve(name, state.placement, {})
    state.policy, state.accounts, state.settings = name, {}, {}
    del moment


def _placement(state: LiveState, words: list[str], moment: Moment) -> None:
    (name,) = words
    resolve(state.policy, name, {})
    state.placement, state.accounts, state.settings = name, {}, {}
    del moment


def _add(state: LiveState, words: list[str], moment: Moment) -> None:
    (given,) = words
    found = re.fullmatch(r"(\d{1,4})x(\d{1,3})(?::(\S+))?", given)
    if found is None or state.cluster is None:
        raise ValueError(given)
    cluster, gpu_type = state.cluster, found[3] or state.cluster.types[0]
    if gpu_type not in cluster.types:
        raise unknown_name("what-if", "GPU type", gpu_type, list(cluster.types))
    last = cluster.nodes[-1]
    more = [Node(f"new{i}", int(found[2]), gpu_type, last.rack) for i in range(int(found[1]))]
    _use(state, replace(cluster, nodes=(*cluster.nodes, *more), scores={}))
    del moment


def _use(state: LiveState, cluster: Cluster) -> None:
    state._use_cluster(state.last_s, cluster)


def _lose(state: LiveState, words: list[str], moment: Moment) -> None:
    (name,) = words
    cluster = state.cluster
    if cluster is None or name not in {node.name for node in cluster.nodes}:
        raise unknown_name("what-if", "node", name, [node.name for node in cluster.nodes] if cluster else [])
    state.nodes[name] = NodeState("drained", "what-if", drained=True)
    for job in state.live.values():
        if job.holds_gpus and any(cluster.nodes[cluster.node_of[gpu]].name == name for gpu in job.gpus):
            _off(job, moment.now_s)


def _off(job: LiveJob, now_s: float) -> None:
    """The job loses its GPUs and waits, with the steps that are safe."""
    job.attained_s += max(now_s - job.run_from_s, 0.0)
    job.state, job.gpus, job.co_runner, job.rate = "waiting", (), "", 0.0
    job.done, job.idle_from_s = job.safe, now_s


def _job(state: LiveState, job_id: str) -> LiveJob:
    job = state.live.get(job_id)
    if job is None:
        raise InputError("what-if", f"no live job {job_id!r}", "the id of a job that has not ended")
    return job


def _hold(state: LiveState, words: list[str], moment: Moment) -> None:
    """Also a cancel: either way the job has no GPUs from now on."""
    (job_id,) = words
    job = _job(state, job_id)
    if job.holds_gpus:
        _off(job, moment.now_s)
    job.state = "held"


def _release(state: LiveState, words: list[str], moment: Moment) -> None:
    (job_id,) = words
    job = _job(state, job_id)
    job.not_before_s, job.aside = 0.0, ""
    if job.state in ("held", "set aside"):
        job.state = "waiting"
    del moment


def _priority(state: LiveState, words: list[str], moment: Moment) -> None:
    job_id, number = words
    job = _job(state, job_id)
    if not abs(float(number)) <= MAX_PRIORITY:
        raise ValueError(number)
    job.spec = job.spec.model_copy(update={"priority": float(number)})
    del moment


def _submit(state: LiveState, words: list[str], moment: Moment) -> None:
    asked = {"name": "what-if", "run": ["true"], **submission(" ".join(("submit", *words)))}
    spec = JobSpec.model_validate(asked)
    at_s = moment.now_s
    job = LiveJob(str(state.next_id), moment.user, moment.queue, 1.0, spec, at_s, idle_from_s=at_s)
    state.jobs[job.id] = state.live[job.id] = job
    state.next_id += 1


def _quota(state: LiveState, words: list[str], moment: Moment) -> None:
    (given,) = words
    subject, max_gpus = parse_quota(given)
    if isinstance(max_gpus, str):  # as configured
        state.quotas.pop(subject, None)
    else:
        state.quotas[subject] = QuotaChange(max_gpus, moment.user, moment.now_s)


_APPLY: dict[str, Callable[[LiveState, list[str], Moment], None]] = {
    "policy": _policy,
    "placement": _placement,
    "add": _add,
    "lose": _lose,
    "cancel": _hold,
    "hold": _hold,
    "release": _release,
    "priority": _priority,
    "submit": _submit,
    "quota": _quota,
}
