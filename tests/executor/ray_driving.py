"""Drives the Ray executor from a test, over the cluster of the session: short times, clean-up in Ray as well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import Driver, job_log, marked_processes
from tests.executor.ray_cluster import RayCluster
from trine.executor.attempt.state_dir import own_id
from trine.executor.base import NodeInfo
from trine.executor.ray.connection import RayConnection
from trine.executor.ray.engine import ID_FILE, RayEngine
from trine.executor.ray.executor import RayExecutor
from trine.executor.ray.inventory import parse_nodes

SHORT: dict[str, Any] = {"poll_s": 0.3, "look_s": 0.05, "visible_s": 0.3, "cancel_s": 3.0, "pending_s": 20.0}


def ray_settings(cluster: RayCluster) -> dict[str, Any]:
    """Where a cluster of a test is."""
    return {"address": cluster.address, "token_path": str(cluster.token), "ray_python": str(cluster.python)}


def ray_engine(cluster: RayCluster, **settings: Any) -> RayEngine:
    """The engine over a cluster of a test."""
    return RayEngine(**{**ray_settings(cluster), "environ": cluster.environ, **SHORT, **settings})


class KeptConnection(RayConnection):
    """Outlives the executors that use it."""

    def close(self) -> None:
        """It ends with the test process, or by ``end``."""

    def end(self) -> None:
        super().close()


class RayDriving:
    """As ``tests.executor.driving.Engine``."""

    shares_gpus = False
    exact_gpus = True

    def __init__(self, *, shared: bool = True, **settings: Any) -> None:
        self.shared, self.settings = shared, settings
        """One connection for all executors, which takes seconds to make; faults want their own."""
        self._cluster: RayCluster | None = None
        self._connection: KeptConnection | None = None
        self._nodes: list[NodeInfo] = []

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.use(request.getfixturevalue("ray"))

    def use(self, cluster: RayCluster) -> None:
        if self._cluster is cluster:
            return
        self._cluster = cluster
        engine = ray_engine(cluster, **self.settings)
        self._connection = KeptConnection(**vars(engine.connection()))
        said = self.connection.call("ask", prefix="")["nodes"]
        self._nodes = [node.info() for node in parse_nodes(said, engine.naming)]

    @property
    def connection(self) -> KeptConnection:
        assert self._connection is not None, "the cluster comes with a fixture"
        return self._connection

    @property
    def cluster(self) -> RayCluster:
        assert self._cluster is not None, "the cluster comes with a fixture"
        return self._cluster

    def open(self, state: Path) -> RayExecutor:
        state.mkdir(parents=True, exist_ok=True)
        engine = ray_engine(self.cluster, **self.settings)
        connection = self.connection if self.shared else engine.connection()
        # As jobs see it: the variables of this process, which tests change, and not those of the cluster.
        return RayExecutor(
            state,
            self._nodes,
            connection,
            own_id(state, ID_FILE),
            engine.times,
            engine.wanted,
            environ=os.environ,
        )

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return marked_processes(state)

    def tidy(self) -> None:
        """The driver has ended all jobs; what they held is given back to Ray before the next test asks for it."""
        left = self.connection.call("ask", prefix="")
        for group in left["groups"]:
            actors = [name for name in left["actors"] if name.startswith(f"{group}/")]
            self.connection.call("release", group=group, actors=actors)


class RayDriver(Driver):
    """A driver that knows its cluster."""

    engine: RayDriving

    @property
    def cluster(self) -> RayCluster:
        return self.engine.cluster

    @property
    def talks_to_ray(self) -> int:
        """The process that talks to Ray now, 0 if there is none."""
        assert isinstance(self.executor, RayExecutor)
        return self.executor.driver_pid
