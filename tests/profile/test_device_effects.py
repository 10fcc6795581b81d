"""Estimates from virtual devices: the truth is found again, and what cannot be known is not claimed."""

from __future__ import annotations

import pytest

from tests.profile.virtual import VirtualMachine
from trine.profile.device_effects import ClassEstimate, estimate, without_drift

TRUTH = (1.0, 1.0, 1.08, 0.95, 1.0, 1.02)


def class_a(machine: VirtualMachine, repeats: int = 10) -> ClassEstimate:
    return estimate(machine.records(repeats))[0]


@pytest.mark.parametrize("drift_per_s", [0.0, 0.02, -0.005])
def test_device_speeds_are_found_under_noise_and_drift(drift_per_s: float) -> None:
    machine = VirtualMachine(TRUTH, noise=0.005, drift_per_s=drift_per_s)
    found = class_a(machine)
    assert [d.slowdown for d in found.devices] == pytest.approx(TRUTH, rel=0.01)
    assert found.differ
    assert {d.gpu: d.verdict for d in found.devices} | {"n0-gpu5": ""} == {
        "n0-gpu0": "same",
        "n0-gpu1": "same",
        "n0-gpu2": "slower",
        "n0-gpu3": "faster",
        "n0-gpu4": "same",
        "n0-gpu5": "",
    }
    assert all(d.low <= truth <= d.high for d, truth in zip(found.devices, TRUTH, strict=True))


def test_drift_and_noise_are_told_apart() -> None:
    """6 devices x 3 kernels x 0.1 s: a run takes 1.8 s, so 10 runs drift by 9 x 1.8 s x 0.003 / s = 4.9 %."""
    found = class_a(VirtualMachine([1.0] * 6, noise=0.01, drift_per_s=0.003))
    assert found.drift == pytest.approx(0.049, abs=0.015)
    assert found.noise == pytest.approx(0.01, rel=0.4)


def test_records_without_drift_differ_by_device_only() -> None:
    """Without noise all runs of a device must become alike, but for the drift within a run (1.2 s at 2 % / s)."""
    records = VirtualMachine([1.0, 1.1], noise=0.0, drift_per_s=0.02).records()
    level = without_drift(records)
    assert [(r.gpu, r.run) for r in level] == [(r.gpu, r.run) for r in records]
    for gpu in ("n0-gpu0", "n0-gpu1"):
        raw, times = ([r.perf_s for r in rs if (r.gpu, r.app_class) == (gpu, "A")] for rs in (records, level))
        assert max(raw) / min(raw) > 1.08
        assert max(times) / min(times) < 1.025


@pytest.mark.parametrize("factor", [3.6, 50.0])
@pytest.mark.parametrize("devices", [2, 6])
def test_a_one_off_slow_run_moves_nothing(devices: int, factor: float) -> None:
    calm, shaken = (VirtualMachine([1.0] * devices, noise=0.005) for _ in range(2))
    shaken.disturb(lambda call: factor if call == 20 * devices else 1.0)
    before, after = estimate(calm.records()), estimate(shaken.records())
    for e, f in zip(before, after, strict=True):
        assert [d.slowdown for d in f.devices] == pytest.approx([d.slowdown for d in e.devices], rel=0.005)
        assert [d.verdict for d in f.devices] == [d.verdict for d in e.devices]
    assert sum(d.one_off_slow for e in after for d in e.devices) >= 1
    assert not any(d.one_off_slow for e in before for d in e.devices)


@pytest.mark.parametrize("devices", [2, 3, 8, 40])
def test_equal_devices_cannot_be_told_apart(devices: int) -> None:
    found = class_a(VirtualMachine([1.0] * devices, noise=0.02, drift_per_s=0.003))
    assert not found.differ
    assert "cannot tell these devices apart" in found.finding()
    assert all(d.verdict == "same" for d in found.devices)


def test_equal_devices_are_rarely_said_to_differ() -> None:
    """5 % is promised; among 20 sessions of three classes more than 9 alarms would be one chance in 1,000."""
    sessions = [estimate(VirtualMachine([1.0] * 4, noise=0.02, seed=s).records(8)) for s in range(20)]
    assert sum(e.differ for session in sessions for e in session) <= 9


def test_a_difference_below_the_noise_is_not_claimed_and_one_above_is_found() -> None:
    hidden = class_a(VirtualMachine([1.0, 1.002, 1.0, 1.0], noise=0.03))
    seen = class_a(VirtualMachine([1.0, 1.1, 1.0, 1.0], noise=0.03))
    assert not hidden.differ
    assert hidden.resolution > 0.002
    assert seen.differ
    assert "slower than the median device: n0-gpu1" in seen.finding()


def test_two_devices_need_six_runs() -> None:
    five, six = (class_a(VirtualMachine([1.0, 1.5], noise=0.001), repeats) for repeats in (5, 6))
    assert not five.differ
    assert five.finding() == "5 runs are too few to tell devices apart, at least 6 are needed"
    assert six.differ


def test_one_device_has_nothing_to_be_compared_with() -> None:
    found = class_a(VirtualMachine([1.0]))
    assert [d.slowdown for d in found.devices] == [1.0]
    assert "nothing to compare" in found.finding()


def test_a_device_that_failed_half_way_is_still_estimated() -> None:
    records = VirtualMachine([1.0, 1.0, 1.2, 1.0], noise=0.003).records(12)
    cut = [r for r in records if r.gpu != "n0-gpu2" or r.run < 3]
    assert {d.gpu: d.slowdown for d in estimate(cut)[0].devices}["n0-gpu2"] == pytest.approx(1.2, rel=0.01)
