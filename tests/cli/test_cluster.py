from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from trine.cli.cluster import app
from trine.core.errors import InputError
from trine.inputs.cluster import load_cluster


def run(*args: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_info_says_what_was_understood(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("racks: [{nodes: 2, gpus: 4}, {nodes: 1, gpus: 4}]\nlinks: {nic: 25 Gb/s}\n")
    out, _ = run("info", str(path))
    assert "12 GPUs on 3 nodes in 2 racks" in out
    assert "1 with 1 nodes, 1 with 2 nodes (uneven)" in out
    assert "nic 3.125 GB/s" in out


def test_info_json_is_one_object() -> None:
    out, _ = run("info", "v100=8x1,k80=4x2", "--json")
    found = json.loads(out)
    assert (found["gpus"], found["nodes"], found["racks"]) == (16, 12, 1)
    assert found["gpus_by_type"] == {"v100": 8, "k80": 8}


def test_notes_do_not_mix_with_the_data(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,gpu,model\nn0,2,T4\nn1,0,\n")
    out, err = run("info", str(path))
    assert "no GPU" in err
    assert "note" not in out


def test_convert_writes_an_equal_cluster(tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    run("convert", "v100=2x4x8", str(out))
    assert load_cluster(str(out)) == load_cluster("v100=2x4x8")
    assert [p.name for p in tmp_path.iterdir()] == ["out.yaml"]
    stdout, _ = run("convert", "v100=2x4x8", "-")
    assert stdout == out.read_text()


def test_convert_keeps_files_that_exist(tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    out.write_text("mine")
    result = CliRunner().invoke(app, ["convert", "2x2", str(out)])
    assert isinstance(result.exception, InputError)
    assert out.read_text() == "mine"
    run("convert", "2x2", str(out), "--force")
    assert load_cluster(str(out)) == load_cluster("2x2")


def test_bad_input_leaves_nothing_behind(tmp_path: Path) -> None:
    for args in (["convert", "16x", str(tmp_path / "o.yaml")], ["convert", "2x2", str(tmp_path / "no" / "o.yaml")]):
        assert isinstance(CliRunner().invoke(app, args).exception, InputError)
    assert list(tmp_path.iterdir()) == []
