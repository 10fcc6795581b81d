"""Rates of a model alone on GPU types it has never run on, from models that were measured there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trine.core.errors import InputError
from trine.perf.estimate_matrix import RANK, Flags, Floats, completed
from trine.perf.throughput import ThroughputTable

WHERE = "throughput estimate"
LARGEST = 3.0
"""Furthest that a model may be estimated from the mean of the others, as a logarithm: a factor of 20."""


def estimated_rates(
    table: ThroughputTable, measured: Mapping[str, float], gang: int = 1, seed: int = 0
) -> dict[str, float]:
    """Steps per second on every type of the table, given those on the types in ``measured``, which stay as they are.

    Logarithms of rates, every model relative to its own rate on the types of ``measured``: what models have in common
    on a type is their mean, what they differ by is completed. Whether the model fits on a new type is not estimated.
    """
    told = {gpu_type.lower(): rate for gpu_type, rate in measured.items()}
    running = [t for t in table.types if told.get(t, 0.0) > 0]
    if not running:
        raise InputError(WHERE, "no rate above 0", f"one on at least one of {', '.join(table.types)}", "measured")
    rates = _rates(table, gang, running)
    if not len(rates):
        found = f"no model that runs on {', '.join(running)} with {gang} GPUs"
        raise InputError(WHERE, found, "one to learn from", "gang")
    row = np.array([told.get(t, 0.0) for t in table.types])
    filled = _filled(np.vstack([rates, row]), [table.types.index(t) for t in running], seed)
    return {t: float(told.get(t, rate)) for t, rate in zip(table.types, filled, strict=True)}


def _rates(table: ThroughputTable, gang: int, running: Sequence[str]) -> Floats:
    """Rates by type of the models that run on all of ``running``."""
    entries = [entry for (_, size), entry in sorted(table.rates.items(), key=lambda item: item[0]) if size == gang]
    rows = [[entry.get(t, 0.0) for t in table.types] for entry in entries if all(entry.get(t, 0) > 0 for t in running)]
    return np.array(rows, np.float64).reshape(-1, len(table.types))


def _filled(rates: Floats, running: Sequence[int], seed: int) -> Floats:
    """The last row with rates in place of its zeros."""
    known: Flags = rates > 0
    logs = np.log(np.where(known, rates, 1.0))
    logs -= logs[:, running].mean(axis=1, keepdims=True)
    usual = np.where(known, logs, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    rank = min(RANK, max(1, rates.shape[1] // 2))
    apart = completed(np.where(known, logs - usual, 0.0), known, np.random.default_rng(seed), rank, (-LARGEST, LARGEST))
    scale = float(np.log(rates[-1, running]).mean())
    return np.asarray(np.exp(usual + apart[-1] + scale), np.float64)
