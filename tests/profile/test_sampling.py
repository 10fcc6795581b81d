"""Profiling an application: what is sampled, step times, output, signals and exit codes."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.profile.command import fake_nvml, json_of, refused, trine_profile
from trine.core.errors import InputError
from trine.profile.app_classes import read_features
from trine.profile.sampling import read_session
from trine.profile.steps import ProgressFile, StepTimes, step_pattern, step_seconds

BURN = "import time, sys\nend = time.process_time() + {s}\nwhile time.process_time() < end: pass\n"
TWO_GPUS = {
    "names": "V100,V100,V100",
    "compute": "80,0,40",
    "memory": "30,0,10",
    "power": "250000,40000,150000",
}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step_time=0.12", 0.12),
        ("epoch 3 | step_time: 120 ms | loss 2.1", 0.12),
        ("[rank0] sps=4.0", 0.25),
        ('{"step": 7, "sps": 8}', 0.125),
        ('{"t": 1, "ev": "prog", "step_s": 0.5}', 0.5),
        ('{"ev": "start"}', None),
        ('{"sps": 0}', None),
        ('{"sps": null}', None),
        ("{not json", None),
        ("step_time=...", None),
        ("loss=0.4", None),
        ("", None),
    ],
)
def test_step_times_are_read_from_lines(line: str, expected: float | None) -> None:
    assert step_seconds(line) == (None if expected is None else pytest.approx(expected))


def test_a_pattern_of_ones_own() -> None:
    assert step_seconds("took 0.3 sec", re.compile(r"took ([\d.]+)")) == pytest.approx(0.3)
    for wrong in ("took (", "took .*"):
        with pytest.raises(InputError, match="--step-pattern"):
            step_pattern(wrong)


def test_lines_arrive_in_pieces_and_without_end() -> None:
    times = StepTimes()
    for piece in (b"step_ti", b"me=0.5\rstep_time=0.7\n" + b"x" * 200_000, b"\nsps=2"):
        times.feed(piece)
    times.close()
    assert times.seconds == [0.5, 0.7, 0.5]


def test_a_progress_file_is_read_from_where_the_run_began(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    missing = ProgressFile(path)
    assert missing.new() == b""
    path.write_bytes(b"old\n")
    assert missing.new() == b"old\n"
    later = ProgressFile(path)
    path.write_bytes(b"old\nnew\n")
    assert later.new() == b"new\n"
    assert later.new() == b""


def test_processes_of_a_session_are_summed_whatever_their_names(tmp_path: Path) -> None:
    for pid, session, name in ((10, 10, "a (b) c"), (11, 10, "x"), (12, 99, "y")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        zeros = " ".join(["0"] * 7)
        rest = f"S 1 {pid} {session} {zeros} 100 50 25 25 20 0 1 0 0 0 3 0"
        (folder / "stat").write_text(f"{pid} ({name}) {rest}\n")
        (folder / "io").write_text("rchar: 5\nwchar: 6\nsyscr: 1\n")
    (tmp_path / "13").mkdir()
    tree = read_session(10, tmp_path)
    assert tree.io_bytes == {10: 11, 11: 11}
    assert tree.cpu_s > 0
    assert tree.rss_bytes > 0
    assert read_session(1, tmp_path / "nowhere").cpu_s == 0


def test_gpus_are_sampled_through_the_driver(tmp_path: Path) -> None:
    """Means over the GPUs that did anything: the second is somebody else's, or idle."""
    out = tmp_path / "row.json"
    command = ("app", "--name", "mine", "--interval", "0.05", "--out", out, "--json", "--")
    done = trine_profile(
        *command, sys.executable, "-c", BURN.format(s=0.2), environment=fake_nvml(tmp_path, **TWO_GPUS)
    )
    row = json_of(done)
    assert row["source"] == "gpu"
    assert [row[key] for key in ("compute_util", "memory_util", "power_w")] == pytest.approx([0.6, 0.2, 200.0])
    assert [gpu["uuid"] for gpu in row["details"]["gpus"]] == ["GPU-0000-test", "GPU-0002-test"]
    assert row["samples"] >= 3
    assert "1 of 3 GPUs were idle" in done.stderr
    assert json.loads(out.read_text()) == row
    features = read_features(out)[0]
    assert features.name == "mine"
    assert [features.compute_util, features.power_w] == pytest.approx([0.6, 200])


