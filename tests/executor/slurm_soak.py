"""The soak on a real Slurm: controllers, daemons of nodes, steps and whole nodes die, jobs are cancelled by others.

``python -m tests.executor.slurm_soak --seed N`` runs 200 jobs and 30 faults, in at most five minutes."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.executor.engine_soak import EngineSoak, run_soak, soak_on
from tests.executor.slurm_cluster import SlurmCluster, missing


class SlurmSoak(EngineSoak):
    """On a cluster of its own."""

    options = (
        *("--engine", "slurm", "--set", "engine.poll_s=0.5", "--set", "engine.nodes_s=1"),
        *("--set", "engine.visible_s=0.5", "--set", "engine.timeout_s=8", "--set", "engine.cancel_s=3"),
        *("--set", "engine.pending_s=15"),
    )

    def __init__(self, seed: int, home: Path, cluster: SlurmCluster) -> None:
        super().__init__(seed, home)
        self.cluster = cluster

    @property
    def environ(self) -> Mapping[str, str]:
        return self.cluster.environ

    def kinds(self) -> Sequence[Callable[[], None]]:
        return [
            *(self.controller_dies, self.node_daemon_dies, self.machine_dies, self.step_dies, self.cancelled),
            *(self.drained, self.controller_stops),
        ]

    def _node(self) -> str:
        return self.draw.choice(self.cluster.names)

    def controller_dies(self) -> None:
        self.cluster.kill_controller()
        time.sleep(self.draw.uniform(0.0, 3.0))
        self.cluster.restart_controller()

    def controller_stops(self) -> None:
        self.cluster.kill_controller(signal.SIGTERM)
        time.sleep(self.draw.uniform(0.0, 1.0))
        self.cluster.restart_controller()

    def node_daemon_dies(self) -> None:
        name = self._node()
        self.cluster.kill_node(name)
        time.sleep(self.draw.uniform(0.0, 2.0))
        self.cluster.start_node(name)

    def machine_dies(self) -> None:
        name = self._node()
        self.cluster.kill_machine(name)
        time.sleep(self.draw.uniform(0.0, 2.0))
        self.cluster.start_node(name)

    def step_dies(self) -> None:
        self.cluster.kill_steps(self._node())

    def cancelled(self) -> None:
        """An administrator ends a job, without a word to anybody."""
        jobs = self.cluster.run("squeue", "-h", "-o", "%A", check=False).split()
        if jobs:
            self.cluster.run("scancel", self.draw.choice(sorted(jobs)), check=False)

    def drained(self) -> None:
        name = self._node()
        self.cluster.run("scontrol", "update", f"nodename={name}", "state=drain", "reason=soak", check=False)
        time.sleep(self.draw.uniform(0.5, 2.0))
        self.cluster.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)

    def mend(self) -> None:
        """Nodes that Slurm drained for what the faults did to it are an administrator's to put back."""
        for name, state in self.cluster.node_states().items():
            if "drain" in state or "down" in state:
                self.cluster.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)

    def check_engine(self) -> None:
        self.cluster.wait_for(lambda: not self.cluster.jobs(), "nothing left in Slurm")


def soak(seed: int, jobs: int, faults: int, limit_s: float, home: Path) -> tuple[dict[str, int], Counter[str]]:
    """Ends by state and faults by kind."""
    cluster = SlurmCluster(8, 2)
    return soak_on(cluster, SlurmSoak(seed, home, cluster), jobs, faults, limit_s)


if __name__ == "__main__":
    sys.exit(run_soak(soak, missing(), 300.0, __doc__))
