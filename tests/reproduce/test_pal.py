"""``trine reproduce pal``: what it says about itself, and its cheapest experiments on the public data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.reproduce.checks import Check
from trine.reproduce.experiment import Experiment, find_root
from trine.reproduce.pal import PAPER, Published64
from trine.reproduce.pal_gain import Clusters, WhereFrom
from trine.reproduce.pal_inputs import PalData
from trine.reproduce.reproduction import Panel, Part, Reproduction, write_page


def part(shared_data: Path, experiment: Experiment[PalData]) -> Part:
    return PAPER.reproduce(str(shared_data), workers=1, experiments=(experiment,)).parts[0]


def test_the_64_gpu_experiment_lies_in_its_bands(shared_data: Path) -> None:
    checks = part(shared_data, Published64()).checks
    assert [c.what for c in checks if c.held is False] == []
    assert sum(c.what.endswith("per job") for c in checks) in (0, 32)
    changes = {c.what.split(" against")[0]: c.ours for c in checks if "geometric mean of 8 traces" in c.what}
    assert {what: changes[f"pal, {what}"] for what in ("average JCT", "makespan", "GPUs busy")} == {
        "average JCT": "-42.9 %",
        "makespan": "-51.7 %",
        "GPUs busy": "+4.7 %",
    }


def test_the_notes_say_what_each_reference_is(shared_data: Path) -> None:
    notes = " ".join(PAPER.notes(PalData(shared_data)))
    assert "independent model" in notes
    assert "three of them are public" not in notes


def test_the_gain_is_stated_for_three_clusters(shared_data: Path) -> None:
    checks = part(shared_data, Clusters(seeds=(0,), workloads=(1, 3))).checks
    clusters = {c.experiment.split(", ")[1] for c in checks}
    assert clusters == {"Longhorn", "Frontera", "LS6"}
    for metric in ("average JCT", "makespan", "GPUs busy"):
        assert sum(c.what == f"pal, {metric} against packed-sticky" for c in checks) == 5
    assert all(c.held is None for c in checks)


def test_gains_are_stated_for_both_draws_and_against_the_plain_alternative(shared_data: Path) -> None:
    found = part(shared_data, WhereFrom(seeds=(1, 2), workloads=(1,)))
    checks = found.checks
    assert {c.experiment for c in checks} == {"gain, record", "gain, record, slow GPUs replaced", "gain, gpu_median"}
    pal = [c.ours for c in checks if c.what.startswith("pal")]
    assert len(pal) == 18
    assert all("over packed-sticky" in told and "over exclude-outliers" in told for told in pal)
    assert len({panel.title for panel in found.panels}) == 3


def test_a_figure_outside_its_band_is_named_in_the_last_sentence(tmp_path: Path) -> None:
    good = Check("A1", "this", "1.0", "1.0", held=True, band="exact")
    bad = Check("A2", "that", "2.0", "1.0", held=False, band="0.1 points")
    panel = Panel("A2: gain (%) by load", "Load", "Gain (%)", [("pal", [1.0, 2.0], [3.0, 4.0])])
    found = Reproduction("Paper", [Part([good, bad], [panel])], ["A note."], grouped=False)
    assert not found.held
    assert found.sentence() == "1 of 2 figures are within tolerance; outside: A2 that: 2.0, expected 1.0 (0.1 points)."
    write_page(found, tmp_path / "page")
    assert "OUT OF TOLERANCE" in (tmp_path / "page/report.html").read_text()


def test_without_data_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="traces/pal_workloads"):
        find_root(str(tmp_path), "traces/pal_workloads")
    command = [sys.executable, "-m", "trine", "reproduce", "pal", "--data", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_results_serialise(tmp_path: Path) -> None:
    found = Reproduction("Paper", [Part([Check("A1", "this", "1.0")])], [])
    assert json.loads(json.dumps(found.as_dict()))["held"] is True
