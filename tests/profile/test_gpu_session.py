"""Measuring sessions: order, journal, resuming, failing devices; on virtual devices, stand-ins and real cores."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.profile.command import fake_torch, json_of, refused, trine_profile
from tests.profile.virtual import VirtualMachine, flagged
from trine.cli.profile_measure import _stop_at_interrupt
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError, TrineError
from trine.profile.gpu_session import MeasurementPlan, SessionFiles, SessionState, open_session
from trine.profile.measurements import read_records
from trine.profile.profile_json import load_profile
from trine.profile.profile_matching import table_for
from trine.report.profile_page import session_page

SLOWDOWNS = (1.0, 1.0, 1.3)


def plan_of(machine: VirtualMachine, repeats: int = 6, seed: int = 0) -> MeasurementPlan:
    return MeasurementPlan(machine.devices, repeats, 0.1, seed)


def measured(
    machine: VirtualMachine, files: SessionFiles, repeats: int = 6, resume: bool = False, stop_after: int | None = None
) -> SessionState:
    """Run a session in ``files`` until it is complete or has taken ``stop_after`` records."""
    taken: list[int] = []
    measuring = open_session(plan_of(machine, repeats), files, resume)
    session = measuring.run(machine, machine.clock, lambda: taken.append(1), lambda: len(taken) == stop_after)
    if session.complete:
        measuring.finish(session, session_page)
    return session


def test_every_run_measures_everything_once_in_another_order() -> None:
    plan = plan_of(VirtualMachine(SLOWDOWNS), repeats=5)
    steps = plan.steps()
    runs = [[(s.device.id, s.kernel.name) for s in steps if s.run == run] for run in range(5)]
    assert [s.run for s in steps] == sorted(s.run for s in steps)
    assert all(Counter(run) == Counter(runs[0]) and len(set(run)) == 9 for run in runs)
    assert len({tuple(run) for run in runs}) == 5
    assert steps == plan.steps()
    assert steps != plan_of(VirtualMachine(SLOWDOWNS), repeats=5, seed=1).steps()


def test_the_first_run_of_a_kernel_on_a_device_is_thrown_away(tmp_path: Path) -> None:
    machine = VirtualMachine(SLOWDOWNS, noise=0.0)
    seen: set[tuple[str, str]] = set()

    def first_is_slow(call: int) -> float:
        cold = machine.asked[-1] not in seen
        seen.add(machine.asked[-1])
        return 100.0 if cold else 1.0

    machine.disturb(first_is_slow)
    session = measured(machine, SessionFiles.at(tmp_path), repeats=2)
    assert max(r.perf_s for r in session.records) < 0.02


def test_a_session_writes_records_profile_and_page(tmp_path: Path) -> None:
    files = SessionFiles.at(tmp_path / "new" / "p.json")
    session = measured(VirtualMachine(SLOWDOWNS, noise=0.003, drift_per_s=0.01), files)
    assert read_records(files.records).records == tuple(session.records)
    profile = load_profile(files.profile)
    table, _ = table_for(profile, Cluster((Node("n0", 3),)))
    assert table.slowdown("A") == pytest.approx([1.0, 1.0, 1.3], rel=0.02)
    assert flagged(profile, "slow") == ("n0-gpu2",)
    page = files.page.read_text(encoding="utf-8")
    assert "n0-gpu2" in page
    assert "<script src" not in page
    end = page[page.index("How this profile was made") :]
    assert '<td>repeats</td><td class="wrap">6</td>' in end
    assert "matmul, attention, triad" in end
    assert 'id="class-0"' in page, "drawn by the script of all pages"
    assert sorted(p.name for p in files.page.parent.iterdir()) == [
        "p.html",
        "p.json",
        "p.records.csv",
        "p.session.json",
    ]


@pytest.mark.parametrize("stop_after", [1, 7, 53])
def test_an_interrupted_session_goes_on_where_it_stopped(tmp_path: Path, stop_after: int) -> None:
    files = SessionFiles.at(tmp_path)
    first = measured(VirtualMachine(SLOWDOWNS), files, stop_after=stop_after)
    assert not first.complete
    assert len(read_records(files.records).records) == stop_after
    second = measured(VirtualMachine(SLOWDOWNS), files, resume=True)
    assert second.complete
    assert second.records[:stop_after] == first.records
    taken = [(r.run, r.gpu, r.app_class) for r in read_records(files.records).records]
    assert taken == [(s.run, s.device.id, s.kernel.app_class) for s in plan_of(VirtualMachine(SLOWDOWNS)).steps()]


def test_a_line_cut_off_by_a_crash_is_measured_again(tmp_path: Path) -> None:
    files = SessionFiles.at(tmp_path)
    measured(VirtualMachine(SLOWDOWNS), files, stop_after=5)
    whole = files.records.read_bytes()
    for cut in (1, 30):
        files.records.write_bytes(whole[:-cut])
        session = measured(VirtualMachine(SLOWDOWNS), files, resume=True)
        assert session.complete
        assert len(read_records(files.records).records) == len(session.records) == 54


def test_resuming_adds_runs_to_a_finished_session(tmp_path: Path) -> None:
    files = SessionFiles.at(tmp_path)
    measured(VirtualMachine(SLOWDOWNS), files, repeats=2)
    assert len(measured(VirtualMachine(SLOWDOWNS), files, repeats=4, resume=True).records) == 36


def test_resume_without_a_session_starts_one(tmp_path: Path) -> None:
    assert measured(VirtualMachine(SLOWDOWNS), SessionFiles.at(tmp_path), resume=True).complete


def test_records_are_never_overwritten(tmp_path: Path) -> None:
    files = SessionFiles.at(tmp_path)
    measured(VirtualMachine(SLOWDOWNS), files, stop_after=3)
    before = files.records.read_bytes()
    with pytest.raises(InputError, match="already there; expected a new place, or --resume"):
        measured(VirtualMachine(SLOWDOWNS), files)
    with pytest.raises(InputError, match="devices: the session was begun with"):
        measured(VirtualMachine([1.0, 1.0]), files, resume=True)
    assert files.records.read_bytes() == before


def test_a_device_that_fails_is_given_up_and_told(tmp_path: Path) -> None:
    session = measured(VirtualMachine(SLOWDOWNS, failing="n0-gpu1"), SessionFiles.at(tmp_path))
    assert session.failed == {"n0-gpu1": "n0-gpu1: fell off the bus"}
    assert {r.gpu for r in session.records} == {"n0-gpu0", "n0-gpu2"}
    assert any("fell off the bus" in note for note in load_profile(SessionFiles.at(tmp_path).profile).notes)


def test_no_device_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrineError, match=r"no device could be measured: n0-gpu0: fell off the bus"):
        measured(VirtualMachine([1.0], failing="n0-gpu0"), SessionFiles.at(tmp_path))


def test_the_second_interrupt_is_not_held_back() -> None:
    with _stop_at_interrupt() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_cuda_devices_from_end_to_end(tmp_path: Path) -> None:
    """Device 2 is 20 % slower, device 1 broken: the first is found, the second told, in table and JSON alike."""
    environment = fake_torch(tmp_path, speeds="1,1,1.2,1,1", broken="1")
    out = tmp_path / "p"
    quick = ("gpus", "--seconds", "0.001", "--node", "n1", "--out", out)
    found = json_of(trine_profile(*quick, "--json", environment=environment))
    assert "ECC" in found["failed"]["n1-gpu1"]
    assert found["records"] == 4 * 3 * 10
    for figures in found["classes"].values():
        verdicts = {d["gpu"]: d["verdict"] for d in figures["devices"]}
        assert [gpu for gpu, verdict in verdicts.items() if verdict == "slower"] == ["n1-gpu2"]
    again = trine_profile(*quick, "--resume", environment=environment)
    assert again.returncode == 0
    assert "1.2" in next(line for line in again.stdout.splitlines() if "n1-gpu2" in line)
    assert "slower than the median device: n1-gpu2" in again.stdout
    assert f"Wrote {out / 'profile.json'}" in again.stderr


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    environment = fake_torch(tmp_path, speeds="1,1")
    quick = ("gpus", "--seconds", "0.001", "--repeats", "4", "--out", tmp_path / "p")
    done = trine_profile(*quick, environment=environment | {"FAKE_TORCH_INTERRUPT_AT": "20"})
    assert done.returncode == 130
    assert done.stdout == ""
    assert "of 24 measurements are in" in done.stderr
    assert "--resume goes on" in done.stderr
    kept = len(read_records(tmp_path / "p" / "records.csv").records)
    assert 0 < kept < 24
    assert json_of(trine_profile(*quick, "--resume", "--json", environment=environment))["records"] == 24


def test_real_cores_are_measured(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    which = ",".join(["cpu", *map(str, cores)])
    done = trine_profile(
        "gpus", "--devices", which, "--repeats", "3", "--seconds", "0.002", "--out", tmp_path, "--json"
    )
    found = json_of(done)
    assert found["records"] == len(cores) * 3 * 3
    assert found["classes"].keys() == {"A", "B", "D"}
    assert all(1e-6 < d["perf_s"] < 10 for figures in found["classes"].values() for d in figures["devices"])
    assert json.loads((tmp_path / "profile.json").read_text())["classes"].keys() == {"A", "B", "D"}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--repeats", "1"), "--repeats"),
        (("--seconds", "-1"), "--seconds"),
        (("--devices", "cpu,no-such"), "no device 'no-such'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    tmp_path: Path, option: tuple[str, str], sentence: str
) -> None:
    assert sentence in refused("gpus", *option, "--out", tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused("gpus", "--devices", "cpu", "--out", tmp_path / "file" / "p")
