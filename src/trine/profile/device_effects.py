"""What the records of a session say about its devices: log time = device + run + noise, fitted with medians.

The run's share is the drift common to all devices; what is left of a device is its slowdown. Whether that is more
than noise is tested, not assumed. Profiles for scheduling are in ``variability_profile``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, expm1, factorial, log
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trine.profile.measurements import MeasurementRecord, name_order

Floats = npt.NDArray[np.float64]
Verdict = Literal["slower", "faster", "same"]

SIGNIFICANCE = 0.05
_PERMUTATIONS, _CHUNK = 2000, 100
# This share of normal values lies within one standard deviation. Their median would do as well but for the median
# polish, which leaves many residuals exactly zero.
_WITHIN_ONE_SD = 0.6827
# A median of normal values is this much less certain than their mean.
_MEDIAN_PENALTY = 1.2533
_ONE_OFF_SD, _ONE_OFF_SHARE = 5.0, 0.1


@dataclass(frozen=True, slots=True)
class DeviceEffect:
    """One device in one class: slowdown against the median device (1.0) with its 95 % interval."""

    gpu: str
    slowdown: float
    low: float
    high: float
    stderr: float
    """Standard error of the slowdown, as a share of it."""
    verdict: Verdict
    perf_s: float
    runs: int
    one_off_slow: int
    """Runs far slower than the device's others: they do not move the slowdown."""


@dataclass(frozen=True)
class ClassEstimate:
    """What one class of kernels says about the devices."""

    app_class: str
    devices: tuple[DeviceEffect, ...]
    differ: bool
    """Whether the devices differ by more than noise explains."""
    p_value: float
    noise: float
    """Spread of one run around the fit, as a share: one standard deviation, from a quantile."""
    drift: float
    """How much slower all devices were at the end than at the start, as a share."""
    drift_by_run: tuple[float, ...]
    resolution: float
    """Smallest difference from the median device that so many runs with so much noise show, as a share."""
    runs_needed: int
    """Below this number of runs no result whatever could count as more than chance."""

    @property
    def runs(self) -> int:
        return len(self.drift_by_run)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"finding": self.finding()}

    def finding(self) -> str:
        """One sentence."""
        around = f"noise {self.noise:.1%} a run, drift {self.drift:+.1%} over the session"
        if len(self.devices) < 2:
            return f"one device only, nothing to compare it with; {around}"
        if self.runs < self.runs_needed:
            return f"{self.runs} runs are too few to tell devices apart, at least {self.runs_needed} are needed"
        if not self.differ:
            return f"cannot tell these devices apart: any differences are lost in the noise ({around})"
        slowdowns = [device.slowdown for device in self.devices]
        spread = f"the devices differ, from {min(slowdowns):.3f} to {max(slowdowns):.3f}"
        names = [device.gpu for device in self.devices if device.verdict == "slower"]
        slow = f"; slower than the median device: {_listed(names)}" if names else ""
        return f"{spread} ({around}){slow}"


