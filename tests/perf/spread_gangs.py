"""Gangs that a throughput table has both packed into a node and spread over one node each: the model against them."""

from __future__ import annotations

import math
from typing import NamedTuple

from trine.core.cluster import Cluster, Links
from trine.perf.model_traffic import TrafficTable
from trine.perf.network import Network
from trine.perf.network_fit import StepRow
from trine.perf.throughput import ThroughputTable


class SpreadError(NamedTuple):
    """Slowdown of a gang on one node each, against the same gang packed."""

    model: str
    gpus: int
    measured: float
    """At least 1: below that is noise."""
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1.0


def spread_errors(table: ThroughputTable, gpu_type: str, links: Links, models: TrafficTable) -> list[SpreadError]:
    """Predicted against measured slowdowns of all gangs that the table has both packed and spread; worst first."""
    found = []
    for model, gpus in sorted((table.spread or ThroughputTable()).rates):
        measured = _step_pair(table, model, gpus, gpu_type)
        if measured is None:
            continue
        network = Network(Cluster.uniform(gpus, gpus, gpu_type), links)
        base = network.baseline(models.of(model), gpus, gpu_type, stated_s=measured[0])
        one_each = network.route([node * gpus for node in range(gpus)])
        predicted = network.step(base, one_each).ratio
        found.append(SpreadError(model, gpus, max(1.0, measured[1] / measured[0]), predicted))
    return sorted(found, key=lambda row: -abs(math.log(row.predicted / row.measured)))


def spread_rows(table: ThroughputTable, gpu_type: str) -> list[StepRow]:
    """Gangs on one node each as rows to fit; their compute is what the same gang takes packed."""
    rows = []
    for model, gpus in sorted((table.spread or ThroughputTable()).rates):
        measured = _step_pair(table, model, gpus, gpu_type)
        if measured is not None:
            rows.append(StepRow(model, gpus, gpus, 1, max(measured), compute_s=measured[0]))
    return rows


def _step_pair(table: ThroughputTable, model: str, gpus: int, gpu_type: str) -> tuple[float, float] | None:
    """Seconds per iteration packed and spread: rates count the steps of all GPUs of a gang."""
    assert table.spread is not None
    packed = table.rates.get((model, gpus), {}).get(gpu_type, 0.0)
    spread = table.spread.rates.get((model, gpus), {}).get(gpu_type, 0.0)
    return (gpus / packed, gpus / spread) if gpus > 1 and packed > 0 and spread > 0 else None
