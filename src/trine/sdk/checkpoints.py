"""Checkpoints that are there completely or not at all: written aside, synced, renamed, and only then entered in a
manifest with sizes and check sums. What is inside a checkpoint is the script's business.
"""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from trine.sdk.session import say

_MANIFEST = re.compile(r"step-(\d+)\.json")
_CHUNK = 1 << 20


class Checkpoint(NamedTuple):
    """A complete checkpoint: the state after ``step`` steps, a file or a folder at ``path``."""

    step: int
    path: Path

    def read_bytes(self) -> bytes:
        return self.path.read_bytes()

    def read_json(self) -> Any:
        return json.loads(self.path.read_bytes())


class CheckpointFolder:
    """Writes and finds the checkpoints of one job. Only what rank 0 writes is kept: one checkpoint serves all ranks."""

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self._folder, self._rank = folder, rank

    @contextmanager
    def write(self, step: int, keep: int = 2) -> Iterator[Path]:
        """A path to write the state after ``step`` steps to, as a file or a folder; nothing is there before the end."""
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = self._folder / f".{_name(step)}.{self._rank}-{os.getpid()}.tmp"
        _remove(aside)
        try:
            yield aside
            if self._rank == 0:
                self._commit(step, aside)
                self._prune(step, keep)
        except Exception as error:
            if not no_space(error) and self._is_full():  # torch.save says only that writing failed
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder)) from error
            raise
        finally:
            _remove(aside)

    def newest(self, verify: bool = True) -> Checkpoint | None:
        """The complete checkpoint with the most steps. One that does not match its manifest is reported and skipped."""
        for step in sorted(self._steps(), reverse=True):
            found = self._load(step, verify)
            if isinstance(found, Checkpoint):
                return found
            say(f"checkpoint of step {step} in {self._folder} skipped: {found}")
        return None

    def _commit(self, step: int, aside: Path) -> None:
        data, manifest = self._folder / f"{_name(step)}.ckpt", self._folder / f"{_name(step)}.json"
        if not aside.exists():
            raise FileNotFoundError(f"checkpoint of step {step}: nothing was written to {aside}")
        listing = _listing(aside, sync=True)
        if data.is_dir() or (data.exists() and aside.is_dir()):
            _remove(manifest)  # a folder cannot be replaced in one go
            _remove(data)
        aside.replace(data)
        entry = {"version": 1, "step": step, "data": data.name, "files": listing}
        try:
            _write_synced(self._folder / f".{manifest.name}.{os.getpid()}.tmp", manifest, json.dumps(entry).encode())
        except OSError:
            if not manifest.exists():
                _remove(data)  # what no manifest names is never read, and the room is needed
            raise
        _sync_folder(self._folder)

    def _is_full(self) -> bool:
        """Whether nothing more can be written, while what was written is still there."""
        probe = self._folder / f".probe.{self._rank}-{os.getpid()}.tmp"
        try:
            _write_synced(probe, probe, bytes(_CHUNK))
        except OSError as error:
            return no_space(error)
        finally:
            _remove(probe)
        return False

    def _prune(self, step: int, keep: int) -> None:
        """Drop all but the ``keep`` newest checkpoints up to ``step``, and what interrupted writers left behind."""
        for old in sorted(s for s in self._steps() if s <= step)[: -max(1, keep)]:
            _remove(self._folder / f"{_name(old)}.json")
            _remove(self._folder / f"{_name(old)}.ckpt")
        for left in self._folder.glob(".step-*.0-*.tmp"):
            if not left.name.endswith(f".0-{os.getpid()}.tmp"):
                _remove(left)

    def _steps(self) -> list[int]:
        with suppress(OSError):
            return [int(m[1]) for path in self._folder.iterdir() if (m := _MANIFEST.fullmatch(path.name))]
        return []

    def _load(self, step: int, verify: bool) -> Checkpoint | str:
        """The checkpoint, or what is wrong with it."""
        try:
            entry = json.loads((self._folder / f"{_name(step)}.json").read_bytes())
            data, expected = self._folder / str(entry["data"]), [tuple(row) for row in entry["files"]]
            found = [tuple(row) for row in (_listing(data) if verify else _sizes(data))]
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        except (ValueError, KeyError, TypeError):
            return "its manifest is damaged"
        if found != [row[: 3 if verify else 2] for row in expected]:
            return "it is not what was written"
        return Checkpoint(step, data)


def no_space(error: BaseException) -> bool:
    """Whether it says that a disk or a quota is full, which may pass."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _name(step: int) -> str:
    return f"step-{step:012d}"


def _files(path: Path) -> list[tuple[str, Path]]:
    """The files of a checkpoint with their names in it; a checkpoint of one file calls it '.'."""
    if not path.is_dir():
        return [(".", path)]
    return [(str(p.relative_to(path)), p) for p in sorted(path.rglob("*")) if p.is_file()]


def _sizes(path: Path) -> list[tuple[str, int]]:
    return [(name, file.stat().st_size) for name, file in _files(path)]


def _listing(path: Path, sync: bool = False) -> list[tuple[str, int, str]]:
    found = [(name, *_size_and_sum(file, sync)) for name, file in _files(path)]
    if sync and path.is_dir():
        for folder in [path, *(p for p in path.rglob("*") if p.is_dir())]:
            _sync_folder(folder)
    return found


def _size_and_sum(path: Path, sync: bool) -> tuple[int, str]:
    size = crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        if sync:
            os.fsync(stream.fileno())
    return size, f"{crc:08x}"


def _write_synced(aside: Path, path: Path, data: bytes) -> None:
    try:
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError:
        _remove(aside)
        raise


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some network file systems cannot
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
