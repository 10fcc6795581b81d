"""What is learnt of two jobs on the same GPUs: rates of the pair, nothing of the models or chips alone."""

from __future__ import annotations

import pytest

from tests.perf.learning.test_observations import flat, observe
from trine.perf.learning.observations import Observations
from trine.perf.throughput import ThroughputTable

GIVEN = ThroughputTable(
    rates={(model, 1): {"v100": 10.0} for model in "ab"}, pairs={("b", "a", 1): {"v100": (8.0, 6.0)}}
)


def together(seen: Observations, a: float, b: float, run: int, seconds: float = 60.0) -> None:
    observe(seen, 0, a, at_s=100.0 * run, model="a", run=f"a/{run}", co_runner="b", seconds=seconds)
    observe(seen, 0, b, at_s=100.0 * run, model="b", run=f"b/{run}", co_runner="a", seconds=seconds)


def pair_of(table: ThroughputTable) -> tuple[float, float]:
    found = table.pair_rate("a", "b", 1, "v100")
    assert found is not None
    return found


def test_a_pair_nobody_measured_is_known_once_it_ran() -> None:
    seen = flat(1)
    together(seen, 4.0, 7.0, 1)
    assert pair_of(seen.throughputs(ThroughputTable())) == pytest.approx((4.0, 7.0))


def test_one_side_says_nothing_of_the_other() -> None:
    seen = flat(1)
    observe(seen, 0, 4.0, model="a", run="a/1", co_runner="b")
    assert seen.throughputs(ThroughputTable()).pair_rate("a", "b", 1, "v100") is None
    assert pair_of(seen.throughputs(GIVEN)) == pytest.approx(((6 * 4) ** 0.5, 8.0)), "what the table says stays"


def test_runs_of_a_pair_move_the_rates_of_the_table_from_the_first_one_on() -> None:
    seen = flat(1)
    together(seen, 3.0, 2.0, 1)
    assert pair_of(seen.throughputs(GIVEN)) == pytest.approx(((6 * 3) ** 0.5, (8 * 2) ** 0.5))
    for run in range(2, 10):
        together(seen, 3.0, 2.0, run)
    assert pair_of(seen.throughputs(GIVEN)) == pytest.approx((3.0, 2.0), rel=0.16)
    assert seen.throughputs(GIVEN).rate("a", 1, "v100") == 10.0
    assert not seen.rates.by_key and not seen.drifts()


def test_a_table_that_is_off_for_both_is_not_taken_for_interference() -> None:
    """Everything runs at half the given speed, alone as well: next to each other jobs lose no more than was known."""
    seen = flat(4)
    for gpu in range(4):
        for model in "ab":
            observe(seen, gpu, 5.0, at_s=gpu, model=model, run=f"{model}{gpu}/1")
    together(seen, 3.0, 4.0, 1)
    table = seen.throughputs(GIVEN)
    rate = table.rate("a", 1, "v100")
    assert rate is not None and rate < 10
    expected = ((6 * 0.6 * rate) ** 0.5, (8 * 0.8 * rate) ** 0.5)
    assert pair_of(table) == pytest.approx(expected, rel=0.01)


def test_pieces_of_two_runs_on_one_gpu_are_told_apart() -> None:
    seen = flat(1)
    for piece in range(20):
        for model, other in ("ab", "ba"):
            observe(seen, 0, 4.0, at_s=60.0 * piece, model=model, run=f"{model}/1", co_runner=other)
    assert [estimate.runs for estimate in seen.pairs.by_key.values()] == [1, 1]


def test_a_partner_without_a_model_teaches_nothing() -> None:
    seen = flat(1)
    assert not observe(seen, 0, 4.0, model="a", run="a/1", co_runner="")
    assert not seen.pairs.by_key and not seen.rates.by_key and seen.ignored == 1


def test_what_is_too_short_is_left_out() -> None:
    seen = flat(1)
    together(seen, 4.0, 4.0, 1, seconds=2.0)
    assert not seen.pairs.by_key and seen.token == 0
