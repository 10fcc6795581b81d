"""The command as a user types it: real files, exit codes, nothing half-written; real processes where it is the process
that matters, and once for each kind of mistake. The same mistakes otherwise, and what is only printed, in this one: to
start a process takes a second."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.live import command

JSON_KEYS = [
    *("jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "makespan_s", "wait_mean_s"),
    *("wait_p95_s", "utilization", "preemptions", "migrations", "lost_work_s", "comm_gpu_s", "cost", "rounds"),
    *("sim_cpu_s", "policy", "placement", "seed"),
    *("rho_mean", "rho_p99", "rho_max"),
]
JOB_COLUMNS = [
    *("job_id", "submit_s", "start_s", "finish_s", "jct_s", "wait_s", "gpus", "model", "user"),
    *("preemptions", "migrations", "tier", "slowdown", "rho"),
]
TRACE = "job_id,submit_s,gpus,duration_s\na,0,2,600\nb,10,4,1200\nc,20,1,300\n"


def trine(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trine", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """As ``trine``, in this process."""
    done = command.trine(*arguments)
    return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_run_prints_one_json_object_with_the_agreed_keys(trace: Path) -> None:
    done = trine("sim", "run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--round", "60", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert list(summary)[: len(JSON_KEYS)] == JSON_KEYS, "further keys follow"
    assert (summary["jobs"], summary["finished"], summary["policy"]) == (3, 3, "fifo")


def test_run_writes_the_agreed_files_in_submit_order(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = trine("sim", "run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--round", "60", "--out", out)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in out.iterdir()) == ["jobs.csv", "report.html", "summary.json", "timeline.parquet"]
    with (out / "jobs.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == JOB_COLUMNS
    # a holds 2 of 4 GPUs until 600; b needs all 4 and blocks c behind it, although a GPU is free for c.
    assert [(r["job_id"], r["start_s"], r["finish_s"]) for r in rows] == [
        ("a", "0", "600"),
        ("b", "600", "1800"),
        ("c", "1800", "2100"),
    ]


def test_same_inputs_same_bytes_in_any_number_of_processes(tmp_path: Path) -> None:
    common = ["--workload", "pai", "--cluster", "4x4", "--set", "workload.jobs=30", "--policies", "fifo,tiresias"]
    common += ["--placements", "packed-sticky,random", "--seeds", "0..1", "--json"]
    one = trine("sim", "compare", *common, "--workers", "1", "--out", tmp_path / "one")
    two = trine("sim", "compare", *common, "--workers", "2", "--out", tmp_path / "two")
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    assert one.stdout == two.stdout
    for name in ("compare.json", "compare.csv", "report.html"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_run_twice_gives_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        done = trine(
            "sim", "run", "--trace", trace, "--cluster", "1x4", "--placement", "random", "--out", tmp_path / name
        )
        assert done.returncode == 0, done.stderr
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name


BAD_TRACES = {
    "negative duration": (TRACE.replace("1200", "-1200"), ["trace.csv:3", "duration_s", "-1200"]),
    "text for a number": (TRACE.replace("b,10,4", "b,10,four"), ["trace.csv:3", "gpus", "four"]),
    "larger than the cluster": (TRACE.replace("b,10,4", "b,10,5"), ["trace.csv:3", "5 GPUs", "oversize=skip"]),
    "unknown column": (TRACE.replace("gpus", "gpsu"), ["trace.csv:1", "gpsu"]),
    "missing column": ("job_id,submit_s,duration_s\na,0,600\n", ["trace.csv", "gpus"]),
    "not a trace": ("Dear all,\nthe meeting is at ten.\n", ["trace.csv"]),
    "empty": ("", ["trace.csv", "empty"]),
}


@pytest.mark.parametrize("case", BAD_TRACES)
def test_a_bad_trace_gets_one_sentence_and_leaves_nothing_behind(case: str, tmp_path: Path) -> None:
    content, mentioned = BAD_TRACES[case]
    path = tmp_path / "trace.csv"
    path.write_text(content)
    run = trine if case == "negative duration" else here
    done = run("sim", "run", "--trace", path, "--cluster", "1x4", "--out", tmp_path / "out")
    _is_one_sentence(done, mentioned)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trace.csv"]


def test_a_truncated_gzip_trace_gets_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(TRACE.encode() * 50, mtime=0)[:-20])
    _is_one_sentence(here("sim", "run", "--trace", path, "--cluster", "1x4"), ["trace.csv.gz", "gzip"])


BAD_FLAGS = {
    "unknown policy": (["--policy", "fifoo"], ["fifoo", "did you mean 'fifo'"]),
    "unknown placement": (["--placement", "paked"], ["paked", "did you mean 'packed'"]),
    "unknown key": (["--set", "rond_s=3"], ["rond_s", "did you mean 'round_s'"]),
    "wrong kind": (["--set", "round_s=soon"], ["round_s", "soon", "number"]),
    "no value": (["--set", "round_s"], ["round_s", "key=value"]),
    "out of range": (["--round", "0"], ["round_s", "at least"]),
    "bad cluster": (["--cluster", "4x"], ["4x"]),
    "unknown preset": (["--preset", "pal-sai"], ["pal-sai", "did you mean 'pal-sia'"]),
    "unknown quirk": (["--set", "compat.kep_evictions=true"], ["kep_evictions", "did you mean 'keep_evictions'"]),
    "authors of nothing": (["--set", "compat=authors"], ["compat", "preset"]),
    "said twice": (["--round", "60", "--set", "round_s=30"], ["round_s", "--round"]),
    "a group's key": (["--set", "workload.jobs=0"], ["workload.jobs", "at least 1"]),
    "missing file": (["--variability", "nowhere.csv"], ["nowhere.csv", "no such file"]),
    "another format": (["--format", "muri"], ["trace.csv", "muri"]),
}


@pytest.mark.parametrize("case", BAD_FLAGS)
def test_a_wrong_flag_gets_one_sentence(case: str, trace: Path) -> None:
    flags, mentioned = BAD_FLAGS[case]
    # A flag given twice counts as it stands last.
    run = trine if case == "unknown policy" else here
    _is_one_sentence(run("sim", "run", "--trace", trace, "--cluster", "1x4", *flags), mentioned)


def test_an_unknown_option_is_a_usage_error(trace: Path) -> None:
    done = trine("sim", "run", "--trace", trace, "--clutser", "1x4")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_directory_with_other_files_is_not_touched(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("precious")
    done = here("sim", "run", "--trace", trace, "--cluster", "1x4", "--out", out)
    _is_one_sentence(done, ["out", "thesis.txt"])
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_the_decision_log_tells_every_start_and_stop_with_its_reason(trace: Path, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    done = here(
        "sim", "run", "--trace", trace, "--cluster", "1x4", "--policy", "srtf", "--round", "60", "--decisions", log
    )
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["job"] for e in entries if e["action"] == "start" and e["code"] == "placed"] == ["a", "c", "b"]
    assert all(e["reason"].startswith(f"job {e['job']} ") and e["gpus"] for e in entries)


def test_chips_can_be_a_profile_or_drawn_from_records(trace: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.csv"
    records.write_text(
        "gpu,app_class,perf_s,run\n" + "".join(f"g{g},A,{1 + g / 10},{r}\n" for g in range(4) for r in range(3))
    )
    profile = tmp_path / "profile.json"
    built = here("profile", "build", records, "--out", profile)
    assert built.returncode == 0, built.stderr
    common = ["sim", "run", "--trace", str(trace), "--cluster", "1x4", "--placement", "pal", "--json"]
    for source in (str(profile), f"A={records}"):
        done = here(*common, "--variability", source)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["finished"] == 3


def test_leaving_slow_gpus_alone_may_make_a_job_impossible(trace: Path, tmp_path: Path) -> None:
    chips = tmp_path / "gpus.csv"
    slow = "".join(f"{g},{g // 4},{2.0 if g == 3 else 1.0}\n" for g in range(12))
    chips.write_text("gpu,node,slowdown_A\n" + slow)
    wide = tmp_path / "wide.csv"
    wide.write_text(TRACE.replace("b,10,4", "b,10,12"))
    options = ["--cluster", "3x4", "--variability", str(chips), "--placement", "exclude-outliers"]
    assert here("sim", "run", "--trace", trace, *options).returncode == 0
    _is_one_sentence(here("sim", "run", "--trace", wide, *options), ["leaves 1 GPU alone", "job b needs 12"])


def test_oversize_jobs_can_be_skipped_and_are_counted(trace: Path) -> None:
    done = here("sim", "run", "--trace", trace, "--cluster", "1x3", "--set", "oversize=skip", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["jobs"] == 2
    assert "1 jobs that can never run here were skipped" in done.stderr


def test_a_policy_of_your_own_is_one_file(trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n"
        "from trine.policy.base import KeyPolicy\n"
        "@dataclass\n"
        "class Widest(KeyPolicy):\n"
        "    name = 'widest'\n"
        "    title = 'widest gang first'\n"
        "    def key(self, view):\n"
        "        return -view.gpus\n"
    )
    options = [
        "--trace",
        str(trace),
        "--cluster",
        "1x4",
        "--policies",
        f"fifo,{mine}",
        "--seeds",
        "0,1",
        "--workers",
        "2",
    ]
    done = trine("sim", "compare", *options)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^ ?{mine.stem} ", done.stdout, re.M), "by its name, not by its path"


BAD_PLUGINS = {
    "short key": ("policy", "return view.gpus[:1] * 1.0", "has 1 values for"),
    "no numbers": ("policy", "return view.gpus * float('nan')", "not a number"),
    "half a gang": ("placement", "return pool.gpus()[:1]", "1 GPUs instead of 2"),
    "unknown gpus": ("placement", "return [97 + i for i in range(ask.job.gpus)]", "the GPUs [97"),
    "nothing": ("placement", "return None", "the GPUs None"),
}


@pytest.mark.parametrize("case", BAD_PLUGINS)
def test_a_broken_plugin_is_named_instead_of_believed(case: str, trace: Path, tmp_path: Path) -> None:
    kind, body, told = BAD_PLUGINS[case]
    base, method = ("KeyPolicy", "key(self, view)") if kind == "policy" else ("Placement", "place(self, ask, pool)")
    mine = tmp_path / "mine.py"
    mine.write_text(
        f"from dataclasses import dataclass\nfrom trine.{kind}.base import {base}\n@dataclass\nclass Mine({base}):\n"
        f"    name = 'mine'\n    title = 'mine'\n    def {method}:\n        {body}\n"
    )
    run = trine if case == "short key" else here
    done = run("sim", "run", "--trace", trace, "--cluster", "1x4", f"--{kind}", mine)
    assert done.returncode == 1, done.stdout
    assert f"{kind} mine" in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sweep_takes_parameters_of_any_of_its_policies(trace: Path) -> None:
    common = ["sim", "compare", "--trace", str(trace), "--cluster", "1x4", "--policies", "fifo,tiresias"]
    common += ["--workers", "1"]
    for key in ("queue_limits_gpu_s", "tiresias.queue_limits_gpu_s"):
        assert here(*common, "--set", f"{key}=10").returncode == 0
    _is_one_sentence(here(*common, "--set", "min_finished=10"), ["min_finished"])
    _is_one_sentence(here(*common, "--policies", "fifo,fifo"), ["'fifo' twice"])


def test_interrupt_stops_cleanly_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--workload", "helios", "--cluster", "512x8", "--set", "workload.jobs=200000", "--out", str(out)]
    command = [sys.executable, "-X", "importtime", "-m", "trine", "sim", "run", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    # The world's module is imported right before the simulation: from then on there is work to interrupt.
    for line in process.stderr:
        if "trine.sim.scenario" in line:
            break
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not any(tmp_path.iterdir())


def test_an_interrupt_while_a_class_is_made_is_an_interrupt(trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import os, signal\nclass Field:\n    def __set_name__(self, owner, name):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\nclass Mine:\n    field = Field()\n"
    )
    done = trine("sim", "run", "--trace", trace, "--cluster", "1x4", "--policy", mine)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("listing", ["policies", "placements", "presets", "settings"])
def test_listings_name_what_exists(listing: str) -> None:
    as_text, as_json = here(listing), here(listing, "--json")
    names = list(json.loads(as_json.stdout))
    assert names
    assert all(name in as_text.stdout for name in names)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("trine", "trine")),
        (("--policy", "las"), ("las", "packed-sticky")),
        (("--placement", "packed"), ("trine", "packed")),
        (("--policy", "trine"), ("trine", "trine")),
    ],
)
def test_what_is_not_named_is_trine_and_the_placement_that_goes_with_the_policy(
    trace: Path, words: tuple[str, ...], expected: tuple[str, str]
) -> None:
    done = here("sim", "run", "--trace", trace, "--cluster", "1x4", "--json", *words)
    found = json.loads(done.stdout)
    assert (found["policy"], found["placement"]) == expected


def test_policies_that_are_compared_without_placements_run_with_their_own(trace: Path) -> None:
    done = here(
        "sim", "compare", "--trace", trace, "--cluster", "1x4", "--policies", "fifo,trine", "--json", "--workers", "1"
    )
    runs = json.loads(done.stdout)["runs"]
    assert [(one["policy"], one["placement"]) for one in runs] == [("fifo", "packed-sticky"), ("trine", "trine")]


def test_every_preset_resolves() -> None:
    """A preset with a misspelt key or an unknown policy must not ship."""
    from trine.assembly.registry import placement_for
    from trine.assembly.settings import resolve
    from trine.inputs.preset import load_preset, preset_names

    for name in preset_names():
        preset = load_preset(name)
        for policy in preset.policies or (preset.policy,):
            settings = resolve(policy, preset.placement or placement_for(policy), preset.settings, preset.authors)
            assert settings.run.round_s > 0


def _is_one_sentence(done: subprocess.CompletedProcess[str], mentioned: list[str]) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in mentioned:
        assert word in lines[0], lines[0]
