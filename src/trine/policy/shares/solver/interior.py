"""Mehrotra's predictor-corrector on the blocks of newton.py, and the points it starts from. Input is scaled so that t
is near 1; no presolve here.

A step is a vector of changes relative to each value and slack. Near the optimum these span many orders of magnitude,
and absolute changes would lose the digits of the small ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trine.core.sums import rows_times
from trine.policy.shares.solver.newton import (
    Blocks,
    Border,
    InteriorPoint,
    ScaledProblem,
    SingularError,
    border_matrix,
)
from trine.policy.shares.solver.polytope import Array, Index

TOLERANCE = 1e-8
MAX_ITERATIONS = 100
NEAR_BOUNDARY = 0.99
"""Part of the way to the boundary that a step goes at most. Nearer would be faster, and end far from the centre."""
EARLY = 1e-2
"""Relative gap of the point that a warm start uses: later ones are too close to the boundary to move from."""
_MOST = 0.9
"""Part of its time, and of the GPUs, that the starting shares may use."""
_LIFT = 0.1
"""Distance of a warm start from the boundary of the dual constraints, relative to what a job's rate is worth."""


@dataclass(frozen=True)
class Interior:
    """The best point met, by gap and residuals together; ``early`` is one still far enough from the boundary."""

    point: InteriorPoint
    score: float
    iterations: int
    early: InteriorPoint


class Residuals:
    """How far the rows are from holding, the complementarity gap, and one score for both.

    Time rows and dual equations hold from the start (``_complete``), and a linear equation that holds is kept by every
    Newton step: only rates and capacities, which a start may miss, have residuals.
    """

    __slots__ = ("capacity", "gap", "missed", "products", "rate", "score")

    def __init__(self, shape: ScaledProblem, point: InteriorPoint) -> None:
        share = point.z[:-2]
        self.products = point.primal * point.dual
        self.gap = float(np.add.reduce(self.products))
        self.rate = shape.demand * point.t
        self.rate += shape.floor
        self.rate += point.z[-1]
        self.rate -= np.einsum("kn,kn->n", shape.rate[:-1], share)
        self.capacity = shape.capacity - point.spare - rows_times(share, shape.gang)
        missed = self.rate / (point.t + point.z[-1])
        self.missed = _extent(missed) + _extent(self.capacity / shape.capacity)
        self.score = self.gap / point.t + self.missed


def _extent(values: Array) -> float:
    return max(float(np.maximum.reduce(values)), -float(np.minimum.reduce(values)))


def run(
    shape: ScaledProblem, point: InteriorPoint, tolerance: float = TOLERANCE, near_boundary: float = NEAR_BOUNDARY
) -> Interior:
    """Iterate until the gap is below ``tolerance`` relative to t, or until the numbers say that no more can be had."""
    best, early = Interior(point, np.inf, 0, point), point
    with np.errstate(all="ignore"):  # an empty interior ends in overflow: seen by the score, refuted by the certificate
        for iteration in range(MAX_ITERATIONS):
            off = Residuals(shape, point)
            # Late iterates can be worse than earlier ones: at the floor of rounding residuals grow again.
            if not np.isfinite(off.score) or (off.score > 5.0 * best.score and off.gap < 1e-5 * point.t):
                break
            if off.gap > EARLY * point.t or iteration == 0:
                early = point
            if off.score < best.score:
                best = Interior(point, off.score, iteration, early)
            if off.gap <= tolerance * point.t and off.score <= 10.0 * tolerance:
                break
            try:
                point = _iterate(shape, point, off, near_boundary)
            except SingularError:
                break
    return best


def _iterate(shape: ScaledProblem, point: InteriorPoint, off: Residuals, near_boundary: float) -> InteriorPoint:
    """Predictor, centring by how far it gets, corrector, step (Mehrotra 1992).

    With ``move`` p the slacks move by -(aim + p), so that a product z s becomes z s (1 + p)(1 - aim - p). It shall be
    ``target``: to second order aim = 1 - p - p^2 - target / (z s), with the p of the predictor, whose aim was 1.
    """
    blocks = Blocks(shape, point)
    border = Border(border_matrix(shape, blocks, point))
    move = newton_step(shape, blocks, border, point, off, None)
    left = _affine_gap(off, move)
    target = off.gap / off.products.size * (left / off.gap) ** 3
    aim = 1.0 - move
    move *= move
    aim -= move
    aim -= target / off.products
    return advance(point, aim, newton_step(shape, blocks, border, point, off, aim), near_boundary)


def newton_step(
    shape: ScaledProblem, blocks: Blocks, border: Border, point: InteriorPoint, off: Residuals, aim: Array | None
) -> Array:
    """Relative move of every primal value that takes its product with its slack down by ``aim`` (None: all) of itself.

    The slacks then move by ``-(aim + move)``, relative to themselves.
    """
    n = shape.n_types
    wanted = point.dual if aim is None else point.dual * aim
    wanted_z = wanted[: -n - 1].reshape(n + 2, -1)
    move = np.empty_like(wanted)
    reply = move[: -n - 1].reshape(n + 2, -1)
    dual = _blocks_reply(blocks, wanted_z, off, reply[:-1])

    right = np.empty(n + 1)
    np.subtract(off.capacity, np.einsum("kn,kn->k", blocks.gang_weight, reply[:-2]), out=right[:n])
    right[:n] += point.spare if aim is None else point.spare * aim[-n - 1 : -1]
    right[n] = wanted[-1] + rows_times(shape.demand, dual)
    solved = border.solve(right)

    dual += _border_reply(shape, blocks, solved, reply[:-1])
    np.add(wanted_z[-1], dual, out=dual)
    np.negative(dual, out=reply[-1])
    move[: -n - 1] /= point.dual[: -n - 1]
    np.divide(solved[:n], point.dual[-n - 1 : -1], out=move[-n - 1 : -1])
    move[-n - 1 : -1] -= 1.0 if aim is None else aim[-n - 1 : -1]
    move[-1] = solved[-1] / point.t
    return move


