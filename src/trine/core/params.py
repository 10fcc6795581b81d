"""Typed, documented parameters of policies, placements and settings: dataclass fields that ``--set`` can reach."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any
from weakref import WeakKeyDictionary

from trine.core.errors import InputError, unknown_name


def param(
    default: Any,
    doc: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A dataclass field with a sentence for people, and optionally the values it may take."""
    metadata = {"doc": doc, "choices": choices, "minimum": minimum, "maximum": maximum}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Param:
    """What a parameter is called, what it takes and what it means."""

    name: str
    kind: Any
    default: Any
    doc: str
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None = None

    @property
    def kind_name(self) -> str:
        return "|".join(self.choices) if self.choices else _kind_name(self.kind)


def params_of(owner: type) -> dict[str, Param]:
    """The parameters of a dataclass: its fields made with ``param``. A plain class has none."""
    if not is_dataclass(owner):
        return {}
    if owner not in _PARAMS:
        _PARAMS[owner] = _read_params(owner)
    return dict(_PARAMS[owner])


_PARAMS: WeakKeyDictionary[type, dict[str, Param]] = WeakKeyDictionary()
"""By class, as they were read: to evaluate annotations takes longer than a small simulation does."""


def _read_params(owner: type[Any]) -> dict[str, Param]:
    hints = _types_of(owner)
    return {
        f.name: Param(
            f.name,
            hints[f.name],
            None if f.default is MISSING else f.default,
            f.metadata["doc"],
            f.metadata["choices"],
            f.metadata["minimum"],
            f.metadata["maximum"],
        )
        for f in fields(owner)
        if "doc" in f.metadata
    }


def _types_of(owner: type) -> dict[str, Any]:
    """Types of the parameters by name. Other annotations are not looked at: those of a class that came from another
    process may name what only the cell knows in which it was written.
    """
    wanted = {f.name for f in fields(owner) if "doc" in f.metadata}
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        own = {name: kind for name, kind in inspect.get_annotations(base).items() if name in wanted}
        found |= typing.get_type_hints(type(base.__name__, (), {"__annotations__": own, "__module__": base.__module__}))
    return found


def build(owner: type, values: Mapping[str, Any], where: str = "--set", prefix: str = "") -> Any:
    """An instance of ``owner`` from texts (``--set``) or plain values (YAML); unknown names are errors."""
    known = params_of(owner)
    for name in values:
        if name not in known:
            raise unknown_name(where, f"parameter of {getattr(owner, 'name', owner.__name__)}", name, known)
    return owner(**{name: convert(known[name], value, where, prefix) for name, value in values.items()})


def convert(p: Param, value: Any, where: str, prefix: str = "") -> Any:
    """``value`` as the parameter's type, or an ``InputError`` that says what it takes."""
    try:
        result = _as(p.kind, value)
    except (ValueError, TypeError):
        raise InputError(where, f"{value!r}", f"{p.kind_name}: {p.doc}", prefix + p.name) from None
    if p.choices and result not in p.choices:
        raise InputError(where, f"{value!r}", f"one of {', '.join(p.choices)}", prefix + p.name)
    if p.minimum is not None and result is not None and any(v < p.minimum for v in _flat(result)):
        raise InputError(where, f"{value!r}", f"at least {p.minimum:g}", prefix + p.name)
    if p.maximum is not None and result is not None and any(v > p.maximum for v in _flat(result)):
        raise InputError(where, f"{value!r}", f"at most {p.maximum:g}", prefix + p.name)
    return result


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _as(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _as_optional(kind, value)
    if origin is tuple:
        parts = value if isinstance(value, (list, tuple)) else [v for v in str(value).split(",") if v.strip()]
        return tuple(_as(typing.get_args(kind)[0], v) for v in parts)
    if kind is bool:
        return _as_flag(value)
    if kind is float:
        return _as_number(value)
    if kind is int:
        number = _as_number(value)
        if number != int(number):
            raise ValueError(value)
        return int(number)
    return str(value)


def _as_optional(kind: Any, value: Any) -> Any:
    if value is None or str(value).lower() in ("none", "null", ""):
        return None
    return _as(next(a for a in typing.get_args(kind) if a is not type(None)), value)


def _as_number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    number = float(value)
    if math.isnan(number) or math.isinf(number):
        raise ValueError(value)
    return number


def _as_flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError(value)


def _kind_name(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_kind_name(a) for a in typing.get_args(kind))
    if origin is tuple:
        return f"list of {_kind_name(typing.get_args(kind)[0])}s"
    names = {float: "number", int: "whole number", bool: "true or false", str: "text", type(None): "none"}
    return names.get(kind, str(kind))
