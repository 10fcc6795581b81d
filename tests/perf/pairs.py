"""Throughput tables made up for tests: models of two temperaments that slow each other down by a simple rule."""

from __future__ import annotations

import numpy as np

from trine.perf.throughput import ThroughputTable

TYPES = ("k80", "p100", "v100")
SPEED = {"k80": 1.0, "p100": 3.0, "v100": 7.0}


def made_up(models: int = 12, seed: int = 0) -> ThroughputTable:
    """Each model asks for a part of a GPU's memory bus; together they get what there is. Rates differ by type."""
    rng = np.random.default_rng(seed)
    names = [f"model{i}" for i in range(models)]
    appetite = {name: float(rng.uniform(0.2, 0.9)) for name in names}
    speed = {name: float(rng.uniform(1, 100)) for name in names}
    rates = {(name, 1): {t: speed[name] * SPEED[t] ** (0.5 + appetite[name]) for t in TYPES} for name in names}
    pairs = {}
    for i, one in enumerate(names):
        for other in names[i:]:
            room = {t: 0.7 + 0.1 * k for k, t in enumerate(TYPES)}
            part = {t: min(1.0, room[t] / (appetite[one] + appetite[other])) for t in TYPES}
            pairs[one, other, 1] = {t: (rates[one, 1][t] * part[t], rates[other, 1][t] * part[t]) for t in TYPES}
    return ThroughputTable(rates, pairs)
