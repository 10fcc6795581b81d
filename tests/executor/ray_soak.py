"""The soak on a real Ray: actors, raylets and whole nodes die, the head falls silent, groups are removed by others.

``python -m tests.executor.ray_soak --seed N`` runs 200 jobs and 30 faults, in at most twenty minutes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.executor.engine_soak import EngineSoak, run_soak, soak_on
from tests.executor.ray_cluster import RayCluster, missing
from tests.executor.ray_driving import ray_engine, ray_settings
from trine.executor.ray.connection import RayRefused, RayUnreachable

_QUICK = ("RAY_health_check_period_ms=1000", "RAY_health_check_initial_delay_ms=0", "RAY_health_check_timeout_ms=3000")
_SETTINGS = {"poll_s": 0.5, "visible_s": 0.5, "timeout_s": 10, "cancel_s": 3, "pending_s": 20}


class RaySoak(EngineSoak):
    """On a cluster of its own, which another process of ours asks what is left there."""

    round_s = 30

    def __init__(self, seed: int, home: Path, cluster: RayCluster) -> None:
        super().__init__(seed, home)
        self.cluster = cluster
        self.connection = ray_engine(cluster).connection()

    @property
    def environ(self) -> Mapping[str, str]:
        return self.cluster.environ

    @property
    def options(self) -> Sequence[str]:
        chosen = {**ray_settings(self.cluster), **_SETTINGS}
        return [
            "--engine",
            "ray",
            *(word for each in chosen.items() for word in ("--set", "engine.{}={}".format(*each))),
        ]

    def kinds(self) -> Sequence[Callable[[], None]]:
        return [self.actor_dies, self.driver_dies, self.raylet_dies, self.machine_dies, self.head_silent, self.removed]

    def _node(self) -> str:
        return self.draw.choice(self.cluster.names)

    def actor_dies(self) -> None:
        """One of those that run now, wherever it is."""
        workers = sorted(pid for name in self.cluster.names for pid in self.cluster.workers(name))
        if workers:
            with suppress(ProcessLookupError):
                os.kill(self.draw.choice(workers), signal.SIGKILL)

    def driver_dies(self) -> None:
        """The process of the daemon that talks to Ray."""
        assert self.daemon is not None
        for pid in self.cluster.drivers(self.daemon.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def raylet_dies(self) -> None:
        name = self._node()
        self.cluster.kill_raylet(name)
        time.sleep(self.draw.uniform(0.0, 2.0))
        self._restart(name)

    def machine_dies(self) -> None:
        name = self._node()
        self.cluster.kill_machine(name)
        time.sleep(self.draw.uniform(0.0, 2.0))
        self._restart(name)

    def _restart(self, name: str) -> None:
        """Ray alone: what is left of jobs on the node is theirs to end."""
        self.cluster.kill_machine(name, with_jobs=False)
        self.cluster.start_node(name)

    def head_silent(self) -> None:
        self.cluster.pause_head(signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.5, 12.0))
        self.cluster.pause_head(signal.SIGCONT)

    def removed(self) -> None:
        """Somebody removes a placement group, and with it kills what runs there."""
        with suppress(RayUnreachable, RayRefused):
            groups = sorted(self.connection.call("ask", prefix="")["groups"])
            if groups:
                self.connection.call("release", group=self.draw.choice(groups), actors=[])

    def mend(self) -> None:
        for name in self.cluster.names:
            if not self.cluster.is_whole(name):
                self._restart(name)

    def check_engine(self) -> None:
        def left() -> bool:
            said = self.connection.call("ask", prefix="")
            return bool(said["groups"] or said["actors"])

        self.cluster.wait_for(lambda: not left(), "nothing left in Ray")

    def close(self) -> None:
        self.connection.close()
        super().close()


def soak(seed: int, jobs: int, faults: int, limit_s: float, home: Path) -> tuple[dict[str, int], Counter[str]]:
    """Ends by state and faults by kind."""
    cluster = RayCluster(4, 2, variables=_QUICK)
    return soak_on(cluster, RaySoak(seed, home, cluster), jobs, faults, limit_s)


if __name__ == "__main__":
    sys.exit(run_soak(soak, missing(), 1200.0, __doc__))
