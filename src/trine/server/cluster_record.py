"""A cluster as the journal keeps it: what decisions depend on, in plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trine.core.cluster import Cluster, Node


def cluster_to_record(cluster: Cluster) -> dict[str, Any]:
    """Nodes, scores and prices; links are read again from the configuration at every start."""
    body: dict[str, Any] = {
        "name": cluster.name,
        "nodes": [asdict(node) for node in cluster.nodes],
        "scores": {name: list(values) for name, values in cluster.scores.items()},
    }
    return body | {"prices": dict(cluster.prices_per_gpu_h)} if cluster.prices_per_gpu_h else body


def renumbered(old: Cluster, new: Cluster) -> dict[int, int]:
    """New GPU id by old, for GPUs of nodes that both clusters have."""
    first = {node.name: (new.first_gpu[i], node.gpus) for i, node in enumerate(new.nodes)}
    ids: dict[int, int] = {}
    for gpu, node in enumerate(old.node_of):
        start, count = first.get(old.nodes[node].name, (0, 0))
        index = gpu - old.first_gpu[node]
        if index < count:
            ids[gpu] = start + index
    return ids


def cluster_from_record(body: dict[str, Any]) -> Cluster:
    """The cluster that ``cluster_to_record`` wrote."""
    nodes = tuple(Node(**node) for node in body["nodes"])
    scores = {name: tuple(values) for name, values in body["scores"].items()}
    return Cluster(nodes, body["name"], scores=scores, prices_per_gpu_h=body.get("prices", {}))
