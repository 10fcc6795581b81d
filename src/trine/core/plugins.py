"""Finds the classes that live one per file in a package: dropping a file in is all it takes to add one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from trine.core.errors import InputError, TrineError, unknown_name

T = TypeVar("T")

_FILE_MODULE = "trine_user_"
"""Modules loaded from a path that a user named begin so."""


def discover(package: str, base: type[T]) -> dict[str, type[T]]:
    """All concrete subclasses of ``base`` defined in the modules of ``package``, by their ``name``."""
    if (package, base) not in _DISCOVERED:
        _DISCOVERED[package, base] = _looked_for(package, base)
    return dict(_DISCOVERED[package, base])


_DISCOVERED: dict[tuple[str, type[Any]], dict[str, type[Any]]] = {}
"""By package and base: every simulation asks."""


def _looked_for(package: str, base: type[T]) -> dict[str, type[T]]:
    found: dict[str, type[T]] = {}
    root = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda i: i.name):
        found.update(_defined_in(importlib.import_module(f"{package}.{info.name}"), base))
    return dict(sorted(found.items()))


def find(package: str, base: type[T], what: str, name: str, where: str) -> type[T]:
    """The class called ``name``, or the one in the file ``name`` if it ends in ``.py``."""
    if name.endswith(".py"):
        found: type[T] = find_in_file(name, (base,), what, where)
        return found
    known = discover(package, base)
    if name not in known:
        raise unknown_name(where, what, name, known)
    return known[name]


def _defined_in(module: ModuleType, base: type[T] | tuple[type[T], ...]) -> dict[str, type[T]]:
    return {
        cls.__dict__["name"]: cls
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and issubclass(cls, base)
        and cls.__module__ == module.__name__
        and "name" in cls.__dict__
    }


def find_in_file(name: str, bases: tuple[type[Any], ...], what: str, where: str) -> type[Any]:
    """The class in the file ``name`` that is derived from one of ``bases``."""
    path = Path(name)
    spec = importlib.util.spec_from_file_location(f"{_FILE_MODULE}{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(where, f"no file {path}", f"a Python file that defines a {what}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(
            str(path), f"{type(error).__name__}: {error}", f"a Python file that defines a {what}"
        ) from error
    found = list(_defined_in(module, bases).values())
    if len(found) != 1:
        raise _not_one(path, module, found, bases, what)
    check_complete(str(path), found[0], what)
    return found[0]


def _not_one(
    path: Path, module: ModuleType, found: list[type[Any]], bases: tuple[type[Any], ...], what: str
) -> InputError:
    """No class, several, or one that lacks only its name."""
    own = [cls for cls in vars(module).values() if inspect.isclass(cls) and cls.__module__ == module.__name__]
    nameless = [cls.__name__ for cls in own if issubclass(cls, bases) and "name" not in cls.__dict__]
    if not found and nameless:
        return InputError(
            str(path), f"the class {nameless[0]} has no name", f'a line such as name = "{nameless[0].lower()}" in it'
        )
    other = f" ({own[0].__name__} is a {own[0].__mro__[1].__name__})" if own and not found else ""
    derived = " or ".join(base.__name__ for base in bases)
    return InputError(
        str(path), f"{len(found)} {what} classes{other}", f"exactly one class with a name, derived from {derived}"
    )


@contextmanager
def mistakes_in_files() -> Iterator[None]:
    """What code of a user's file raises becomes one sentence with its line; anything else passes as it is."""
    try:
        yield
    except TrineError:
        raise
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        own = [(f, line) for f, line in frames if str(f.f_globals.get("__name__", "")).startswith(_FILE_MODULE)]
        if not own:
            raise
        frame, line = own[-1]
        raise TrineError(f"{frame.f_code.co_filename}:{line}: {type(error).__name__}: {error}") from error


def check_complete(where: str, plugin: type[Any], what: str) -> None:
    """A method that its base leaves open is an error here, not when the class is first used."""
    missing = sorted(getattr(plugin, "__abstractmethods__", ()))
    if not missing:
        return
    arguments = ", ".join(inspect.signature(getattr(plugin, missing[0])).parameters)
    found = f"the {what} {plugin.__name__} without {' and '.join(missing)}"
    raise InputError(where, found, f"a method {missing[0]}({arguments})")
