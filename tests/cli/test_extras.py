"""Without its extras trine does all it can, and says in one sentence which one brings the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.live import EXAMPLES, daemon

BLOCK = """
import sys
for name in {names!r}:
    sys.modules[name] = None
"""
HEAVY = ("pyarrow", "plotly", "sklearn", "psycopg", "httpx")
TRACE = "job_id,submit_s,gpus,steps,step_s\n" + "".join(f"{i},{60 * i},{1 + i % 4},100,3\n" for i in range(20))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def trine(folder: Path, *words: str, without: tuple[str, ...] = HEAVY) -> subprocess.CompletedProcess[str]:
    """The command where some modules are not installed."""
    program = f"{BLOCK.format(names=without)}\nfrom trine.cli.main import main\nmain()\n"
    command = [sys.executable, "-W", "error", "-c", program, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """One sentence that says all of this, and exit code 1."""
    assert done.returncode == 1 and done.stdout == "", done.stderr
    assert done.stderr.startswith("trine: ") and done.stderr.count("\n") == 1
    for words in said:
        assert words in done.stderr


def test_simulations_need_no_extra(tmp_path: Path, trace: Path) -> None:
    run = trine(tmp_path, "sim", "run", "--trace", str(trace), "--cluster", "4x4", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["finished"] == 20
    words = (
        "sim",
        "compare",
        "--workload",
        "philly",
        "--set",
        "workload.jobs=40",
        "--cluster",
        "4x4",
        "--seeds",
        "0..1",
    )
    table = trine(tmp_path, *words, "--policies", "fifo,las,max-min-fairness")
    assert table.returncode == 0, table.stderr
    assert "max-min-fairness" in table.stdout


@pytest.mark.parametrize(
    ("words", "without", "said"),
    [
        ("sim run --trace jobs.csv --cluster 4x4 --out out", HEAVY, ["plotly and pyarrow", "'trine[report]'"]),
        ("sim run --trace jobs.csv --cluster 4x4 --out out", ("pyarrow",), ["need pyarrow", "'trine[report]'"]),
        ("sim compare --trace jobs.csv --cluster 4x4 --out out", ("plotly",), ["needs plotly", "'trine[report]'"]),
        ("reproduce pal --out out", ("plotly",), ["needs plotly", "'trine[report]'"]),
        ("reproduce gavel --out out", ("plotly",), ["needs plotly", "'trine[report]'"]),
        ("reproduce dally --out out", ("plotly",), ["needs plotly", "'trine[report]'"]),
        ("profile gpus --devices cpu --out out", ("plotly",), ["needs plotly", "'trine[profile]'"]),
        ("profile classes", ("sklearn",), ["needs sklearn", "'trine[profile]'"]),
        (
            "up --gpus 1x1 --state out --store postgresql://h/d --dry-run",
            ("psycopg",),
            ["'trine[postgres]'"],
        ),
    ],
)
def test_what_is_missing_is_named_before_any_work(
    tmp_path: Path, trace: Path, words: str, without: tuple[str, ...], said: list[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    refused(trine(tmp_path, *words.split(), without=without), *said)
    left = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path not in before)
    assert not [path for path in left if path.suffix in (".html", ".json", ".csv", ".parquet", ".jsonl")]


def test_a_comparison_needs_no_parquet(tmp_path: Path, trace: Path) -> None:
    words = ("sim", "compare", "--trace", str(trace), "--cluster", "4x4", "--out", "out")
    done = trine(tmp_path, *words, without=("pyarrow", "sklearn"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
def test_the_daemon_runs_jobs_without_any_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(names=HEAVY))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with daemon(tmp_path / "state", "--gpus", "1x2", "--round", "1", "--policy", "max-min-fairness") as site:
        client = site.up()
        run = [sys.executable, str(EXAMPLES / "toy_sdk.py"), "--steps", "20"]
        ids = client.submit([{"run": run, "workdir": str(EXAMPLES)}] * 3)
        assert [client.wait(job_id, 60)["state"] for job_id in ids] == ["done"] * 3
        assert site.stop() == 0
