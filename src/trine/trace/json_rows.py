"""JSON traces: the format's side, and jobs as rows, one object of an array each, with the line on which it begins.

The array is decoded item by item, so that an error names a line of the file; the fields of an object are cells, and
what is nested is in ``JsonRow.value``.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from trine.core.errors import InputError, shown
from trine.inputs.csv_table import Row
from trine.trace.format import Format, Likeness
from trine.trace.source import FirstLine, is_json

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class JsonFormat(Format):
    """A format whose jobs are objects; ``keys`` are those by which its files are recognised."""

    keys: ClassVar[tuple[str, ...]]
    layouts = ()
    has_header = False

    @abstractmethod
    def found(self, sample: FirstLine) -> Collection[str]:
        """Keys of the file, where ``keys`` should be."""

    def detects(self, sample: FirstLine) -> bool:
        return is_json(sample) and set(self.keys) <= set(self.found(sample))

    def columns(self, sample: FirstLine) -> dict[str, int]:
        if not is_json(sample):
            raise InputError(
                sample.where, "no JSON", f"JSON with the keys {', '.join(self.keys)} (format {self.name!r})"
            )
        return {}

    def likeness(self, sample: FirstLine) -> Likeness:
        found = set(self.found(sample)) if is_json(sample) else set()
        missing = ",".join(key for key in self.keys if key not in found)
        change = f"also the keys {missing} (closest format: {self.name})"
        return Likeness(len(found.intersection(self.keys)) / len(found.union(self.keys)), change)


class JsonRow(Row):
    """An object of an array. Cells are texts, as in a table; ``null`` is an empty cell."""

    __slots__ = ("value",)

    def __init__(self, source: str, line: int, number_in_file: int, value: Mapping[str, Any]) -> None:
        columns = {key: position for position, key in enumerate(value)}
        super().__init__(source, line, number_in_file, columns, [_cell(v) for v in value.values()])
        self.value = value

    def required(self, *keys: str) -> None:
        """An error for the first of these keys that the object lacks."""
        for key in keys:
            if key not in self.value:
                raise InputError(self.where, "no such key", f"the keys {', '.join(keys)}", key)

    def objects(self, key: str) -> list[Mapping[str, Any]]:
        """A list of objects; ``null`` is an empty one."""
        return objects(self, self.value.get(key), key)


def objects(row: Row, value: Any, key: str) -> list[Mapping[str, Any]]:
    """``value`` as a list of objects; ``key`` names it in errors."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        if value is None:
            return []
        raise InputError(row.where, f"found {shown(value)}", "a list of objects", key)
    return value


def json_rows(source: str, text: str, key: str = "") -> Iterator[JsonRow]:
    """The objects of the top-level array, or of the array under ``key`` of the top-level object."""
    start = _member(source, text, key) if key else _skip_blank(text, 0)
    line, counted = 1, 0
    for number, (at, value) in enumerate(_items(source, text, start)):
        line, counted = line + text.count("\n", counted, at), at
        if not isinstance(value, dict):
            raise InputError(f"{source}:{line}", f"found {shown(value)}", "an object, one per job")
        yield JsonRow(source, line, number, value)


def first_object(text: str) -> Mapping[str, Any]:
    """The first object of the top-level array; empty if the text begins otherwise."""
    try:
        start = _skip_blank(text, 0)
        return next((value for _, value in _items("", text, start) if isinstance(value, dict)), {})
    except InputError:
        return {}


def member_names(text: str) -> Sequence[str]:
    """Keys of the top-level object; none if the text is something else."""
    try:
        return [name for name, _ in _members("", text)]
    except InputError:
        return []


def member(source: str, text: str, key: str) -> Any:
    """The value under a key of the top-level object."""
    return _decode(source, text, _member(source, text, key))[0]


def _member(source: str, text: str, key: str) -> int:
    for name, at in _members(source, text):
        if name == key:
            return at
    raise InputError(source, "no such key", "an object with it", key)


def _members(source: str, text: str) -> Iterator[tuple[str, int]]:
    """Keys of the top-level object with the positions of their values."""
    at = _expect(source, text, _skip_blank(text, 0), "{")
    while text[at : at + 1] != "}":
        name, at = _decode(source, text, at)
        at = _expect(source, text, _skip_blank(text, at), ":")
        yield str(name), at
        at = _after(source, text, _decode(source, text, at)[1], "}")


def _items(source: str, text: str, start: int) -> Iterator[tuple[int, Any]]:
    """Positions and values of the array that begins at ``start``."""
    at = _expect(source, text, start, "[")
    while text[at : at + 1] != "]":
        value, end = _decode(source, text, at)
        yield at, value
        at = _after(source, text, end, "]")


def _after(source: str, text: str, end: int, closing: str) -> int:
    """Where the next element begins, or where the closing bracket stands."""
    at = _skip_blank(text, end)
    return at if text[at : at + 1] == closing else _expect(source, text, at, ",")


def _expect(source: str, text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        found = repr(text[at]) if at < len(text) else "the end of the file"
        raise InputError(_where(source, text, at), f"found {found}", f"{sign!r}: well-formed JSON")
    return _skip_blank(text, at + 1)


def _decode(source: str, text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        at = min(getattr(error, "pos", at), len(text))
        message = getattr(error, "msg", type(error).__name__)
        raise InputError(_where(source, text, at), f"JSON that ends or breaks here ({message})", "JSON") from None


def _where(source: str, text: str, at: int) -> str:
    return f"{source}:{text.count(chr(10), 0, at) + 1}"


def _skip_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
