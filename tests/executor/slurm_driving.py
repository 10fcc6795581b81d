"""Drives the Slurm executor from a test, over the cluster of the session: short times, clean-up in Slurm as well."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.executor.driving import Driver, job_log, marked_processes
from tests.executor.slurm_cluster import SlurmCluster
from trine.executor.attempt.shared_dir import Times
from trine.executor.attempt.state_dir import own_id
from trine.executor.base import NodeInfo
from trine.executor.slurm.carriers import BatchCarrier
from trine.executor.slurm.commands import Slurm
from trine.executor.slurm.engine import ID_FILE
from trine.executor.slurm.executor import SlurmExecutor
from trine.executor.slurm.inventory import find_nodes
from trine.executor.slurm.submission import Resources

TIMES = Times(look_s=0.05, ask_s=0.3, pending_s=15.0, visible_s=0.3, cancel_s=3.0)


class SlurmDriving:
    """As ``tests.executor.driving.Engine``."""

    shares_gpus = False
    exact_gpus = True

    def __init__(self, times: Times = TIMES, timeout_s: float = 10.0) -> None:
        self.times, self.timeout_s = times, timeout_s
        self._cluster: SlurmCluster | None = None
        self._nodes: list[NodeInfo] = []

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.use(request.getfixturevalue("slurm"))

    def use(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._nodes = [node.info() for node in find_nodes(self.slurm(), "")]

    @property
    def cluster(self) -> SlurmCluster:
        assert self._cluster is not None, "the cluster comes with a fixture"
        return self._cluster

    def slurm(self, environ: Mapping[str, str] | None = None) -> Slurm:
        return Slurm(str(self.cluster.conf), self.timeout_s, environ or self.cluster.environ)

    def open(self, state: Path, environ: Mapping[str, str] | None = None) -> SlurmExecutor:
        """``environ``: where Slurm's programs are found, if not where they are."""
        state.mkdir(parents=True, exist_ok=True)
        carrier = BatchCarrier(self.slurm(environ), own_id(state, ID_FILE), Resources(), nodes_s=0.3)
        # As jobs see it: the variables of this process, which tests change, and not those of the cluster.
        return SlurmExecutor(state, self._nodes, carrier, self.times, environ=os.environ)

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return marked_processes(state)

    def left_behind(self) -> list[str]:
        """Jobs that wait or run in Slurm."""
        return self.cluster.jobs()

    def tidy(self) -> None:
        """Nothing of a test is left in Slurm, and every node takes jobs again."""
        self.cluster.cancel_all()
        self.cluster.resume_nodes()


class SlurmDriver(Driver):
    """A driver that knows its cluster."""

    engine: SlurmDriving

    @property
    def cluster(self) -> SlurmCluster:
        return self.engine.cluster