def _listed(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


@dataclass(frozen=True, slots=True)
class _Fit:
    """Log times taken apart: ``residuals`` by run and device (NaN where nothing was measured)."""

    base: float
    run: Floats
    device: Floats
    residuals: Floats


def estimate(records: Sequence[MeasurementRecord]) -> list[ClassEstimate]:
    """One estimate per class, classes in order of name."""
    return [_estimate_class(records, name) for name in sorted({record.app_class for record in records})]


def without_drift(records: Sequence[MeasurementRecord]) -> list[MeasurementRecord]:
    """The records with the drift common to all devices taken out: what is left differs by device and by noise."""
    factors: dict[tuple[str, int], float] = {}
    for app_class in {record.app_class for record in records}:
        runs, _, times = _table(records, app_class)
        factors |= {(app_class, run): exp(-effect) for run, effect in zip(runs, _polish(times).run, strict=True)}
    return [replace(record, perf_s=record.perf_s * factors[record.app_class, record.run]) for record in records]


def _table(records: Sequence[MeasurementRecord], app_class: str) -> tuple[list[int], list[str], Floats]:
    """Runs, devices and log times by run and device."""
    mine = [record for record in records if record.app_class == app_class]
    runs = sorted({record.run for record in mine})
    gpus = sorted({record.gpu for record in mine}, key=name_order)
    times = np.full((len(runs), len(gpus)), np.nan)
    for record in mine:
        times[runs.index(record.run), gpus.index(record.gpu)] = log(record.perf_s)
    return runs, gpus, times


def _polish(times: Floats) -> _Fit:
    """Tukey's median polish: takes medians out of rows and columns alternately until nothing moves.

    A two-way analysis that a few disturbed runs cannot move (Tukey, Exploratory Data Analysis, 1977). It compares
    devices within each run, which is why a session measures run by run.
    """
    left = times.copy()
    run, device = np.zeros(times.shape[0]), np.zeros(times.shape[1])
    for _ in range(100):
        by_run = np.nanmedian(left, axis=1)
        left -= by_run[:, None]
        by_device = np.nanmedian(left, axis=0)
        left -= by_device
        run, device = run + by_run, device + by_device
        if max(np.abs(by_run).max(), np.abs(by_device).max()) < 1e-12:
            break
    base = float(np.median(run) + np.median(device))
    return _Fit(base, run - np.median(run), device - np.median(device), left)


def _estimate_class(records: Sequence[MeasurementRecord], app_class: str) -> ClassEstimate:
    _, gpus, times = _table(records, app_class)
    fit = _polish(times)
    counts = np.sum(np.isfinite(times), axis=0)
    noise, stderr = _noise(fit, counts)
    reach = stderr * _critical(len(gpus), counts)
    p_value = _p_value(times)
    differ = p_value < SIGNIFICANCE
    devices = _device_effects(gpus, times, fit, stderr, reach, noise, differ)
    return ClassEstimate(
        app_class=app_class,
        devices=devices,
        differ=differ,
        p_value=p_value,
        noise=noise,
        drift=expm1(_slope(fit.run) * (len(fit.run) - 1)),
        drift_by_run=tuple(exp(effect) for effect in map(float, fit.run)),
        resolution=expm1(float(np.median(reach))),
        runs_needed=_runs_needed(len(gpus)),
    )


def _device_effects(
    gpus: list[str], times: Floats, fit: _Fit, stderr: Floats, reach: Floats, noise: float, differ: bool
) -> tuple[DeviceEffect, ...]:
    runs = np.sum(np.isfinite(times), axis=0)
    one_off = np.nansum(fit.residuals > max(_ONE_OFF_SD * noise, _ONE_OFF_SHARE), axis=0)
    return tuple(
        DeviceEffect(
            gpu=gpu,
            slowdown=exp(effect),
            low=exp(effect - reach[i]),
            high=exp(effect + reach[i]),
            stderr=float(stderr[i]),
            verdict=_verdict(effect, reach[i]) if differ else "same",
            perf_s=exp(fit.base + effect),
            runs=int(runs[i]),
            one_off_slow=int(one_off[i]),
        )
        for i, (gpu, effect) in enumerate(zip(gpus, map(float, fit.device), strict=True))
    )


def _noise(fit: _Fit, counts: npt.NDArray[np.int64]) -> tuple[float, Floats]:
    """Standard deviation of a run, and the standard error of each device's effect, both of log times.

    A device is taken to be at least as noisy as all are together: a handful of runs can agree by luck.
    """
    runs, devices = fit.residuals.shape
    # A single device leaves no residuals: everything it does counts as change from run to run.
    size = np.abs(fit.residuals if devices > 1 else fit.run[:, None])
    # Residuals are smaller than the noise by what the fit has taken up of it.
    taken_up = float(np.sqrt(runs * devices / (max(runs - 1, 1) * max(devices - 1, 1))))
    pooled = float(np.nanquantile(size, _WITHIN_ONE_SD) * taken_up)
    by_device = np.nanquantile(size, _WITHIN_ONE_SD, axis=0) * taken_up
    against_median = 1 - 1 / devices if devices > 1 else 1.0
    stderr = _MEDIAN_PENALTY * np.maximum(by_device, pooled) * np.sqrt(against_median / counts)
    return pooled, stderr


def _critical(devices: int, counts: npt.NDArray[np.int64]) -> Floats:
    """How many standard errors count as different, for all devices of a class together."""
    from scipy.special import stdtrit  # the quantile of Student's t, without all of scipy.stats

    degrees = np.maximum(counts - 1, 1)
    return np.asarray(stdtrit(degrees, 1 - SIGNIFICANCE / (2 * devices)), dtype=np.float64)


def _verdict(effect: float, reach: float) -> Verdict:
    if abs(effect) <= reach:
        return "same"
    return "slower" if effect > 0 else "faster"


def _p_value(times: Floats) -> float:
    """How often devices that are all alike would seem to differ as much.

    If they are alike, their names can be swapped within a run without changing anything: that is done at random, and
    the spread of the devices' means compared. Values far out are drawn in first, so that a single run cannot decide.
    """
    counts = np.sum(np.isfinite(times), axis=0)
    # A device that failed half way must not cost the others their runs.
    kept = times[:, counts == counts.max()]
    whole = kept[np.isfinite(kept).all(axis=1)]
    runs, devices = whole.shape
    if devices < 2 or runs < _runs_needed(devices):
        return 1.0
    centred = whole - np.median(whole, axis=1, keepdims=True)
    far = 3 * np.quantile(np.abs(centred), _WITHIN_ONE_SD)
    centred = np.clip(centred, -far, far)
    found = _spread(centred[None])[0] * (1 - 1e-9)
    rng = np.random.default_rng(0)
    orders = (rng.random((_CHUNK, *centred.shape)).argsort(axis=2) for _ in range(_PERMUTATIONS // _CHUNK))
    swapped = (np.take_along_axis(centred[None], order, axis=2) for order in orders)
    as_large = sum(int(np.sum(_spread(sample) >= found)) for sample in swapped)
    return (1 + as_large) / (1 + _PERMUTATIONS)


def _spread(centred: Floats) -> Floats:
    """Sum of squared device means, by sample; ``centred`` is by sample, run and device."""
    return np.asarray(np.sum(np.square(np.mean(centred, axis=1)), axis=1))


def _runs_needed(devices: int) -> int:
    """Fewest runs in which chance repeats one and the same order of the devices less often than the significance."""
    orders = factorial(min(devices, 20))
    needed = 2
    while devices > 1 and float(orders) ** (1 - needed) >= SIGNIFICANCE:
        needed += 1
    return needed


def _slope(values: Floats) -> float:
    """Median slope over all pairs (Theil and Sen): single odd runs do not tilt it."""
    if len(values) < 2:
        return 0.0
    first, second = np.triu_indices(len(values), k=1)
    return float(np.median((values[second] - values[first]) / (second - first)))
