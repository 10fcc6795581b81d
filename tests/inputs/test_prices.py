"""Prices by GPU type and time, and what a stretch of time costs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.core.errors import InputError
from trine.inputs.prices import load_prices

STEPS = "time_s,gpu_type,price_per_h\n7200,V100,3\n0,v100,1\n3600,v100,2\n0,k80,0.5\n"


@pytest.fixture(scope="session")
def changing(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("prices") / "spot.csv"
    path.write_text(STEPS)
    return str(path)


def test_a_price_holds_until_the_next(changing: str) -> None:
    prices = load_prices(changing)
    assert [prices.at("v100", t) for t in (-5, 0, 3599, 3600, 7199, 7200, 1e9)] == [1, 1, 1, 2, 2, 3, 3]
    assert prices.at("a100", 0) is None and prices.cost("a100", 1, 0, 1) is None
    assert prices.now(("V100", "k80", "a100"), 4000) == {"V100": 2, "k80": 0.5}


def test_changes_are_announced(changing: str) -> None:
    prices = load_prices(changing)
    assert [prices.next_change_s(t) for t in (-1, 0, 3599, 3600, 7200)] == [3600, 3600, 3600, 7200, math.inf]
    assert load_prices("gavel-spot").next_change_s(0) == math.inf


@pytest.mark.parametrize(
    ("start_h", "end_h", "cost"), [(0, 1, 1), (0.5, 1.5, 1.5), (0, 4, 9), (3, 5, 6), (1, 2, 2), (2, 2, 0)]
)
def test_cost_of_a_stretch(start_h: float, end_h: float, cost: float, changing: str) -> None:
    assert load_prices(changing).cost("v100", 4, start_h * 3600, end_h * 3600) == pytest.approx(4 * cost)


@given(st.lists(st.floats(0, 20_000), min_size=3, max_size=3))
def test_cost_adds_up(changing: str, times: list[float]) -> None:
    prices, (start, middle, end) = load_prices(changing), sorted(times)
    parts = [prices.cost("v100", 2, *stretch) or 0.0 for stretch in ((start, middle), (middle, end))]
    assert prices.cost("v100", 2, start, end) == pytest.approx(sum(parts))


@pytest.mark.parametrize(("name", "v100"), [("gavel-spot", 0.74), ("gavel-on-demand", 2.85), ("V100=2.5,k80=1", 2.5)])
def test_constant_prices(name: str, v100: float) -> None:
    assert load_prices(name).cost("V100", 8, 0, 1800) == pytest.approx(4 * v100)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gavel-spots", ["did you mean 'gavel-spot'?"]),
        ("v100=cheap", ["v100", "'cheap'"]),
        ("v100=-1", ["v100", "'-1'"]),
        ("v100=1,V100=2", ["every type once"]),
        ("nowhere/prices.csv", ["nowhere/prices.csv", "no such file"]),
    ],
)
def test_odd_prices_are_refused(spec: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_prices(spec)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gpu_type", "type", [":1", "time_s,gpu_type,price_per_h"]),
        ("3600,v100,2", "3600,v100,nan", [":4", "price_per_h", "'nan'"]),
        ("3600,v100,2", "-1,v100,2", [":4", "time_s", "'-1'"]),
        ("3600,v100,2", "3600,v100", [":4", "2 cells"]),
        ("3600,v100,2", "7200,v100,2", [":4", "second price"]),
        ("3600,v100,2", "3600,,2", [":4", "gpu_type"]),
    ],
)
def test_an_odd_line_of_prices_is_named(old: str, new: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(STEPS.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_prices(str(path))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_no_prices(tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(STEPS.splitlines()[0] + "\n")
    with pytest.raises(InputError, match="no prices"):
        load_prices(str(path))
