"""The end of a page: which version and command made it, from which files, with which settings."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from tests.report.plausible import plausible_run
from trine import __version__
from trine.report.provenance import input_files, section, used_settings
from trine.report.run_page import run_page

SETTINGS = {
    "cluster": "16x4",
    "trace": "jobs.csv",
    "settings": {
        "run": {"round_s": 300.0, "restore_s": 0.0, "fill": False, "restart": "restore_s", "window": "",
                "background_jobs_per_h": 0.0, "background_seed": 1},
        "workload": {"jobs": 1000},
        "trace": {"scale_load": 1.2, "group": ()},
        "compat": {"any_type": False, "pal_bins": True},
        "policy": {"alpha": 2},
    },
}  # fmt: skip


def test_settings_without_effect_are_left_out() -> None:
    assert used_settings(SETTINGS) == {
        "cluster": "16x4",
        "trace": "jobs.csv",
        "round_s": 300.0,
        "restore_s": 0.0,
        "trace.scale_load": 1.2,
        "compat.pal_bins": True,
        "alpha": 2,
    }


def test_a_drawn_world_has_its_settings_and_other_runs_do_not() -> None:
    groups = {"world": {"racks": 9}}
    assert used_settings({"world": "TVN", "settings": groups}) == {"world": "TVN", "world.racks": 9}
    assert used_settings({"workload": "helios", "settings": groups}) == {"workload": "helios"}


def test_events_have_no_rounds() -> None:
    run = {"round_s": 300.0, "event_driven": True}
    assert used_settings({"settings": {"run": run}}) == {"event_driven": True}


def test_the_page_names_version_command_and_checksums(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\n")
    result = replace(plausible_run(jobs=3), settings={**SETTINGS, "trace": str(trace)})
    page = run_page(result, "trine sim run --trace jobs.csv")
    end = page[page.index("How this run was made") :]
    assert __version__ in end
    assert "trine sim run --trace jobs.csv" in end
    assert hashlib.sha256(trace.read_bytes()).hexdigest() in end
    assert "workload.jobs" not in end


def test_lists_are_written_as_on_the_command_line() -> None:
    end = section("comparison", {"policies": ["fifo", "srtf"], "seeds": [0, 1]}, "trine sim compare")
    assert "fifo, srtf" in end
    assert "0, 1" in end
    assert "[" not in end


def test_version_command_and_settings_stand_in_one_table() -> None:
    assert section("run", SETTINGS, "trine sim run").count("<table") == 1


def test_files_are_found_in_every_way_to_name_them(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "mine.py", "world/cluster.json", "world/jobs.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    settings = {
        "cluster": "v100=2x4,k80=1x4",
        "variability": f"A={tmp_path / 'a.csv'},B={tmp_path / 'b.csv'}",
        "world": str(tmp_path / "world"),
        "policies": ["fifo", str(tmp_path / "mine.py")],
    }
    found = [Path(f.path).relative_to(tmp_path).as_posix() for f in input_files(settings)]
    assert found == ["world/cluster.json", "world/jobs.csv", "a.csv", "b.csv", "mine.py"]
