"""The throughput estimator: exact where everything was measured, close where little was, better with every run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.perf.pairs import TYPES, made_up
from trine.core.errors import InputError
from trine.inputs.throughputs import load_throughputs
from trine.perf.matrix_completion import completed, estimated_rates, nearest_row
from trine.perf.pair_estimates import EstimatedPairs, References, matches, pair_error
from trine.perf.throughput import ThroughputTable, pair_kinds


@pytest.fixture(scope="session", params=["simulation", "physical_cluster"])
def measured(request: pytest.FixtureRequest, shared_data: Path) -> ThroughputTable:
    return load_throughputs(str(shared_data / f"hardware/gavel_throughputs/{request.param}_throughputs.json.gz"))


def guess(table: ThroughputTable, references: int | None, profiled: float, seed: int) -> EstimatedPairs:
    return EstimatedPairs(References.of(table, references, seed), profiled, seed)


def test_with_all_references_and_full_profiles_nothing_is_left_to_guess(measured: ThroughputTable) -> None:
    found = guess(measured, None, 1.0, 0)
    assert matches(found, measured.models) == {model: model for model in measured.models}
    for gang in (1, 2, 4, 8):
        error = pair_error(found, measured, gang)
        assert error.p90 < 1e-12 and error.missed == error.wrong == 0


@pytest.mark.parametrize("seed", range(5))
def test_models_behave_like_one_of_the_references(seed: int, measured: ThroughputTable) -> None:
    found = guess(measured, 16, 0.6, seed)
    assert 2 <= len(set(matches(found, measured.models).values())) <= 16
    error = pair_error(found, measured)
    assert error.median < 0.1 and error.pairs == 26 * 27 // 2 * 3


def test_more_profiling_means_smaller_errors(measured: ThroughputTable) -> None:
    def mean(profiled: float) -> float:
        return float(np.median([pair_error(guess(measured, 16, profiled, s), measured).mean for s in range(3)]))

    assert mean(0.9) < mean(0.3) < mean(0.0)


def test_the_answer_depends_on_the_seed_alone() -> None:
    table = made_up()
    one, other = (guess(table, 6, 0.5, 3) for _ in range(2))
    models = list(table.models)
    assert matches(one, models) == dict(reversed(list(matches(other, models[::-1]).items())))
    assert [matches(guess(table, 6, 0.5, seed), models) for seed in (3, 4)].count(matches(one, models)) == 1


def test_a_policy_can_ask_estimates_as_it_asks_a_table() -> None:
    table = made_up()
    jobs = [(model, 1) for model in table.models]
    found, real = pair_kinds(guess(table, None, 1.0, 0), jobs, TYPES), pair_kinds(table, jobs, TYPES)
    assert np.array_equal(found.pairs, real.pairs)
    assert found.throughput == pytest.approx(real.throughput)


def test_observations_move_the_estimate() -> None:
    table = made_up()
    found = guess(table, 2, 0.0, 1)
    jobs = [("model3", 1), ("model7", 1)]
    before = found.pair_rate("model7", "model3", 1, "V100")
    old = pair_kinds(found, jobs, ("v100",))
    assert before is not None
    found.observe("model7", "model3", 1, "v100", (2.0, 4.0))
    assert found.pair_rate("model7", "model3", 1, "v100") == pytest.approx(((before[0] + 2) / 2, (before[1] + 4) / 2))
    found.observe("model3", "model7", 1, "v100", (9.0, 8.0), weight=1.0)
    assert found.pair_rate("model7", "model3", 1, "v100") == (8.0, 9.0)
    new = pair_kinds(found, jobs, ("v100",))
    assert found.version == 2 and not np.array_equal(old.throughput, new.throughput)


def test_a_model_nobody_knows_has_no_pairs() -> None:
    assert guess(made_up(), None, 1.0, 0).pair_rate("stranger", "model1", 1, "v100") is None


def test_the_estimates_as_a_table() -> None:
    table = made_up(6)
    found = guess(table, 3, 0.5, 0)
    written = found.table()
    assert written.rates == table.rates
    assert written.pair_rate("model5", "model2", 1, "k80") == found.pair_rate("model5", "model2", 1, "k80")


def test_completion_recovers_a_matrix_of_low_rank() -> None:
    rng = np.random.default_rng(5)
    whole = rng.random((30, 3)) @ rng.random((3, 40)) / 3
    known = rng.random(whole.shape) < 0.7
    found = completed(np.where(known, whole, 0.0), known, np.random.default_rng(0))
    assert np.abs(found - whole)[~known].mean() < 0.05
    assert np.array_equal(found[known], whole[known])
    assert found.min() >= 0 and found.max() <= 1


def test_a_row_of_zeros_is_like_no_other() -> None:
    assert nearest_row(np.eye(3), np.zeros(3)) is None
    assert nearest_row(np.eye(3), np.array([0.1, 0.9, 0.2])) == 1


@pytest.mark.parametrize("given", [("v100",), ("k80", "v100"), ("k80", "p100")])
def test_rates_on_new_gpu_types(given: tuple[str, ...]) -> None:
    """Left out one by one: within a factor of two everywhere, closer when two types are known."""
    table, errors = made_up(20), []
    for model in table.models:
        others = ThroughputTable({key: rates for key, rates in table.rates.items() if key[0] != model})
        real = table.rates[model, 1]
        found = estimated_rates(others, {t.upper(): real[t] for t in given})
        assert all(found[t] == real[t] for t in given) and set(found) == set(TYPES)
        errors += [abs(np.log(found[t] / real[t])) for t in TYPES if t not in given]
    assert max(errors) < np.log(2.5) and np.median(errors) < (0.4 if len(given) == 1 else 0.1)


@pytest.mark.parametrize(
    ("given", "factor"),
    [(("v100",), 1.6), (("k80",), 1.6), (("k80", "p100"), 1.35), (("p100", "v100"), 1.35), (("k80", "v100"), 1.35)],
)
def test_rates_of_real_models_on_new_gpu_types(given: tuple[str, ...], factor: float) -> None:
    table, errors = load_throughputs("gavel-simulation"), []
    for model in table.models:
        others = ThroughputTable({key: rates for key, rates in table.rates.items() if key[0] != model})
        real = table.rates[model, 1]
        found = estimated_rates(others, {t: real[t] for t in given})
        errors += [abs(np.log(found[t] / real[t])) for t in TYPES if t not in given]
    assert np.median(errors) < np.log(factor)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: References.of(ThroughputTable({("a", 1): {"v100": 1.0}})), ["without pairs"]),
        (lambda: References.of(made_up(), 13), ["13 references", "from 1 to 12"]),
        (lambda: EstimatedPairs(References.of(made_up()), 1.5), ["profiled", "1.5", "from 0 to 1"]),
        (lambda: estimated_rates(made_up(), {"v100": 0.0}), ["no rate above 0", "k80, p100, v100"]),
        (lambda: estimated_rates(made_up(), {"v100": 2.0}, gang=64), ["64 GPUs"]),
    ],
)
def test_bad_input_is_named(make: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        make()  # type: ignore[operator]
    assert all(word in str(caught.value) for word in words), str(caught.value)
