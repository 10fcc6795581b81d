"""Why placement matters: what models send, and how much slower they run the further apart their GPUs are."""

from __future__ import annotations

from trine.assembly.factory import performance_model
from trine.assembly.settings import RunSettings
from trine.core.job import Job
from trine.inputs.cluster import load_cluster
from trine.perf.model import PerfModel
from trine.perf.model_traffic import shipped_table
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.reproduce.dally_settings import World
from trine.reproduce.dally_workload import MIX
from trine.reproduce.panels import Found, Panel, Table
from trine.trace.models import DEFAULT_MODELS

GANG = 8
MODELS = tuple(dict.fromkeys((*DEFAULT_MODELS, *(model.name for model in MIX.models))))


def why(world: World) -> Found:
    """Slowdowns by model and tier of a gang of eight, on both networks."""
    free, congested = (_slowdowns(world, x) for x in (1.0, world.congestion(True)))
    traffic = shipped_table()
    rows = [
        (
            model,
            f"{traffic.of(model).gradient_bytes / 1e6:.0f}",
            f"{traffic.of(model).all_to_all_bytes / 1e6:.0f}",
            *(f"{x:.2f}" for x in (*free[model], *congested[model])),
        )
        for model in MODELS
    ]
    tiers = ("node", "rack", "network")
    header = ("model", "gradient MB", "all-to-all MB", *tiers, *(f"{tier}, congested" for tier in tiers))
    title = f"Why it matters: step time of {GANG} GPUs by tier over that inside a node"
    lines = [
        (name, [float(i) for i in range(len(MODELS))], [congested[model][tier] for model in MODELS])
        for tier, name in ((1, "one rack"), (2, "several racks"))
    ]
    panel = Panel(f"{title}, congested", "", "Times the step inside a node", lines, list(MODELS))
    return Found([], [panel], [Table(title, header, rows)])


def _slowdowns(world: World, congestion: float) -> dict[str, tuple[float, ...]]:
    """Node, rack and network, links to itself."""
    perf = _perf(world, congestion)
    return {model: perf.tier_slowdowns(Job("", 0.0, GANG, 1.0, model=model))[1:] for model in MODELS}


def _perf(world: World, congestion: float) -> PerfModel:
    cluster = load_cluster(world.figures["prototype"]["cluster"])
    settings = RunSettings(network=world.network, congestion=congestion)
    return performance_model(settings, cluster, VariabilityTable(cluster.gpu_count), ThroughputTable())
