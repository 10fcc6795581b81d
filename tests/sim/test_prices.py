"""Prices that change while jobs run: what a run costs, and that policies which look at prices notice in time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.sim.test_skipping import Restless
from tests.sim.tiny import Outcome, simulate
from trine.cli.main import app
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.prices import Prices
from trine.engine.engine import Engine
from trine.perf.throughput import ThroughputTable
from trine.sim.scenario import Scenario, run

CHANGE_S = 1050.0
TURNING = Prices({"a": ((0.0, CHANGE_S), (1.0, 4.0)), "b": ((0.0,), (2.0,))})
"""a is the cheap type until it changes, b from then on."""
TWO_TYPES = Cluster((Node("n0", 1, "a"), Node("n1", 1, "b")), changing_prices=TURNING)
ALIKE = ThroughputTable({("m", 1): {"a": 1.0, "b": 1.0}}, {("m", "m", 1): {"a": (1.0, 1.0), "b": (1.0, 1.0)}})


def job(name: str, submit_s: float, steps: float, **more: Any) -> Job:
    return Job(name, submit_s, 1, steps, None, "m", **more)


def rounds(jobs: list[Job], policy: str, cluster: Cluster = TWO_TYPES, **values: Any) -> Outcome:
    return simulate(jobs, cluster, policy, throughputs=ALIKE, **({"round_s": 100.0} | values))


def stretches(out: Outcome) -> list[tuple[float, float, int]]:
    """From, to and GPU, in order."""
    return [(s.start_s, s.end_s, s.gpus[0]) for s in out.segments]


def test_min_cost_follows_the_cheap_type_from_the_first_round_on() -> None:
    out = rounds([job("j", 0.0, 3000.0)], "min-cost", one_queue=True, reset_gap_s=0.0)
    assert stretches(out) == [(0.0, 1100.0, 0), (1100.0, 3000.0, 1)]
    by_hand = (1050 * 1.0 + 50 * 4.0 + 1900 * 2.0) / 3600
    assert out.summary.cost == pytest.approx(by_hand, rel=1e-12)


def test_shares_wait_for_the_gap_between_resets() -> None:
    out = rounds([job("j", 0.0, 3000.0)], "min-cost", one_queue=True, reset_gap_s=1920.0)
    assert stretches(out) == [(0.0, 2000.0, 0), (2000.0, 3000.0, 1)]


def test_decided_event_by_event_the_change_itself_is_an_event() -> None:
    out = rounds([job("j", 0.0, 3000.0)], "min-cost", one_queue=True, reset_gap_s=0.0, event_driven=True)
    assert stretches(out) == [(0.0, CHANGE_S, 0), (CHANGE_S, 3000.0, 1)]


def test_without_rounds_shares_change_with_the_prices() -> None:
    out = rounds([job("j", 0.0, 3000.0)], "min-cost", ideal=True)
    assert out.summary.cost == pytest.approx((1050 * 1.0 + 1950 * 2.0) / 3600)
    assert out.finish("j") == pytest.approx(3000.0)
    blind = rounds([job("j", 0.0, 3000.0)], "max-min-fairness", ideal=True)
    part = {t: float(p) for t, p in zip("ab", blind.engine.policy.allocation.total()[0], strict=True)}  # type: ignore[attr-defined]
    both = part["a"] * (1050 * 1.0 + 1950 * 4.0) + part["b"] * 3000 * 2.0
    assert blind.summary.cost == pytest.approx(both / 3600)


def test_a_row_that_repeats_the_price_is_no_change() -> None:
    """Nor is a change of a type that the cluster does not have."""
    same = Prices({"a": ((0.0, CHANGE_S), (1.0, 1.0)), "b": ((0.0,), (2.0,)), "c": ((0.0, 70.0), (1.0, 2.0))})
    steady = Prices.constant({"a": 1.0, "b": 2.0})
    jobs = [job(name, 40.0 * at, 700.0 + 90 * at) for at, name in enumerate("uvwxyz")]
    runs = [rounds(jobs, "min-cost", replace(TWO_TYPES, changing_prices=p)) for p in (same, steady)]
    assert stretches(runs[0]) == stretches(runs[1])


def test_others_pay_what_it_costs_but_do_not_look() -> None:
    jobs = [job("x", 0.0, 2000.0), job("y", 0.0, 500.0), job("z", 100.0, 1500.0)]
    steady = rounds(jobs, "max-min-fairness", replace(TWO_TYPES, changing_prices=None))
    out = rounds(jobs, "max-min-fairness")
    assert stretches(out) == stretches(steady) and steady.summary.cost == 0
    paid = [TURNING.cost("ab"[gpu], 1, since, until) or 0.0 for since, until, gpu in stretches(out)]
    assert out.summary.cost == pytest.approx(sum(paid)) and out.summary.rounds == steady.summary.rounds


@pytest.mark.parametrize(("twice", "times"), [(False, 1.0), (True, 2.0)])
def test_a_pair_splits_a_price_that_changes(twice: bool, times: float) -> None:
    one_gpu = Cluster((Node("n0", 1, "a"),), changing_prices=TURNING)
    jobs = [job("x", 0.0, 2000.0), job("y", 0.0, 2000.0)]
    out = rounds(jobs, "max-min-fairness", one_gpu, space_sharing=True, compat__pair_cost_twice=twice)
    assert out.summary.makespan_s == pytest.approx(2000.0)
    assert out.summary.cost == pytest.approx(times * (1050 * 1.0 + 950 * 4.0) / 3600)


def test_a_policy_that_needs_prices_wants_them_above_zero_at_all_times() -> None:
    for prices, words in (({"a": 1.0}, "no price for b"), ({"a": 1.0, "b": 0.0}, "b for nothing")):
        with pytest.raises(InputError, match=words):
            rounds([job("j", 0.0, 10.0)], "min-cost", replace(TWO_TYPES, changing_prices=Prices.constant(prices)))
    free_later = Prices({"a": ((0.0, 50.0), (1.0, 0.0)), "b": ((0.0,), (1.0,))})
    with pytest.raises(InputError, match="a for nothing"):
        rounds([job("j", 0.0, 10.0)], "min-cost", replace(TWO_TYPES, changing_prices=free_later))


def test_time_goes_on_when_a_reset_is_due_and_nobody_is_there() -> None:
    jobs = [job("x", 0.0, 200.0), job("y", 10.0, 100.0), job("z", 5000.0, 100.0)]
    for policy in ("max-throughput", "min-cost"):
        out = rounds(jobs, policy, event_driven=True, reset_gap_s=1920.0)
        assert out.finish("z") == 5100.0


def test_time_goes_on_whatever_rounding_makes_of_the_next_reset() -> None:
    gap_s = 1920.0
    odd_s = next(x for n in range(1, 10_000) if (x := n / 7.0) + gap_s - x < gap_s)
    jobs = [job("x", odd_s, 9000.0), job("y", odd_s + 10.0, 9000.0)]
    out = rounds(jobs, "max-throughput", event_driven=True, reset_gap_s=gap_s)
    assert max(out.finish("x"), out.finish("y")) < math.inf


def changes() -> st.SearchStrategy[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Of one type: from 0 on, and up to three times later."""
    later = st.dictionaries(st.integers(1, 4000), st.sampled_from((0.5, 1.0, 2.0, 3.0)), max_size=3)
    rows = later.map(lambda found: sorted({0: 1.5, **found}.items()))
    return rows.map(lambda found: (tuple(float(t) for t, _ in found), tuple(price for _, price in found)))


