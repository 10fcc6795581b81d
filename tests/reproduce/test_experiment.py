"""The runner by itself: a new experiment of contenders in world directories, as a few lines; and what runs share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trine.cli.reproduce import app
from trine.core.errors import InputError
from trine.reproduce.checks import Check
from trine.reproduce.experiment import (
    Experiment,
    Inputs,
    Outcome,
    Outcomes,
    Paper,
    chosen_by_name,
    contenders_of,
    run_all,
)
from trine.reproduce.paired_comparison import Band, Figure, Setting, SideBySide
from trine.reproduce.reproduction import Part
from trine.sim.scenario import Scenario

FIGURES: dict[str, Any] = {
    "contenders": {
        "source": "made up",
        "fifo": {"policy": "fifo", "placement": "packed-sticky"},
        "las": {"policy": "las", "placement": "packed-sticky"},
        "srtf": {"policy": "srtf", "placement": "packed-sticky", "set": {"event_driven": True}},
    },
    "bands": [
        {"figure": "jct_h", "against": ["fifo", "las"], "between_percent": [-99, 0]},
        {"figure": "makespan_h", "against": "fifo", "no_worse": True},
    ],
}
CLUSTER = {
    "nic_bytes_per_s": 1e9,
    "uplink_bytes_per_s": 0.5e9,
    "intra_node_bytes_per_s": {"v100": 20e9},
    "gpus_per_node": 2,
    "nodes_per_rack": 2,
    "round_s": 120,
    "restart_s": 7,
}


def slowest_h(outcome: Outcome) -> float:
    """A figure of the experiment's own."""
    return max(job.jct_s for job in outcome.jobs) / 3600


@pytest.fixture
def worlds(tmp_path: Path) -> list[str]:
    """Two seeds of one world: a long job before short ones, on two GPUs."""
    folders = []
    for seed in (1, 2):
        folder = tmp_path / f"W-seed{seed}"
        folder.mkdir()
        (folder / "cluster.json").write_text(json.dumps(CLUSTER))
        (folder / "gpus.csv").write_text("gpu,node,rack,type,slowdown_A\n0,0,0,v100,1\n1,0,0,v100,1\n")
        header = (
            "job_id,submit_s,gpus,work_s_on_v100,class,model,speed_v100,compute_s_per_iteration_v100,gradient_bytes"
        )
        rows = [
            f"long,0,2,{20000 * seed},A,m,1,0.1,1e6,2",
            *(f"short{i},{60 * i},2,600,A,m,1,0.1,1e6,2" for i in (1, 2)),
        ]
        (folder / "jobs.csv").write_text("\n".join([f"{header},overlap_gamma", *rows, ""]))
        folders.append(str(folder))
    return folders


def test_contenders_in_worlds_are_an_experiment_of_a_few_lines(worlds: list[str], tmp_path: Path) -> None:
    def inputs(folder: str, scratch: Path, figures: Mapping[str, Any], quick: bool) -> Inputs:
        return Inputs(Path(folder), scratch, figures, quick)

    def experiments(given: Inputs) -> list[SideBySide]:
        setting = Setting("W", tuple(Scenario(world=world, seed=seed) for seed, world in enumerate(worlds)))
        bands = [Band.of("srtf", band) for band in given.figures["bands"]]
        own = Band("srtf", ("fifo", "las"), slowest_h, "lower", lambda found: found.mean < 0)
        contenders = contenders_of(given.figures["contenders"])
        columns: dict[Figure, str] = {"jct_h": "JCT h", slowest_h: "slowest h", "moves": "moves/job"}
        return [SideBySide("W", setting, contenders, "srtf", "ours", [*bands, own], columns, {"jct_h": "JCT"})]

    paper = Paper("New (2030)", tmp_path / "none.yaml", inputs, experiments, lambda _: ("A note.",))
    counts: list[int] = []

    def progress(runs: int) -> Any:
        counts.append(runs)
        return lambda: None

    found = paper.reproduce(str(tmp_path), workers=1, figures=FIGURES, progress=progress)
    assert counts == [6]
    assert [(c.what, c.held) for c in found.checks[:2]] == [
        ("JCT against the best per seed of fifo; las", True),
        ("makespan against fifo", True),
    ]
    assert found.checks[2].what == "slowest_h against the best per seed of fifo; las"
    means, gains = found.tables
    assert [row[0] for row in means.rows] == ["fifo", "las", "srtf"]
    assert means.header[1:4] == ("JCT h", "slowest h", "moves/job")
    assert [row[0] for row in gains.rows] == ["fifo", "las"]
    assert gains.rows[0][1].startswith("-"), "short jobs need not wait for the long one"


class Named(Experiment[Inputs]):
    """Simulates nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def judge(self, inputs: Inputs, outcomes: Outcomes) -> Part:
        return Part([Check(self.name, "figure", "as it is", held=True)])


def test_only_some_experiments_are_run_by_the_beginnings_of_their_names() -> None:
    known = [Named("batch of 100"), Named("load sweep"), Named("Batch of 300")]
    assert chosen_by_name(known, ()) == known
    assert [each.name for each in chosen_by_name(known, ["batch"])] == ["batch of 100", "Batch of 300"]
    assert [each.name for each in chosen_by_name(known, ["load", "batch of 3"])] == ["load sweep", "Batch of 300"]
    with pytest.raises(
        InputError, match="no experiment begins with 'loads'; expected one of: batch of 100; load sweep"
    ):
        chosen_by_name(known, ["load", "loads"])


@pytest.mark.parametrize(("paper", "names"), [("joint", "all three; how far"), ("predictions", "fifo; fifo-backfill")])
def test_the_command_names_the_experiments_that_there_are(paper: str, names: str) -> None:
    found = CliRunner().invoke(app, [paper, "--only", "no such"])
    assert isinstance(found.exception, InputError)
    assert names in str(found.exception)


def test_equal_scenarios_run_once_and_keep_segments_if_one_key_wants_them(worlds: list[str]) -> None:
    one = Scenario(world=worlds[0])
    counts: list[int] = []

    def progress(runs: int) -> Any:
        counts.append(runs)
        return lambda: None

    found = run_all({("a",): one, ("b",): Scenario(world=worlds[0])}, [("b",)], 1, progress)
    assert counts == [1]
    assert found["a",] is found["b",]
    assert set(found["a",].finishes_s) == {"long", "short1", "short2"}
