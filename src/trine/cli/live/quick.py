"""Parsing without pydantic, which typer imports for the first option that is no flag: half of a verb's start-up.

Only plain cases are taken over (absent, default, text, path, choice); everything else goes the usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

_USUAL = object()


def quicken(command: Any, below: bool = True) -> None:
    """Let the parameters of a command, and of those below it, convert plain values themselves."""
    usual = command.get_params

    def get_params(ctx: Any) -> Any:
        params = usual(ctx)
        for param in params:
            # Older versions of typer have no descriptors, and no need for this either.
            if hasattr(param, "type_descriptor") and "process_value" not in vars(param):
                param.process_value = _process(param, param.process_value)
        return params

    command.get_params = get_params
    for each in getattr(command, "commands", {}).values() if below else ():
        quicken(each)


def _process(param: Any, usual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def process(ctx: Any, value: Any) -> Any:
        found = _converted(value, param)
        if found is _USUAL:
            return usual(ctx, value)
        return found if param.callback is None else param.callback(ctx, param, found)

    return process


def _converted(value: Any, param: Any) -> Any:
    kind = param.type_descriptor.annotation
    many = param.multiple or param.nargs == -1
    if value is None or value == ():
        return _USUAL if param.required else () if many else None
    if many:
        texts = kind == list[str] and all(isinstance(item, str) for item in value)
        return list(value) if texts else _USUAL
    if value is param.default:
        return value
    if not isinstance(value, str):
        return _USUAL
    return _from_text(value, kind)


def _from_text(text: str, kind: Any) -> Any:
    if kind is str:
        return text
    if kind is Path:
        return Path(text)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and text in set(kind):
        return kind(text)
    return _USUAL
