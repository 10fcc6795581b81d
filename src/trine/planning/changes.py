"""Changes that can be tried on a live state, which is a copy, before anything happens: each is a few words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, unknown_name
from trine.inputs.job_rules import GPU_TYPE, MAX_GPUS, MAX_PRIORITY, seconds
from trine.inputs.job_spec import JobSpec
from trine.inputs.quota_text import QUOTA_FORM, parse_quota
from trine.server import records as rec
from trine.server.live_job import LiveJob
from trine.server.quotas import QuotaChange
from trine.server.state import LiveState

GRAMMAR = {
    "policy": "policy NAME",
    "placement": "placement NAME",
    "add": "add COUNTxGPUS[:TYPE]",
    "lose": "lose NODE",
    "drain": "drain NODE",
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
    "drain": "drain node3",
    "cancel": "cancel 17",
    "hold": "hold 17",
    "release": "release 17",
    "priority": "priority 17 5",
    "submit": "submit 8 1h",
    "quota": "quota user:ann=16",
}
APPLICABLE = ("cancel", "hold", "release", "priority", "quota", "drain")
"""Those that a daemon carries out."""
INSTEAD = {
    "policy": "start the daemon anew with --policy; jobs that run go on meanwhile",
    "placement": "start the daemon anew with --placement; jobs that run go on meanwhile",
    "submit": "`trine whatif ... --apply -- CMD` or `trine submit`, with the command to run",
    "add": "add the nodes to the cluster that the daemon runs on",
    "lose": "`drain NODE`, after which nothing starts there any more",
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
    measured_types: tuple[str, ...] = ()
    """GPU types of the daemon's throughput table, in lower case; none: it has no table."""


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


def cancelled_by(changes: Sequence[str]) -> set[str]:
    """Ids of the jobs that the changes cancel; not those that are cancelled because they wait for one of these."""
    words = map(words_of, changes)
    return {job_id for first, job_id, *_ in words if first == "cancel"}


def assumed_of(before: Cluster, after: Cluster, measured_types: Sequence[str]) -> list[str]:
    """What had to be assumed of nodes that were added, in sentences."""
    new = [name for name in after.types if name not in before.types and name.lower() not in measured_types]
    return [f"Nothing was measured on {name}: it is taken to be as fast as {before.types[0]}." for name in new]


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
    _configure(state, name, state.placement, moment)


def _placement(state: LiveState, words: list[str], moment: Moment) -> None:
    (name,) = words
    resolve(state.policy, name, {})
    _configure(state, state.policy, name, moment)


def _configure(state: LiveState, policy: str, placement: str, moment: Moment) -> None:
    """As a start of the daemon with these does. Settings that they know stay: only what was asked for changes."""
    assert state.cluster is not None
    kept = {name: value for name, value in state.settings.items() if _knows(policy, placement, name, value)}
    cluster = rec.cluster_to_record(state.cluster)
    state._configured(rec.Configured(moment.now_s, "", cluster, policy, placement, kept, state.round_s, state.sharing))


def _knows(policy: str, placement: str, name: str, value: Any) -> bool:
    try:
        resolve(policy, placement, {name: value})
    except InputError:
        return False
    return True


def _add(state: LiveState, words: list[str], moment: Moment) -> None:
    (given,) = words
    found = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})(?::(\S+))?", given)
    cluster = state.cluster
    if found is None or cluster is None or not (int(found[1]) and int(found[2])):
        raise ValueError(given)
    count, gpus = int(found[1]), int(found[2])
    if cluster.gpu_count + count * gpus > MAX_GPUS:
        raise InputError("what-if", repr(f"add {given}"), f"at most {MAX_GPUS:,} GPUs in all")
    gpu_type, last = _gpu_type(found[3], cluster, moment), cluster.nodes[-1]
    names = _unused_names(count, {node.name for node in cluster.nodes})
    more = [Node(name, gpus, gpu_type, last.rack) for name in names]
    state._use_cluster(moment.now_s, replace(cluster, nodes=(*cluster.nodes, *more), scores={}))


def _gpu_type(given: str | None, cluster: Cluster, moment: Moment) -> str:
    """One that the cluster has, or another; where there is a throughput table, one that it knows."""
    if given is None:
        return cluster.types[0]
    alike = next((name for name in cluster.types if name.lower() == given.lower()), None)
    if alike is not None:
        return alike
    if moment.measured_types and given.lower() not in moment.measured_types:
        known = dict.fromkeys((*cluster.types, *moment.measured_types))
        raise unknown_name("what-if", "GPU type", given, list(known))
    if re.fullmatch(GPU_TYPE, given) is None:
        raise ValueError(given)
    return given


def _unused_names(count: int, taken: Collection[str]) -> list[str]:
    unused = (name for number in itertools.count() if (name := f"new{number}") not in taken)
    return list(itertools.islice(unused, count))


def _drain(state: LiveState, words: list[str], moment: Moment) -> None:
    """Nothing starts there any more; what becomes of jobs that run there is for the placement to say."""
    state._node_changed(rec.NodeChanged(moment.now_s, _node(state, words), "drained", "what-if", moment.user))


def _lose(state: LiveState, words: list[str], moment: Moment) -> None:
    """The node fails: its jobs lose their GPUs, and wait with the steps that are safe."""
    name, cluster = _node(state, words), state.cluster
    state._node_changed(rec.NodeChanged(moment.now_s, name, "down", "what-if", rec.EXECUTOR))
    for job in list(state.live.values()):
        if cluster is not None and any(cluster.nodes[cluster.node_of[gpu]].name == name for gpu in job.gpus):
            _stop(state, job, moment.now_s)


def _node(state: LiveState, words: list[str]) -> str:
    (name,) = words
    names = [node.name for node in state.cluster.nodes] if state.cluster else []
    if name not in names:
        raise unknown_name("what-if", "node", name, names)
    return name


def _stop(state: LiveState, job: LiveJob, now_s: float, action: str = "") -> None:
    """The job loses its GPUs now; ``action``: what is to become of it then, if it is not to wait."""
    if job.holds_gpus:
        job.state, job.requested_action = "stopping", action or job.requested_action
        state._exited(rec.ExitReported(now_s, job.id, job.epoch, "preempted", None, None))


def _job(state: LiveState, job_id: str) -> LiveJob:
    job = state.live.get(job_id)
    if job is None:
        raise InputError("what-if", f"no live job {job_id!r}", "the id of a job that has not ended")
    return job


def _hold(state: LiveState, words: list[str], moment: Moment) -> None:
    (job_id,) = words
    job = _job(state, job_id)
    _stop(state, job, moment.now_s, "hold")
    if job.live:
        job.state = "held"


def _cancel(state: LiveState, words: list[str], moment: Moment) -> None:
    """Jobs that wait for it may start, or are cancelled with it."""
    (job_id,) = words
    job = _job(state, job_id)
    _stop(state, job, moment.now_s, "cancel")
    if job.live:
        state._end(job, moment.now_s, "cancelled", None)


def _release(state: LiveState, words: list[str], moment: Moment) -> None:
    (job_id,) = words
    job = _job(state, job_id)
    job.not_before_s, job.aside = 0.0, ""
    state.paused.discard(job_id)
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
    "drain": _drain,
    "cancel": _cancel,
    "hold": _hold,
    "release": _release,
    "priority": _priority,
    "submit": _submit,
    "quota": _quota,
}
