"""Throughput files: Gavel's JSON, our CSV, the shipped tables; what is odd is refused in one sentence."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.perf.pairs import made_up
from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.throughputs import SHIPPED, check_jobs, load_throughputs, table_csv, table_names
from trine.perf.throughput import ThroughputTable

A, B, A2 = "('a', 1)", "('b', 1)", "('a', 2)"


def gavel(**changes: Any) -> dict[str, Any]:
    """A small file in Gavel's layout."""
    data: dict[str, Any] = {
        "v100": {
            A: {"null": 10.0, B: [6.0, 3.0]},
            B: {"null": 4, A: [3.0, 6.0], B: [0.0, 0.0]},
            A2: {"null": 19.0},
        },
        "V100_unconsolidated": {A2: {"null": 15.0}},
    }
    return data | changes


def written(folder: Path, text: str, name: str = "rates") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(InputError) as caught:
        load_throughputs(path)
    text = str(caught.value)
    assert Path(path).name in text and "\n" not in text
    return text


def test_gavels_layout(tmp_path: Path) -> None:
    path = tmp_path / "rates.json.gz"
    path.write_bytes(gzip.compress(json.dumps(gavel()).encode()))
    table = load_throughputs(str(path))
    assert table.rate("a", 1, "V100") == 10.0
    assert table.pair_rate("b", "a", 1, "v100") == (3.0, 6.0)
    assert table.pair_rate("b", "b", 1, "v100") == (0.0, 0.0)
    assert table.spread is not None and table.spread.rate("a", 2, "v100") == 15.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["not JSON"]),
        ("[]", ["list"]),
        (json.dumps({"v100": 3}), ["v100", "int"]),
        (json.dumps({"v100": {"a": {"null": 1}}}), ["key 'a'", "('model', gang size)"]),
        (json.dumps({"v100": {"('a', 0)": {"null": 1}}}), ["('a', 0)", "at least 1"]),
        (json.dumps({"v100": {"('a', True)": {"null": 1}}}), ["('a', True)", "whole number"]),
        (json.dumps({"v100": {"('a', 1, 2)": {"null": 1}}}), ["('a', 1, 2)"]),
        (json.dumps({"v100": {"('', 1)": {"null": 1}}}), ["('', 1)"]),
        (json.dumps({"v100": {A: {}}}), [f"v100.{A}", '"null"']),
        (json.dumps({"v100": {A: {"null": -1}}}), [f"v100.{A}", "-1"]),
        (json.dumps({"v100": {A: {"null": 1, A: [1]}}}), [A, "two numbers"]),
        (json.dumps({"v100": {A: {"null": 1, A: [1, None]}}}), [A, "two numbers"]),
        (json.dumps({"v100": {A: {"null": 1, A2: [1, 1]}}}), ["1 and 2 GPUs", "equal gangs"]),
        (json.dumps({"v100": {A: {"null": 1, B: [1, 1]}}}), ["'b'", "alone is missing"]),
        ('{"v100": {"(\'a\', 1)": {"null": 1}, "(\'a\', 1)": {"null": 2}}}', ["('a', 1)", "twice"]),
        (json.dumps({"v100": {A: {"null": 1}, "('a',1)": {"null": 1}}}), ["'a' on 1 GPU of v100", "second time"]),
        (json.dumps({"v100": {A: {"null": 1}}, "V100": {A: {"null": 1}}}), ["'a' on 1 GPU of v100", "second time"]),
        (
            json.dumps(gavel(v100={A: {"null": 9, B: [1, 2]}, B: {"null": 9, A: [2, 3]}})),
            ["'b' and 'a'", "2 and 3", "whichever"],
        ),
    ],
)
def test_odd_json_is_refused_by_its_key(text: str, words: list[str], tmp_path: Path) -> None:
    found = refusal(written(tmp_path, text))
    assert all(word in found for word in words), found


