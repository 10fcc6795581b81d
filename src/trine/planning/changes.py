"""Changes that can be tried on a live state before anything happens: each is a few words.

A change returns the model of the limits that goes with it; the state is a copy and may be changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, unknown_name
from trine.engine.quotas import Quotas
from trine.inputs.job_spec import JobSpec
from trine.server.build import Model
from trine.server.live_job import LiveJob, NodeState
from trine.server.state import LiveState

GRAMMAR = {
    "policy": "policy NAME",
    "placement": "placement NAME",
    "add": "add COUNTxGPUS[:TYPE]  (nodes)",
    "lose": "lose NODE",
    "cancel": "cancel JOB",
    "hold": "hold JOB",
    "release": "release JOB",
    "priority": "priority JOB NUMBER",
    "submit": "submit GPUS [SECONDS]",
    "quota": "quota user:NAME=GPUS or quota queue:NAME=GPUS",
}
"""Every change by its first word."""
APPLICABLE = ("cancel", "hold", "release", "lose")
"""Those that a daemon carries out; a node that is to be lost is drained."""
INSTEAD = {
    "policy": "start the daemon anew with --policy; jobs that run go on meanwhile",
    "placement": "start the daemon anew with --placement; jobs that run go on meanwhile",
    "quota": "write it into the configuration file and start the daemon anew; jobs that run go on meanwhile",
    "priority": "a job keeps the priority that it was submitted with; submit it again and cancel this one",
    "submit": "`trine submit`, which also says what is to run",
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


def changed(state: LiveState, model: Model, changes: Sequence[str], now_s: float) -> tuple[LiveState, Model]:
    """The state after all ``changes``, one after the other."""
    for change in changes:
        first, *rest = words_of(change)
        try:
            model = _APPLY[first](state, model, rest, now_s)
        except (ValueError, IndexError):
            raise InputError("what-if", repr(change), GRAMMAR[first]) from None
    return state, model


def _policy(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    (name,) = words
    resolve(name, state.placement, {})
    state.policy, state.accounts, state.settings = name, {}, {}
    del now_s
    return model


def _placement(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    (name,) = words
    resolve(state.policy, name, {})
    state.placement, state.accounts, state.settings = name, {}, {}
    del now_s
    return model


def _add(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
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
    del now_s
    return model


def _use(state: LiveState, cluster: Cluster) -> None:
    state._use_cluster(state.last_s, cluster)


def _lose(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    (name,) = words
    cluster = state.cluster
    if cluster is None or name not in {node.name for node in cluster.nodes}:
        raise unknown_name("what-if", "node", name, [node.name for node in cluster.nodes] if cluster else [])
    state.nodes[name] = NodeState("drained", "what-if", drained=True)
    for job in state.live.values():
        if job.holds_gpus and any(cluster.nodes[cluster.node_of[gpu]].name == name for gpu in job.gpus):
            _off(job, now_s)
    return model


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


def _hold(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    """Also a cancel: either way the job has no GPUs from now on."""
    job = _job(state, *words)
    if job.holds_gpus:
        _off(job, now_s)
    job.state = "held"
    return model


def _release(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    job = _job(state, *words)
    job.not_before_s, job.aside = 0.0, ""
    if job.state in ("held", "set aside"):
        job.state = "waiting"
    del now_s
    return model


def _priority(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    job_id, number = words
    job = _job(state, job_id)
    job.spec = job.spec.model_copy(update={"priority": float(number)})
    del now_s
    return model


def _submit(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    gpus, *length = words
    if len(length) > 1:
        raise ValueError(words)
    asked: dict[str, Any] = {"name": "what-if", "run": ["true"], "gpus": int(gpus)}
    asked |= {"max_runtime": float(length[0])} if length else {}
    spec = JobSpec.model_validate(asked)
    job = LiveJob(str(state.next_id), "what-if", "default", 1.0, spec, now_s, idle_from_s=now_s)
    state.jobs[job.id] = state.live[job.id] = job
    state.next_id += 1
    return model


def _quota(state: LiveState, model: Model, words: list[str], now_s: float) -> Model:
    del state, now_s
    found = re.fullmatch(r"(user|queue):([^=]+)=(\d{1,9})", words[0])
    if found is None or len(words) > 1:
        raise ValueError(words)
    groups, users = dict(model.quotas.by_group), dict(model.quotas.by_user)
    (users if found[1] == "user" else groups)[found[2]] = int(found[3])
    return replace(model, quotas=Quotas(groups, users))


_APPLY: dict[str, Callable[[LiveState, Model, list[str], float], Model]] = {
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
