"""Puts the parts of a scheduler together: performance model, costs of stops, engine.

The simulator, the daemon and replays build theirs here; what differs between them is passed in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

from trine.assembly.settings import RunSettings, Settings
from trine.core.cluster import Cluster, Links, Tier
from trine.core.costs import StopCosts
from trine.core.errors import InputError
from trine.engine.engine import Engine
from trine.engine.quotas import Quotas
from trine.inputs.links import load_network
from trine.parity import pal
from trine.perf.model import LinkSharing, LocalityPenalty, PerfModel
from trine.perf.model_traffic import TrafficTable, shipped_table
from trine.perf.network import Network
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable


def make_engine(
    settings: Settings,
    perf: PerfModel,
    placement_seed: str,
    quotas: Quotas | None = None,
    *,
    space_sharing: bool = True,
    engine_type: type[Engine] = Engine,
) -> Engine:
    """An engine for the cluster of ``perf``, without jobs; ``placement_seed`` is that of random placements.

    ``space_sharing``: two jobs may run on the same GPUs at a time.
    """
    run = settings.run
    settings.placement.prepare(perf, random.Random(placement_seed))
    return engine_type(
        perf.cluster,
        settings.policy,
        settings.placement,
        perf,
        run.strict,
        stop_costs(run, perf),
        quotas or Quotas(),
        space_sharing=space_sharing,
        rules=pal.planner_rules(settings.compat),
        remaining_time=pal.remaining_time(settings.compat),
    )


def performance_model(
    run: RunSettings,
    cluster: Cluster,
    variability: VariabilityTable,
    throughputs: ThroughputTable,
    traffic: TrafficTable | None = None,
    measured_slowdowns: Mapping[tuple[str, Tier], float] | None = None,
) -> PerfModel:
    """How fast jobs run on ``cluster``; ``traffic`` ``None``: the table that comes with trine.

    ``measured_slowdowns``: what tiers cost models, where that was observed; see ``PerfModel``.
    """
    network = _network(run, cluster, traffic)
    sharing: LinkSharing = run.link_sharing  # type: ignore[assignment]  # checked against the choices
    return PerfModel(cluster, variability, penalty_of(run), throughputs, network, sharing, measured_slowdowns or {})


def stop_costs(run: RunSettings, perf: PerfModel) -> StopCosts:
    """What stops cost: the figures of the settings, or what the table of models says of each job's restart."""
    if run.restart != "model":
        return run.costs
    table = shipped_table() if perf.network is None else perf.network.traffic
    return replace(run.costs, by_model=lambda job: table.of(job.model, job.batch_size).restart_s)


def _network(run: RunSettings, cluster: Cluster, traffic: TrafficTable | None) -> Network | None:
    """The links that the settings name, else those that the cluster states; ``None``: penalties by tier."""
    penalised = run.locality_penalty > 1 or run.rack_penalty is not None or bool(run.class_penalty)
    if run.network == "off" or (run.network == "auto" and (penalised or cluster.links.nic_bytes_per_s is None)):
        _refuse_knobs(run)
        return None
    if penalised:
        raise InputError("--set", f"network={run.network} and a locality penalty", "one of the two", "network")
    if run.network == "auto":
        return Network(_scaled(cluster, run), None, traffic)
    return Network(cluster, _knobs(load_network(run.network, cluster), run), traffic)


def _refuse_knobs(run: RunSettings) -> None:
    """Settings of links are mistakes where no links are modelled."""
    if run.oversubscription is not None or run.congestion != 1.0:
        name = "congestion" if run.congestion != 1.0 else "oversubscription"
        raise InputError("--set", f"{name} without links", "network=PRESET, or a cluster file with links", name)


def _knobs(links: Links, run: RunSettings) -> Links:
    """Oversubscription and congestion as the settings want them."""
    if run.oversubscription is not None:
        links = replace(links, oversubscription=run.oversubscription, uplink_bytes_per_s=None)
    return replace(links, congestion=links.congestion * run.congestion)


def _scaled(cluster: Cluster, run: RunSettings) -> Cluster:
    by_type = cluster.type_links
    if run.oversubscription is not None:
        by_type = {name: replace(own, uplink_bytes_per_s=None) for name, own in by_type.items()}
    return replace(cluster, links=_knobs(cluster.links, run), type_links=by_type)


def penalty_of(run: RunSettings) -> LocalityPenalty:
    """Slowdowns by tier, where no links are modelled."""
    across = run.locality_penalty
    racks = across if run.rack_penalty is None else run.rack_penalty
    return LocalityPenalty(1.0, across, racks, class_penalties(run.class_penalty))


def class_penalties(parts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """``("A=1.2", "D=1.1/1.5")``: penalties across nodes and across racks by class; one number stands for both."""
    found: dict[str, tuple[float, float]] = {}
    for part in parts:
        name, _, stated = part.partition("=")
        words = stated.split("/")
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if not name or len(numbers) not in (1, 2) or not all(1 <= x < math.inf for x in numbers):
            raise InputError("--set", f"{part!r}", "CLASS=X or CLASS=X/Y with penalties of at least 1", "class_penalty")
        found[name] = (numbers[0], numbers[-1])
    return found
