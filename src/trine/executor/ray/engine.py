"""The settings of the engine ``ray`` and how it is opened: what is wrong with them, or with the cluster behind them, is
found here, before anything is started. How jobs run there is in ``executor``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.params import param
from trine.executor.attempt.shared_dir import Times
from trine.executor.attempt.state_dir import own_id
from trine.executor.base import Capabilities, NodeInfo, Unreachable
from trine.executor.ray.connection import RayConnection, RayDiffers, RayMissing, RayRefused, RayUnreachable
from trine.executor.ray.executor import RayExecutor, Wanted
from trine.executor.ray.inventory import Naming, check_description, described_nodes, parse_nodes

ID_FILE = "ray-id"
"""In the state directory: what tells its groups and actors in Ray from those of others."""
_CLIENT = "ray://"
"""How addresses begin that are reached through a process of the head's. Sweeps use it; what every node has free cannot
be asked that way."""


@dataclass
class RayEngine:
    """Jobs on the nodes of a Ray cluster: one placement group each, and one actor on every node of it."""

    name: ClassVar[str] = "ray"
    address: str = param(
        "", "HOST:PORT of the head, from a node of the cluster; empty: RAY_ADDRESS, or the cluster of this machine"
    )
    token_path: str = param("", "file with the token of the cluster; empty: RAY_AUTH_TOKEN_PATH, or where Ray looks")
    ray_python: str = param(
        "", "Python that has the Ray of the cluster, to talk to it with; empty: the one that runs the daemon"
    )
    python: str = param("", "Python on the nodes; empty: the one that runs the daemon, which nodes must see")
    node_label: str = param("trine-node", "label that names a node; nodes without it are called by their address")
    rack_label: str = param("rack", "label that says in which rack a node stands")
    cpus_per_gpu: float = param(0.0, "cores per GPU that Ray counts as taken", minimum=0.0)
    poll_s: float = param(1.0, "seconds between two questions to Ray about all nodes and jobs", minimum=0.05)
    look_s: float = param(0.25, "seconds between two looks at what running jobs report", minimum=0.01)
    timeout_s: float = param(30.0, "seconds that an answer of Ray may take before it counts as away", minimum=0.1)
    connect_s: float = param(120.0, "seconds that it may take to connect to Ray", minimum=0.1)
    pending_s: float = param(
        60.0, "seconds that Ray may keep a job waiting before it is withdrawn and placed anew", minimum=0.1
    )
    visible_s: float = param(5.0, "seconds until a file that is written on one node is seen on all others", minimum=0.0)
    cancel_s: float = param(10.0, "seconds after the end of its grace at which a job is ended by ray.kill", minimum=0.0)
    interface: str = param("", "network interface of the ranks on the nodes (GLOO_SOCKET_IFNAME); empty: their choice")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    described: Cluster | None = None
    """What was asked for last: nodes that it does not name stay out when they join."""

    def find_nodes(self, described: Cluster | None) -> list[NodeInfo] | Unreachable:
        self.described = described
        connection = self.connection()
        if connection.address.startswith(_CLIENT):
            found = f"{connection.address} is Ray's client, which does not tell what nodes have free"
            raise InputError(f"--engine {self.name}", found, "HOST:PORT of the head, from a node of the cluster")
        try:
            nodes = parse_nodes(ask_first(connection, "--engine ray", "ask", prefix="\n")["nodes"], self.naming)
        except RayUnreachable as error:
            return Unreachable(str(error))
        finally:
            connection.close()
        if described is not None:
            check_description(nodes, described)
            nodes = described_nodes(nodes, described)
        if not nodes:
            expected = "nodes with GPUs (ray start --num-gpus)"
            raise InputError("--engine ray", "no node of the Ray cluster has GPUs", expected)
        return [node.info() for node in nodes]

    def capabilities(self, nodes: Sequence[NodeInfo]) -> Capabilities:  # noqa: ARG002 - alike everywhere
        # Ray counts GPUs; which ones a rank sees is said by its part.
        return Capabilities(exact_gpus=True, shares_gpus=False, separates_users=os.geteuid() == 0)

    def open(self, state_dir: Path, nodes: Sequence[NodeInfo]) -> RayExecutor:
        state_dir.mkdir(parents=True, exist_ok=True)
        own = own_id(state_dir, ID_FILE)
        return RayExecutor(state_dir, nodes, self.connection(), own, self.times, self.wanted, environ=self.environ)

    @property
    def naming(self) -> Naming:
        return Naming(self.node_label, self.rack_label)

    @property
    def times(self) -> Times:
        return Times(self.look_s, self.poll_s, self.pending_s, self.visible_s, self.cancel_s)

    @property
    def wanted(self) -> Wanted:
        """What jobs need on the nodes besides GPUs."""
        return Wanted(self.naming, self.described, self.cpus_per_gpu, self.python, self.interface)

    def connection(self) -> RayConnection:
        """To the cluster as the settings describe it."""
        address = self.address or self.environ.get("RAY_ADDRESS", "")
        where = (address, self.token_path, self.ray_python)
        return RayConnection(*where, self.timeout_s, self.connect_s, self.environ)


def ask_first(connection: RayConnection, where: str, do: str, **arguments: Any) -> Any:
    """The answer to the first request of all; ``InputError`` for what would not go away by itself."""
    try:
        return connection.call(do, **arguments)
    except RayMissing as error:
        expected = "engine.ray_python, a Python with the Ray of the cluster (or pip install 'trine[ray]')"
        raise InputError(where, f"there is no Ray here: {error}", expected) from None
    except RayDiffers as error:
        expected = "engine.ray_python, a Python with the same Ray and the same version of Python as the cluster"
        raise InputError(where, f"Ray says: {error}", expected) from None
    except RayRefused as error:
        expected = "a cluster that can be asked (engine.address, engine.token_path)"
        raise InputError(where, f"Ray says: {error}", expected) from None


ENGINE = RayEngine
