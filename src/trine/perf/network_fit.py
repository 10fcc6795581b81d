"""Fits the network model to step times by placement: bandwidths, latencies, compute and overlap of each model.

Least squares of logarithms: a step predicted twice as long is as wrong as one predicted half as long. Only what the
rows can tell is fitted; the rest keeps its default. Needs scipy, which is imported when a fit is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from trine.core.cluster import Cluster, Links, Node
from trine.perf.collectives import Algorithm, p_norm
from trine.perf.model_traffic import ModelTraffic, shipped_table
from trine.perf.network import Network
from trine.perf.routes import Route


class StepRow(NamedTuple):
    """A measured step: GPUs spread evenly over ``nodes``, nodes evenly over ``racks``."""

    model: str
    gpus: int
    nodes: int
    racks: int
    step_s: float
    gradient_bytes: float | None = None
    """``None``: as in the table of models."""
    compute_s: float | None = None
    """Seconds of compute, where they are known; ``None`` fits one value per model for all sizes of gangs."""


@dataclass(frozen=True)
class NetworkFit:
    """Fitted parameters, and how far the model with them is off."""

    links: Links
    traffic: dict[str, ModelTraffic]
    fitted: tuple[str, ...]
    """Names of the fitted fields of ``links``."""
    algorithm: Algorithm
    errors: tuple[float, ...]
    """Predicted over measured step, minus 1, by row."""

    @property
    def median_error(self) -> float:
        """Median of the relative errors without their sign."""
        return median(map(abs, self.errors))

    def predict(self, rows: Sequence[StepRow]) -> list[float]:
        """Seconds per step; models that were not in the fit take the figures of the shipped table."""
        return _StepRows(rows, self.traffic, self.algorithm).steps(self.links, self.traffic)


class _Free(NamedTuple):
    """A parameter of the fit: of the links (``model`` empty) or of a model, and how its number is bounded."""

    name: str
    model: str
    start: float
    low: float
    high: float

    @property
    def linear(self) -> bool:
        """Shares are fitted as they are, everything else as a logarithm."""
        return self.name == "unreduced"


class _StepRows:
    """Rows with their routes on one cluster that is large enough for all of them."""

    def __init__(self, rows: Sequence[StepRow], known: dict[str, ModelTraffic], algorithm: Algorithm) -> None:
        self.rows, self.algorithm = rows, algorithm
        table = shipped_table().with_models(known)
        self.traffic = {row.model: table.of(row.model) for row in rows}
        racks = max(row.racks for row in rows)
        nodes = max(-(-row.nodes // row.racks) for row in rows)
        gpus = max(-(-row.gpus // row.nodes) for row in rows)
        self.cluster = Cluster(
            tuple(Node(f"node{i}", gpus, rack=f"rack{i // nodes}") for i in range(racks * nodes)),
        )
        self._gpus = {_shape(row): _gpus_of(row, nodes, gpus) for row in rows}

    def steps(self, links: Links, traffic: dict[str, ModelTraffic]) -> list[float]:
        """Predicted seconds per step of each row."""
        network = Network(self.cluster, links, algorithm=self.algorithm)
        routes = {shape: network.route(gpus) for shape, gpus in self._gpus.items()}
        figures = self.traffic | traffic
        return [self._step(row, network, routes[_shape(row)], figures[row.model]) for row in self.rows]

    def _step(self, row: StepRow, network: Network, route: Route, figures: ModelTraffic) -> float:
        if row.gradient_bytes is not None:
            figures = replace(figures, gradient_bytes=row.gradient_bytes)
        compute = figures.compute_s if row.compute_s is None else row.compute_s
        return p_norm(compute, network.comm_s(figures, route), figures.overlap)


def _shape(row: StepRow) -> tuple[int, int, int]:
    return row.gpus, row.nodes, row.racks


def _gpus_of(row: StepRow, nodes_per_rack: int, gpus_per_node: int) -> list[int]:
    """Ids of GPUs that lie as the row says, one node of each rack after the other."""
    nodes = [(i % row.racks) * nodes_per_rack + i // row.racks for i in range(row.nodes)]
    return [nodes[i % row.nodes] * gpus_per_node + i // row.nodes for i in range(row.gpus)]


def fit_network(rows: Sequence[StepRow], links: Links | None = None, algorithm: Algorithm = "ring") -> NetworkFit:
    """The parameters that come closest to ``rows``; ``links`` holds those that cannot be fitted."""
    prepared = _StepRows(rows, {}, algorithm)
    base = Links() if links is None else links
    free = [*_free_links(rows, base), *_free_models(prepared)]
    # The slowest link of a route hides the others, so that the cost has several minima: three starts, the best wins.
    best = min((_solve(prepared, base, free, scale) for scale in (1.0, 0.1, 10.0)), key=lambda found: found[0])
    fitted, traffic = _applied(free, best[1], base, prepared.traffic, _DIGITS)
    steps = prepared.steps(fitted, traffic)
    errors = tuple(step / row.step_s - 1.0 for step, row in zip(steps, rows, strict=True))
    names = tuple(f.name for f in free if not f.model)
    return NetworkFit(fitted, {m: traffic[m] for m in sorted(traffic)}, names, algorithm, errors)


def halves(rows: Sequence[StepRow]) -> tuple[list[StepRow], list[StepRow]]:
    """Every other row to fit, the rest to test with."""
    return list(rows[::2]), list(rows[1::2])


def _free_links(rows: Sequence[StepRow], base: Links) -> list[_Free]:
    """Bandwidths and latencies of the tiers that the rows reach, from their start values."""
    found: list[_Free] = []
    if any(row.gpus > row.nodes for row in rows):
        found.append(_Free("intra_node_bytes_per_s", "", base.intra_node_bytes_per_s or 20e9, 1e7, 1e13))
        found.append(_Free("node_latency_s", "", base.node_latency_s, 1e-8, 1.0))
    if any(row.nodes > row.racks for row in rows):
        found.append(_Free("rack_latency_s", "", base.rack_latency_s, 1e-8, 1.0))
    if any(row.nodes > 1 for row in rows):
        found.append(_Free("nic_bytes_per_s", "", base.nic_bytes_per_s or 2e9, 1e6, 1e13))
    if any(row.racks > 1 for row in rows):
        found.append(_Free("uplink_bytes_per_s", "", base.uplink_bytes_per_s or 8e9, 1e6, 1e13))
        found.append(_Free("network_latency_s", "", base.network_latency_s, 1e-8, 1.0))
    if any(row.gpus > row.nodes > 1 for row in rows) and any(row.gpus == row.nodes > 1 for row in rows):
        found.append(_Free("unreduced", "", 0.2, 0.0, 1.0))
    return found


def _free_models(prepared: _StepRows) -> list[_Free]:
    """Compute of each model whose rows do not state it; overlap where enough rows can tell."""
    found: list[_Free] = []
    for model in sorted(prepared.traffic):
        own = [row for row in prepared.rows if row.model == model]
        unstated = [row for row in own if row.compute_s is None]
        if unstated:
            found.append(_Free("compute_s", model, min(row.step_s for row in unstated), 1e-9, 1e6))
        communicating = [row for row in own if row.gpus > 1 and row.compute_s != 0.0]
        if len(communicating) >= 4:
            found.append(_Free("overlap", model, prepared.traffic[model].overlap, 1.0, 10.0))
    return found


_DIGITS = 6
"""Digits of fitted numbers: more than a measurement has."""
_PRIOR = 0.02
"""Pull towards the start values, per factor of e: only enough to decide what the rows leave open."""
_PRIOR_SHARE = 0.1
"""Pull of shares towards 0: nodes add up before they send unless the rows say otherwise."""


def _solve(prepared: _StepRows, base: Links, free: Sequence[_Free], scale: float) -> tuple[float, list[float]]:
    """Cost and numbers of the best parameters from one start, with bandwidths between nodes times ``scale``."""
    from scipy.optimize import least_squares

    bandwidths = ("nic_bytes_per_s", "uplink_bytes_per_s")
    starts = [f._replace(start=f.start * scale) if f.name in bandwidths else f for f in free]
    x0 = [_number(f, min(max(f.start, f.low), f.high)) for f in starts]
    low, high = [_number(f, f.low) for f in free], [_number(f, f.high) for f in free]
    priors = [(0.0, _PRIOR_SHARE) if f.linear else (_number(f, f.start), _PRIOR) for f in free]
    residuals = _residuals(prepared, base, free, priors)
    found = least_squares(residuals, x0, bounds=(low, high), loss="soft_l1", f_scale=0.3, x_scale=1.0)
    return float(found.cost), [float(x) for x in found.x]


def _residuals(
    prepared: _StepRows, base: Links, free: Sequence[_Free], priors: Sequence[tuple[float, float]]
) -> Callable[[Iterable[float]], list[float]]:
    logs = [math.log(row.step_s) for row in prepared.rows]

    def residuals(numbers: Iterable[float]) -> list[float]:
        chosen = [float(x) for x in numbers]
        steps = prepared.steps(*_applied(free, chosen, base, prepared.traffic))
        off = [math.log(step) - log for step, log in zip(steps, logs, strict=True)]
        return off + [weight * (x - prior) for x, (prior, weight) in zip(chosen, priors, strict=True)]

    return residuals


def _number(parameter: _Free, value: float) -> float:
    return value if parameter.linear else math.log(value)


def _applied(
    free: Sequence[_Free],
    numbers: Sequence[float],
    base: Links,
    traffic: dict[str, ModelTraffic],
    digits: int = 17,
) -> tuple[Links, dict[str, ModelTraffic]]:
    """Links and models with the numbers of the fit."""
    links, models = base, dict(traffic)
    for parameter, number in zip(free, numbers, strict=True):
        exact = round(number, digits) if parameter.linear else float(f"{math.exp(number):.{digits}g}")
        value = {parameter.name: exact}
        if parameter.model:
            models[parameter.model] = replace(models[parameter.model], **value)  # type: ignore[arg-type]
        else:
            links = replace(links, **value)
    return links, models
