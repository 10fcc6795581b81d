"""What the scheduler believes of speeds where that is not how the simulated world is: errors, and what it cannot see.

The world runs at the speeds of its own performance model. Policy, placement and engine get the one made here, and learn
better only by the speeds that running jobs turn out to have. For experiments on prediction errors and for ablations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp
from random import Random

from trine.assembly.settings import BelievedSettings
from trine.core.job import Job
from trine.perf.collectives import p_norm
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.model_traffic import ModelTraffic, TrafficTable
from trine.perf.network import Network
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

ErrorOf = Callable[..., float]
"""The factor by which a figure is wrong, by what the figure belongs to."""


def believed_model(settings: BelievedSettings, perf: PerfModel, seed: int) -> PerfModel:
    """``perf`` as the scheduler believes it to be; ``perf`` itself if the settings ask for no difference.

    Factors are log-normal around 1. Each depends on the seed and on what it belongs to, not on the order of questions.
    """
    if not settings.differs:
        return perf
    drawn = seed if settings.seed is None else settings.seed
    type_error, traffic_error = _factors(drawn, settings.type_error), _factors(drawn, settings.traffic_error)
    network = None if perf.network is None else _network(perf.network, type_error, traffic_error)
    rates = _rates(perf, network, type_error, equal="type" in settings.blind)
    found = replace(perf, throughputs=rates, network=network, variability=_chips(settings, perf, drawn))
    if "place" in settings.blind:
        found = replace(found, network=None, penalty=LocalityPenalty(), measured_slowdowns={})
    return found


def _factors(seed: int, log_sd: float) -> ErrorOf:
    """``exp(N(0, log_sd))``, the same for the same names."""

    def factor(*names: str) -> float:
        key = "/".join([str(seed), "believed", *names])
        return exp(Random(key).gauss(0.0, log_sd)) if log_sd else 1.0

    return factor


# -- types and what models send ----------------------------------------------------------------------------------------


@dataclass
class _BelievedTraffic(TrafficTable):
    """Compute and gradients of every model, each off by a factor."""

    true: TrafficTable = field(default_factory=TrafficTable)
    type_error: ErrorOf = field(default=_factors(0, 0.0))
    traffic_error: ErrorOf = field(default=_factors(0, 0.0))

    def _find(self, model: str, batch_size: int | None) -> ModelTraffic:
        true, sent = self.true.of(model, batch_size), self.traffic_error("bytes", model)
        return replace(
            true,
            compute_s=true.compute_s * self.type_error("compute", model, self.reference_type),
            gradient_bytes=true.gradient_bytes * sent,
            all_to_all_bytes=true.all_to_all_bytes * sent,
        )


def _network(true: Network, type_error: ErrorOf, traffic_error: ErrorOf) -> Network:
    """The same links, over which models are believed to send other amounts."""
    table = _BelievedTraffic(
        reference_type=true.traffic.reference_type,
        true=true.traffic,
        type_error=type_error,
        traffic_error=traffic_error,
    )
    return true.with_traffic(table)


def _rates(perf: PerfModel, believed: Network | None, type_error: ErrorOf, equal: bool) -> ThroughputTable:
    """Packed rates by model, gang and type, as they follow from the compute time and the traffic that are believed in.

    ``equal``: every type is taken to be as fast as the best one on which the model runs.
    """
    table = perf.throughputs
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for (model, gang), known in table.rates.items():
        wrong = {t: r / _slower(perf, believed, model, gang, t, type_error) if r else r for t, r in known.items()}
        best = max(wrong.values())
        rates[model, gang] = {t: best if rate else rate for t, rate in wrong.items()} if equal else wrong
    return replace(table, rates=rates)


def _slower(
    perf: PerfModel, believed: Network | None, model: str, gang: int, gpu_type: str, type_error: ErrorOf
) -> float:
    """Believed over true time of a step at the best place: compute is off by the error of the type."""
    off = type_error("compute", model, gpu_type)
    spelled = next((t for t in perf.cluster.types if t.lower() == gpu_type), None)
    if perf.network is None or believed is None or spelled is None:
        return off
    true = perf.network.baseline_of(Job("", 0.0, gang, 1.0, 1.0, model), spelled, perf.throughputs)
    comm_s = believed.comm_s(believed.traffic.of(model), believed.best_route(gang, spelled))
    return p_norm(true.compute_s * off, comm_s, true.traffic.overlap) / true.iteration_s


# -- chips -------------------------------------------------------------------------------------------------------------


def _chips(settings: BelievedSettings, perf: PerfModel, seed: int) -> VariabilityTable:
    """All chips alike, or each slowdown off by a factor of its own."""
    true = perf.variability
    if "chip" in settings.blind:
        return VariabilityTable.flat(true.gpu_count)
    if not settings.chip_error:
        return true
    error = _factors(seed, settings.chip_error)
    wrong = {c: [v * error("chip", c, str(gpu)) for gpu, v in enumerate(true.slowdown(c))] for c in true.classes}
    return VariabilityTable(true.gpu_count, wrong)
