"""The public trace formats, one short module each. A module added here is found by itself; nothing else changes."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

from trine.core.errors import unknown_name
from trine.trace.format import Format


@cache
def known() -> dict[str, Format]:
    """Every format by name, in order of name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    classes = [c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]
    formats = [c() for c in classes if issubclass(c, Format) and hasattr(c, "name")]
    return {f.name: f for f in sorted(formats, key=lambda f: f.name)}


def companions(path: str) -> tuple[Path, ...]:
    """Files beside the trace at ``path`` that its reader may take notice of, whether or not they are there."""
    return tuple(Path(path).with_name(name) for fmt in known().values() for name in fmt.companions if Path(path).name)


def by_name(name: str) -> Format:
    """The format ``--format`` asks for; aliases and underscores are accepted."""
    wanted = name.strip().lower().replace("_", "-")
    for fmt in known().values():
        if wanted == fmt.name or wanted in fmt.aliases:
            return fmt
    raise unknown_name("--format", "trace format", name, known())
