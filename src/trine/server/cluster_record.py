"""A cluster as the journal keeps it: what decisions depend on, in plain values."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from trine.core.cluster import Cluster, Links, Node


def cluster_to_record(cluster: Cluster) -> dict[str, Any]:
    """Nodes, scores, prices and links, as far as the description states them."""
    body: dict[str, Any] = {
        "name": cluster.name,
        "nodes": [_node_to_record(node) for node in cluster.nodes],
        "scores": {name: list(values) for name, values in cluster.scores.items()},
    }
    if cluster.prices_per_gpu_h:
        body["prices"] = dict(cluster.prices_per_gpu_h)
    if links := _links_to_record(cluster.links):
        body["links"] = links
    if cluster.type_links:
        body["type_links"] = {name: _links_to_record(links) for name, links in cluster.type_links.items()}
    return body


def _links_to_record(links: Links) -> dict[str, Any]:
    """What differs from links of which nothing is stated."""
    return {part.name: told for part in fields(links) if (told := getattr(links, part.name)) != part.default}


def renumbered(old: Cluster, new: Cluster) -> dict[int, int]:
    """New GPU id by old, for GPUs of nodes that both clusters have."""
    there = {(new.nodes[node].name, new.index_of(gpu)): gpu for gpu, node in enumerate(new.node_of)}
    ids: dict[int, int] = {}
    for gpu, node in enumerate(old.node_of):
        found = there.get((old.nodes[node].name, old.index_of(gpu)))
        if found is not None:
            ids[gpu] = found
    return ids


def _node_to_record(node: Node) -> dict[str, Any]:
    body = asdict(node)
    if not node.indices:
        del body["indices"]
    return body


def cluster_from_record(body: dict[str, Any]) -> Cluster:
    """The cluster that ``cluster_to_record`` wrote."""
    nodes = tuple(Node(**{**node, "indices": tuple(node.get("indices", ()))}) for node in body["nodes"])
    scores = {name: tuple(values) for name, values in body["scores"].items()}
    links = Links(**body.get("links", {}))
    type_links = {name: Links(**told) for name, told in body.get("type_links", {}).items()}
    return Cluster(nodes, body["name"], links, type_links, body.get("prices", {}), scores)
