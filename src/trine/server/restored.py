"""After a restore the journal is older than the attempts on disk: which of them it does not know, and which of those
go on. Nothing is started or ended here."""

from __future__ import annotations

from trine.core.cluster import Cluster
from trine.executor.base import Executor, Handle, JobStorage, Placement
from trine.server.live_job import LiveJob
from trine.server.records import StartOrder
from trine.server.state import LiveState


def unknown_attempts(state: LiveState, storage: JobStorage) -> dict[str, int]:
    """The newest attempt on disk of each live job whose journal knows only older ones."""
    newest = {job.id: storage.newest_epoch(job.id) for job in state.live.values()}
    return {job_id: number for job_id, number in newest.items() if number > state.live[job_id].epoch}


def adoptable(
    state: LiveState, attempts: dict[str, int], cluster: Cluster, executor: Executor
) -> tuple[StartOrder, ...]:
    """Unknown attempts that still run and may go on: nobody on record has their GPUs, and nobody wants them stopped."""
    if state.cluster is not None and state.cluster.nodes != cluster.nodes:
        return ()  # GPU ids on record are about to change
    taken = {gpu for job in state.holders() if job.id not in attempts for gpu in job.gpus}
    found = []
    for job_id, number in attempts.items():
        gpus = _gpu_ids(cluster, executor.placement(Handle(job_id, number)))
        if not _may_go_on(state.live[job_id], gpus, cluster) or taken.intersection(gpus):
            continue
        taken.update(gpus)
        sentence = f"Attempt {number} was found running; it was started after this journal was saved."
        found.append(StartOrder(job_id, number, gpus, "found", sentence))
    return tuple(found)


def _may_go_on(job: LiveJob, gpus: tuple[int, ...], cluster: Cluster) -> bool:
    whole = len(gpus) == job.spec.gpus.count and len({cluster.type_of(gpu) for gpu in gpus}) == 1
    return whole and job.state != "held" and not job.requested_action


def _gpu_ids(cluster: Cluster, placement: Placement) -> tuple[int, ...]:
    """GPU ids of the cluster; none at all if one of the GPUs is not part of it."""
    first = {node.name: (cluster.first_gpu[i], node.gpus) for i, node in enumerate(cluster.nodes)}
    ids = []
    for node, gpus in placement:
        start, count = first.get(node, (0, 0))
        if any(not 0 <= gpu < count for gpu in gpus):
            return ()
        ids += [start + gpu for gpu in gpus]
    return tuple(sorted(ids))
