"""Linear objectives over the same shares: most total worth, best worth per cost, and which floors can be met at all.

By HiGHS, in classes of equal jobs, so the cost depends on the kinds of jobs and not on their number. The answer is a
vertex: where the optimum is not unique, the one HiGHS ends in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trine.policy.shares.solver import classes as grouping
from trine.policy.shares.solver.certificate import program_bound, reached, relative_gap, repair
from trine.policy.shares.solver.form import Array, Certified, Index, InfeasibleError, Mask
from trine.policy.shares.solver.highs import INFINITY, Optimum, Program, Session

FLOOR_SLACK = 1e-9


@dataclass(frozen=True)
class _Rows:
    """One line per class: ``gang`` and ``size`` of it; floors on ``rates @ x`` of each member, 0 for none."""

    rates: Array
    floors: Array
    gang: Array
    size: Array
    capacity: Array

    def entries(self) -> tuple[list[Index], list[Index], list[Array]]:
        """Rows of floors, time and capacity for columns x, row by row."""
        n, types = self.rates.shape
        job, kind = np.repeat(np.arange(n), types), np.tile(np.arange(types), n)
        column = np.arange(n * types)
        load = (self.gang * self.size)[job]
        return [job, n + job, 2 * n + kind], [column] * 3, [self.rates.ravel(), np.ones(n * types), load]

    def bounds(self) -> tuple[Array, Array]:
        n, types = self.rates.shape
        lower = np.concatenate((np.where(self.floors > 0, self.floors, -INFINITY), np.full(n + types, -INFINITY)))
        return lower, np.concatenate((np.full(n, INFINITY), np.ones(n), self.capacity))


def maximise_sum(
    worth: Array,
    gang: Array,
    capacity: Array,
    *,
    rates: Array | None = None,
    floors: Array | None = None,
    session: Session | None = None,
) -> Certified:
    """Shares with the largest ``(worth * x).sum()``, with ``rates @ x >= floors`` per job where floors are positive.

    ``duals`` are those of the floors; ``session`` is kept by callers who solve many such problems.
    """
    worth, rows, found = _grouped(worth, gang, capacity, rates, floors)
    cost = -(worth * rows.size[:, None]).ravel()
    row, column, value = rows.entries()
    program = Program.of(cost, (row, column, value), *rows.bounds())
    optimum = (session or Session()).minimise(program)
    x = repair(optimum.x.reshape(worth.shape), rows.gang * rows.size, rows.capacity)
    total = float((worth * x * rows.size[:, None]).sum())
    bound = -program_bound(program, optimum.duals, np.ones(len(cost)))
    return grouping.spread(_certified(rows, x, total, bound, optimum), found)


def _certified(rows: _Rows, x: Array, value: float, bound: float, optimum: Optimum) -> Certified:
    n = len(rows.gang)
    if (reached(rows.rates, x) < rows.floors * (1.0 - FLOOR_SLACK) - FLOOR_SLACK).any():
        raise InfeasibleError("the floors are not met")
    duals, prices = np.maximum(optimum.duals[:n], 0.0), np.maximum(-optimum.duals[2 * n :][: len(rows.capacity)], 0.0)
    return Certified(x, value, bound, relative_gap(value, bound), duals, prices, "highs", optimum.iterations)


def _grouped(
    worth: Array, gang: Array, capacity: Array, rates: Array | None, floors: Array | None
) -> tuple[Array, _Rows, grouping.Classes]:
    worth, gang = np.asarray(worth, dtype=np.float64), np.asarray(gang, dtype=np.float64)
    floors = np.zeros(len(gang)) if floors is None else np.asarray(floors, dtype=np.float64)
    rates = worth if rates is None else np.asarray(rates, dtype=np.float64)
    found = grouping.find((worth, rates, floors, gang))
    assert found is not None
    head = found.first
    size = found.size.astype(np.float64)
    rows = _Rows(rates[head], floors[head], gang[head], size, np.asarray(capacity, dtype=np.float64))
    return worth[head], rows, found


def maximise_ratio(
    worth: Array, cost: Array, gang: Array, capacity: Array, *, rates: Array | None = None, floors: Array | None = None
) -> Certified:
    """Shares with the largest ``(worth * x).sum() / (cost * x).sum()``; without floors, of those the most worth.

    ``cost`` per job and type (price times gang) must be positive. ``value`` and ``bound`` are ratios.
    """
    cost = np.asarray(cost, dtype=np.float64)
    if (cost <= 0).any():
        raise ValueError("cost must be positive")
    if floors is None or not (np.asarray(floors) > 0).any():
        return _best_cells(np.asarray(worth, dtype=np.float64), cost, gang, capacity)
    worth = np.asarray(worth, dtype=np.float64)
    types = worth.shape[1]
    both, rows, found = _grouped(np.hstack((worth, cost)), gang, capacity, worth if rates is None else rates, floors)
    return grouping.spread(_charnes_cooper(both[:, :types], both[:, types:], rows), found)


def _best_cells(worth: Array, cost: Array, gang: Array, capacity: Array) -> Certified:
    """Without floors the best ratio is that of single jobs on single types: use all that have it, as much as can be."""
    best = float((worth / cost).max())
    usable = worth >= best * cost * (1.0 - 1e-12)
    answer = maximise_sum(np.where(usable, worth, 0.0), gang, capacity)
    x = np.where(usable, answer.x, 0.0)
    value = float((worth * x).sum() / (cost * x).sum())
    return replace(answer, x=x, value=value, bound=best, gap=relative_gap(value, best))


def _charnes_cooper(worth: Array, cost: Array, rows: _Rows) -> Certified:
    """Columns y = k x with the total cost of y fixed at 1, then k: the ratio becomes linear."""
    n, types = worth.shape
    scale = float(rows.size @ cost.max(axis=1))
    row, column, value = rows.entries()
    lower, upper = rows.bounds()
    moved, last = np.where(lower > -INFINITY, lower, upper), n * types
    kept = np.isfinite(moved)
    row = [*row, np.flatnonzero(kept), np.full(n * types, len(lower))]
    column = [*column, np.full(int(kept.sum()), last), np.arange(n * types)]
    value = [*value, -moved[kept], (cost * rows.size[:, None]).ravel() / scale]
    lower = np.append(np.where(lower > -INFINITY, 0.0, -INFINITY), 1.0)
    upper = np.append(np.where(upper < INFINITY, 0.0, INFINITY), 1.0)
    gain = np.append(-(worth * rows.size[:, None]).ravel(), 0.0)
    program = Program.of(gain, (row, column, value), lower, upper)
    optimum = Session().minimise(program)
    k_most = scale / _least_cost(cost, rows)
    x = repair((optimum.x[:-1] / optimum.x[-1]).reshape(worth.shape), rows.gang * rows.size, rows.capacity)
    ratio = float((worth * x * rows.size[:, None]).sum() / (cost * x * rows.size[:, None]).sum())
    bound = -program_bound(program, optimum.duals, np.full(len(gain), k_most)) / scale
    return _certified(rows, x, ratio, bound, optimum)


def _least_cost(cost: Array, rows: _Rows) -> float:
    """No shares that meet the floors cost less: every job on its cheapest type per rate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        cheapest = np.where(rows.rates > 0, cost / rows.rates, np.inf).min(axis=1)
    return float((np.where(rows.floors > 0, rows.floors * cheapest, 0.0) * rows.size).sum())


