"""Observed throughputs, network, predictions and when to rebuild. Chips and drift have a file of their own."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from statistics import median

import pytest

from trine.core.cluster import Cluster, Tier
from trine.core.errors import InputError
from trine.core.job import Job
from trine.perf.learning.evidence import LearningSettings, robust_sd
from trine.perf.learning.observations import Observations
from trine.perf.learning.observations_json import observations_to_json
from trine.perf.learning.rates import RateKey
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable

STEPS_PER_S = {"resnet": 4.0, "bert": 0.5, "gpt": 11.0}
ACROSS = {Tier.GPU: 1.0, Tier.NODE: 1.0, Tier.RACK: 1.25, Tier.NETWORK: 1.6}


@dataclass
class World:
    """GPUs with known slowdowns and noisy runs: 2.7 % and one-off runs up to 3.6x, as in public measurements."""

    gpus: int
    seed: int = 0
    chip_sd: float = 0.05
    noise: float = 0.027
    one_offs: float = 0.05
    at_s: float = 1.7e9
    speedup: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)
    slowdown: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        drawn = [math.exp(self.rng.gauss(0, self.chip_sd)) for _ in range(self.gpus)]
        drawn = [self.slow.get(g, s) for g, s in enumerate(drawn)]
        self.slowdown = [s / median(drawn) for s in drawn]

    def profile(self) -> VariabilityTable:
        return VariabilityTable(self.gpus, {"A": tuple(self.slowdown)})

    def rate(self, model: str, gpus: tuple[int, ...], tier: Tier) -> float:
        one_off = self.rng.uniform(1.1, 3.6) if self.rng.random() < self.one_offs else 1.0
        chip = max(self.slowdown[g] for g in gpus)
        noise = math.exp(self.rng.gauss(0, self.noise))
        return self.speedup * STEPS_PER_S[model] * len(gpus) / (chip * ACROSS[tier] * one_off * noise)

    def run(self, seen: Observations, gpus: tuple[int, ...], model: str = "resnet", tier: Tier = Tier.GPU) -> None:
        self.at_s += 60.0
        seen.observe(self.at_s, model, "A", gpus, "V100", tier, self.rate(model, gpus, tier), 600.0)

    def run_single(self, seen: Observations, runs: int) -> None:
        for _ in range(runs):
            self.run(seen, (self.rng.randrange(self.gpus),), self.rng.choice(list(STEPS_PER_S)))

    def run_gangs(self, seen: Observations, runs: int, size: int, tier: Tier = Tier.NODE) -> None:
        for _ in range(runs):
            self.run(seen, tuple(self.rng.sample(range(self.gpus), size)), tier=tier)


def flat(gpus: int) -> Observations:
    return Observations(VariabilityTable.flat(gpus))


def observe(seen: Observations, gpu: int = 0, steps_per_s: float = 1.0, at_s: float = 0.0, **changed: object) -> bool:
    """One plain run on one GPU, with whatever differs."""
    plain = {"model": "m", "app_class": "A", "gpus": (gpu,), "gpu_type": "v100", "tier": Tier.GPU, "seconds": 60.0}
    return seen.observe(at_s=at_s, steps_per_s=steps_per_s, **{**plain, **changed})  # type: ignore[arg-type]


def test_the_pace_of_an_unknown_model_is_learnt_within_three_percent_in_spite_of_slow_chips() -> None:
    world = World(16, seed=3)
    seen = Observations(world.profile())
    world.run_single(seen, 200)
    world.run_gangs(seen, 100, 4)
    table = seen.throughputs(ThroughputTable())
    for model, rate in STEPS_PER_S.items():
        assert table.rate(model, 1, "v100") == pytest.approx(rate, rel=0.03)
    assert table.rate("resnet", 4, "V100") == pytest.approx(4 * STEPS_PER_S["resnet"], rel=0.03)
    estimate = seen.rates.by_key[RateKey("resnet", 4, "v100", Tier.NODE)]
    assert estimate.runs == 100
    assert 0.01 < robust_sd([v for window in estimate.gangs.values() for v in window.values]) < 0.05


def test_one_run_is_better_than_nothing_for_a_model_that_no_table_knows() -> None:
    seen = flat(1)
    observe(seen, steps_per_s=7.0)
    assert seen.throughputs(ThroughputTable()).rate("m", 1, "v100") == pytest.approx(7.0, rel=1e-5)


def test_a_given_rate_stands_until_there_are_enough_runs_and_is_then_approached() -> None:
    given = ThroughputTable({("m", 1): {"v100": 10.0, "k80": 2.0}})
    seen = flat(2)
    rates = []
    for i in range(30):
        observe(seen, steps_per_s=20.0, at_s=100.0 * i)
        table = seen.throughputs(given)
        rates.append(table.rate("m", 1, "v100"))
        assert table.rate("m", 1, "k80") == 2.0
    assert rates[:2] == [10.0, 10.0]
    assert rates[2] == pytest.approx(math.sqrt(200.0), rel=0.01)
    assert rates[-1] == pytest.approx(20.0, rel=0.07)


def test_a_type_never_tried_is_not_taken_for_one_that_does_not_fit() -> None:
    cluster = Cluster.uniform(1, 2, "v100")
    seen = flat(2)
    observe(seen, steps_per_s=5.0)
    table = seen.throughputs(ThroughputTable(), types=("v100", "k80"))
    assert table.rate("m", 1, "k80") == pytest.approx(5.0, rel=1e-5)
    job = Job("j", 0.0, 1, steps=100.0, step_s=None, model="m")
    assert PerfModel(cluster, seen.refined(), throughputs=table).ideal_s(job) == pytest.approx(20.0, rel=1e-5)


def test_a_model_said_not_to_fit_that_runs_does_fit() -> None:
    seen = flat(1)
    observe(seen, steps_per_s=3.0)
    assert seen.throughputs(ThroughputTable({("m", 1): {"v100": 0.0}})).rate("m", 1, "v100") == pytest.approx(3.0)


def test_a_model_seen_only_across_nodes_is_freed_of_the_penalty_it_will_get_again() -> None:
    cluster = Cluster.uniform(2, 2, "v100")
    penalty = LocalityPenalty(1.0, 1.5, 1.5)
    seen = flat(4)
    for at_s in range(3):
        observe(seen, steps_per_s=2.0, at_s=at_s, gpus=(0, 2), tier=Tier.RACK)
    perf = PerfModel(cluster, seen.refined(), penalty, seen.throughputs(ThroughputTable(), ("v100",), penalty.of_gang))
    job = Job("j", 0.0, 2, steps=1.0, step_s=None, model="m", app_class="A")
    assert perf.speed(job, (0, 2)).steps_per_s == pytest.approx(2.0, rel=1e-5)
    assert perf.speed(job, (0, 1)).steps_per_s == pytest.approx(3.0, rel=1e-5)


@pytest.mark.parametrize("speedup", [1.25, 0.75])
@pytest.mark.parametrize("gang", [1, 2, 4])
def test_a_new_software_version_moves_the_pace_and_blames_no_gpu(gang: int, speedup: float) -> None:
    world = World(16, seed=5)
    seen = Observations(world.profile())
    world.run_gangs(seen, 200, gang)
    world.speedup = speedup
    for _ in range(120):
        world.run_gangs(seen, 1, gang)
        assert seen.drifts() == []
    expected = speedup * gang * STEPS_PER_S["resnet"]
    assert seen.throughputs(ThroughputTable()).rate("resnet", gang, "v100") == pytest.approx(expected, rel=0.03)


def test_the_network_slowdown_is_found_by_comparing_like_with_like() -> None:
    world = World(16, seed=7)
    seen = Observations(world.profile())
    for tier in (Tier.NODE, Tier.RACK, Tier.NETWORK):
        world.run_gangs(seen, 60, 4, tier)
    world.run_gangs(seen, 20, 2, Tier.NODE)
    world.run_gangs(seen, 20, 8, Tier.RACK)  # nothing packed to compare with
    found = seen.network_slowdowns()
    assert found["resnet", Tier.RACK] == pytest.approx(1.25, rel=0.03)
    assert found["resnet", Tier.NETWORK] == pytest.approx(1.6, rel=0.03)
    assert list(found) == [("resnet", Tier.RACK), ("resnet", Tier.NETWORK)]
    assert {(k.gang, k.tier): estimate.runs for k, estimate in seen.rates.by_key.items() if k.gang == 4} == {
        (4, Tier.NODE): 60,
        (4, Tier.RACK): 60,
        (4, Tier.NETWORK): 60,
    }


def test_pieces_of_one_run_count_as_one_run_at_its_mean_pace() -> None:
    seen = flat(1)
    for piece in range(60):
        observe(seen, steps_per_s=1.0 if piece % 2 else 3.0, at_s=60.0 * piece, run="job-1/1")
    (estimate,) = seen.rates.by_key.values()
    assert estimate.runs == 1
    assert seen.throughputs(ThroughputTable()).rate("m", 1, "v100") == pytest.approx(2.0, rel=1e-3)


def test_pieces_too_short_alone_count_together() -> None:
    seen = flat(1)
    counted = [observe(seen, seconds=2.0, at_s=2.0 * i, run="job-1/1") for i in range(4)]
    assert counted == [False, False, True, True]
    assert not observe(seen, seconds=2.0)


@pytest.mark.parametrize(
    "changed",
    [{"steps_per_s": r} for r in (0.0, -1.0, math.nan, math.inf)]
    + [{"seconds": s} for s in (0.0, -5.0, math.nan, 1.0)]
    + [{"model": ""}, {"at_s": math.nan}],
)
def test_what_says_nothing_is_left_out_and_counted(changed: dict[str, object]) -> None:
    seen = flat(2)
    assert not observe(seen, **changed)  # type: ignore[arg-type]
    assert seen.ignored == 1
    assert seen.rates.by_key == {}


@pytest.mark.parametrize("gpus", [(), (0, 0), (-1,), (2,), (0, 7)])
def test_gpus_that_do_not_exist_are_refused(gpus: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="gpus: found"):
        observe(flat(2), gpus=gpus)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="half_life_s"):
        LearningSettings(half_life_s=0.0)


def test_tables_are_to_be_built_again_when_something_changed_and_not_for_noise() -> None:
    world = World(8, seed=11, one_offs=0.0)
    seen = Observations(world.profile())
    world.run_single(seen, 300)
    token, rebuilds = seen.token, 0
    for _ in range(300):
        world.run_single(seen, 1)
        rebuilds += seen.changed_materially_since(token)
        token = seen.token
    assert rebuilds <= 30
    world.slowdown[3] *= 1.4
    for _ in range(12):
        world.run(seen, (3,))
    assert seen.changed_materially_since(token)


def test_predictions_are_judged_by_median_error_and_bias() -> None:
    seen = flat(1)
    assert seen.prediction_error() is None
    for predicted_s, observed_s in ((110.0, 100.0), (90.0, 100.0), (120.0, 100.0), (105.0, 100.0), (900.0, 100.0)):
        seen.predicted("m", predicted_s, observed_s)
    error = seen.prediction_error()
    assert error is not None
    assert error.runs == 5
    assert (error.median_absolute, error.bias) == pytest.approx((0.1, 0.1))
    assert error.mean == pytest.approx(1.65)
    assert seen.prediction_error("other") is None


@pytest.mark.parametrize(("predicted_s", "observed_s"), [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)])
def test_a_prediction_without_a_time_is_refused(predicted_s: float, observed_s: float) -> None:
    with pytest.raises(InputError, match="greater than 0"):
        flat(1).predicted("m", predicted_s, observed_s)


def test_memory_is_bounded_however_many_models_gangs_and_predictions_there_are() -> None:
    seen = flat(200)
    for i in range(1500):
        observe(seen, gpu=i % 200, at_s=float(i), model=f"model-{i}")
        seen.predicted("m", 1.0, 1.0)
    for i in range(2000):
        observe(seen, at_s=2000.0 + i, gpus=(i % 200, (i + 1 + i // 20) % 200) if i % 7 else (i % 200,))
    size = len(observations_to_json(seen))
    for i in range(2000):
        observe(seen, at_s=4000.0 + i, gpu=i % 200)
    assert len(observations_to_json(seen)) < 1.5 * size
    assert len(seen.rates.by_key) <= 1000
    error = seen.prediction_error()
    assert error is not None
    assert error.runs == 1000