@settings(max_examples=30, deadline=None)
@given(
    changes(),
    changes(),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(50, 3000)), min_size=1, max_size=4),
    st.sampled_from((0.0, 700.0)),
    st.booleans(),
)
def test_no_change_is_slept_through(a: Any, b: Any, rows: list[tuple[int, int]], gap_s: float, one_queue: bool) -> None:
    """Deciding in every single round comes to the same, and the cost is that of the GPUs held."""
    prices = Prices({"a": a, "b": b})
    jobs = [job(f"j{i}", float(submit), float(steps)) for i, (submit, steps) in enumerate(sorted(rows))]
    told: dict[str, Any] = {"round_s": 100.0, "reset_gap_s": gap_s, "one_queue": one_queue}
    cluster = replace(TWO_TYPES, changing_prices=prices)
    out, restless = (
        simulate(jobs, cluster, "min-cost", throughputs=ALIKE, engine=kind, **told) for kind in (Engine, Restless)
    )
    assert stretches(out) == stretches(restless)
    paid = [prices.cost("ab"[gpu], 1, since, until) or 0.0 for since, until, gpu in stretches(out)]
    assert out.summary.cost == pytest.approx(sum(paid), abs=1e-12)


# -- from the outside ------------------------------------------------------------------------------------------------

WORKLOAD = {"workload.jobs": 15, "workload.jobs_per_h": 4.0, "round_s": 360}
MIXED = "v100=1x1,p100=1x1,k80=1x1"
SPOT = ["--prices", "gavel-spot"]


