"""Worlds that are drawn: the same bytes again, the load that was asked for, and a run of them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from trine.cli.main import main
from trine.core.errors import InputError
from trine.sim.scenario import Scenario, run
from trine.sim.worlds.generate import KINDS, WorldSpec, generate_world
from trine.sim.worlds.load import load_world

JOBS = 30


def drawn(folder: Path, **values: object) -> Path:
    generate_world(folder, WorldSpec(jobs=JOBS, racks=3, nodes_per_rack=2, **values))  # type: ignore[arg-type]
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_world_of_every_kind_is_read_back(tmp_path: Path, kind: str) -> None:
    world = load_world(str(drawn(tmp_path / "world", kind=kind)))
    assert (len(world.jobs), world.cluster.gpu_count) == (JOBS, 24)
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
    assert found.summary.finished == JOBS


@pytest.mark.parametrize(("values", "message"), [({"kind": "X"}, "kind of world"), ({"load": 0.0}, "--load")])
def test_what_cannot_be_drawn_is_refused_and_leaves_nothing(
    tmp_path: Path, values: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        drawn(tmp_path / "world", **values)
    assert not (tmp_path / "world").exists()


# -- drawn by name ---------------------------------------------------------------------------------------------------

SMALL = {"world.jobs": JOBS, "world.racks": 3, "world.nodes_per_rack": 2}


def test_a_world_that_is_named_gives_the_results_of_the_one_that_is_written(tmp_path: Path) -> None:
    written = run(Scenario(world=str(drawn(tmp_path / "world", seed=5)), policy="trine", placement="trine", seed=5))
    named = run(Scenario(world="TVN", policy="trine", placement="trine", seed=5, values=dict(SMALL)))
    assert named.jobs == written.jobs
    assert run(Scenario(world="TVN", policy="trine", placement="trine", seed=6, values=dict(SMALL))).jobs != named.jobs


def test_settings_of_a_drawn_world_are_refused_beside_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"world\.load: a setting of drawn worlds"):
        run(Scenario(world=str(drawn(tmp_path / "world")), values={"world.load": 2.0}))
    with pytest.raises(InputError, match=r"world\.jobs"):
        run(Scenario(world="TVN", values={"world.jobs": 0}))


def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``trine``; signal handlers stay as they were."""
    monkeypatch.setattr(sys, "argv", ["trine", *words])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    return (int(left.value.code or 0), *capsys.readouterr())


@pytest.mark.parametrize(
    ("preset", "types"), [("all-three", 3), ("types-only", 3), ("chips-only", 1), ("network-only", 1)]
)
def test_the_presets_draw_a_world_and_run_trine_in_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, preset: str, types: int
) -> None:
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    code, out, err = command(capsys, monkeypatch, "sim", "run", "--preset", preset, *settings)
    assert code == 0, err
    assert "policy       trine with trine" in out
    cluster = out.splitlines()[0]
    assert sum(cluster.count(f" {gpu_type}") for gpu_type in ("v100", "p100", "k80")) == types


def test_a_preset_gives_way_to_the_world_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(drawn(tmp_path / "world"))
    words = ("sim", "run", "--preset", "all-three", "--world", folder, "--json")
    found = json.loads(command(capsys, monkeypatch, *words)[1])
    assert (found["jobs"], found["policy"], found["placement"]) == (JOBS, "trine", "trine")
    found = json.loads(command(capsys, monkeypatch, *words, "--policy", "srsf")[1])
    assert (found["policy"], found["placement"]) == ("srsf", "packed-sticky")


def test_the_command_writes_a_world_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "world")
    words = ("trace", "generate-world", "T", "--out", out, "--jobs", "20", "--racks", "3", "--nodes-per-rack", "1")
    assert command(capsys, monkeypatch, *words)[0] == 0
    assert json.loads(command(capsys, monkeypatch, "sim", "run", "--world", out, "--json")[1])["finished"] == 20
    code, _, err = command(capsys, monkeypatch, *words)
    assert (code, "is there and not empty" in err) == (2, True)


@pytest.mark.parametrize(("words", "said"), [(("X",), "kind of world: found 'X'"), (("T", "--load", "0"), "--load")])
def test_the_command_refuses_what_cannot_be_drawn(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    code, out, err = command(capsys, monkeypatch, "trace", "generate-world", *words, "--out", str(tmp_path / "world"))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert not (tmp_path / "world").exists()
