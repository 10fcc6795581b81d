"""An interior point that walks the published way, so that of several optima the same one is found.

Published results come from a conic solver without crossover. It solves the homogeneous self-dual embedding with
Mehrotra's predictor-corrector from the least-squares start, and stops where the gap closes: inside the set of optima,
not at a corner. The walk is described in Domahidi, Chu, Boyd (ECC 2013) and Vandenberghe (2010); here it is written for
the one form that shares need (cone_program.py). For comparisons only: ``compat.centre_of_optima``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trine.core.sums import dot
from trine.parity.hsd_ipm.cone_program import Array, ConeProgram
from trine.parity.hsd_ipm.newton_equations import system
from trine.policy.shares.solver.newton import SingularError

TOLERANCE = 1e-8
MAX_ITERATIONS = 100
NEAR_BOUNDARY = 0.99
LEAST_CENTRING, LONGEST_STEP = 1e-4, 0.999


@dataclass(frozen=True)
class Walk:
    """Where the walk ended: shares (units, types); ``done`` if the gap closed within the tolerance."""

    shares: Array
    done: bool
    iterations: int


def walk(program: ConeProgram) -> Walk:
    """The optimum that the walk ends at, or the last point before rounding led it astray."""
    point = _start(program)
    off = _Residuals(program, point)
    with np.errstate(all="ignore"):  # what goes astray is seen by its residuals
        for iteration in range(MAX_ITERATIONS):
            if off.closed:
                return Walk(program.shares(point.x / point.tau), True, iteration)
            try:
                ahead = _advance(program, point, off)
            except (np.linalg.LinAlgError, SingularError):
                break
            left = _Residuals(program, ahead)
            if not left.mean < max(off.mean, 1e-6):
                break
            point, off = ahead, left
    return Walk(program.shares(point.x / point.tau), False, iteration)


@dataclass
class _Point:
    """Columns, slacks and prices of all rows, and the two scalars of the embedding."""

    x: Array
    slack: Array
    price: Array
    tau: float = 1.0
    kappa: float = 1.0


def _start(program: ConeProgram) -> _Point:
    """Least squares, slacks and prices then lifted until all are positive."""
    flat = system(program, np.ones(len(program.limits)))
    x, miss = flat.solve(np.zeros(len(program.cost)), program.limits)
    _, price = flat.solve(-program.cost, np.zeros(len(program.limits)))
    return _Point(x, _lifted(-miss), _lifted(price))


def _lifted(values: Array) -> Array:
    lowest = float(values.min())
    return values + (1.0 + (-lowest if lowest <= 0 else -NEAR_BOUNDARY))


class _Residuals:
    """How far a point is from the end."""

    def __init__(self, program: ConeProgram, point: _Point) -> None:
        limits, cost = program.limits, program.cost
        self.dual = -program.transposed_times(point.price) - point.tau * cost
        self.primal = point.slack + program.times(point.x) - point.tau * limits
        priced = program.all_row_count * point.price
        worth, paid = dot(cost, point.x), dot(limits, priced)
        self.last = point.kappa + worth + paid
        self.gap = dot(point.slack, priced)
        self.mean = (self.gap + point.kappa * point.tau) / (float(program.all_row_count.sum()) + 1)
        missed_rows = _over(self.primal, limits, program.all_row_count)
        missed = max(missed_rows, _over(self.dual, cost, program.column_count)) / point.tau
        scale = -worth if worth < 0 else -paid
        near = self.gap < TOLERANCE or self.gap * point.tau < TOLERANCE * scale
        self.closed = bool(missed < TOLERANCE and near and (worth < 0 or -paid >= -TOLERANCE))


def _over(miss: Array, size: Array, count: Array) -> float:
    """Norm of ``miss`` relative to that of ``size``, every entry counted as often as it stands for one."""
    return math.sqrt(dot(count * miss, miss)) / max(1.0, math.sqrt(dot(count * size, size)))


def _advance(program: ConeProgram, point: _Point, off: _Residuals) -> _Point:
    """Predictor, centring by how far it gets, corrector, step."""
    limits, cost = program.all_row_count * program.limits, program.cost
    root, level = np.sqrt(point.slack / point.price), np.sqrt(point.slack * point.price)
    newton = system(program, root**2)
    base_x, base_z = newton.solve(-cost, program.limits)
    pivot = point.kappa / point.tau - dot(cost, base_x) - dot(limits, base_z)
    if not pivot > 0:
        raise np.linalg.LinAlgError("rounding ate the pivot")

    x, z = newton.solve(off.dual, point.slack - off.primal)
    tau = (off.last - point.kappa + dot(cost, x) + dot(limits, z)) / pivot
    z = root * (z + tau * base_z)
    slack = -z - level
    kappa = -point.kappa - point.kappa / point.tau * tau
    part = _longest(point, level, slack, z, tau, kappa)
    centring = min(max((1.0 - part) ** 3, LEAST_CENTRING), 1.0)

    aim = (level**2 + slack * z - centring * off.mean) / level
    aim_kappa = point.kappa * point.tau + kappa * tau - centring * off.mean
    keep = 1.0 - centring
    x, z = newton.solve(keep * off.dual, root * aim - keep * off.primal)
    tau = (keep * off.last - aim_kappa / point.tau + dot(cost, x) + dot(limits, z)) / pivot
    x, z = x + tau * base_x, z + tau * base_z
    slack = -aim - root * z
    kappa = -(aim_kappa + point.kappa * tau) / point.tau
    step = NEAR_BOUNDARY * _longest(point, level, slack, root * z, tau, kappa)
    return _Point(
        point.x + step * x,
        point.slack + step * root * slack,
        point.price + step * z,
        point.tau + step * tau,
        point.kappa + step * kappa,
    )


def _longest(point: _Point, level: Array, slack: Array, price: Array, tau: float, kappa: float) -> float:
    """The part of a step at which the first slack, price or scalar would be zero."""
    falls = (float((slack / level).min()), float((price / level).min()), tau / point.tau, kappa / point.kappa)
    return min(LONGEST_STEP, 1.0 / max(-min(falls), 1e-13))