def scenario(prices: str, cluster: str = MIXED, policy: str = "min-cost") -> Scenario:
    return Scenario(
        cluster=cluster,
        policy=policy,
        workload="gavel-continuous-single",
        throughputs="gavel-simulation",
        prices=prices,
        values=WORKLOAD,
    )


def test_prices_take_the_place_of_those_of_the_cluster(tmp_path: Path) -> None:
    priced = tmp_path / "priced.yaml"
    priced.write_text(f"shape: {MIXED}\nprices_per_gpu_hour: {{v100: 0.74, p100: 0.43, k80: 0.135}}\n")
    in_file = run(scenario("", str(priced)))
    by_name = run(scenario("gavel-spot"))
    dearer = run(scenario("v100=1.48,p100=0.86,k80=0.27", str(priced)))
    assert by_name.summary.results() == in_file.summary.results() and by_name.jobs == in_file.jobs
    assert dearer.summary.cost == pytest.approx(2 * in_file.summary.cost)
    assert by_name.settings["prices"] == "gavel-spot" and "prices" not in in_file.settings


def test_every_type_needs_a_price() -> None:
    with pytest.raises(InputError, match="--prices: no price for k80 in v100=2,p100=1; expected"):
        run(scenario("v100=2,p100=1", policy="fifo"))


def test_prices_from_the_command_line_and_from_a_preset(tmp_path: Path) -> None:
    preset = tmp_path / "cheap.yaml"
    preset.write_text(
        f"title: a test\nworkload: gavel-continuous-single\ncluster: {MIXED}\nthroughputs: gavel-simulation\n"
        "prices: gavel-on-demand\npolicy: min-cost\nsettings: {round_s: 360, workload: {jobs: 5}}\n"
    )
    told = [CliRunner().invoke(app, ["sim", "run", "--preset", str(preset), "--json", *more]) for more in ([], SPOT)]
    assert [answer.exit_code for answer in told] == [0, 0]
    costs = [float(answer.stdout.partition('"cost": ')[2].partition(",")[0]) for answer in told]
    assert costs[0] > 3 * costs[1] > 0


def test_costs_are_shown_where_there_are_prices() -> None:
    common = ["--workload", "gavel-continuous-single", "--cluster", MIXED, "--throughputs", "gavel-simulation"]
    common += ["--set", "workload.jobs=4", "--round", "360"]
    for more, there in (([], False), (SPOT, True)):
        alone = CliRunner().invoke(app, ["sim", "run", *common, *more])
        co_runner_of = CliRunner().invoke(
            app, ["sim", "compare", *common, *more, "--policies", "fifo,las", "--workers", "1"]
        )
        assert (alone.exit_code, co_runner_of.exit_code) == (0, 0)
        assert ("cost " in alone.stdout, "cost" in co_runner_of.stdout) == (there, there)
