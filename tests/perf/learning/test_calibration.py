"""Factors between predicted and measured speeds."""

from __future__ import annotations

import pytest

from trine.perf.learning.calibration import Calibration, Run, calibrated
from trine.perf.variability import VariabilityTable


def run(measured: float, gpus: tuple[int, ...] = (0,), nodes: int = 1, fits: bool = True, kind: str = "V100") -> Run:
    return Run("lm", kind, "A", gpus, nodes, fits, 10.0, measured)


def after(*runs: Run, times: int = 60) -> Calibration:
    found = Calibration()
    for _ in range(times):
        for one in runs:
            found.observe(one)
    return found


def test_what_runs_as_predicted_changes_nothing() -> None:
    learnt = after(run(10.0), run(10.0, (1, 2, 3, 4, 5), 2, fits=False))
    assert learnt.publish_speeds() is None
    assert learnt.publish_chips() is None


def test_a_model_that_is_slower_on_a_type_than_thought() -> None:
    factors = after(*[run(5.0, (gpu,)) for gpu in range(40)]).publish_speeds()
    assert factors is not None
    assert factors.of("lm", 1, "v100") == pytest.approx(0.5, rel=0.01)
    assert factors.of("lm", 1, "p100") == 1.0
    assert factors.of("bert", 1, "v100") == 1.0


def test_wide_gangs_teach_what_the_model_sends_which_is_the_same_on_all_types() -> None:
    factors = after(run(5.0, tuple(range(8)), 2, fits=False)).publish_speeds()
    assert factors is not None
    assert factors.of("lm", 8, "p100") == factors.of("lm", 8, "v100") == pytest.approx(0.5, rel=0.01)
    assert factors.of("lm", 1, "v100") == 1.0


def test_gangs_that_are_spread_without_need_teach_nothing() -> None:
    assert after(run(5.0, (0, 4), 2)).publish_speeds() is None


def test_one_slow_chip_is_told_from_a_slow_model() -> None:
    """Forty GPUs run as predicted and one at half the speed: the model is not to blame."""
    learnt = after(*[run(10.0, (gpu,)) for gpu in range(40)], run(5.0, (40,)))
    chips, factors = learnt.publish_chips(), learnt.publish_speeds()
    assert chips is not None
    table = calibrated(VariabilityTable(41, {"A": [1.0] * 41}), chips)
    assert table.slowdown("A")[40] == pytest.approx(2.0, rel=0.1)
    assert table.slowdown("A")[0] == pytest.approx(1.0, abs=0.06)
    assert factors is None or factors.of("lm", 1, "v100") == pytest.approx(1.0, abs=0.06)


def test_factors_are_made_known_only_when_they_changed_materially() -> None:
    learnt = after(*[run(9.9, (gpu,)) for gpu in range(40)])
    assert learnt.publish_speeds() is None
    for _ in range(60):
        learnt.observe(run(8.0))
    assert learnt.publish_speeds() is not None
    assert learnt.publish_speeds() is None
