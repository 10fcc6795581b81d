"""The pilot: leases as steps inside one allocation that the user has already, on the GPUs that Slurm gave to it. No
rights beyond those of any user are needed. The leader of an attempt runs beside the daemon, its parts on the nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.executor.attempt import rundir
from trine.executor.attempt.processes import is_same
from trine.executor.base import Handle
from trine.executor.slurm.attempt import SlurmAttempt
from trine.executor.slurm.carriers import Answer, complete_spec
from trine.executor.slurm.commands import BatchJob, Slurm, SlurmRefused
from trine.executor.slurm.inventory import SlurmNode, described_nodes, expand_hosts, find_racks, parse_nodes
from trine.executor.slurm.submission import comment, leader_command, overlap_arguments

_GRANTED = re.compile(r"\bNodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S*)")
_INDICES = re.compile(r"gpu[^,()]*\(IDX:([\d,-]+)\)")


def find_allocation(stated: str, environ: Mapping[str, str]) -> str:
    """The job id of the allocation: the one that was named, or the one that this process runs in."""
    found = stated or environ.get("SLURM_JOB_ID", "")
    if not found.isdecimal():
        where = "engine.allocation" if stated else "--within-allocation"
        what = f"{stated!r} is no job id" if stated else "the daemon was not started inside an allocation"
        raise InputError(where, what, "salloc ... trine up, or --set engine.allocation=JOBID")
    return found


def allocated_nodes(slurm: Slurm, allocation: str, described: Cluster | None) -> list[SlurmNode]:
    """The nodes of a running allocation, with those of their GPUs that are part of it."""
    shown = slurm.run("scontrol", "show", "job", allocation, "--oneliner", "--details")
    state = re.search(r"\bJobState=(\w+)", shown)
    if state is None or state[1] != "RUNNING":
        found = f"allocation {allocation} is {state[1] if state else 'not known to Slurm'}"
        raise InputError("--within-allocation", found, "an allocation that runs")
    granted = granted_gpus(shown)
    text = slurm.run("scontrol", "show", "node", "--oneliner", "--details")
    racks = find_racks(slurm)
    nodes = [
        replace(node, rack=racks.get(node.name, ""), indices=granted[node.name], used=frozenset())
        for node in parse_nodes(text)
        if granted.get(node.name)
    ]
    return nodes if described is None else described_nodes(nodes, described)


def granted_gpus(shown: str) -> dict[str, tuple[int, ...]]:
    """Indices of the GPUs of an allocation by node, from ``scontrol show job --details``."""
    found: dict[str, tuple[int, ...]] = {}
    for hosts, gres in _GRANTED.findall(shown):
        ranges = ",".join(_INDICES.findall(gres))
        indices = tuple(sorted({int(i) for part in ranges.split(",") if part for i in _range(part)}))
        found.update(dict.fromkeys(expand_hosts(hosts), indices))
    return found


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


@dataclass
class StepCarrier:
    """Leases as overlapping steps of one allocation. Nodes of it are drained here only, not in Slurm."""

    slurm: Slurm
    state_id: str
    allocation: str
    python: str = ""
    interface: str = ""
    described: Cluster | None = None
    _nodes: dict[str, SlurmNode] = field(default_factory=dict)
    _leaders: dict[Handle, int] = field(default_factory=dict)
    """Process ids of those that this process started and that have not ended."""

    def submit(self, attempt: SlurmAttempt) -> None:
        nodes = [node for node, _ in attempt.spec["placement"]]
        if not self._nodes:  # not asked for yet
            self._ask_nodes()
        complete_spec(attempt, self._nodes, {node: self._nodes[node].all_indices for node in nodes}, self.interface)
        step = overlap_arguments(self.allocation, nodes, comment(self.state_id, attempt.handle))
        command = leader_command(self.python, str(attempt.run_dir), step)
        log = str(attempt.run_dir / rundir.SUPERVISOR_LOG)
        self._leaders[attempt.handle] = os.posix_spawn(
            command[0],
            command,
            self.slurm.variables(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,  # it outlives the daemon
        )

    def ask(self, running: Sequence[SlurmAttempt]) -> Answer:
        steps = self._steps()
        self._leaders = {handle: pid for handle, pid in self._leaders.items() if not os.waitpid(pid, os.WNOHANG)[0]}
        jobs = {attempt.handle: self._jobs_of(attempt, steps) for attempt in running}
        try:
            nodes = self._ask_nodes()
        except (InputError, SlurmRefused):  # over: its time is up, or it was cancelled
            why = f"the allocation {self.allocation} has ended"
            nodes = [replace(node, open=False, reason=why) for node in self._nodes.values()]
        return Answer(jobs, nodes)

    def _ask_nodes(self) -> list[SlurmNode]:
        nodes = allocated_nodes(self.slurm, self.allocation, self.described)
        self._nodes = {node.name: node for node in nodes}
        return nodes

    def _jobs_of(self, attempt: SlurmAttempt, steps: Mapping[str, list[str]]) -> list[BatchJob]:
        """A lease is active while its leader or its step is there; a step that is over does not come back."""
        name = comment(self.state_id, attempt.handle)
        leader = rundir.read_json(str(attempt.run_dir / rundir.PID))
        active = name in steps or attempt.handle in self._leaders or is_same(leader)
        if not active and leader is None:
            return []
        return [BatchJob(self.allocation, "RUNNING" if active else "COMPLETED", "", "", name)]

    def _steps(self) -> dict[str, list[str]]:
        """Ids of the steps that run in the allocation, by name."""
        try:
            text = self.slurm.run("squeue", "--noheader", "--steps", f"--jobs={self.allocation}", "--format=%i|%j")
        except SlurmRefused:  # Slurm has forgotten the allocation
            return {}
        found: dict[str, list[str]] = {}
        for line in text.splitlines():
            step, _, name = line.partition("|")
            found.setdefault(name, []).append(step)
        return found

    def cancel(self, attempt: SlurmAttempt, pending_only: bool) -> None:
        steps = self._steps().get(comment(self.state_id, attempt.handle), [])
        if steps and not pending_only:
            self.slurm.cancel(*steps)

    def drain(self, node: str, reason: str) -> None:
        """Other jobs of the node are not ours to keep away."""

    def resume(self, node: str) -> None:
        """As ``drain``."""

    def explain_end(self, attempt: SlurmAttempt) -> str:
        """What the leader had to say."""
        try:
            said = (attempt.run_dir / rundir.SUPERVISOR_LOG).read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(said) if line.strip()), "")[:200]
