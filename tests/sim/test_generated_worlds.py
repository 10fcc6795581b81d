"""Worlds that are drawn: the same bytes again, the load that was asked for, and a run of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.sim.scenario import Scenario, run
from trine.sim.worlds.generate import KINDS, WorldSpec, generate_world
from trine.sim.worlds.load import load_world


def drawn(folder: Path, **values: object) -> Path:
    generate_world(folder, WorldSpec(jobs=60, racks=3, nodes_per_rack=2, **values))  # type: ignore[arg-type]
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_world_of_every_kind_is_read_back(tmp_path: Path, kind: str) -> None:
    world = load_world(str(drawn(tmp_path / "world", kind=kind)))
    assert (len(world.jobs), world.cluster.gpu_count) == (60, 24)
    assert len(world.cluster.types) == (3 if kind in ("TVN", "T") else 1)


def test_same_parameters_same_bytes_and_another_load_moves_arrivals_only(tmp_path: Path) -> None:
    one, same, other = drawn(tmp_path / "a"), drawn(tmp_path / "b"), drawn(tmp_path / "c", load=1.8)
    for name in ("cluster.json", "gpus.csv.gz", "jobs.csv.gz"):
        assert (one / name).read_bytes() == (same / name).read_bytes()
    before, after = load_world(str(one)).jobs, load_world(str(other)).jobs
    assert [(j.id, j.gpus, j.model, j.steps) for j in before] == [(j.id, j.gpus, j.model, j.steps) for j in after]
    assert after[-1].submit_s == pytest.approx(before[-1].submit_s / 2, abs=0.02)


def test_a_drawn_world_runs(tmp_path: Path) -> None:
    found = run(Scenario(world=str(drawn(tmp_path / "world")), policy="trine", placement="trine"))
    assert found.summary.finished == 60


@pytest.mark.parametrize(("values", "message"), [({"kind": "X"}, "kind of world"), ({"load": 0.0}, "--load")])
def test_what_cannot_be_drawn_is_refused_and_leaves_nothing(
    tmp_path: Path, values: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        drawn(tmp_path / "world", **values)
    assert not (tmp_path / "world").exists()