def test_only_visible_gpus_are_sampled_and_unknowns_stay_unknown(tmp_path: Path) -> None:
    environment = fake_nvml(tmp_path, names="V100,V100", compute="80,50", memory="1,2") | {"CUDA_VISIBLE_DEVICES": "1"}
    row = json_of(trine_profile("app", "--json", "--", sys.executable, "-c", "", environment=environment))
    assert (row["compute_util"], row["memory_util"], row["power_w"]) == (0.5, 0.02, None)
    assert row["samples"] == 1


def test_without_a_gpu_the_processes_are_counted(tmp_path: Path) -> None:
    """The work is done by a grandchild, which counts as the job's."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN.format(s=0.3)!r}])"
    done = trine_profile(
        "app",
        "--interval",
        "0.05",
        "--json",
        "--",
        sys.executable,
        "-c",
        child,
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    row = json_of(done)
    assert row["source"] == "cpu"
    assert row["name"] == Path(sys.executable).name
    assert row["details"]["cpu_s"] >= 0.3
    assert row["compute_util"] == pytest.approx(row["details"]["cpu_s"] / row["seconds"] / row["details"]["cores"])
    assert 0 < row["memory_util"] <= 1
    assert row["details"]["rss_peak_bytes"] > 1_000_000
    assert row["power_w"] is None
    assert "lower bound" in done.stderr


def test_step_times_come_from_the_output_which_goes_to_stderr(tmp_path: Path) -> None:
    job = "for s in (0.1, 0.2, 0.9): print(f'step_time={s}')"
    done = trine_profile("app", "--json", "--", sys.executable, "-c", job)
    row = json_of(done)
    assert (row["step_s"], row["steps"]) == (0.2, 3)
    assert "step_time=0.9" in done.stderr


def test_step_times_come_from_the_progress_file_and_output_goes_to_a_log(tmp_path: Path) -> None:
    job = """
import os, sys
print("out step_time=9"); print("err", file=sys.stderr)
open(os.environ["TRINE_PROGRESS"], "a").write('{"step": 1, "sps": 4}\\n')
"""
    log = tmp_path / "job.log"
    for environment in ({}, {"TRINE_PROGRESS": str(tmp_path / "progress.jsonl")}):
        done = trine_profile("app", "--log", log, "--json", "--", sys.executable, "-c", job, environment=environment)
        row = json_of(done)
        assert (row["step_s"], row["steps"]) == (0.25, 1)
        assert "err" not in done.stderr
        assert sorted(log.read_text().splitlines()) == ["err", "out step_time=9"]


def test_the_jobs_failure_is_ours_and_its_row_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "row.json"
    done = trine_profile("app", "--out", out, "--", sys.executable, "-c", "raise SystemExit(85)")
    assert done.returncode == 1
    assert "ended with exit code 85" in done.stderr
    assert json.loads(out.read_text())["exit_code"] == 85


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_go_on_to_the_job(number: signal.Signals) -> None:
    """The job signals its parent, which is us, and ends only when the signal comes back to it."""
    job = f"""
import os, signal, sys
signal.signal({int(number)}, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])
os.kill(os.getppid(), {int(number)})
print("waiting", flush=True)
signal.sigwait([{int(number)}])
sys.exit(7)
"""
    done = trine_profile("app", "--json", "--interval", "5", "--", sys.executable, "-c", job)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 7


def test_a_job_ended_by_a_signal_says_which() -> None:
    done = trine_profile("app", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 1
    assert "was ended by SIGKILL" in done.stderr


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--", "no-such-program"], "'no-such-program' cannot be started"),
        (["--out", "no/such/folder/row.json", "--", "true"], "there is no directory"),
        (["--out", ".", "--", "true"], "is a directory"),
        (["--log", "no/such/folder/x.log", "--", "true"], "cannot be written"),
        (["--step-pattern", "(", "--", "true"], "no regular expression"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_are_told_in_a_sentence(args: list[str], sentence: str) -> None:
    assert sentence in refused("app", *args)
