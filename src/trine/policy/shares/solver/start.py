"""Strictly interior points to start from: from scratch, or from an early point of a similar problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trine.policy.shares.solver.form import Array, Index
from trine.policy.shares.solver.newton import Point, Shape

_MOST = 0.9
"""Part of its time, and of the GPUs, that the starting shares may use."""
_LIFT = 0.1
"""Distance of a warm start from the boundary of the dual constraints, relative to what a job's rate is worth."""


def cold(shape: Shape) -> Point:
    """As if all GPUs were of one average type: time and value of each job follow from its average rate."""
    x, level, duals = _average(shape)
    n = shape.n_types
    prices = np.full(n, 0.5 * level / shape.capacity.sum())
    return _complete(shape, x, 0.5 * level, duals * (1.05 / (duals * shape.demand).sum()), prices, 1.0, 0.1)


def _average(shape: Shape) -> tuple[Array, float, Array]:
    """Shares, level and duals (up to scale) if every GPU were the average of all."""
    gpus = shape.capacity.sum()
    mix = shape.capacity / gpus
    rate = np.einsum("k,kn->n", mix, shape.rate[:-1])
    need = (shape.demand + np.maximum(shape.floor, 0.0)) / rate
    level = _MOST * min(1.0 / float(need.max()), gpus / float((shape.gang * need).sum()))
    return mix[:, None] * (need * level), level, shape.gang / rate


def _complete(shape: Shape, x: Array, t: float, duals: Array, prices: Array, lift: float, surplus: float) -> Point:
    """All slacks for given shares, level, duals and prices: dual equations and time rows hold exactly."""
    n = shape.n_types
    z, slack = np.empty((n + 2, x.shape[1])), np.empty((n + 2, x.shape[1]))
    given = np.einsum("kn,kn->n", shape.rate[:n], x)
    z[:n], z[n] = x, 1.0 - x.sum(axis=0)
    z[n + 1] = np.maximum(given - shape.demand * t - shape.floor, surplus * given)
    value = shape.rate[:n] * duals - shape.gang * prices[:, None]
    slack[n] = value.max(axis=0, initial=0.0) + (lift * t) * duals + 1e-12
    slack[:n], slack[n + 1] = slack[n] - value, duals
    spare = shape.capacity - np.einsum("kn,n->k", x, shape.gang)
    t_slack = float((duals * shape.demand).sum()) - 1.0
    return Point(np.concatenate((z.ravel(), spare, [t])), np.concatenate((slack.ravel(), prices, [t_slack])), n)


def _median(values: Array) -> float:
    """The library's own spends most of its time on cases that do not occur here."""
    ordered = np.sort(values)
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else float(ordered[middle - 1] + ordered[middle]) / 2


class Warm:
    """Memory between solves of similar problems: an early, well-centred point of the last one, by row.

    Filled by the solver. Rows are recognised by their rates, so that jobs may come and go in between.
    """

    def __init__(self) -> None:
        self._keys: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._x: Array = np.zeros((0, 0))
        self._duals: Array = np.zeros(0)
        self._prices: Array = np.zeros(0)
        self._level = 0.0

    def keep(self, keys: NDArray[np.uint64], shape: Shape, point: Point, row: Array, unit: float) -> None:
        """Remember ``point`` of a problem scaled by ``row`` and ``unit``, in units that do not depend on them."""
        n = shape.n_types
        self._keys, self._x = keys, point.z[:n]
        self._duals = point.slack[-1] * unit / (row * shape.gang)
        self._prices, self._level = point.dual[-n - 1 : -1] * unit, point.t * unit

    def point(self, keys: NDArray[np.uint64], shape: Shape, row: Array, unit: float) -> Point | None:
        """A start for the problem with these rows, or None if it has nothing in common with the last one."""
        if len(self._prices) != shape.n_types:
            return None
        source = self._source(keys)
        (known,) = (source >= 0).nonzero()
        if 2 * len(known) < len(keys):
            return None
        x, _, duals = _average(shape)
        source, gang, own = source.take(known), shape.gang.take(known), row.take(known)
        before = self._duals.take(source)
        duals *= _median(before * (gang * own) / unit / duals.take(known))
        x[:, known] = self._x.take(source, axis=1)
        duals[known] = before * gang * own / unit
        return self._fitted(shape, x, duals, unit)

    def _source(self, keys: NDArray[np.uint64]) -> Index:
        """For each row the remembered one with the same rates, or -1."""
        if np.array_equal(keys, self._keys):
            return np.arange(len(keys))
        order = np.argsort(self._keys, kind="stable")
        place = order[np.minimum(np.searchsorted(self._keys, keys, sorter=order), len(order) - 1)]
        return np.where(self._keys[place] == keys, place, -1)

    def _fitted(self, shape: Shape, x: Array, duals: Array, unit: float) -> Point:
        """Shrunk to the capacities, duals normal, everything positive."""
        used = np.einsum("kn,n->k", x, shape.gang)
        x = x * np.minimum(1.0, 0.999 * shape.capacity / used)[:, None]
        duals = np.maximum(duals, 1e-12)
        duals = duals * (1.01 / float((duals * shape.demand).sum()))
        return _complete(shape, x, self._level / unit, duals, self._prices / unit, _LIFT, 1e-3)
