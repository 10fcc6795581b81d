"""``--workers`` of a comparison: a number of processes on this machine, or the name of an engine whose cluster the
simulations run on. The results are the same bytes either way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trine.core.errors import InputError, unknown_name
from trine.core.process_pool import Done
from trine.executor import registry
from trine.sim.scenario import Workers

ENGINE_SETTING = "engine."


def workers_of(text: str, values: dict[str, Any], inputs: Iterable[Any], out: Path | None) -> int | Workers:
    """A number, or the cluster of an engine, or its address as ``ray://HOST:PORT``; settings that
    begin with ``engine.`` are taken out of ``values``.

    ``inputs`` are what the simulations are given: those that are names of files or directories are read there.
    """
    settings = {name: values.pop(name) for name in list(values) if name.startswith(ENGINE_SETTING)}
    if text.isdecimal():
        if settings:
            found = f"{min(settings)} beside --workers {text}"
            raise InputError("--set", found, f"--workers NAME, one of {', '.join(registry.POOLS)}")
        return int(text)
    name, has_address, _ = text.partition("://")
    if name not in registry.POOLS:
        raise unknown_name("--workers", "number of processes or engine", text, registry.POOLS)
    own = {name.removeprefix(ENGINE_SETTING): value for name, value in settings.items()}
    work_through = registry.pool(name, {**own, **({"address": text} if has_address else {})})
    place = out.absolute().parent if out else Path.cwd()
    read = [*_files([*inputs, *values.values()])]

    def on_cluster(work: Callable[[Any], Any], todo: Sequence[Any], done: Done) -> list[Any]:
        return work_through(work, todo, done, place, _digest(read))

    return on_cluster


def _digest(files: Iterable[Path]) -> str:
    """Of all files that the simulations read, and of trine itself: results of other files are no results of these."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted({*files, *Path(__file__).parents[1].rglob("*.py")}):
        found.update(f"{path}\0".encode() + hashlib.blake2b(path.read_bytes(), digest_size=16).digest())
    return found.hexdigest()


def _files(names: Iterable[Any]) -> Iterator[Path]:
    for name in names:
        path = Path(name) if isinstance(name, str) and name else None
        if path is not None and path.is_dir():
            yield from (each for each in path.rglob("*") if each.is_file())
        elif path is not None and path.is_file():
            yield path
