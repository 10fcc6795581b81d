"""Contract of every share policy, present and future: valid, repeatable shares on any problem, a word on each job."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.policy.shares.problems import all_pairs, assert_valid, random_problem, two, workers
from trine.core.errors import InputError
from trine.core.params import build, params_of
from trine.core.plugins import discover, find
from trine.policy.shares.base import Memory, SharePolicy
from trine.policy.shares.problem import Problem

POLICIES: dict[str, type[Any]] = dict(discover("trine.policy.shares", SharePolicy))
REQUIRED = {
    *("max-min-fairness", "finish-time-fairness", "makespan", "max-throughput", "min-cost", "hierarchical", "isolated"),
    *("proportional", "allox", "gandiva", "strategy-proof", "shortest-job-first", "fifo"),
}


def variants() -> list[Any]:
    """Every policy as it is, and with each setting that makes it another program."""
    found = []
    for name, cls in POLICIES.items():
        known = params_of(cls)
        settings: list[dict[str, str]] = [{}]
        settings += [{"aware": "false"}] if "aware" in known else []
        settings += [{"form": c} for c in known["form"].choices[1:]] if "form" in known else []
        found += [pytest.param(name, s, id="-".join((name, *s, *s.values()))) for s in settings]
    return found


every = pytest.mark.parametrize("name", POLICIES)
variant = pytest.mark.parametrize(("name", "setting"), variants())

PRICES = {"k80": 0.8, "p100": 2.0, "v100": 3.1}


def problems() -> dict[str, Problem]:
    """Ordinary problems and the corners of what a cluster can look like."""
    mixed = random_problem(1, 12, gang=1)
    gangs = random_problem(2, 12)
    given: dict[str, Any] = {"steps_left": [300.0, 500.0], "prices": PRICES}
    return {
        "mixed": mixed,
        "gangs": gangs,
        "pairs": replace(mixed, pairs=all_pairs(mixed)),
        "gangs and pairs": replace(gangs, pairs=all_pairs(gangs)),
        "one job": Problem.of(workers(1, 1, 1), [[1.0, 2.0, 3.0]], steps_left=10.0, prices=PRICES),
        "one GPU": Problem.of({"v100": 1}, [[1.0]] * 5, steps_left=10.0, prices=PRICES),
        "plenty": two(workers(100, 100, 100), **given),
        "a type without GPUs": two(workers(1, 0, 1), **given),
        "equal jobs": Problem.of(workers(1, 1, 1), [[1.0, 2.0, 3.0]] * 9, steps_left=10.0, prices=PRICES),
        "one type each": Problem.of(workers(1, 1, 1), np.eye(3), steps_left=10.0, prices=PRICES),
        "nothing left to do": two(workers(1, 1, 1), steps_left=0.0, prices=PRICES),
        "impossible deadline": two(workers(1, 1, 1), deadline_s=[1.0, np.inf], **given),
        "very uneven": Problem.of(workers(2, 2, 2), [[1e-3, 1e-2, 0.1], [1e2, 1e3, 1e4], [1.0, 1.0, 1.0]],
                                  steps_left=[1.0, 1e8, 100.0], prices=PRICES),
        "no jobs": Problem.of(workers(1, 1, 1), np.zeros((0, 3)), prices=PRICES),
    }  # fmt: skip


PROBLEMS = problems()


def made(name: str, setting: dict[str, str]) -> SharePolicy:
    policy: SharePolicy = build(POLICIES[name], setting)
    return policy


def asked(name: str, setting: dict[str, str], problem: Problem) -> Problem:
    """The problem itself; single GPUs for a policy that knows no gangs and says so, naming the job."""
    if (problem.gang == 1).all():
        return problem
    try:
        made(name, setting).allocate(problem)
    except InputError as error:
        assert "job" in str(error)
        return replace(problem, gang=np.ones(len(problem), np.int64))
    return problem


def test_those_that_others_rely_on_are_there() -> None:
    assert set(POLICIES) >= REQUIRED


@pytest.mark.parametrize("case", PROBLEMS)
@variant
def test_shares_are_valid_and_certified(name: str, setting: dict[str, str], case: str) -> None:
    problem, policy = asked(name, setting, PROBLEMS[case]), made(name, setting)
    found = policy.allocate(problem)
    assert_valid(problem, found)
    assert np.isfinite([found.objective, found.bound]).all()
    assert 0 <= found.gap <= 1e-6
    sentences = policy.explain(problem, found)
    assert len(sentences) == len(problem) and all(s.strip() for s in sentences)


@pytest.mark.parametrize("case", ["mixed", "gangs and pairs", "equal jobs"])
@variant
def test_same_problem_same_bytes(name: str, setting: dict[str, str], case: str) -> None:
    problem = asked(name, setting, PROBLEMS[case])
    one, other = (made(name, setting).allocate(problem, Memory(7)) for _ in range(2))
    assert one.shares.tobytes() == other.shares.tobytes()
    assert one.pair_shares.tobytes() == other.pair_shares.tobytes()
    assert one.objective == other.objective


@pytest.mark.parametrize("case", ["mixed", "gangs", "very uneven"])
@variant
def test_the_order_of_the_list_does_not_matter(name: str, setting: dict[str, str], case: str) -> None:
    """Jobs keep their rank of arrival when the list is shuffled: nobody's throughput objective changes."""
    problem, policy = asked(name, setting, PROBLEMS[case]), made(name, setting)
    order = np.random.default_rng(3).permutation(len(problem))
    columns = (
        "throughput",
        "gang",
        "weight",
        "steps_left",
        "elapsed_s",
        "isolated_s",
        "deadline_s",
        "arrival",
        "entity",
    )
    shuffled = replace(
        problem,
        ids=tuple(problem.ids[i] for i in order),
        labels=tuple(problem.labels[i] for i in order),
        **{c: getattr(problem, c)[order] for c in columns},
    )
    one, other = policy.allocate(problem), policy.allocate(shuffled)
    assert other.objective == pytest.approx(one.objective, rel=1e-6)
    if len(one.levels):
        np.testing.assert_allclose(other.levels, one.levels[order], rtol=1e-5, atol=1e-6)


@variant
def test_rounds_may_pass(name: str, setting: dict[str, str]) -> None:
    """With the same memory, while steps are made, jobs leave and GPUs fail, the shares stay valid."""
    problem, policy, memory = PROBLEMS["pairs"], made(name, setting), Memory(1)
    for part in (1.0, 0.6, 0.3):
        later = replace(problem, steps_left=problem.steps_left * part, elapsed_s=problem.elapsed_s + 300)
        assert_valid(later, policy.allocate(later, memory))
    few = random_problem(5, 4, gang=1)
    assert_valid(few, policy.allocate(few, memory))
    smaller = replace(few, capacity=np.array([1.0, 0.0, 1.0]))
    assert_valid(smaller, policy.allocate(smaller, memory))


@every
def test_it_says_what_it_is(name: str) -> None:
    cls = POLICIES[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cls.name)
    assert Path(inspect.getfile(cls)).stem == name.replace("-", "_")
    assert cls.title.strip() and not cls.title.endswith(".") and cls.paper
    assert len(inspect.getdoc(cls) or "") > 20 and not (cls.__doc__ or "").startswith(f"{cls.__name__}(")
    documented = params_of(cls)
    for field in dataclasses.fields(cls):
        assert not field.init or field.name in documented, f"{field.name} can be given but has no param()"
    assert all(p.doc.strip() for p in documented.values())


@every
def test_a_misspelt_name_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{name}'"):
        find("trine.policy.shares", SharePolicy, "share policy", f"{name}z", "--policy")
