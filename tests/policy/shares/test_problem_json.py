"""Problems as JSON documents: what they mean, and one sentence naming the job for everything that is wrong."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.core.errors import InputError
from trine.policy.shares.max_min_fairness import MaxMinFairness
from trine.policy.shares.problem_json import problem_from

GOOD: dict[str, Any] = {
    "workers": {"v100": 2, "k80": 4},
    "jobs": [
        {"id": 0, "gpus": 1, "weight": 1, "throughput": {"v100": 2.0, "k80": 1.0}, "steps_left": 300, "entity": "a"},
        {"id": 1, "gpus": 1, "throughput": {"v100": 3.0, "k80": 1.0}, "deadline_s": None, "entity": None},
        {"id": 2, "gpus": 2, "throughput": {"v100": 4.0}},
    ],
    "pairs": [{"jobs": [1, 0], "throughput": {"v100": [2, 1]}}],
    "entities": {"a": {"weight": 2, "rule": "fifo"}},
    "prices": {"v100": 3.1, "k80": 0.8},
}


def test_a_whole_document() -> None:
    problem, notes = problem_from(copy.deepcopy(GOOD), "p.json")
    assert problem.types == ("k80", "v100") and problem.capacity.tolist() == [4, 2]
    assert problem.ids == ("0", "1", "2") and problem.labels == (0, 1, 2)
    assert problem.throughput.tolist() == [[1, 2], [1, 3], [0, 4]]
    assert problem.gang.tolist() == [1, 1, 2] and problem.weight.tolist() == [1, 1, 1]
    assert problem.steps_left[0] == 300 and np.isnan(problem.steps_left[1])
    assert problem.entity.tolist() == [0, -1, -1] and problem.entities[0].rule == "fifo"
    assert problem.prices.tolist() == [0.8, 3.1] and np.isinf(problem.deadline_s).all()
    assert problem.pairs.jobs.tolist() == [[0, 1]]
    assert problem.pairs.throughput[0, :, 1].tolist() == [1, 2], "given as jobs 1, 0: turned with them"
    assert notes == []


def test_numbers_arrive_in_their_order_and_names_in_that_of_the_list() -> None:
    document = {"workers": {"v100": 1}, "jobs": [{"id": i, "throughput": {"v100": 1}} for i in (10, 2, 5)]}
    assert problem_from(document, "p")[0].arrival.tolist() == [2, 0, 1]
    for job, name in zip(document["jobs"], "zax", strict=True):
        job["id"] = name  # type: ignore[index]
    assert problem_from(document, "p")[0].arrival.tolist() == [0, 1, 2]


def test_a_type_all_jobs_know_and_the_cluster_lacks_is_passed_over() -> None:
    jobs = [{"id": i, "throughput": {"v100": 2.0, "p100": 1.0}} for i in range(2)]
    problem, notes = problem_from({"workers": {"v100": 1}, "jobs": jobs}, "p")
    assert problem.columns == ("v100",)
    assert notes == ["throughputs on p100 are passed over: workers has none"]


def test_ways_of_placing_share_the_capacity_of_their_type() -> None:
    """Two gangs of 2 on 2 GPUs: each has half the time, placed in the way that is faster for it."""
    jobs = [
        {"id": "near", "gpus": 2, "throughput": {"v100": 4.0, "v100_unconsolidated": 1.0}},
        {"id": "far", "gpus": 2, "throughput": {"v100": 2.0, "v100_unconsolidated": 3.0}},
    ]
    problem, _ = problem_from({"workers": {"v100": 2}, "jobs": jobs}, "p")
    assert problem.columns == ("v100", "v100_unconsolidated") and problem.types == ("v100",)
    found = MaxMinFairness().allocate(problem)
    np.testing.assert_allclose(found.shares, [[0.5, 0.0], [0.0, 0.5]], atol=1e-6)
    np.testing.assert_allclose(found.effective, [2.0, 1.5], atol=1e-6)


def test_a_pair_may_run_in_any_way_of_placing() -> None:
    jobs = [{"id": i, "gpus": 2, "throughput": {"v100": 2.0, "v100_unconsolidated": 1.0}} for i in range(2)]
    pairs = [{"jobs": [0, 1], "throughput": {"v100": [0.5, 0.5], "v100_unconsolidated": [1.8, 1.8]}}]
    problem, _ = problem_from({"workers": {"v100": 2}, "jobs": jobs, "pairs": pairs}, "p")
    found = MaxMinFairness().allocate(problem)
    np.testing.assert_allclose(found.pair_shares, [[0.0, 1.0]], atol=1e-6)
    np.testing.assert_allclose(found.effective, 1.8, atol=1e-6)


def job(n: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["jobs"][n].update(values)

    return change


def top(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


BAD: dict[str, tuple[Callable[[dict[str, Any]], None], list[str]]] = {
    "negative throughput": (job(1, throughput={"v100": -2.0}), ["job 1", "throughput.v100", "-2.0", "a number from 0"]),
    "throughput not a number": (job(1, throughput={"v100": math.nan}), ["job 1", "throughput.v100", "nan"]),
    "infinite throughput": (job(1, throughput={"v100": math.inf}), ["job 1", "inf"]),
    "text for a throughput": (job(1, throughput={"v100": "2"}), ["job 1", "'2'"]),
    "no throughput": (job(1, throughput=None), ["job 1 throughput", "nothing"]),
    "no type can run it": (job(1, throughput={"v100": 0.0}), ["no GPU type can run job 1"]),
    "no throughputs at all": (job(1, throughput={}), ["job 1"]),
    "a misspelt type": (job(1, throughput={"v10": 2.0}), ["job 1", "'v10'", "did you mean 'v100'"]),
    "a gang too large": (job(2, gpus=3), ["job 2 needs 3 GPUs", "more than 2"]),
    "no whole gang": (job(2, gpus=1.5), ["job 2 gpus", "1.5", "whole number"]),
    "no gang": (job(2, gpus=0), ["job 2 gpus", "from 1"]),
    "weight of nothing": (job(0, weight=0), ["job 0", "weight 0"]),
    "negative weight": (job(0, weight=-1), ["job 0 weight", "-1"]),
    "negative steps": (job(0, steps_left=-5), ["job 0 steps_left", "-5"]),
    "an unknown key": (job(0, gpu=2), ["job 0", "unknown key 'gpu'", "did you mean 'gpus'"]),
    "an unknown top key": (top(worker={}), ["unknown key 'worker'", "did you mean 'workers'"]),
    "the same id twice": (job(1, id="0"), ["jobs[1].id", "job 0 a second time"]),
    "no id": (job(1, id=None), ["jobs[1].id", "nothing"]),
    "an unknown entity": (job(1, entity="b"), ["job 1 entity", "unknown entity 'b'"]),
    "no workers": (top(workers={}), ["workers", "no GPUs"]),
    "workers without GPUs": (top(workers={"v100": 0}), ["workers", "no GPUs"]),
    "half a GPU": (top(workers={"v100": 0.5, "k80": 4}), ["workers.v100", "0.5"]),
    "jobs as an object": (top(jobs={}), ["jobs", "a list of jobs"]),
    "a pair of unequal gangs": (
        top(pairs=[{"jobs": [1, 2], "throughput": {"v100": [1, 1]}}]),
        ["job 1 with gpus 1", "job 2 with gpus 2"],
    ),
    "a pair of one": (top(pairs=[{"jobs": [1, 1], "throughput": {}}]), ["pairs[0].jobs", "two different jobs"]),
    "a pair with a stranger": (top(pairs=[{"jobs": [0, 7], "throughput": {}}]), ["pairs[0].jobs", "unknown job '7'"]),
    "a pair with one number": (top(pairs=[{"jobs": [0, 1], "throughput": {"v100": [1]}}]), ["pairs[0]", "two numbers"]),
    "a pair with a negative number": (
        top(pairs=[{"jobs": [0, 1], "throughput": {"v100": [1, -1]}}]),
        ["pairs[0].throughput.v100", "-1"],
    ),
    "a pair twice": (
        top(pairs=[{"jobs": [0, 1], "throughput": {}}, {"jobs": [1, 0], "throughput": {}}]),
        ["pairs[1]", "second time"],
    ),
    "an unknown rule": (top(entities={"a": {"rule": "fif"}}), ["entities.a", "did you mean 'fifo'"]),
    "an entity of no weight": (top(entities={"a": {"weight": 0}}), ["entities.a.weight"]),
    "an unknown price": (top(prices={"v1000": 1}), ["prices", "'v1000'", "did you mean 'v100'"]),
    "a negative price": (top(prices={"v100": -1}), ["prices.v100", "-1"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case: str) -> None:
    change, words = BAD[case]
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(InputError) as caught:
        problem_from(document, "p.json")
    message = str(caught.value)
    assert message.startswith("p.json: ") and "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("document", [None, [], 3, "text", {"workers": []}, {"workers": {"a": 1}, "jobs": [[]]}])
def test_other_json_is_refused(document: Any) -> None:
    with pytest.raises(InputError, match=r"^p\.json: "):
        problem_from(json.loads(json.dumps(document)), "p.json")


JUNK = [None, True, 0, -1, 3.5, 1e308, 10**30, math.nan, math.inf, "", "x", "0", "v100", [], [0, 1], {}, {"v100": 1}]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, the root left out."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, below in inner for p in [(*path, key), *places(below, (*path, key))]]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(places(GOOD)), st.sampled_from(JUNK))
def test_anything_anywhere_is_understood_or_refused(path: tuple[Any, ...], junk: Any) -> None:
    document = copy.deepcopy(GOOD)
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = copy.deepcopy(junk)
    try:
        problem, _ = problem_from(document, "p.json")
    except InputError as error:
        assert str(error).startswith("p.json: ") and "\n" not in str(error)
        return
    found = MaxMinFairness().allocate(problem)
    json.dumps(found.as_dict(problem), allow_nan=False)
