"""From Python arguments to the inputs of a run, and errors that speak of arguments where a command would name flags.

One exception type: everything that a caller can correct is a ``TrineError`` with one sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from trine.core.errors import InputError, unknown_name
from trine.experiment.scenarios import Inputs
from trine.inputs.preset import dotted
from trine.trace import Trace

PathText = str | Path


class MoreInputs(TypedDict, total=False):
    """Further arguments of ``simulate`` and ``compare``, each as the flag of the same name."""

    format: str
    """Read the trace as this format instead of recognising it."""
    columns: Mapping[str, str]
    """Where a table of no known format keeps what: ``{"submit": "queued", "duration": "run_min:min"}``."""
    since: float | str
    """Only jobs submitted from then on: seconds of the trace, or a date."""
    until: float | str
    """Only jobs submitted before then."""
    scale_load: float
    """Gaps between submissions are divided by this."""
    variability: PathText
    """Slowdown per GPU and application class: a table or a profile."""
    throughputs: PathText
    """Steps per second by model and GPU type."""
    prices: PathText
    """Per GPU and hour: ``v100=2.5,k80=0.5``, a table by name, or a file of changes."""


_TRACE_SETTINGS = ("columns", "since", "until", "scale_load")
_COMMON = ("trace", "cluster", "workload", "world", "preset", "settings")
ONE_RUN = (*_COMMON, "policy", "placement", "seed")
SEVERAL_RUNS = (*_COMMON, "policies", "placements", "seeds", "loads", "sweep", "workers")
"""Arguments of ``simulate`` and of ``compare``, without those that both take as ``MoreInputs``."""
_FILES = ("variability", "throughputs", "prices")
_OTHER_NAMES = {"set": "settings", "from": "since", "to": "until", "round": "settings['round_s']"}
"""Arguments whose flag has another name; the others have that of the flag, with underscores."""


def make_inputs(
    trace: PathText | Trace,
    cluster: PathText,
    workload: str,
    world: PathText,
    preset: PathText,
    settings: Mapping[str, Any] | None,
    more: MoreInputs,
    *,
    known: Iterable[str],
) -> Inputs:
    """Arguments of the API, checked for their types, as inputs; ``known`` are the other arguments of the function."""
    given: dict[str, Any] = dict(more)
    for name in given:
        if name not in MoreInputs.__annotations__:
            raise unknown_name("arguments", "argument", name, [*known, *MoreInputs.__annotations__])
    if isinstance(trace, Trace) and given.get("format"):
        raise InputError("--format", f"{given['format']!r} beside a trace that has been read", "it in load_trace")
    return Inputs(
        preset=as_text("preset", preset),
        trace=trace.source if isinstance(trace, Trace) else as_text("trace", trace),
        loaded=trace if isinstance(trace, Trace) else None,
        format=given.get("format", ""),
        workload=as_text("workload", workload),
        cluster=as_text("cluster", cluster),
        world=as_text("world", world),
        **{name: as_text(name, given.get(name, "")) for name in _FILES},
        values=setting_values(settings) | trace_settings(given),
    )


def trace_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that say how a trace is read, as settings."""
    values = {name: given[name] for name in _TRACE_SETTINGS if given.get(name) not in (None, "")}
    if "columns" in values:
        columns = values["columns"]
        values["columns"] = (
            tuple(f"{field}={name}" for field, name in columns.items()) if isinstance(columns, Mapping) else columns
        )
    return {f"trace.{name}": value for name, value in values.items()}


def trace_arguments(given: Mapping[str, Any]) -> dict[str, str]:
    """By setting, the argument of the same name that it was given by."""
    return {f"trace.{name}": name for name in _TRACE_SETTINGS if name in given}


def setting_values(settings: Mapping[str, Any] | None, argument: str = "settings") -> dict[str, Any]:
    """Settings by dotted name, from a mapping that may be nested."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise InputError(argument, a_type(settings), "a mapping of names to values")
    return dotted(dict(settings))


def as_text(name: str, value: Any) -> str:
    """A name or a path as text."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    raise InputError(name, a_type(value), "a text or a path")


def a_type(value: Any) -> str:
    """What a value is, with its article: ``a list``, ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def as_list(name: str, values: Any) -> list[Any]:
    """Several values; a text or a number alone is most likely a mistake."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(name, f"{values!r}", "a list, a tuple or a range")
    return list(values)


def as_seeds(values: Any) -> list[int]:
    """Different whole numbers."""
    seeds = as_list("seeds", values)
    if not all(map(_is_count, seeds)) or len(set(seeds)) < len(seeds):
        raise InputError("seeds", f"{seeds!r}", "different whole numbers of at least 0, such as range(5)")
    return [int(seed) for seed in seeds]


def as_count(name: str, value: Any) -> int:
    """A whole number of at least 0."""
    if not _is_count(value):
        raise InputError(name, f"{value!r}", "a whole number of at least 0")
    return int(value)


def _is_count(value: Any) -> bool:
    """Numbers of numpy are whole numbers too; ``True`` is none."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and int(value) >= 0


@contextmanager
def errors_of_arguments(given_by: Mapping[str, str] | None = None) -> Iterator[None]:
    """Whatever is wrong with the input is said in terms of arguments.

    ``given_by`` names the argument by which a setting was given, where that was not ``settings``.
    """
    try:
        yield
    except InputError as error:
        raise in_arguments(error, given_by or {}) from None


def in_arguments(error: InputError, given_by: Mapping[str, str]) -> InputError:
    """The same error, with arguments where it names flags."""
    where, field = error.where, error.field
    if where == "--set":
        unknown = re.match(r"unknown key '([^']*)'", error.found)
        name = field or (unknown[1] if unknown else "")
        if name in given_by:
            where, field = given_by[name], ""
        else:
            where, field = (f"settings[{field!r}]", "") if field else ("settings", "")
    elif where.startswith("--"):
        where = _translated(where)
    return InputError(where, _translated(error.found), _translated(error.expected), field)


def _translated(text: str) -> str:
    text = re.sub(r"--set ([\w.]+)=([\w.]+)", r"settings={'\1': '\2'}", text)
    text = re.sub(r"(?<![\w-])--([a-z][a-z-]*) ([A-Z]{2,})\b", lambda m: f"{_argument(m[1])}={m[2]}", text)
    return re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda m: _argument(m[1]), text)


def _argument(flag: str) -> str:
    return _OTHER_NAMES.get(flag, flag.replace("-", "_"))
