"""The Python API: stable names, quick to import, the bytes of the command line, and sentences about arguments."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trine
from tests.cli.live import command as in_this_process
from tests.docs.pages import ROOT
from trine.core.errors import MissingExtraError
from trine.core.result import Summary

SAMPLE = ROOT / "examples" / "helios_sample.csv"
JOBS = "job_id,submit_s,gpus,steps,step_s\n" + "".join(f"{i},{60 * i},{1 + i % 4},100,{1 + i % 7}\n" for i in range(40))
SMALL: dict[str, Any] = {"workload": "philly", "cluster": "4x4", "settings": {"workload": {"jobs": 40}}}


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def python(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trine", *words], capture_output=True, text=True, timeout=300, check=True
    )


def contents(folder: Path) -> dict[str, bytes]:
    """The files without the line of the page that names the command: a run from Python has none."""
    named = re.compile(rb"<tr><td>command</td>.*?</tr>")
    return {path.name: named.sub(b"", path.read_bytes()) for path in sorted(folder.iterdir())}


def test_every_public_name_is_there_and_has_a_meaning() -> None:
    for name in trine.__all__:
        assert getattr(trine, name) is not None
        assert name == "__version__" or getattr(trine, name).__doc__, name
    assert {"simulate", "compare", "load_trace", "Client"} <= set(dir(trine))
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        trine.simulat  # type: ignore[attr-defined]  # noqa: B018


def test_importing_costs_next_to_nothing() -> None:
    done = python(
        "import time, sys; before = time.process_time(); import trine; print(time.process_time() - before);"
        "print(*sorted(name for name in ('numpy', 'pyarrow', 'plotly', 'trine.sim', 'typer') if name in sys.modules))"
    )
    seconds, heavy = done.stdout.split("\n")[:2]
    assert float(seconds) < 0.1
    assert heavy == ""


def test_a_run_writes_the_bytes_of_the_command_line(tmp_path: Path, jobs: Path) -> None:
    words = f"sim run --trace {jobs} --cluster 2x4 --policy las --set round_s=60"
    command(*words.split(), "--out", str(tmp_path / "command"))
    result = trine.simulate(jobs, cluster="2x4", policy="las", settings={"round_s": 60})
    result.save(tmp_path / "python", command=f"python -m trine {words}")
    assert contents(tmp_path / "python") == contents(tmp_path / "command")
    read = trine.simulate(trine.load_trace(jobs), cluster="2x4", policy="las", settings={"round_s": 60})
    assert read.jobs == result.jobs, "read before or by the run: the same jobs"


def test_a_comparison_writes_the_bytes_of_the_command_line(tmp_path: Path) -> None:
    words = "sim compare --workload philly --cluster 4x4 --policies fifo,srtf --seeds 0..1 --set workload.jobs=40"
    command(*words.split(), "--workers", "1", "--out", str(tmp_path / "command"))
    compared = trine.compare(**SMALL, policies=["fifo", "srtf"], seeds=range(2), workers=1)
    compared.save(tmp_path / "python", command=f"python -m trine {words}")
    assert contents(tmp_path / "python") == contents(tmp_path / "command")


def test_a_preset_brings_jobs_cluster_and_policies() -> None:
    few = {"workload.jobs": 30}
    assert trine.simulate(preset="quickstart", settings=few).summary["policy"] == "fifo"
    compared = trine.compare(preset="quickstart", settings=few, seeds=[3], workers=1)
    assert compared.runs["policy"].to_pylist() == ["fifo", "fifo-backfill", "las", "tiresias", "srtf"]


def test_tables_of_a_run_say_what_its_files_say(tmp_path: Path, jobs: Path) -> None:
    import csv

    result = trine.simulate(jobs, cluster="2x4", policy="srtf")
    result.save(tmp_path / "out")
    with (tmp_path / "out" / "jobs.csv").open() as file:
        written = list(csv.DictReader(file))
    assert result.jobs["job_id"].to_pylist() == [row["job_id"] for row in written]
    assert result.jobs["jct_s"].to_pylist() == [float(row["jct_s"]) for row in written]
    parts = ("wait_s", "ideal_s", "type_s", "chip_s", "network_s", "sharing_s", "restart_s", "round_end_s")
    assert all(sum(job[part] for part in parts) == pytest.approx(job["jct_s"]) for job in result.jobs.to_pylist())
    assert result.summary["jct_mean_s"] == pytest.approx(sum(result.jobs["jct_s"].to_pylist()) / 40)
    held = sum(
        (row["end_s"] - row["start_s"]) * len(row["gpus"]) for row in result.timeline.to_pylist() if row["tracked"]
    )
    assert held / 3600 == pytest.approx(sum(result.summary["gpu_h_by_type"].values()))


def test_a_comparison_has_the_jobs_of_every_run() -> None:
    compared = trine.compare(**SMALL, policies=["fifo", "srtf"], seeds=range(3), loads=[0.5, 0.9], workers=1)
    assert compared.runs.num_rows == 2 * 2 * 3
    assert compared.jobs.num_rows == 2 * 2 * 3 * 40
    only = compared.at(load=0.9).run("srtf", seed=2)
    with pytest.raises(trine.TrineError, match=r"^at: load=3; expected one of load=0\.[0-9]+; load="):
        compared.at(load=3)
    mine = [row["jct_s"] for row in compared.jobs.to_pylist()
            if (row["load"], row["policy"], row["seed"]) == (0.9, "srtf", 2)]  # fmt: skip
    assert only.jobs["jct_s"].to_pylist() == mine
    assert compared.means(["jct_mean_s"]).column_names[:4] == ["load", "policy", "placement", "seeds"]


def test_loads_and_swept_settings_are_those_of_single_runs() -> None:
    compared = trine.compare(SAMPLE, cluster="10x4", policies=["fifo"], loads=[1.0, 1.5], sweep={"round_s": [60, 600]},
                             workers=1)  # fmt: skip
    found = {(row["load"], row["round_s"]): row["jct_mean_s"] for row in compared.runs.to_pylist()}
    one = trine.simulate(SAMPLE, cluster="10x4", policy="fifo", scale_load=1.5, settings={"round_s": 600})
    assert found[1.5, 600] == one.summary["jct_mean_s"]
    assert len(set(found.values())) == 4
    with pytest.raises(trine.TrineError, match=r"choose one with at\(load=..., round_s=...\)"):
        compared.save("nowhere")


def test_lines_of_several_loads_are_in_one_unit() -> None:
    compared = trine.compare(**SMALL, policies=["fifo"], loads=[0.05, 20.0], workers=1)
    header, low, high = compared.table(["wait_mean_s"])
    waits = [row["wait_mean_s"] for row in compared.runs.to_pylist()]
    unit_s = {"s": 1, "min": 60, "h": 3600, "d": 86400}[header[-1].removeprefix("wait (").removesuffix(")")]
    assert [float(low[-1]), float(high[-1])] == [pytest.approx(w / unit_s, rel=0.01) for w in waits]
    assert waits[1] > 20 * waits[0] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "srft"}, r"policy: unknown policy 'srft' \(did you mean 'srtf'\?\)"),
        ({"placement": "paked"}, "placement: unknown placement 'paked'"),
        ({"policy": dict}, "policy: the class dict; expected a name, a Python file, or a class"),
        ({"policy": 3}, "policy: an object of type int; expected a name"),
        ({"cluster": ""}, "cluster: nothing; expected nodes x GPUs such as 16x4"),
        ({"cluster": 64}, "cluster: an int; expected a text or a path"),
        ({"trace": "missing.csv"}, "^trace: both trace and workload"),
        ({"workload": ""}, "trace: nothing; expected a job trace, or workload=NAME"),
        ({"settings": {"round": 3}}, "settings: unknown key 'round' .did you mean 'round_s'"),
        ({"settings": {"workload.jobs": "many"}}, r"settings\['workload.jobs'\]: 'many'; expected whole number"),
        ({"settings": ["round_s=3"]}, "settings: a list; expected a mapping"),
        ({"settings": {"window": "3"}}, r"settings\['window'\]: '3'; expected FROM:TO"),
        ({"settings": {"watts": ["v100"]}}, r"settings\['watts'\]: 'v100'; expected TYPE=WATTS"),
        ({"polcy": "fifo"}, "unknown argument 'polcy' .did you mean 'policy'"),
        ({"seed": "first"}, "seed: 'first'; expected a whole number of at least 0"),
        ({"seed": -1}, "seed: -1; expected a whole number of at least 0"),
        ({"workload": "phily"}, r"^workload: unknown workload 'phily' \(did you mean 'philly'\?\)"),
        ({"workload": "", "trace": SAMPLE, "scale_load": -1}, "^scale_load: -1; expected at least"),
        ({"prices": "v100=2"}, "prices: no price for gpu"),
        ({"since": 3}, "workload: trace.since: a part or a scale of a trace, beside workload"),
        ({"world": "somewhere"}, "world: cluster: cluster beside it; expected one of the two"),
        ({"preset": "pal-sai"}, "preset: unknown preset 'pal-sai'"),
    ],
)
def test_errors_speak_of_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(trine.TrineError, match=said) as raised:
        trine.simulate(**{"workload": "philly", "cluster": "4x4"} | given)
    assert "--" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": 5}, r"seeds: 5; expected a list, a tuple or a range"),
        ({"seeds": [1, 1]}, "seeds: .*expected different whole numbers"),
        ({"policies": "fifo,las"}, "policies: 'fifo,las'; expected a list"),
        ({"policies": ["fifo", "fifo"]}, "policies: 'fifo' twice"),
        ({"sweep": {"round_s": 60}}, r"sweep\['round_s'\]: 60; expected a list"),
        ({"sweep": {"round_s": []}}, "sweep: a setting without values"),
        ({"sweep": {"round_s": [-1]}}, r"^sweep\['round_s'\]: -1; expected at least"),
        ({"sweep": {"roun_s": [60]}}, r"^sweep\['roun_s'\]: unknown key 'roun_s' \(did you mean 'round_s'\?\)"),
        ({"sweep": ["round_s"]}, "^sweep: a list; expected a mapping"),
        ({"loads": [-1]}, "^loads: -1; expected at least"),
        ({"policies": ["fifo", "srft"]}, "^policies: unknown policy 'srft'"),
        ({"placements": ["paked"]}, "^placements: unknown placement 'paked'"),
        ({"workers": -1}, "^workers: -1; expected a whole number of at least 0"),
        ({"workers": "two"}, "^workers: 'two'; expected a whole number"),
        ({"polcies": ["fifo"]}, "unknown argument 'polcies' .did you mean 'policies'.*expected one of (?!.*policy,)"),
        ({"loads": [0.5], "settings": {"workload.load": 0.5}}, "workload.load beside several values of it"),
    ],
)
def test_errors_of_a_comparison_speak_of_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(trine.TrineError, match=said) as raised:
        trine.compare(**{"workload": "philly", "cluster": "4x4"} | given)
    assert "--" not in str(raised.value)


def test_what_a_trace_has_been_read_with_cannot_be_said_later() -> None:
    trace = trine.load_trace(SAMPLE, since=3600, until="2020-06-02")
    assert 0 < len(trace) < 600
    with pytest.raises(trine.TrineError, match=r"trace: trace\.since: .* has been read; expected it where"):
        trine.simulate(trace, cluster="10x4", since=3600)
    with pytest.raises(trine.TrineError, match=r"since: .*not before until"):
        trine.load_trace(SAMPLE, since=7200, until=3600)
    with pytest.raises(trine.TrineError, match=r"^scale_load: -1; expected a positive"):
        trine.load_trace(SAMPLE, scale_load=-1)


def test_any_table_is_a_trace_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("queued,run_min,n\n0,10,1\n60,5,4\n")
    trace = trine.load_trace(path, columns={"submit": "queued", "duration": "run_min:min", "gpus": "n"})
    assert trace.table["duration_s"].to_pylist() == [600.0, 300.0]
    assert repr(trace).endswith("log.csv: 2 jobs over 0.0 h, up to 4 GPUs>")


def test_views_are_small_and_escape_what_they_show() -> None:
    result = trine.simulate(**SMALL, policy="srtf")
    assert repr(result).startswith("<srtf with packed-sticky, seed 0: 40 of 40 jobs")
    compared = trine.compare(**SMALL, policies=["fifo", "srtf"], workers=1)
    assert repr(compared) == "<comparison of 2 policies and placements, 2 runs>"
    for shown in (result, compared):
        html = shown._repr_html_()
        assert "<table>" in html and "<svg" in html and len(html) < 20_000
    assert "<script" not in trine.load_trace(SAMPLE)._repr_html_()


def test_a_comparison_in_a_cell_begins_with_what_it_found() -> None:
    wide = SMALL | {"cluster": "400x4"}
    html = trine.compare(**wide, policies=["fifo", "srtf"], workers=1)._repr_html_()
    assert "<b>No difference: GPUs were never short" in html
    swept = trine.compare(**SMALL, policies=["fifo", "srtf"], sweep={"round_s": [60, 300]}, workers=1)
    assert "<b>" not in swept._repr_html_(), "no one finding for several points"


def test_columns_that_were_asked_for_have_names_to_read() -> None:
    compared = trine.compare(**SMALL, policies=["fifo", "srtf"], workers=1)
    header = compared.table(metrics=["jct_p95_s", "jain_index", "bounded_slowdown_p99"])[0]
    assert [name.partition(" (")[0] for name in header[3:]] == ["JCT p95", "Jain index", "bounded slowdown p99"]


def test_plots_are_those_of_the_report_one_at_a_time() -> None:
    result = trine.simulate(**SMALL)
    assert {"jct-cdf", "load", "map"} <= set(result.plots)
    plot = result.plots["jct-cdf"]
    assert plot.figure["data"]
    assert plot._repr_html_().startswith('<iframe sandbox="allow-scripts"')
    assert len(repr(plot)) < 200
    assert "nothing" not in result.plots
    with pytest.raises(trine.TrineError, match="unknown plot 'jct'"):
        result.plots["jct"]
    assert "jct-cdf" in result.report().html


def test_pandas_where_it_is_installed_and_a_sentence_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from trine.core import arrow

    result = trine.simulate(**SMALL)
    monkeypatch.setattr(arrow, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install pandas; tables are Arrow without it"):
        result.to_pandas()
    monkeypatch.undo()
    pytest.importorskip("pandas", reason="pandas is not installed")
    assert list(result.to_pandas()["job_id"]) == result.jobs["job_id"].to_pylist()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("pyarrow", "tables need pyarrow, not part of this installation: pip install 'trine[notebook]'"),
        ("plotly", "report.html needs plotly"),
    ],
)
def test_without_the_extra_a_run_has_its_summary_and_says_what_the_rest_needs(missing: str, said: str) -> None:
    wanted = "jobs" if missing == "pyarrow" else "plots['load']"
    done = python(
        f"import sys; sys.modules[{missing!r}] = None\nimport trine\n"
        "run = trine.simulate(workload='philly', cluster='4x4', settings={'workload.jobs': 10})\n"
        f"print(run.summary['finished'], len(run._repr_html_()) > 1000)\n"
        f"try: run.{wanted}\nexcept trine.TrineError as error: print(error)"
    )
    assert done.stdout.splitlines()[0] == "10 True", done.stderr
    assert said in done.stdout


def test_metrics_on_the_command_line() -> None:
    words = ("sim", "run", "--workload", "philly", "--set", "workload.jobs=20", "--cluster", "v100=4x4")
    shown = in_this_process.trine(*words, "--metrics", "rho,gpu_h_by_type").out.splitlines()
    assert [line.split()[0] for line in shown] == ["rho_mean", "rho_p99", "rho_max", "gpu_h_by_type"]
    printed = json.loads(in_this_process.trine(*words, "--metrics", "jct_mean_s,energy", "--json").out)
    assert list(printed) == ["jct_mean_s", "policy", "placement", "seed", "energy_kwh"]
    whole = json.loads(in_this_process.trine(*words, "--json").out)
    assert list(whole)[:19] == [metric.key for metric in Summary.metrics()][:19], "the contract comes first"
    failed = in_this_process.trine(*words, "--metrics", "roh")
    assert failed.code == 2 and "--metrics: unknown metric 'roh'" in failed.err
