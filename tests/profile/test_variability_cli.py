from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trine.cli.profile import app
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.inputs.variability import load_variability


def run(*args: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, args)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.fixture
def runs_csv(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    times = {"g0": (1.0, 1.01, 1.0), "g1": (0.99, 1.0, 1.0), "g2": (2.0, 2.1, 2.0), "g3": (1.0, 3.6, 1.0)}
    rows = [f"{gpu},n{int(gpu[1]) // 2},{t}\n" for gpu, found in times.items() for t in found]
    path.write_text("gpu,node,perf_s\n" + "".join(rows))
    return path


def test_build_show_and_json(tmp_path: Path, runs_csv: Path) -> None:
    out = tmp_path / "profile.json"
    run("build", "--class", f"A={runs_csv},B={runs_csv}", "--out", str(out))
    shown, talk = run("show", str(out))
    assert "g2" in shown
    assert "slow" in shown
    assert "g0" not in shown
    assert "2 of 4 GPUs are flagged" in talk
    assert "g0" in run("show", str(out), "--all")[0]
    assert [gpu["gpu"] for gpu in json.loads(run("show", str(out), "--json")[0])["gpus"]] == ["g0", "g1", "g2", "g3"]


def test_build_from_an_own_column(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("gpu,class,mine\n0,A,1.5\n1,A,0.9\n")
    out = tmp_path / "p.json"
    run("build", str(tmp_path / "own.csv"), "--how", "column", "--column", "mine", "--out", str(out))
    gpus = json.loads(out.read_text())["gpus"]
    assert [gpu["classes"]["A"]["slowdown"] for gpu in gpus] == [1.5, 0.9]


@pytest.mark.parametrize("how", ["record", "gpu-median"])
def test_draw_writes_what_variability_reads(tmp_path: Path, runs_csv: Path, how: str) -> None:
    out = tmp_path / "gpus.csv"
    run("draw", "--class", f"A={runs_csv}", "--gpus", "10", "--how", how, "--seed", "3", "--out", str(out))
    cluster = Cluster((*Cluster.uniform(2, 4).nodes, Cluster.uniform(1, 2).nodes[0]))
    assert load_variability(out, cluster).gpu_count == 10
    assert run("draw", "--class", f"A={runs_csv}", "--cluster", "5x2", "--how", how, "--seed", "3")[0].count("\n") == 11


def test_classes_in_words_and_json(tmp_path: Path, runs_csv: Path) -> None:
    words, _ = run("classes", "--override", "PointNet=A", "--records", f"BERT={runs_csv}")
    assert "by hand: PointNet" in words
    (tmp_path / "hand.yaml").write_text("resnet50: A\nPointNet: D\n")
    found = json.loads(run("classes", "--override", str(tmp_path / "hand.yaml"), "--json")[0])
    assert {"A", "D"} <= {c["name"] for c in found["classes"]}
    assert found["unknown_application"] == "A"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("build", "--out", "x.json"), "no measurements"),
        (("build", "--class", "A", "--out", "x.json"), "expected CLASS=FILE"),
        (("build", "--class", "A=nowhere.csv", "--out", "x.json"), "no such file"),
        (("build", "--class", "A=RUNS", "--how", "median", "--out", "x.json"), "did you mean 'gpu_median'"),
        (("build", "--class", "A=RUNS", "--how", "column", "--out", "x.json"), "--column NAME"),
        (("draw", "--class", "A=RUNS"), "one of them"),
        (("draw", "--class", "A=RUNS,A=RUNS", "--gpus", "4"), "a class found twice"),
        (("show", "RUNS"), "not valid JSON"),
        (("classes", "--records", "BRT=RUNS"), "did you mean 'BERT'"),
        (("classes", "--override", "=A"), "MODEL=CLASS"),
    ],
)
def test_wrong_input_gets_one_sentence(
    tmp_path: Path, runs_csv: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        run(*(arg.replace("RUNS", str(runs_csv)) for arg in args))
    assert sentence in str(error.value)
    assert not (tmp_path / "x.json").exists()
