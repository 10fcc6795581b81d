"""``trine profile estimate``: a person's way to the estimator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.perf.pairs import made_up
from trine.cli.profile import app
from trine.core.errors import InputError
from trine.inputs.throughputs import load_throughputs, table_csv


@pytest.fixture(scope="session")
def rates(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rates") / "rates.csv"
    path.write_text(table_csv(made_up()))
    return str(path)


def estimate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["estimate", *arguments])


def test_pairs_with_their_error_and_a_table_to_go_on_with(rates: str, tmp_path: Path) -> None:
    out = tmp_path / "estimated.csv"
    told = ("--throughputs", rates, "--references", "6", "--profiled", "0.5", "--seed", "3", "--out", str(out))
    done = estimate(*told, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert len(answer["references"]) == 6 and set(answer["matches"].values()) <= set(answer["references"])
    assert 0 < answer["error"]["mean"] < 0.5
    found = load_throughputs(str(out))
    assert found.rates == made_up().rates and found.pair_rate("model0", "model1", 1, "v100") is not None
    assert "behaves like" in estimate(*told).stdout


def test_a_new_gpu_type(rates: str) -> None:
    done = estimate("--throughputs", rates, "--measured", "k80=2,V100=20", "--json")
    found = json.loads(done.stdout)["steps_per_s"]
    assert found["k80"] == 2 and found["v100"] == 20 and 2 < found["p100"] < 20
    assert "estimated" in estimate("--throughputs", rates, "--measured", "k80=2").stdout


def test_a_table_with_the_new_model(rates: str, tmp_path: Path) -> None:
    out = tmp_path / "more.csv"
    told = ("--throughputs", rates, "--measured", "k80=2,v100=20")
    assert estimate(*told, "--model", "new", "--out", str(out)).exit_code == 0
    found, shown = load_throughputs(str(out)), json.loads(estimate(*told, "--json").stdout)["steps_per_s"]
    assert found.rates == {**made_up().rates, ("new", 1): shown} and found.pairs == load_throughputs(rates).pairs
    assert "measured on k80, v100; the rest estimated" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--measured", "v100=3", "--out", "never.csv"), "--model NAME"),
        (("--measured", "v100=3", "--model", "model1", "--out", "never.csv"), "model1 is in the table already"),
        (("--references", "40"), "from 1 to 12"),
        (("--measured", "h100=3"), "unknown GPU type 'h100'"),
        (("--measured", "v100=fast"), "'v100=fast'"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], words: str, rates: str) -> None:
    done = estimate("--throughputs", rates, *arguments)
    assert isinstance(done.exception, InputError) and words in str(done.exception)
