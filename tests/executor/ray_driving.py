"""Drives the Ray executor from a test, over the cluster of the session: short times, clean-up in Ray as well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.executor.driving import Driver, job_log, marked_processes
from tests.executor.ray_cluster import RayCluster
from trine.executor.base import NodeInfo, Unreachable
from trine.executor.ray.connection import RayConnection
from trine.executor.ray.engine import RayEngine
from trine.executor.ray.executor import RayExecutor

SHORT: dict[str, Any] = {"poll_s": 0.3, "look_s": 0.05, "visible_s": 0.3, "cancel_s": 3.0, "pending_s": 20.0}


def ray_engine(cluster: RayCluster, **settings: Any) -> RayEngine:
    """The engine over a cluster of a test."""
    places = {"address": cluster.address, "token_path": str(cluster.token), "ray_python": str(cluster.python)}
    return RayEngine(**{**places, **SHORT, **settings})


class RayDriving:
    """As ``tests.executor.driving.Engine``."""

    shares_gpus = False

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self._cluster: RayCluster | None = None
        self._connection: RayConnection | None = None
        self._nodes: list[NodeInfo] = []

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.use(request.getfixturevalue("ray"))

    def use(self, cluster: RayCluster) -> None:
        if self._cluster is cluster:
            return
        self._cluster = cluster
        self._connection = ray_engine(cluster).connection()
        nodes = ray_engine(cluster).find_nodes(None)
        assert not isinstance(nodes, Unreachable), nodes
        self._nodes = nodes

    @property
    def cluster(self) -> RayCluster:
        assert self._cluster is not None, "the cluster comes with a fixture"
        return self._cluster

    def open(self, state: Path) -> RayExecutor:
        # As jobs see it: the variables of this process, which tests change, and not those of the cluster.
        return ray_engine(self.cluster, environ=os.environ, **self.settings).open(state, self._nodes)

    def log(self, state: Path, job_id: str, rank: int) -> str:
        return job_log(state, job_id, rank)

    def leftovers(self, state: Path) -> list[int]:
        return marked_processes(state)

    def tidy(self) -> None:
        """The driver has ended all jobs; what they held is given back to Ray before the next test asks for it."""
        assert self._connection is not None
        left = self._connection.call("ask", prefix="")
        for group in left["groups"]:
            actors = [name for name in left["actors"] if name.startswith(f"{group}/")]
            self._connection.call("release", group=group, actors=actors)


class RayDriver(Driver):
    """A driver that knows its cluster."""

    engine: RayDriving

    @property
    def cluster(self) -> RayCluster:
        return self.engine.cluster
