"""A checkpoint is there completely or not at all, and the newest complete one is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trine.sdk
from tests.sdk.conftest import FakeJob, ended
from trine.sdk.checkpoints import CheckpointFolder


def _write(folder: CheckpointFolder, step: int, data: bytes = b"state", keep: int = 2) -> None:
    with folder.write(step, keep) as path:
        path.write_bytes(data)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_newest_is_found_and_the_oldest_go(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (9, 10, 100):
        _write(folder, step, f"after {step}".encode())
    found = folder.newest()
    assert found is not None
    assert (found.step, found.read_bytes()) == (100, b"after 100")
    assert len(_names(tmp_path)) == 4  # two checkpoints with their manifests


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    _write(folder, 1)
    before = _names(tmp_path)
    with pytest.raises(ZeroDivisionError), folder.write(2) as path:
        path.write_bytes(b"half")
        raise ZeroDivisionError
    assert _names(tmp_path) == before
    with pytest.raises(FileNotFoundError, match="nothing was written"), folder.write(3):
        pass
    found = folder.newest()
    assert found is not None
    assert found.step == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "manifest cut", "manifest of nonsense"])
def test_a_torn_one_is_told_and_skipped(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = CheckpointFolder(tmp_path)
    _write(folder, 1)
    _write(folder, 2, b"state of two")
    data, manifest = tmp_path / "step-000000000002.ckpt", tmp_path / "step-000000000002.json"
    match damage:
        case "cut":
            data.write_bytes(b"state")
        case "changed":
            data.write_bytes(b"state of TWO")
        case "gone":
            data.unlink()
        case "manifest cut":
            manifest.write_bytes(manifest.read_bytes()[:20])
        case _:
            manifest.write_text("[1]")
    found = folder.newest()
    assert found is not None
    assert found.step == 1
    assert "step 2" in capsys.readouterr().err


def test_a_folder_can_be_a_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for part in (b"first", b"again"):
        with folder.write(5) as path:
            (path / "shards").mkdir(parents=True)
            (path / "shards" / "0.bin").write_bytes(part)
    found = folder.newest()
    assert found is not None
    shard = found.path / "shards" / "0.bin"
    assert shard.read_bytes() == b"again"
    shard.write_bytes(b"Again")
    assert folder.newest(verify=False) is not None
    assert folder.newest() is None


def test_only_what_the_first_rank_writes_is_kept(tmp_path: Path) -> None:
    _write(CheckpointFolder(tmp_path, rank=1), 5)
    assert _names(tmp_path) == set()


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".step-000000000003.0-1.tmp").write_bytes(b"half")
    _write(CheckpointFolder(tmp_path), 4)
    assert not list(tmp_path.glob(".*"))


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "none").newest() is None


def test_numbers_come_back_exactly(tmp_path: Path) -> None:
    state = {"loss": 0.1 + 0.2, "tiny": 5e-324, "words": ["ü", None]}
    trine.sdk.save_json(7, state, tmp_path)
    found = trine.sdk.restore(tmp_path)
    assert found is not None
    assert found.read_json() == state


WRITER = """
import sys, trine.sdk
for step in range(1, 100_000):
    trine.sdk.save_bytes(step, bytes([step % 256]) * 200_000)
    print(step, flush=True)
"""


def test_killed_while_writing_a_complete_one_is_left(job: FakeJob) -> None:
    (job.folder / "writer.py").write_text(WRITER)
    process = job.start("writer.py")
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(20)]
    process.kill()
    out = ended(process)[1]
    last = int(out.split()[-1]) if out.split() else said[-1]
    found = CheckpointFolder(job.checkpoints).newest()
    assert found is not None
    assert found.step >= last  # what was said to be saved is there
    assert found.read_bytes() == bytes([found.step % 256]) * 200_000


def test_the_package_needs_only_the_standard_library(tmp_path: Path) -> None:
    code = "import sys; before = {*sys.modules}; import trine.sdk; print(*{*sys.modules} - before)"
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    foreign = {name for name in told.split() if name.split(".")[0] not in sys.stdlib_module_names}
    assert "trine.sdk" in foreign
    assert all(name == "trine" or name.startswith("trine.sdk") for name in foreign)
