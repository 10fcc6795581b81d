"""How leases get to Slurm's nodes: as batch jobs of their own, or as steps inside one allocation that the user has
already (the pilot). Every method may block for as long as a command may take."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trine.core.cluster import Cluster
from trine.executor.attempt import rundir
from trine.executor.base import Handle
from trine.executor.slurm.attempt import SlurmAttempt, handle_of
from trine.executor.slurm.commands import BatchJob, Slurm, SlurmRefused, SlurmUnreachable
from trine.executor.slurm.inventory import SlurmNode, fields, find_nodes
from trine.executor.slurm.submission import (
    NOT_VISIBLE_RC,
    Resources,
    batch_script,
    comment,
    components,
    job_name,
    leader_command,
    sbatch_arguments,
    step_arguments,
)

DRAINED_BY_US = "trine: "
_EXIT_CODE = re.compile(r"(\d+):(\d+)")


class Answer(NamedTuple):
    """What Slurm says when asked once."""

    jobs: dict[Handle, list[BatchJob]]
    """Jobs of this state directory, by attempt."""
    nodes: list[SlurmNode] | None
    """``None``: not asked this time."""


class Carrier(Protocol):
    """Carries leases out. Raises ``SlurmUnreachable`` and ``SlurmRefused``."""

    slurm: Slurm

    def submit(self, attempt: SlurmAttempt) -> None: ...

    def ask(self, running: Sequence[SlurmAttempt]) -> Answer:
        """About all jobs and, now and then, all nodes; ``running``: the attempts that have not ended."""

    def cancel(self, attempt: SlurmAttempt, pending_only: bool) -> None:
        """End its jobs; with ``pending_only`` none that has started meanwhile."""

    def drain(self, node: str, reason: str) -> None: ...

    def resume(self, node: str) -> None: ...

    def explain_end(self, attempt: SlurmAttempt) -> str:
        """What Slurm knows about a job that ended before it began, in a few words; empty: nothing."""


def complete_spec(
    attempt: SlurmAttempt, nodes: Mapping[str, SlurmNode], held: Mapping[str, Sequence[int]], interface: str
) -> None:
    """Add what only Slurm knows to what leader and parts read: where the ranks meet, and which GPUs of each node the
    job holds, in the order in which Slurm numbers them for it."""
    attempt.spec["addresses"] = {node: nodes[node].address for node in held}
    attempt.spec["interface"] = interface
    attempt.spec["held"] = {node: sorted(gpus) for node, gpus in held.items()}
    rundir.write_json(str(attempt.run_dir / rundir.SPEC), attempt.spec)


@dataclass
class BatchCarrier:
    """One batch job per lease."""

    slurm: Slurm
    state_id: str
    wanted: Resources
    python: str = ""
    interface: str = ""
    described: Cluster | None = None
    nodes_s: float = 5.0
    """Seconds between two questions about the nodes."""
    may_drain: bool = True
    _nodes: dict[str, SlurmNode] = field(default_factory=dict)
    _nodes_asked_s: float = float("-inf")

    def submit(self, attempt: SlurmAttempt) -> None:
        placement = tuple((node, tuple(gpus)) for node, gpus in attempt.spec["placement"])
        if not self._nodes:  # not asked for yet
            self._ask_nodes()
        parts = components(placement, self._nodes, self.wanted)
        held = {node: gpus if self._nodes[node].gres else range(self._nodes[node].gpus) for node, gpus in placement}
        complete_spec(attempt, self._nodes, held, self.interface)
        leader = leader_command(self.python, str(attempt.run_dir), step_arguments(parts))
        script = batch_script(str(attempt.run_dir), str(attempt.run_dir / rundir.SUPERVISOR_LOG), leader)
        self.slurm.submit(sbatch_arguments(parts, self.wanted, self.state_id, attempt.handle), script)

    def ask(self, running: Sequence[SlurmAttempt]) -> Answer:  # noqa: ARG002 - Slurm names them all
        """Nodes first: a job that ends between the two questions is then still seen as ours."""
        nodes = None
        if time.monotonic() - self._nodes_asked_s >= self.nodes_s:
            nodes = self._ask_nodes()
        jobs: dict[Handle, list[BatchJob]] = {}
        prefix = comment(self.state_id, Handle("", 0)).removesuffix("/0")
        for job in self.slurm.jobs(job_name(self.state_id)):
            if handle := handle_of(job.comment, prefix):
                jobs.setdefault(handle, []).append(job)
        return Answer(jobs, nodes)

    def _ask_nodes(self) -> list[SlurmNode]:
        nodes = find_nodes(self.slurm, self.wanted.partition, self.described)
        self._nodes = {node.name: node for node in nodes}
        self._nodes_asked_s = time.monotonic()
        return nodes

    def cancel(self, attempt: SlurmAttempt, pending_only: bool) -> None:
        if attempt.ids:
            self.slurm.cancel(*(["--state=PENDING"] if pending_only else []), *attempt.ids)

    def drain(self, node: str, reason: str) -> None:
        if self.may_drain:
            self.slurm.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={DRAINED_BY_US}{reason}")

    def resume(self, node: str) -> None:
        """Only what was drained by a daemon of ours: what an administrator drained stays so."""
        if self.may_drain and DRAINED_BY_US in self.slurm.run("scontrol", "show", "node", node, "--oneliner"):
            self.slurm.run("scontrol", "update", f"nodename={node}", "state=resume")

    def explain_end(self, attempt: SlurmAttempt) -> str:
        for job in attempt.jobs:
            with suppress(SlurmRefused, SlurmUnreachable):
                shown = fields(self.slurm.run("scontrol", "show", "job", job.id, "--oneliner"))
                code = _EXIT_CODE.match(shown.get("ExitCode", ""))
                if code and int(code[1]) == NOT_VISIBLE_RC:
                    return f"{attempt.run_dir} is not visible on {shown.get('BatchHost', 'its node')}"
                if code and int(code[1]):
                    return f"the batch script ended with exit code {code[1]}"
        return ""