def meetable(rates: Array, floors: Array, gang: Array, capacity: Array) -> Mask:
    """Jobs whose floors can be met together: the shortfall, relative to each floor, is as small as possible in all."""
    floors, gang = np.asarray(floors, dtype=np.float64), np.asarray(gang, dtype=np.float64)
    n, types = rates.shape
    alone = (rates * np.minimum(1.0, capacity / gang[:, None])).max(axis=1, initial=0.0) if types else np.zeros(n)
    able = (floors <= 0) | (floors <= np.maximum(alone, _alone_over_types(rates, gang, capacity)))
    asked = able & (floors > 0)
    rows = _Rows(rates / np.where(asked, floors, 1.0)[:, None], asked.astype(np.float64), gang, np.ones(n), capacity)
    row, column, value = rows.entries()
    short = n * types + np.arange(n)
    cost = np.concatenate((np.zeros(n * types), np.ones(n)))
    entries = ([*row, np.arange(n)], [*column, short], [*value, np.ones(n)])
    found = Session().minimise(Program.of(cost, entries, *rows.bounds()))
    met: Mask = able & (found.x[n * types :] <= 1e-9)
    return met


def _alone_over_types(rates: Array, gang: Array, capacity: Array) -> Array:
    """The most a job can reach with the whole cluster for itself: fastest types first, until its time is used."""
    order = np.argsort(-rates, axis=1, kind="stable")
    most = np.minimum(1.0, np.take_along_axis(capacity / gang[:, None], order, axis=1))
    before = np.cumsum(most, axis=1) - most
    used = np.clip(1.0 - before, 0.0, most)
    total: Array = (np.take_along_axis(rates, order, axis=1) * used).sum(axis=1)
    return total