def _blocks_reply(blocks: Blocks, wanted: Array, off: Residuals, reply: Array) -> Array:
    """Each job on its own, prices and t held: fills ``reply`` (moves over weights), returns the moves of the duals."""
    columns = wanted[:-1]
    dual: Array
    mean, dual = np.einsum("ikn,kn->in", blocks.fit, columns)
    lag = columns - mean
    lag -= np.einsum("kn,kn->n", blocks.fit[0], lag)
    dual += (off.rate - blocks.surplus * wanted[-1]) / blocks.rate_pivot
    np.multiply(blocks.centred, dual, out=reply)
    reply -= lag
    return dual


def _border_reply(shape: ScaledProblem, blocks: Blocks, solved: Array, reply: Array) -> Array:
    """What the moves of prices and t add to ``reply`` and to the moves of the duals."""
    fall = solved[:-1]
    mean, slope = np.einsum("k,ikn->in", fall, blocks.fit)
    slope *= shape.gang
    more: Array = blocks.per_rate * solved[-1]
    more -= slope
    reply += blocks.centred * more
    shift = fall[:, None] - mean
    shift *= shape.gang
    reply += shift
    return more


def _affine_gap(off: Residuals, move: Array) -> float:
    """The gap that the longest feasible predictor step would leave: products times (1 + a p)(1 - b (1 + p)) summed, a
    and b being the steps of the values and of the slacks."""
    primal = 1.0 / max(1.0, -float(np.minimum.reduce(move)))
    dual = 1.0 / max(1.0, 1.0 + float(np.maximum.reduce(move)))
    moved = off.products * move
    first = float(np.add.reduce(moved))
    moved *= move
    second = float(np.add.reduce(moved))
    return (1.0 - dual) * off.gap + (primal * (1.0 - dual) - dual) * first - primal * dual * second


def advance(point: InteriorPoint, aim: Array, move: Array, near_boundary: float) -> InteriorPoint:
    """Go at most ``near_boundary`` of the way to a zero of any value or slack. Uses up ``aim`` and ``move``."""
    aim += move
    primal = near_boundary / max(near_boundary, -float(np.minimum.reduce(move)))
    dual = near_boundary / max(near_boundary, float(np.maximum.reduce(aim)))
    move *= primal
    move += 1.0
    move *= point.primal
    aim *= -dual
    aim += 1.0
    aim *= point.dual
    return InteriorPoint(move, aim, len(point.spare))


# -- starting points -------------------------------------------------------------------------------------------------


def cold(shape: ScaledProblem) -> InteriorPoint:
    """As if all GPUs were of one average type: time and value of each job follow from its average rate."""
    x, level, duals = _average(shape)
    n = shape.n_types
    prices = np.full(n, 0.5 * level / shape.capacity.sum())
    return _complete(shape, x, 0.5 * level, duals * (1.05 / (duals * shape.demand).sum()), prices, 1.0, 0.1)


def _average(shape: ScaledProblem) -> tuple[Array, float, Array]:
    """Shares, level and duals (up to scale) if every GPU were the average of all."""
    gpus = shape.capacity.sum()
    mix = shape.capacity / gpus
    rate = np.einsum("k,kn->n", mix, shape.rate[:-1])
    need = (shape.demand + np.maximum(shape.floor, 0.0)) / rate
    level = _MOST * min(1.0 / float(need.max()), gpus / float((shape.gang * need).sum()))
    return mix[:, None] * (need * level), level, shape.gang / rate


def _complete(
    shape: ScaledProblem, x: Array, t: float, duals: Array, prices: Array, lift: float, surplus: float
) -> InteriorPoint:
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
    return InteriorPoint(np.concatenate((z.ravel(), spare, [t])), np.concatenate((slack.ravel(), prices, [t_slack])), n)


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

    def keep(
        self, keys: NDArray[np.uint64], shape: ScaledProblem, point: InteriorPoint, row: Array, unit: float
    ) -> None:
        """Remember ``point`` of a problem scaled by ``row`` and ``unit``, in units that do not depend on them."""
        n = shape.n_types
        self._keys, self._x = keys, point.z[:n]
        self._duals = point.slack[-1] * unit / (row * shape.gang)
        self._prices, self._level = point.dual[-n - 1 : -1] * unit, point.t * unit

    def point(self, keys: NDArray[np.uint64], shape: ScaledProblem, row: Array, unit: float) -> InteriorPoint | None:
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

    def _fitted(self, shape: ScaledProblem, x: Array, duals: Array, unit: float) -> InteriorPoint:
        """Shrunk to the capacities, duals normal, everything positive: an interior start whatever jobs came or left."""
        used = np.einsum("kn,n->k", x, shape.gang)
        x = x * np.minimum(1.0, 0.999 * shape.capacity / used)[:, None]
        duals = np.maximum(duals, 1e-12)
        duals = duals * (1.01 / float((duals * shape.demand).sum()))
        return _complete(shape, x, self._level / unit, duals, self._prices / unit, _LIFT, 1e-3)
