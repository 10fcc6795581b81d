"""Files are there whole or not at all, private where asked, and nothing is left beside them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trine.core.atomic_file import atomic_stream, create_private, make_private_dir, write_output, write_private
from trine.core.errors import InputError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
@pytest.mark.parametrize("before", ["old", None])
def test_a_block_that_fails_changes_nothing(tmp_path: Path, error: type[BaseException], before: str | None) -> None:
    path = tmp_path / "result.json"
    if before is not None:
        path.write_text(before)
    with pytest.raises(error), atomic_stream(path) as stream:
        stream.write(b"half")
        stream.flush()
        raise error
    assert names(tmp_path) == ([] if before is None else ["result.json"])
    assert before is None or path.read_text() == before


def test_nothing_is_seen_before_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with atomic_stream(path) as stream:
        stream.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["log"]


_LITTLE_ROOM = """
import resource, signal, sys
from trine.core.atomic_file import write_output
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
write_output(sys.argv[1], "x" * 10_000)
"""


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files acts as a full disk does: the write fails after a part of it."""
    command = [sys.executable, "-c", _LITTLE_ROOM, str(tmp_path / "table.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "cannot be written (File too large); expected a writable file name" in done.stderr
    assert names(tmp_path) == []


def test_private_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_dir(tmp_path / "new" / "state")
        write_private(tmp_path / "new" / "state" / "token", "secret")
        create_private(tmp_path / "new" / "state" / "other", "secret")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"new": 0o755, "state": 0o700, "token": 0o600, "other": 0o600}


def test_a_private_file_is_created_once(tmp_path: Path) -> None:
    create_private(tmp_path / "token", "first")
    create_private(tmp_path / "token", "second")
    assert (tmp_path / "token").read_text() == "first"
    assert names(tmp_path) == ["token"]


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "out"
    victim.write_text("untouched")
    path.symlink_to(victim)
    (tmp_path / f".out.{os.getpid()}.tmp").symlink_to(victim)
    write_private(path, "new")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("untouched", "new", False)
    assert names(tmp_path) == ["out", "victim"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "a directory; expected the name of a file to write"),
        ("gone/x.csv", "cannot be written (No such file or directory); expected a writable file name"),
    ],
)
def test_a_name_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    path = tmp_path / name
    with pytest.raises(InputError) as refused:
        write_output(path, "text")
    assert str(refused.value) == f"{path}: {sentence}"
