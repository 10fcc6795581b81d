"""The settings of the engine ``slurm`` and how it is opened: what is wrong with them, or with the cluster behind them,
is found here, before anything is started. How jobs run there is in ``executor``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.params import param
from trine.executor.attempt.shared_dir import Times
from trine.executor.attempt.spec import SOURCE
from trine.executor.attempt.state_dir import own_id
from trine.executor.base import Capabilities, NodeInfo, Unreachable
from trine.executor.slurm.carriers import BatchCarrier, Carrier
from trine.executor.slurm.commands import Slurm, SlurmRefused, SlurmUnreachable, check_installed
from trine.executor.slurm.executor import SlurmExecutor
from trine.executor.slurm.inventory import find_nodes
from trine.executor.slurm.pilot import StepCarrier, allocated_nodes, find_allocation
from trine.executor.slurm.submission import NOT_VISIBLE_RC, Resources

ID_FILE = "slurm-id"
"""In the state directory: what tells its jobs in Slurm from those of others."""
_PROBE_S = 5
_NO_PYTHON_RC, _NO_SOURCE_RC = NOT_VISIBLE_RC + 1, NOT_VISIBLE_RC + 2
_NO_NODE_NOW = ("not available", "busy", "drained")
"""What Slurm says where nodes are down, drained or taken: "Requested node configuration is not available" ..."""


@dataclass
class SlurmEngine:
    """Jobs on the nodes of a Slurm cluster: one batch job each, or steps inside an allocation."""

    name: ClassVar[str] = "slurm"
    conf: str = param("", "path of slurm.conf; empty: what SLURM_CONF says, or where Slurm itself looks")
    partition: str = param("", "the partition whose nodes are scheduled; empty: Slurm's default")
    account: str = param("", "the account that jobs are charged to; empty: the user's default")
    options: tuple[str, ...] = param((), "more options of sbatch, such as --qos=high,--reservation=trine")
    cpus_per_gpu: int | None = param(None, "cores per GPU; by default the node's share of them", minimum=1)
    memory_per_gpu_mib: int | None = param(None, "memory per GPU in MiB; by default the node's share of it", minimum=1)
    poll_s: float = param(2.0, "seconds between two questions to Slurm about all jobs", minimum=0.05)
    nodes_s: float = param(5.0, "seconds between two questions to Slurm about the nodes", minimum=0.05)
    look_s: float = param(0.25, "seconds between two looks at what running jobs report", minimum=0.01)
    timeout_s: float = param(20.0, "seconds that a command of Slurm may take before Slurm counts as away", minimum=0.1)
    pending_s: float = param(
        60.0, "seconds that Slurm may keep a job waiting before it is withdrawn and placed anew", minimum=0.1
    )
    visible_s: float = param(5.0, "seconds until a file that is written on one node is seen on all others", minimum=0.0)
    cancel_s: float = param(10.0, "seconds after the end of its grace at which a job is ended by scancel", minimum=0.0)
    drain: bool = param(True, "drain nodes in Slurm, too, when they are drained here; needs the rights of an operator")
    python: str = param("", "Python on the nodes; empty: the one that runs the daemon, which nodes must see")
    interface: str = param("", "network interface of the ranks on the nodes (GLOO_SOCKET_IFNAME); empty: their choice")
    within_allocation: bool = param(False, "run jobs as steps inside one allocation that this user has already")
    allocation: str = param("", "the job id of that allocation; empty: the one that the daemon was started in")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    described: Cluster | None = None
    """What was asked for last: nodes that it does not name stay out when they join."""

    def find_nodes(self, described: Cluster | None) -> list[NodeInfo] | Unreachable:
        check_installed(self.conf, self.environ)
        self.described = described
        try:
            if self.within_allocation:
                nodes = allocated_nodes(self.slurm, find_allocation(self.allocation, self.environ), described)
            else:
                nodes = find_nodes(self.slurm, self.partition, described)
        except SlurmUnreachable as error:
            return Unreachable(str(error))
        except SlurmRefused as refusal:
            raise InputError("--engine slurm", f"Slurm says: {refusal}", "a cluster that can be asked") from None
        if not nodes:
            where = f"partition {self.partition}" if self.partition else "the default partition"
            found = f"no node of {'the allocation' if self.within_allocation else where} has GPUs in Slurm"
            raise InputError("--engine slurm", found, "nodes with Gres=gpu:... in slurm.conf")
        return [node.info() for node in nodes]

    def capabilities(self, nodes: Sequence[NodeInfo]) -> Capabilities:  # noqa: ARG002 - alike everywhere
        # By one GRES type per GPU, or by whole nodes of which a job sees only its own GPUs.
        return Capabilities(exact_gpus=True, shares_gpus=False, separates_users=os.geteuid() == 0)

    def open(self, state_dir: Path, nodes: Sequence[NodeInfo]) -> SlurmExecutor:
        check_installed(self.conf, self.environ)
        state_dir.mkdir(parents=True, exist_ok=True)
        carrier = self.carrier(own_id(state_dir, ID_FILE))
        try:
            self._check_rights()
            self._check_visible(state_dir)
        except SlurmUnreachable:
            pass  # jobs wait until it answers; what is wrong is then said of each of them
        return SlurmExecutor(state_dir, nodes, carrier, self.times, environ=self.environ)

    @property
    def times(self) -> Times:
        return Times(self.look_s, self.poll_s, self.pending_s, self.visible_s, self.cancel_s)

    @property
    def slurm(self) -> Slurm:
        """The cluster as the settings describe it."""
        return Slurm(self.conf, self.timeout_s, self.environ)

    @property
    def resources(self) -> Resources:
        """What jobs ask for besides GPUs."""
        return Resources(self.partition, self.account, self.options, self.cpus_per_gpu, self.memory_per_gpu_mib)

    def carrier(self, own_id: str) -> Carrier:
        """How leases of the state directory with this id get to the nodes."""
        places = (self.python, self.interface, self.described)
        if self.within_allocation:
            allocation = find_allocation(self.allocation, self.environ)
            return StepCarrier(self.slurm, own_id, allocation, *places)
        return BatchCarrier(self.slurm, own_id, self.resources, *places, self.nodes_s, self.drain)

    def _check_rights(self) -> None:
        """``InputError`` if Slurm would take no job from this user; asked without submitting one.

        That no node is there at the moment is no want of rights: nodes come back, and the daemon must start meanwhile.
        """
        if self.within_allocation:
            return
        try:
            self.slurm.run("sbatch", "--test-only", "--output=/dev/null", *self._where(), "--wrap=true")
        except SlurmRefused as refusal:
            if any(word in str(refusal).lower() for word in _NO_NODE_NOW):
                return
            expected = "a partition and an account that this user may use (engine.partition, engine.account)"
            raise InputError("--engine slurm", f"Slurm takes no jobs from this user: {refusal}", expected) from None

    def _where(self) -> list[str]:
        named = {"partition": self.partition, "account": self.account}
        return [*(f"--{option}={value}" for option, value in named.items() if value), *self.options]

    def _check_visible(self, state_dir: Path) -> None:
        """``InputError`` if a node does not see what every attempt needs. No node is free: it is found out later."""
        python, source = self.python or sys.executable, SOURCE
        script = (
            f'test -d "$1" || exit {NOT_VISIBLE_RC}; test -x "$2" || exit {_NO_PYTHON_RC}; '
            f'test -d "$3" || exit {_NO_SOURCE_RC}'
        )
        step = ["--nodes=1", "--ntasks=1", "--chdir=/", "--mpi=none", "--job-name=trine-check"]
        if self.within_allocation:
            step += [f"--jobid={find_allocation(self.allocation, self.environ)}", "--overlap"]
        else:
            step += [f"--immediate={_PROBE_S}", "--mem=1", *self._where()]
        try:
            self.slurm.run("srun", *step, "sh", "-c", script, "-", str(state_dir.absolute()), python, source)
        except SlurmRefused as refusal:
            self._explain_probe(str(refusal), str(state_dir.absolute()), python, source)

    def _explain_probe(self, said: str, state_dir: str, python: str, source: str) -> None:
        shared = "a directory on a file system that all nodes share"
        for rc, what, path, expected in (
            (NOT_VISIBLE_RC, "state directory", state_dir, f"--state DIR, {shared}"),
            (_NO_PYTHON_RC, "Python", python, "engine.python, the path of Python 3.11 or newer on the nodes"),
            (_NO_SOURCE_RC, "trine itself", source, f"trine installed in {shared}"),
        ):
            if f"exit code {rc}" in said.lower():
                raise InputError("--engine slurm", f"the nodes do not see {what} {path}", expected)


ENGINE = SlurmEngine
