"""Intervals put right by how earlier ones came out."""

import json
import math

import numpy as np
import pytest

from trine.forecast.calibration import Calibration, not_overlapping, quantiles

_HOUR = 3600.0


def _lived(calibration: Calibration, factor: float, spread: float, moments: int, seed: int = 0) -> list[bool]:
    """Predictions of jobs that wait ``factor`` times as long as drawn, give or take; which calibrated ones held."""
    rng, starts, held = np.random.default_rng(seed), dict[str, float](), list[bool]()
    shown: dict[str, dict[str, float]] = {}
    for moment in range(moments):
        now_s = 6 * _HOUR * moment
        seen = {job: at for job, at in starts.items() if at <= now_s}
        calibration.settle(lambda job, kind, seen=seen: seen.get(job) if kind == "start" else None)  # type: ignore[misc]
        corrections = calibration.corrections(now_s)
        fate = rng.normal(0.0, spread)
        for i in range(10):
            job, wait_s = f"{moment}/{i}", float(rng.uniform(1, 48)) * _HOUR
            drawn = {"low": now_s + 0.9 * wait_s, "median": now_s + wait_s, "high": now_s + 1.1 * wait_s}
            found = corrections.of("start", 2 * _HOUR, drawn)
            calibration.note(job, "start", 2 * _HOUR, now_s, drawn, found)
            starts[job] = now_s + wait_s * factor * math.exp(fate + rng.normal(0.0, spread))
            if found is not None:
                shown[job] = found
    for job, said in shown.items():
        held.append(said["low"] <= starts[job] <= said["high"])
    return held


@pytest.mark.parametrize(("factor", "spread"), [(0.6, 0.2), (1.5, 0.3), (1.0, 0.05)])
def test_intervals_that_are_too_narrow_or_too_late_are_put_right(factor: float, spread: float) -> None:
    held = _lived(Calibration(), factor, spread, moments=150)
    assert len(held) > 1_000
    assert 0.72 <= np.mean(held) <= 0.88


def test_without_outcomes_nothing_is_put_right() -> None:
    drawn = {"low": 10.0, "median": 20.0, "high": 30.0}
    assert Calibration().corrections(0.0).of("start", 0.0, drawn) is None


def test_jobs_that_have_not_started_yet_count_as_late() -> None:
    """Only the quick ones have started: their quantiles alone would be far too early."""
    happened = [(0.1 * i, True) for i in range(20)]
    still_waiting = [(2.5, False)] * 60
    assert quantiles(happened, [0.5]) == [pytest.approx(0.9)]
    assert quantiles(happened + still_waiting, [0.5]) == [2.5]


def test_what_was_learned_survives_being_written_out() -> None:
    calibration = Calibration()
    _lived(calibration, 0.6, 0.2, moments=60)
    again = Calibration.of_json(json.loads(json.dumps(calibration.as_json())))
    drawn = {"low": 1e7, "median": 1.1e7, "high": 1.2e7}
    one, two = (each.corrections(9e6).of("start", 2 * _HOUR, drawn) for each in (calibration, again))
    assert one is not None and one == two


def test_many_predictions_of_one_queue_move_intervals_little() -> None:
    """A thousand jobs of one queue, predicted at ten moments, started early together: that may not happen again."""

    def moved(gap_s: float) -> float:
        """How far the low end of a new interval moves, as part of the wait; moments are so far apart."""
        calibration, wait_s = Calibration(), 100 * _HOUR
        for moment in range(10):
            at_s = moment * gap_s
            drawn = {"low": at_s + 0.8 * wait_s, "median": at_s + wait_s, "high": at_s + 1.2 * wait_s}
            for job in range(100):
                calibration.note(f"{moment}/{job}", "start", 2 * _HOUR, at_s, drawn, None)
        calibration.settle(lambda job, _: float(job.split("/")[0]) * gap_s + 0.5 * wait_s)
        now_s = 10 * gap_s + wait_s
        drawn = {"low": now_s + 0.8 * wait_s, "median": now_s + wait_s, "high": now_s + 1.2 * wait_s}
        found = calibration.corrections(now_s).of("start", 2 * _HOUR, drawn)
        assert found is not None
        return (drawn["low"] - found["low"]) / wait_s

    assert 0.0 < moved(1 * _HOUR) < 0.05
    assert 0.08 < moved(100 * _HOUR) < 0.3


def test_predictions_overlap_that_were_made_before_others_came_true() -> None:
    calibration = Calibration()
    for number, (at_s, real_s) in enumerate([(0.0, 100.0), (50.0, 120.0), (100.0, 300.0), (310.0, 320.0)]):
        drawn = {"low": at_s + 1.0, "median": at_s + 60.0, "high": at_s + 600.0}
        calibration.note(str(number), "start", 0.0, at_s, drawn, None)
        calibration.settle(lambda job, _, mine=str(number), real_s=real_s: real_s if job == mine else None)  # type: ignore[misc]
    assert not_overlapping(calibration.noted) == 3
