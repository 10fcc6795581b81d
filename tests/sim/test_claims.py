"""Runs that presets promise: no guard ends them, arrivals go on while jobs are measured, and names mean the paper's."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from trine.assembly import registry
from trine.assembly.settings import WorkloadSettings, resolve
from trine.core.errors import InputError
from trine.inputs.cluster import load_cluster
from trine.inputs.preset import load_preset, preset_names
from trine.reproduce.experiment import preset_scenario
from trine.sim import world
from trine.sim.arrivals import MOST_ARRIVALS, generate_jobs, later_jobs
from trine.sim.scenario import Scenario, run

SINGLE = "gavel-continuous-single"
MINE = """
from dataclasses import dataclass
from typing import ClassVar
from trine.core.params import param
from trine.policy.base import KeyPolicy

@dataclass
class Mine(KeyPolicy):
    name: ClassVar[str] = "mine"
    title: ClassVar[str] = "mine"
    alpha: float = param(1.0, "an exponent")

    def key(self, view):
        return view.gpus**self.alpha
"""


# -- the guard against standstill ------------------------------------------------------------------------------------


def test_stops_after_slices_that_saved_their_steps_are_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Gavel's clock the steps of a round are booked before a job is stopped: the stop itself saves nothing."""
    monkeypatch.setattr(world, "_FRUITLESS_STOPS", 100)
    values = {"workload.jobs": 60}
    found = run(preset_scenario("gavel-static", compat=True, values=values, cluster="v100=8x1,p100=8x1,k80=8x1"))
    assert found.summary.finished == 60
    assert found.summary.preemptions > 300


# -- windows ---------------------------------------------------------------------------------------------------------


def windowed(jobs: int) -> Any:
    values = {"workload.jobs": jobs, "workload.jobs_per_h": 0.8, "window": "30:60"}
    small = "v100=4x1,p100=4x1,k80=4x1"
    return run(preset_scenario(SINGLE, compat=False, values=values, cluster=small, policy="isolated"))


def test_arrivals_go_on_until_the_window_is_done() -> None:
    """With the jobs of the window alone, and with many more: measured jobs find the same company."""
    few, many = windowed(60), windowed(400)
    assert [(j.start_s, j.finish_s) for j in few.jobs] == [(j.start_s, j.finish_s) for j in many.jobs]
    assert not [note for note in few.notes if "last arrival" in note]


def test_later_jobs_are_those_of_a_longer_workload_and_end_at_a_multiple() -> None:
    cluster, settings = load_cluster("v100=4x1"), WorkloadSettings(jobs=10)
    longer, _ = generate_jobs(SINGLE, WorkloadSettings(jobs=10 * MOST_ARRIVALS), cluster, 3)
    later = list(itertools.islice(later_jobs(SINGLE, settings, cluster, 3), 1000))
    assert [(j.id, j.submit_s, j.steps) for j in later] == [(j.id, j.submit_s, j.steps) for j in longer[10:]]
    assert not any(job.tracked for job in later)


def test_where_arrivals_end_before_the_window_it_is_said(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit,gpus,duration\n" + "".join(f"{i},{60 * i},1,7200\n" for i in range(6)))
    columns = ("submit=submit", "gpus=gpus", "duration=duration", "id=id")
    values = {"window": "2:6", "trace.columns": columns}
    found = run(Scenario("1x2", "fifo", trace=str(trace), values=values))
    assert [note for note in found.notes if "4 jobs of the window ended after the last arrival" in note]


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("gavel")])
def test_fifo_in_a_preset_of_gavel_is_gavels(name: str) -> None:
    preset = load_preset(name)
    settings = resolve("fifo", "packed-sticky", preset.settings, preset.authors)
    assert settings.round_params is not None, "the policy that orders jobs was taken"


def test_the_fifo_that_orders_jobs_can_still_be_meant() -> None:
    preset = load_preset(SINGLE)
    settings = resolve("fifo", "packed-sticky", preset.settings | {"policy_kind": "ordering"}, preset.authors)
    assert settings.round_params is None


def test_parameters_of_a_policy_file_are_known_in_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    others = ("fifo", str(path))
    for key in ("alpha", "mine.alpha"):
        own = resolve(str(path), "packed", {key: "2"}, others=others)
        assert own.policy.alpha == 2.0  # type: ignore[attr-defined]  # of the file
        resolve("fifo", "packed", {key: "2"}, others=others)
    with pytest.raises(InputError, match="unknown key 'beta'"):
        resolve("fifo", "packed", {"beta": "2"}, others=others)
    assert registry.own_name(str(path)) == "mine"


@pytest.mark.parametrize("name", [name for name in preset_names() if load_preset(name).authors])
def test_all_quirks_of_a_preset_can_be_off_at_once(name: str) -> None:
    preset = load_preset(name)
    policy, placement = preset.policy or "fifo", preset.placement or "pal"
    on = resolve(policy, placement, preset.settings, preset.authors)
    off = resolve(policy, placement, preset.settings | {"compat": "none"}, preset.authors)
    assert on.compat != off.compat
    assert off.compat == type(off.compat)()


def test_a_job_that_was_given_up_is_not_finished(tmp_path: Path) -> None:
    """A gang with fewer steps than GPUs fails every slice under the published rule, and is given up at the fifth."""
    trace = tmp_path / "jobs.trace"
    rows = [("ResNet-18 (batch size 64)", 200_000, 1), ("ResNet-18 (batch size 64)", 3, 4)]
    lines = [
        "\t".join(map(str, (model, "run %s", "dir", "--steps", 0, n, gang, 1, -1, 0.0))) for model, n, gang in rows
    ]
    trace.write_text("\n".join(lines) + "\n")
    small = "v100=8x1,p100=8x1,k80=8x1"
    found = run(preset_scenario("gavel-physical", compat=True, trace=str(trace), cluster=small, policy="isolated"))
    assert (found.summary.jobs, found.summary.finished) == (2, 1)
    assert [note for note in found.notes if "1 job was given up with work left" in note]