OWN = """# my cluster
model,gpus,gpu_type,placement,steps_per_s,other,other_steps_per_s,source
a,1,V100,,10,,,bench
b,1,v100,packed,4,,,bench
a,1,v100,packed,6,b,3,bench
a,2,v100,spread,15,,,bench
a,2,v100,packed,19,,,bench
"""


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    table = load_throughputs(written(tmp_path, OWN))
    assert table.rate("a", 1, "v100") == 10.0 and table.rate("a", 2, "v100") == 19.0
    assert table.pair_rate("b", "a", 1, "v100") == (3.0, 6.0)
    assert table.spread is not None and table.spread.rate("a", 2, "v100") == 15.0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("steps_per_s,other,", "steps_per_sec,other,", ["'steps_per_sec'", "did you mean 'steps_per_s'?"]),
        ("gpu_type,", "", ["gpu_type", "no such column"]),
        ("a,1,V100,,10", "a,1,V100,,-1", [":3", "steps_per_s", "'-1'"]),
        ("a,1,V100,,10", "a,1.5,V100,,10", [":3", "gpus", "'1.5'"]),
        ("a,1,V100,,10", "a,1,,,10", [":3", "gpu_type", "empty"]),
        ("a,1,V100,,10", "a,1,V100,spred,10", [":3", "did you mean 'spread'?"]),
        ("a,1,V100,,10", "a,1,V100,,10,", [":3", "9 cells", "8"]),
        ("b,1,v100,packed,4,,", "a,1,v100,packed,4,,", [":4", "second time", ":3"]),
        ("6,b,3", "6,,3", [":5", "other"]),
        ("6,b,3", "6,c,3", [":5", "'c'", "alone is missing"]),
        ("6,b,3", "6,b,", [":5", "other_steps_per_s", "empty"]),
    ],
)
def test_an_odd_row_is_refused_by_its_line(old: str, new: str, words: list[str], tmp_path: Path) -> None:
    assert old in OWN
    found = refusal(written(tmp_path, OWN.replace(old, new, 1)))
    assert all(word in found for word in words), found


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    assert "no rows" in refusal(written(tmp_path, "model,gpus,gpu_type,steps_per_s\n"))


def test_a_table_written_reads_back(tmp_path: Path) -> None:
    plain = made_up(5)
    table = ThroughputTable(plain.rates, plain.pairs, ThroughputTable({("model1", 4): {"v100": 0.1 + 0.2}}))
    assert load_throughputs(written(tmp_path, table_csv(table, "a, test"))) == table


@pytest.mark.parametrize("name", table_names())
def test_every_shipped_figure_names_its_source(name: str) -> None:
    assert load_throughputs(name) is load_throughputs(name)
    lines = (SHIPPED / f"{name}.csv").read_text().splitlines()
    head = " ".join(line for line in lines if line.startswith("#"))
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert rows and all(row["source"].split()[0] in head for row in rows)


@pytest.mark.parametrize(("name", "file"), [("gavel-simulation", "simulation"), ("gavel-physical", "physical_cluster")])
def test_shipped_figures_are_those_published(name: str, file: str, shared_data: Path) -> None:
    ours = load_throughputs(name)
    theirs = load_throughputs(str(shared_data / f"hardware/gavel_throughputs/{file}_throughputs.json.gz"))
    assert ours.rates == theirs.rates
    assert ours.spread is not None and theirs.spread is not None
    spread = {key: rates for key, rates in theirs.spread.rates.items() if key[1] > 1}
    assert ours.spread.rates == spread
    assert len(theirs.pairs) == 351 + 3 * 190 and ours.pairs == {}
    zero = {key for key, rates in ours.rates.items() if rates["k80"] == 0}
    assert {gang for _, gang in zero} == ({2, 4, 8} if file == "simulation" else {1, 2, 4, 8})


def test_a_misspelt_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gavel-simulation'"):
        load_throughputs("gavel-simulations")


JOB = Job("7", submit_s=100.0, gpus=1, steps=5.0, step_s=None, model="a", line=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "resnet-18"}, ["jobs.csv:3", "job 7", "'resnet-18'", "did you mean 'ResNet-18'?"]),
        ({"model": "huge"}, ["jobs.csv:3", "job 7", "'huge'", "0 steps/s", "k80, v100"]),
        ({"model": "resnet-18", "step_s": 2.0}, ["jobs.csv:3", "job 7", "did you mean 'ResNet-18'?"]),
        ({"deadline_s": 99.0}, ["jobs.csv:3", "job 7", "99 s", "100 s", "deadline"]),
        ({"deadline_s": 100.0}, ["jobs.csv:3", "job 7", "100 s", "deadline"]),
    ],
)
def test_jobs_that_the_table_cannot_run(changes: dict[str, Any], words: list[str]) -> None:
    table = ThroughputTable({("a", 1): {"v100": 1.0}, ("ResNet-18", 1): {"v100": 1.0}, ("huge", 1): {"v100": 0.0}})
    check_jobs(
        [JOB, replace(JOB, deadline_s=200.0), replace(JOB, model="", step_s=2.0)], table, ("k80", "v100"), "jobs.csv"
    )
    check_jobs([JOB, replace(JOB, model="b", step_s=2.0)], table, ("v100",), "jobs.csv")
    with pytest.raises(InputError) as caught:
        check_jobs([JOB, replace(JOB, **changes)], table, ("k80", "v100"), "jobs.csv")
    assert all(word in str(caught.value) for word in words), str(caught.value)
