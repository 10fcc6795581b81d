"""Routes: where the GPUs of a gang lie, and which links of the cluster its traffic shares with other jobs.

Links are numbered: the NIC of each node, then the uplink of each rack, then the spine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import inf
from typing import NamedTuple

from trine.core.cluster import Cluster, Links, Tier
from trine.core.errors import InputError

_KEPT_ROUTES = 200_000
"""Routes remembered; more are forgotten together, to bound the memory of long runs."""


class Route(NamedTuple):
    """Where the GPUs of a gang lie, as far as communication is concerned."""

    gpus: int
    per_node: int
    """Most GPUs on one node; ``per_rack`` and ``nodes_per_rack``: most GPUs and nodes in one rack."""
    per_rack: int
    nodes_per_rack: int
    nodes: tuple[int, ...]
    racks: tuple[int, ...]
    tier: Tier
    intra_bytes_per_s: float
    """Inside its slowest node with several of the GPUs."""
    links: tuple[int, ...]
    """Numbers of the links that it shares with other jobs; none inside a node."""
    bandwidth: float
    """Bytes per second between its nodes while no other job uses the links."""


class Routes:
    """Links and routes of a cluster.

    ``capacity`` holds bytes per second by number of the link, after congestion and background traffic; infinite where a
    link is not modelled.
    """

    def __init__(self, cluster: Cluster, links: Links | None = None) -> None:
        """``links`` takes the place of those that the cluster describes, also of those by GPU type."""
        self.cluster = cluster
        self.links = cluster.links if links is None else links
        self._by_type = cluster.type_links if links is None else {}
        self.capacity = tuple(self._capacities())
        self._intra = [self._of_type(n.gpu_type).intra_node_bytes_per_s or inf for n in cluster.nodes]
        self._routes: dict[tuple[int, ...], Route] = {}
        self._best: dict[tuple[int, str | None], Route] = {}
        self._tier_routes: dict[tuple[int, str, Tier], Route | None] = {}

    def _of_type(self, gpu_type: str) -> Links:
        """Bandwidths of a type where it has its own, of the cluster otherwise."""
        own = self._by_type.get(gpu_type, self.links)
        return Links(
            own.intra_node_bytes_per_s or self.links.intra_node_bytes_per_s,
            own.nic_bytes_per_s or self.links.nic_bytes_per_s,
            own.uplink_bytes_per_s or self.links.uplink_bytes_per_s,
        )

    def _capacities(self) -> list[float]:
        links = self.links
        nics = [self._of_type(n.gpu_type).nic_bytes_per_s or inf for n in self.cluster.nodes]
        uplinks = self._uplinks(nics)
        spine = links.spine_bytes_per_s or inf
        scaled = [nic * links.congestion * (1.0 - links.nic_background) for nic in nics]
        scaled += [uplink * links.congestion * (1.0 - links.uplink_background) for uplink in uplinks]
        return [*scaled, spine * links.congestion * (1.0 - links.spine_background)]

    def _uplinks(self, nics: Sequence[float]) -> list[float]:
        """As stated, or the NICs of the rack over the oversubscription, or not modelled."""
        over = self.links.oversubscription
        sums = [0.0] * len(self.cluster.racks)
        types: dict[int, str] = {}
        for node, rack in enumerate(self.cluster.rack_of):
            sums[rack] += nics[node]
            types.setdefault(rack, self.cluster.nodes[node].gpu_type)
        derived = [inf if over is None else total / over for total in sums]
        return [self._of_type(types[rack]).uplink_bytes_per_s or derived[rack] for rack in range(len(sums))]

    def nic_bytes_per_s(self, route: Route) -> float:
        """The slowest NIC of the route without other jobs."""
        return min(self.capacity[node] for node in route.nodes)

    def link_name(self, link: int) -> str:
        """What people call the link of this number."""
        nodes = self.cluster.nodes
        if link < len(nodes):
            return f"NIC of {nodes[link].name}"
        if link == len(self.capacity) - 1:
            return "spine"
        return f"uplink of rack {self.cluster.racks[link - len(nodes)]}"

    def uplink_bytes_per_s(self, route: Route) -> float:
        """The slowest uplink of the route without other jobs."""
        first = len(self.cluster.nodes)
        return min(self.capacity[first + rack] for rack in route.racks)

    def route(self, gpus: Sequence[int]) -> Route:
        """The route of a placement."""
        key = tuple(gpus)
        known = self._routes.get(key)
        if known is None:
            if len(self._routes) >= _KEPT_ROUTES:
                self._routes.clear()
            known = self._routes[key] = self.route_of(Counter(map(self.cluster.node_of.__getitem__, key)))
        return known

    def route_of(self, by_node: Mapping[int, int]) -> Route:
        """The route of so many GPUs by node."""
        nodes = tuple(sorted(by_node))
        rack_of = self.cluster.rack_of
        if len(nodes) == 1:
            total = by_node[nodes[0]]
            tier = Tier.GPU if total == 1 else Tier.NODE
            return Route(total, total, total, 1, nodes, (rack_of[nodes[0]],), tier, self._intra[nodes[0]], (), inf)
        per_rack: Counter[int] = Counter()
        for node, count in by_node.items():
            per_rack[rack_of[node]] += count
        links = self._shared_links(nodes, racks := tuple(sorted(per_rack)))
        return Route(
            gpus=sum(by_node.values()),
            per_node=max(by_node.values()),
            per_rack=max(per_rack.values()),
            nodes_per_rack=max(Counter([rack_of[n] for n in nodes]).values()),
            nodes=nodes,
            racks=racks,
            tier=Tier.RACK if len(racks) == 1 else Tier.NETWORK,
            intra_bytes_per_s=min((self._intra[n] for n, count in by_node.items() if count > 1), default=inf),
            links=links,
            bandwidth=min((self.capacity[link] for link in links), default=inf),
        )

    def _shared_links(self, nodes: tuple[int, ...], racks: tuple[int, ...]) -> tuple[int, ...]:
        capacity, first = self.capacity, len(self.cluster.nodes)
        links = [*nodes]
        if len(racks) > 1:
            links += [first + rack for rack in racks]
            links.append(len(capacity) - 1)
        found = tuple(link for link in links if capacity[link] < inf)
        if len(found) < len(links):
            self._check_reachable(nodes)
        return found

    def _check_reachable(self, nodes: tuple[int, ...]) -> None:
        """Links inside nodes but none between them: such nodes cannot reach each other."""
        for node in nodes:
            if self.capacity[node] == inf and self._intra[node] < inf:
                found = f"node {self.cluster.nodes[node].name} has a link inside, but none to other nodes"
                raise InputError("links", found, "the key nic, for gangs on several nodes")

    def best_route(self, gpus: int, gpu_type: str | None = None) -> Route:
        """The route over the fewest racks and nodes of an empty cluster; over all types if one alone is too small."""
        key = (gpus, gpu_type)
        known = self._best.get(key)
        if known is None:
            known = self._best[key] = self._find_best(gpus, gpu_type)
        return known

    def tier_route(self, gpus: int, gpu_type: str, tier: Tier) -> Route | None:
        """The most compact route of an empty cluster that spans exactly ``tier``; ``None`` if there is none."""
        key = (gpus, gpu_type, tier)
        if key not in self._tier_routes:
            self._tier_routes[key] = self._find_tier_route(gpus, gpu_type, tier)
        return self._tier_routes[key]

    def _find_tier_route(self, gpus: int, gpu_type: str, tier: Tier) -> Route | None:
        racks = list(self._nodes_by_rack(gpu_type).values())
        if not racks:
            return None
        nodes = self.cluster.nodes
        if tier <= Tier.NODE:
            largest = max((rack[0] for rack in racks), key=lambda node: nodes[node].gpus)
            return self.route_of({largest: gpus}) if nodes[largest].gpus >= gpus else None
        if tier is Tier.RACK:
            splits = [self._split(rack, gpus) for rack in racks if len(rack) > 1]
            whole = [split for split in splits if split is not None]
            return self.route_of(min(whole, key=len)) if whole else None
        if len(racks) < 2:
            return None
        # Half of the nodes in each of two racks, or more racks if those are too small.
        racks.sort(key=lambda rack: -sum(nodes[n].gpus for n in rack))
        interleaved = [n for pair in zip_longest(racks[0], racks[1]) for n in pair if n is not None]
        split = self._split([*interleaved, *(n for rack in racks[2:] for n in rack)], gpus)
        return None if split is None else self.route_of(split)

    def _split(self, nodes: Sequence[int], gpus: int) -> dict[int, int] | None:
        """So many GPUs over the fewest of ``nodes``, but two at least, as evenly as they come."""
        sizes = [self.cluster.nodes[n].gpus for n in nodes]
        count = next((k for k in range(2, len(nodes) + 1) if sum(sizes[:k]) >= gpus), None)
        if count is None or gpus < 2:
            return None
        taken: dict[int, int] = {}
        for position, node in enumerate(nodes[:count]):
            taken[node] = min(sizes[position], -(-gpus // (count - position)))
            gpus -= taken[node]
        return taken if gpus == 0 else None

    def _nodes_by_rack(self, gpu_type: str | None) -> dict[int, list[int]]:
        """Nodes of a type (of all, without one) by rack in order of the racks, the largest node first."""
        nodes = self.cluster.nodes
        by_rack: dict[int, list[int]] = {}
        for node, rack in enumerate(self.cluster.rack_of):
            if gpu_type in (None, nodes[node].gpu_type):
                by_rack.setdefault(rack, []).append(node)
        return {rack: sorted(found, key=lambda i: (-nodes[i].gpus, i)) for rack, found in sorted(by_rack.items())}

    def _find_best(self, gpus: int, gpu_type: str | None) -> Route:
        racks = list(self._nodes_by_rack(gpu_type).values())
        filled = [self._filled(nodes, gpus) for nodes in racks]
        if sum(sum(taken.values()) for taken in filled) < gpus:
            if gpu_type is None:
                found = f"{self.cluster.gpu_count} GPUs"
                raise InputError("cluster", found, f"at least {gpus}, for a gang of that size")
            return self.best_route(gpus)
        enough = [taken for taken in filled if sum(taken.values()) == gpus]
        if enough:
            return self.route_of(min(enough, key=len))
        largest = sorted(racks, key=lambda nodes: -sum(self.cluster.nodes[i].gpus for i in nodes))
        return self.route_of(self._filled([node for nodes in largest for node in nodes], gpus))

    def _filled(self, nodes: Sequence[int], gpus: int) -> dict[int, int]:
        """As many of ``gpus`` as fit, node after node."""
        taken: dict[int, int] = {}
        for node in nodes:
            take = min(self.cluster.nodes[node].gpus, gpus)
            if take:
                taken[node] = take
            gpus -= take
        return taken
