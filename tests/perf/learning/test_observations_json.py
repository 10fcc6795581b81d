"""Observations as text: an exact copy comes back, and nothing else is accepted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perf.learning.test_observations import World, flat, observe
from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.perf.learning.observations import Observations
from trine.perf.learning.observations_json import observations_from_json, observations_to_json
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable


def lived(world: World, runs: int = 150) -> Observations:
    """Observations of everything there is: singles, gangs, pieces of a run, a drifting GPU, predictions."""
    seen = Observations(world.profile())
    world.run_single(seen, runs)
    world.run_gangs(seen, runs, 3, Tier.RACK)
    world.slowdown[2] *= 1.5
    world.run_single(seen, runs)
    for piece in range(5):
        observe(seen, 1, 2.0, at_s=world.at_s + 60.0 * piece, model="resnet", run="job-1/1")
    for piece in range(4):
        for model, co_runner in (("resnet", "lstm"), ("lstm", "resnet")):
            observe(seen, 3, 1.0, at_s=world.at_s + 60.0 * piece, model=model, run=f"{model}/1", co_runner=co_runner)
    seen.predicted("resnet", 100.0, 120.0)
    observe(seen, model="")
    return seen


@given(seed=st.integers(0, 10_000))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_copy_is_exact_and_goes_on_exactly_alike(seed: int) -> None:
    world = World(8, seed)
    profile = world.profile()
    seen = lived(world)
    text = observations_to_json(seen)
    copy = observations_from_json(text, profile)
    assert observations_to_json(copy) == text
    for i in range(60):
        for one in (seen, copy):
            observe(
                one, i % 8, 4.0 + i % 3, at_s=world.at_s + 400.0 + i, model="resnet", run="job-1/1" if i < 9 else ""
            )
    assert observations_to_json(copy) == observations_to_json(seen)
    assert copy.drifts() == seen.drifts()
    assert copy.refined() == seen.refined()
    assert copy.throughputs(ThroughputTable()) == seen.throughputs(ThroughputTable())
    assert (copy.token, copy.prediction_error(), copy.network_slowdowns()) == (
        seen.token,
        seen.prediction_error(),
        seen.network_slowdowns(),
    )


def test_the_same_observations_give_the_same_text() -> None:
    assert observations_to_json(lived(World(8, 1))) == observations_to_json(lived(World(8, 1)))


def test_an_empty_memory_survives() -> None:
    assert observations_from_json(observations_to_json(flat(2)), VariabilityTable.flat(2)).rates.by_key == {}


def test_gpus_with_new_ids_keep_their_scores() -> None:
    world = World(8, 3)
    seen = lived(world)
    assert [d.gpu for d in seen.drifts()] == [2]
    moved = {gpu: gpu - 1 for gpu in range(1, 8)}  # GPU 0 is gone
    base = VariabilityTable(7, {"A": world.profile().slowdown("A")[1:]})
    copy = observations_from_json(observations_to_json(seen), base, gpu_ids=moved)
    assert copy.chips.by_class["A"][1].observed == seen.chips.by_class["A"][2].observed
    world.run_single(seen, 20)
    assert copy.refined().gpu_count == 7


def test_observations_of_another_cluster_are_refused() -> None:
    with pytest.raises(InputError, match="observations of 3 GPUs; expected the 2 GPUs of this cluster"):
        observations_from_json(observations_to_json(flat(3)), VariabilityTable.flat(2))
    with pytest.raises(InputError, match="ids from 0 to 1"):
        observations_from_json(observations_to_json(flat(3)), VariabilityTable.flat(2), gpu_ids={0: 2})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "found a list"),
        ("{}", 'format: found null; expected "trine-observations"'),
        ('{"format": "trine-observations", "version": 2}', "version: found 2; expected 1"),
        ('{"format": "trine-observations", "version": 1, "gpus": 4}', "damaged"),
    ],
)
def test_other_text_is_refused_with_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        observations_from_json(text, VariabilityTable.flat(4), where="state.json")
    assert str(refusal.value).startswith("state.json: ")


@pytest.mark.parametrize("damage", [None, "x", -1, [1.0], [[99, 1]], {"A": [[0]]}, {"A": 3}])
@pytest.mark.parametrize("section", ["paces", "chips", "stretches", "predictions", "token", "serial"])
def test_a_damaged_section_is_refused_or_harmless(section: str, damage: object) -> None:
    sections = json.loads(observations_to_json(lived(World(4, 1), 40)))
    try:
        seen = observations_from_json(json.dumps({**sections, section: damage}), World(4, 1).profile())
    except InputError:
        return
    assert (section, damage) in [("token", -1), ("serial", -1)]
    assert observe(seen)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    seen = flat(4)
    observe(seen, at_s=12345.0)
    with pytest.raises(InputError):
        observations_from_json(observations_to_json(seen).replace("12345.0", number), VariabilityTable.flat(4))
