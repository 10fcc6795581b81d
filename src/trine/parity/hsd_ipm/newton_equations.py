"""The linear equations of one step of the walk, with and without pairs.

All: ``transposed_times(dz) = a`` and ``times(dx) - weight dz = b``, where the weights are slacks over prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trine.core.sums import Cholesky, dot
from trine.parity.hsd_ipm.cone_program import Array, ConeProgram
from trine.policy.shares.solver.newton import Factors

LEAST_LIFT, MOST_LIFT = 1e-13, 1e-3


class System(Protocol):
    """The equations for given weights and several right sides."""

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        """The moves of columns and of prices of rows."""


def system(columns: ConeProgram, weight: Array) -> System:
    """With a second look at what rounding left over."""
    return RefinedSystem(columns, weight, Coupled(columns, weight) if columns.pairs else Apart(columns, weight))


@dataclass(frozen=True)
class RefinedSystem:
    """Solves once more for what is left."""

    columns: ConeProgram
    weight: Array
    inner: System

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        columns = self.columns
        x, z = self.inner.solve(a, b)
        more_x, more_z = self.inner.solve(a - columns.transposed_times(z), b - (columns.times(x) - self.weight * z))
        return x + more_x, z + more_z


class Apart:
    """Without pairs: jobs meet in the rows of GPUs only, so each job's equations are solved by formula.

    The formulas have no differences of near numbers, and equal jobs get equal bits, so that ties stay ties.
    """

    def __init__(self, columns: ConeProgram, weight: Array) -> None:
        held, shape = columns.held, columns.load.shape
        self.columns = columns
        self.lift = columns.bound / weight[:held].reshape(shape)
        self.weight = weight[:held].reshape(shape)
        gpus, time, rate = columns.split(weight[held:])
        give = self.weight / columns.bound**2
        self._respond(give, time, rate)
        load = columns.load
        self.gpus = np.einsum("nj,njk,nk->jk", load, self.share, load) + np.diag(gpus)
        self.pull = np.einsum("nj,nj,n->j", load, self.by_rate, columns.level)
        self.factors = Factors(self.gpus)
        self.reply = np.array(self.factors.solve(self.pull))
        self.stiff = dot(self.rate_rate, columns.level**2) + dot(self.pull, self.reply)

    def _respond(self, give: Array, time: Array, rate: Array) -> None:
        """What shares and prices of a job do if one of its right sides moves by 1."""
        timed, worked = self.columns.time, self.columns.rate
        types = range(give.shape[1])
        cross_product = timed[:, :, None] * worked[:, None, :] - timed[:, None, :] * worked[:, :, None]
        own, work = give * timed**2, give * worked**2
        double = give[:, :, None] * give[:, None, :] * cross_product**2 / 2
        both = (time * rate)[:, None]
        spread = double.sum(axis=(1, 2)) + time * work.sum(axis=1) + rate * own.sum(axis=1) + time * rate
        part = give / spread[:, None]
        self.time_time, self.rate_rate = (work.sum(axis=1) + rate) / spread, (own.sum(axis=1) + time) / spread
        self.time_rate = (give * timed * worked).sum(axis=1) / spread
        self.by_time = part * (timed * rate[:, None] + np.einsum("nk,nk,njk->nj", give, worked, cross_product))
        self.by_rate = part * (worked * time[:, None] - np.einsum("nk,nk,njk->nj", give, timed, cross_product))
        cross = rate[:, None, None] * timed[:, :, None] * timed[:, None, :]
        cross += time[:, None, None] * worked[:, :, None] * worked[:, None, :]
        cross += np.einsum("nl,njl,nkl->njk", give, cross_product, cross_product)
        self.share = -part[:, :, None] * give[:, None, :] * cross
        for j in types:
            others = [k for k in types if k != j]
            free = both[:, 0] + time * work[:, others].sum(axis=1) + rate * own[:, others].sum(axis=1)
            free += double[:, others][:, :, others].sum(axis=(1, 2))
            self.share[:, j, j] = part[:, j] * free

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        columns, held = self.columns, self.columns.held
        level = columns.level
        of_bound = b[:held].reshape(self.lift.shape)
        wanted = a[:held].reshape(self.lift.shape) - self.lift * of_bound
        gpus, time, rate = columns.split(b[held:])
        share, _, work = self._jobs(wanted, time, rate)
        prices = np.array(self.factors.solve((columns.load * share).sum(axis=0) - gpus))
        last = np.zeros(0)
        if columns.with_level:
            last = np.array([(a[-1] - dot(level, work) - dot(self.pull, prices)) / self.stiff])
            prices = prices + self.reply * last[0]
            rate = rate - level * last[0]
        share, own, work = self._jobs(wanted - columns.load * prices, time, rate)
        bounds = -(columns.bound * share + of_bound) / self.weight
        return np.concatenate((share.ravel(), last)), np.concatenate((bounds.ravel(), prices, own, work))

    def _jobs(self, wanted: Array, time: Array, rate: Array) -> tuple[Array, Array, Array]:
        """Shares, prices of time and of throughput of each job on its own."""
        share = np.einsum("njk,nk->nj", self.share, wanted)
        share += self.by_time * time[:, None] - self.by_rate * rate[:, None]
        own = (self.by_time * wanted).sum(axis=1) - self.time_time * time - self.time_rate * rate
        work = -(self.by_rate * wanted).sum(axis=1) - self.time_rate * time - self.rate_rate * rate
        return share, own, work


class Coupled:
    """With pairs any two jobs may meet: bounds and shares are eliminated, a dense system for the other rows is left."""

    def __init__(self, columns: ConeProgram, weight: Array) -> None:
        self.columns, self.weight = columns, weight
        held = columns.held
        self.give = (weight[:held] / columns.bound.ravel() ** 2).reshape(columns.load.shape)
        core = _core(columns, self.give)
        core[np.diag_indices_from(core)] += columns.row_count * weight[held:]
        self.rows = _Factor(core)
        border = np.concatenate((np.zeros(len(columns.limit) - columns.n), columns.level))
        self.border = columns.row_count * border
        self.reply = self.rows.solve(self.border) if columns.with_level else np.zeros(0)

    def solve(self, a: Array, b: Array) -> tuple[Array, Array]:
        columns, held = self.columns, self.columns.held
        bound, weight = columns.bound.ravel(), self.weight[:held]
        give = self.give.ravel()
        right = a[:held] - bound * b[:held] / weight
        full = np.append(give * right, 0.0) if columns.with_level else give * right
        prices = self.rows.solve(columns.row_count * (columns.times(full)[held:] - b[held:]))
        level: list[float] = []
        if columns.with_level:
            level = [(float(a[-1]) - dot(self.border, prices)) / dot(self.border, self.reply)]
            prices = prices + self.reply * level[0]
        pull = columns.transposed_times(np.concatenate((np.zeros(held), prices)))[:held]
        x = give * (right - pull)
        return np.concatenate((x, level)), np.concatenate((-(bound * x + b[:held]) / weight, prices))


class _Factor:
    """Cholesky; what rounding made negative is lifted a little."""

    def __init__(self, core: Array) -> None:
        lift = 0.0
        while True:
            try:
                self._factor = Cholesky(core + lift * np.diag(np.diag(core)) if lift else core)
                return
            except np.linalg.LinAlgError:
                lift = max(LEAST_LIFT, 100 * lift)
                if lift > MOST_LIFT:
                    raise

    def solve(self, right: Array) -> Array:
        return self._factor.solve(right)


def _core(columns: ConeProgram, give: Array) -> Array:
    """Rows of GPUs, time and throughput against each other, each column counted by what it gives."""
    n, types = columns.n, columns.load.shape[1]
    give = give * columns.unit_count[:, None]
    job, by_leg = columns.job, columns.legs(give)
    time, rate, load = columns.time * by_leg, columns.rate * by_leg, columns.legs(columns.load)
    core = np.zeros((types + 2 * n, types + 2 * n))
    core[np.arange(types), np.arange(types)] = (columns.load**2 * give).sum(axis=0)
    for j in range(types):
        core[j, types : types + n] = columns.jobs(time[:, j] * load[:, j])
        core[j, types + n :] = -columns.jobs(rate[:, j] * load[:, j])
    own, work = types + np.arange(n), types + n + np.arange(n)
    core[own, own] = columns.jobs((time * columns.time).sum(axis=1))
    core[work, work] = columns.jobs((rate * columns.rate).sum(axis=1))
    core[own, work] = -columns.jobs((time * columns.rate).sum(axis=1))
    units = len(columns.load)
    one, other = slice(n, units), slice(units, None)
    times = (time[one] * columns.time[other]).sum(axis=1)
    rates = (rate[one] * columns.rate[other]).sum(axis=1)
    of_other = (time[one] * columns.rate[other]).sum(axis=1)
    of_one = (rate[one] * columns.time[other]).sum(axis=1)
    a, b = job[one], job[other]
    apart = a != b
    core[types + a[apart], types + b[apart]] = times[apart]
    core[types + n + a[apart], types + n + b[apart]] = rates[apart]
    core[types + a[apart], types + n + b[apart]] = -of_other[apart]
    core[types + b[apart], types + n + a[apart]] = -of_one[apart]
    # A pair of equal jobs has both its legs in the same rows.
    within = a[~apart]
    core[types + within, types + within] += 2 * times[~apart]
    core[types + n + within, types + n + within] += 2 * rates[~apart]
    core[types + within, types + n + within] -= of_other[~apart] + of_one[~apart]
    return np.triu(core) + np.triu(core, 1).T
