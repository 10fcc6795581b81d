"""Every stop and move under the trine policy says for whom, at what price, what it gains and what it costs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trine.sim.scenario import Scenario, run
from trine.sim.worlds.generate import WorldSpec, generate_world


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("world")
    generate_world(folder, WorldSpec("TVN", load=1.2, jobs=150, racks=3, nodes_per_rack=4))
    found: list[dict[str, Any]] = []
    run(Scenario(policy="trine", placement="trine", world=str(folder)), keep_segments=False, log=found.append)
    return found


def of(decisions: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    return [d for d in decisions if d["action"] == "stop" and words in d["reason"]]


def test_room_is_made_for_a_job_that_gains_more_than_the_stops_cost(decisions: list[dict[str, Any]]) -> None:
    made = [d for d in decisions if "without room" in d["reason"]]
    assert made
    assert all(d["gain"] > d["cost"] > 0 for d in made)
    assert all(f"job {d['for']}" in d["reason"] for d in made)


def test_a_job_that_pauses_names_the_one_that_gets_its_gpus_and_what_that_offers(
    decisions: list[dict[str, Any]],
) -> None:
    paused = [d for d in of(decisions, "pauses") if "without room" not in d["reason"]]
    named = [d for d in paused if "for" in d]
    assert len(named) >= 0.8 * len(paused) > 0  # the others lose GPUs that nobody takes in the same round
    assert all(f"for job {d['for']}." in d["reason"] for d in named)
    assert all(f"Job {d['for']}: " in d["reason"] for d in named if "price" in d)


def test_every_stop_and_move_says_what_it_was_weighed_by(decisions: list[dict[str, Any]]) -> None:
    """Beyond the first sentence; no type has a price that is an artefact of numbers."""
    stops = [d for d in decisions if d["action"] == "stop"]
    assert all(d["reason"].count(".") > 1 for d in stops)
    assert not [d for d in decisions if re.search(r"\d,\d{3},\d{3} times", d["reason"])]


def test_a_job_that_pauses_says_the_price_it_could_not_pay(decisions: list[dict[str, Any]]) -> None:
    paused = of(decisions, "pauses")
    priced = [d for d in paused if "price" in d]
    assert priced
    assert all("times the price at which the type is full" in d["reason"] for d in priced)
    # The others were on a type with room for all that bid for it, and lose their place to a gang.
    assert all(
        "for all that want one" in d["reason"] or "without room" in d["reason"] for d in paused if d not in priced
    )


def test_a_move_to_a_better_place_gains_at_least_twice_what_it_costs(decisions: list[dict[str, Any]]) -> None:
    moves = of(decisions, "moves to better GPUs")
    assert moves
    assert all(d["gain"] >= 2 * d["cost"] > 0 for d in moves)
    assert all("times as fast there" in d["reason"] for d in moves)


def test_starts_say_how_good_the_place_is_and_what_other_types_cost(
    decisions: list[dict[str, Any]],
) -> None:
    starts = [d for d in decisions if d["action"] == "start"]
    assert all("of its best speed on" in d["reason"] for d in starts)
    assert any("times its price" in d["reason"] for d in starts)
