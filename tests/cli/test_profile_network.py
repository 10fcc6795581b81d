"""``trine profile network``: from step times to links that a cluster file takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.perf.test_network_fit import TRUE, steps_on
from trine.cli.profile import app
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.inputs.links import load_network

HEADER = "model,gpus,nodes,racks,step_s,bytes"


def network(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["network", *map(str, arguments)])


@pytest.fixture(scope="session")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "steps.csv"
    rows = [f"{r.model},{r.gpus},{r.nodes},{r.racks},{r.step_s!r},{r.gradient_bytes!r}" for r in steps_on(TRUE)]
    path.write_text("\n".join(["# made up", HEADER, *rows, ""]))
    return path


def test_links_to_go_on_with(steps: Path, tmp_path: Path) -> None:
    out = tmp_path / "links.yaml"
    done = network(steps, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["rows"] == 16
    assert found["median_error"] < 0.01
    assert found["median_error_unseen"] < 0.2
    assert found["links"]["nic_bytes_per_s"] == pytest.approx(1.5e9, rel=0.1)
    written = load_network(str(out), Cluster.uniform(2, 4))
    assert written.nic_bytes_per_s == found["links"]["nic_bytes_per_s"]


def test_the_table_names_what_was_fitted_and_how_far_off_it_is(steps: Path) -> None:
    done = network(steps)
    assert "nic_bytes_per_s" in done.stdout and "GB/s" in done.stdout
    assert "16 rows: off by" in done.stderr and "left out of a fit" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("0 rows",)),
        ("m,gpus\n", ("steps.csv:1", "unknown column 'm'")),
        ("model,gpus,nodes,racks\n", ("step_s", "no such column")),
        (f"{HEADER}\na,4,8,1,1,\na,4,1,1,1,\n", ("steps.csv:2", "8 nodes for 4 GPUs")),
        (f"{HEADER}\na,4,2,3,1,\na,4,1,1,1,\n", ("steps.csv:2", "3 racks for 2 nodes")),
        (f"{HEADER}\na,4,2,1,0,\na,4,1,1,1,\n", ("steps.csv:2", "seconds greater than 0")),
        (f"{HEADER}\na,4,2,1,nan,\na,4,1,1,1,\n", ("steps.csv:2", "'nan'")),
        (f"{HEADER}\na,four,2,1,1,\na,4,1,1,1,\n", ("steps.csv:2", "'four'", "a whole number")),
        (f"{HEADER}\na,4,2,1,1,-5\na,4,1,1,1,\n", ("steps.csv:2", "bytes", "at least 0")),
        (f"{HEADER}\na,4,2,1,1\n", ("steps.csv:2", "5 cells")),
        (f"{HEADER}\na,4,2,1,1,\n", ("1 rows", "at least two")),
    ],
)
def test_wrong_files_are_refused_in_a_sentence(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    error = network(path).exception
    assert isinstance(error, InputError)
    assert all(word in str(error) for word in words), error


def test_an_algorithm_that_is_none(steps: Path) -> None:
    error = network(steps, "--algorithm", "rings").exception
    assert isinstance(error, InputError) and "did you mean 'ring'?" in str(error)
