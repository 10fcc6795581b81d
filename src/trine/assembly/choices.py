"""What a caller of the Python API may give for a policy or a placement: a name, a class, or an object with parameters.

Names are looked up in ``registry``; here is what a class or an object is called and how it is made anew for each run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from trine.core.errors import InputError
from trine.core.params import convert, params_of
from trine.core.plugins import check_complete

Choice = Any
"""A name or a file (text), a class, or an object of one."""


def class_of(choice: Choice, bases: tuple[type, ...], what: str) -> type[Any]:
    """The class of a choice that is no name; it must derive from one of ``bases`` and leave no method open."""
    where = f"--{what}"
    chosen = choice if isinstance(choice, type) else type(choice)
    if not issubclass(chosen, bases):
        kind = f"the class {chosen.__name__}" if chosen is choice else f"an object of type {chosen.__name__}"
        names = " or ".join(base.__name__ for base in bases)
        raise InputError(where, kind, f"a name, a Python file, or a class (or an object) derived from {names}")
    check_complete(where, chosen, what)
    if not hasattr(chosen, "name"):
        raise InputError(where, f"the class {chosen.__name__} without a name", 'name = "..." in the class')
    return chosen


def name_of(choice: Choice) -> str:
    """A text as it is; of a class its ``name``, or what it is called in Python if that one is inherited."""
    if isinstance(choice, str):
        return choice
    chosen = choice if isinstance(choice, type) else type(choice)
    return str(vars(chosen).get("name") or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", chosen.__name__).lower())


def label_of(choice: Choice) -> str:
    """The name, and of an object those of its parameters that are not the default: ``mine(alpha=2)``."""
    if isinstance(choice, str | type) or not is_dataclass(choice):
        return name_of(choice)
    changed = [
        f"{name}={getattr(choice, name)}"
        for name, known in params_of(type(choice)).items()
        if getattr(choice, name) != known.default
    ]
    return f"{name_of(choice)}({', '.join(changed)})" if changed else name_of(choice)


def made_anew(made: Any, values: Mapping[str, Any], where: str) -> Any:
    """A fresh object with the parameters of ``made`` and ``values`` over them: runs leave nothing to each other."""
    owner: type[Any] = type(made)
    if not is_dataclass(made):
        return owner()
    known = params_of(owner)
    kept = {f.name: getattr(made, f.name) for f in fields(made) if f.init}
    return owner(**kept | {name: convert(known[name], value, where) for name, value in values.items()})
