"""A strict YAML reader that keeps line numbers: loaders read like a schema, every error names file, line and key.

Knows no schema itself. Decimal numbers only (``1e9`` is a number, ``1:30`` and ``0x10`` are text), no merge keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trine.core.errors import InputError, unknown_name
from trine.inputs.text_file import read_text
from trine.inputs.yaml_tree import compose

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
"""Underscores as Python takes them: one at a time, between digits. With others it is text, as ``1_`` is."""
_INTEGER = re.compile(rf"[-+]?{_DIGITS}")
_NUMBER = re.compile(rf"[-+]?({_DIGITS}(\.({_DIGITS})?)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LONGEST_INTEGER = 18
_NULL, _BOOL = "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
_TRUE = ("true", "yes", "on")

D = TypeVar("D")
T = TypeVar("T")


class Missing(Enum):
    """The default of a key that must be there."""

    MISSING = "missing"


MISSING = Missing.MISSING


def read_mapping(path: str | Path, what: str = "a YAML file") -> Mapping:
    """The top-level mapping of the file ``path``; ``what`` names the kind of file in errors."""
    return parse_mapping(read_text(path, what), str(path), what)


def parse_mapping(text: str, where: str, what: str = "a YAML file") -> Mapping:
    """As ``read_mapping`` for text in memory; ``where`` stands for the file name in errors."""
    root = compose(text, where)
    if root is None:
        raise InputError(where, "the file is empty", what)
    return Value(root, where, "", {}).mapping()


class Value:
    """One YAML value with its place. Each reading method returns the value as that type or raises ``InputError``."""

    def __init__(self, node: Node, file: str, path: str, opened: dict[str, Mapping]) -> None:
        self._node, self._file, self._opened = node, file, opened
        self.path = path
        """Dotted key, as in ``racks[0].gpus``; empty for the whole file."""

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self._file}:{self._node.start_mark.line + 1}"

    @property
    def is_null(self) -> bool:
        return bool(self._node.tag == _NULL)

    @property
    def is_scalar(self) -> bool:
        return isinstance(self._node, ScalarNode)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, MappingNode)

    def error(self, found: str, expected: str) -> InputError:
        """An error about this value, for checks that the reader cannot know."""
        return InputError(self.where, found, expected, self.path)

    def unknown(self, what: str, word: str, known: Collection[str]) -> InputError:
        """An error about a name that does not exist, with the nearest one that does."""
        return unknown_name(self.where, what, word, known, self.path)

    def wrong(self, expected: str) -> InputError:
        """An error that shows the value itself."""
        return self.error(f"found {self._shown()}", expected)

    def text(self, *, empty: bool = False) -> str:
        """Any scalar but true, false and null, as written: ``type: 3090`` is the text ``3090``. ``empty`` allows ''."""
        if not self.is_scalar or self._plain_tag() in (_NULL, _BOOL):
            raise self.wrong("text (in quotes if it reads like true, false or null)")
        if not self._node.value.strip() and (self._node.value or not empty):
            raise self.wrong("text that is not empty")
        return str(self._node.value)

    def number(
        self, *, minimum: float | None = None, above: float | None = None, maximum: float | None = None
    ) -> float:
        """A finite number in [``minimum``, ``maximum``] and greater than ``above``."""
        wanted = _range("a number", minimum, above, maximum)
        text = self._unquoted()
        if not _NUMBER.fullmatch(text):
            raise self.wrong(wanted)
        number = float(text)
        if not math.isfinite(number) or not _within(number, minimum, above, maximum):
            raise self.wrong(wanted)
        return number

    def integer(self, *, minimum: int | None = None, maximum: int | None = None) -> int:
        wanted = _range("a whole number", minimum, None, maximum)
        text = self._unquoted()
        if not _INTEGER.fullmatch(text) or len(text) > _LONGEST_INTEGER:
            raise self.wrong(wanted)
        if not _within(int(text), minimum, None, maximum):
            raise self.wrong(wanted)
        return int(text)

    def flag(self) -> bool:
        if self._plain_tag() != _BOOL:
            raise self.wrong("true or false")
        return self._node.value.lower() in _TRUE

    def choice(self, options: Collection[str], what: str = "value") -> str:
        """One of ``options``; errors name the nearest."""
        word = self.text()
        if word not in options:
            raise self.unknown(what, word, options)
        return word

    def mapping(self) -> Mapping:
        """The keys below this value; the same object each time, so that it remembers which keys were read."""
        if not isinstance(self._node, MappingNode):
            raise self.wrong("a mapping of keys to values")
        if self.path not in self._opened:
            self._opened[self.path] = Mapping(self, self._node, self._file, self._opened)
        return self._opened[self.path]

    def list(self) -> Values:
        if not isinstance(self._node, SequenceNode):
            raise self.wrong("a list")
        return [Value(node, self._file, f"{self.path}[{i}]", self._opened) for i, node in enumerate(self._node.value)]

    def plain(self) -> Any:
        """Plain Python values: dict, list, str, int, float, bool, None. Keys below count as read."""
        if self.is_mapping:
            return self.mapping().plain()
        if not self.is_scalar:
            return [value.plain() for value in self.list()]
        return self._plain_scalar()

    def _plain_scalar(self) -> Any:
        tag, text = self._plain_tag(), self._unquoted()
        if tag == _NULL:
            return None
        if tag == _BOOL:
            return self.flag()
        if _INTEGER.fullmatch(text):
            return self.integer()
        return self.number() if _NUMBER.fullmatch(text) else str(self._node.value)

    def _plain_tag(self) -> str:
        return str(self._node.tag) if self.is_scalar else ""

    def _unquoted(self) -> str:
        """The text of a scalar without quotes; a quoted ``"3"`` is text, not a number."""
        return str(self._node.value) if isinstance(self._node, ScalarNode) and not self._node.style else ""

    def _shown(self) -> str:
        if self.is_null:
            return "nothing"
        if self.is_scalar:
            text = str(self._node.value)
            return repr(text if len(text) <= 60 else text[:57] + "...")
        return "a mapping" if self.is_mapping else "a list"


Values = list[Value]
Mappings = list["Mapping"]
"""Under names of their own, since ``list`` is a method below."""


class Mapping:
    """The keys of one YAML mapping. A key without a default must be there; null counts as absent.

    A loader asks for the keys it knows, and ``finish`` refuses those that are left: the schema is written once.
    """

    def __init__(self, value: Value, node: MappingNode, file: str, opened: dict[str, Mapping]) -> None:
        self._value, self._opened = value, opened
        self._lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
        self._file = file
        self._values = {
            key.value: Value(child, file, f"{value.path}.{key.value}" if value.path else key.value, opened)
            for key, child in node.value
        }
        self._asked: set[str] = set()

    @property
    def where(self) -> str:
        """``file:line`` at which the mapping starts."""
        return self._value.where

    @property
    def path(self) -> str:
        return self._value.path

    def keys(self) -> tuple[str, ...]:
        """All keys in the order of the file; all count as read (for mappings whose keys are names)."""
        self._asked.update(self._values)
        return tuple(self._values)

    def values(self) -> Iterator[tuple[str, Value]]:
        """Pairs of key and value; all count as read."""
        return ((key, self._values[key]) for key in self.keys())

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> Value | None:
        """The value of ``key``, or nothing if it is absent or null."""
        self._asked.add(key)
        value = self._values.get(key)
        return None if value is None or value.is_null else value

    def value(self, key: str) -> Value:
        """The value of a key that must be there."""
        value = self.get(key)
        if value is None:
            known = self._values.get(key)
            raise InputError(known.where if known else self.where, "found nothing", "a value", self._full(key))
        return value

    def error(self, found: str, expected: str, key: str = "") -> InputError:
        """An error about ``key`` (at its line, if it is there) or about the whole mapping."""
        line = self._lines.get(key)
        return InputError(f"{self._file}:{line}" if line else self.where, found, expected, self._full(key))

    def text(self, key: str, default: D | Missing = MISSING, *, empty: bool = False) -> str | D:
        return self._read(key, default, lambda v: v.text(empty=empty))

    def number(
        self,
        key: str,
        default: D | Missing = MISSING,
        *,
        minimum: float | None = None,
        above: float | None = None,
        maximum: float | None = None,
    ) -> float | D:
        return self._read(key, default, lambda v: v.number(minimum=minimum, above=above, maximum=maximum))

    def integer(
        self, key: str, default: D | Missing = MISSING, *, minimum: int | None = None, maximum: int | None = None
    ) -> int | D:
        return self._read(key, default, lambda v: v.integer(minimum=minimum, maximum=maximum))

    def flag(self, key: str, default: D | Missing = MISSING) -> bool | D:
        return self._read(key, default, Value.flag)

    def choice(
        self, key: str, options: Collection[str], default: D | Missing = MISSING, what: str = "value"
    ) -> str | D:
        return self._read(key, default, lambda v: v.choice(options, what))

    def mapping(self, key: str, default: D | Missing = MISSING) -> Mapping | D:
        return self._read(key, default, Value.mapping)

    def texts(self, key: str, default: D | Missing = MISSING) -> tuple[str, ...] | D:
        """A list of texts."""
        return self._read(key, default, lambda v: tuple(entry.text() for entry in v.list()))

    def list(self, key: str, default: D | Missing = MISSING) -> Values | D:
        return self._read(key, default, Value.list)

    def plain(self) -> dict[str, Any]:
        """Plain Python values; all keys count as read."""
        return {key: value.plain() for key, value in self.values()}

    def only(self, *keys: str) -> None:
        """Refuse other keys than these now, so that a misspelt key is named before one that is missing."""
        self._asked.update(keys)
        self._refuse_unknown([self])

    def finish(self) -> None:
        """Refuse the keys that were not read, here and in all mappings below; the first in the file is named."""
        below = (f"{self.path}.", f"{self.path}[")
        self._refuse_unknown(
            [m for m in self._opened.values() if not self.path or m is self or m.path.startswith(below)]
        )

    def _refuse_unknown(self, mappings: Mappings) -> None:
        unknown = [(line, key, m) for m in mappings for key, line in m._lines.items() if key not in m._asked]
        if unknown:
            line, key, mapping = min(unknown, key=lambda entry: entry[0])
            raise unknown_name(f"{self._file}:{line}", "key", key, mapping._asked, mapping.path)

    def _read(self, key: str, default: D | Missing, read: Callable[[Value], T]) -> T | D:
        """What ``read`` makes of the value of ``key``; ``default`` if there is one and the key is absent."""
        if not isinstance(default, Missing) and key not in self:
            return default
        return read(self.value(key))

    def _full(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else key or self.path


def _within(number: float, minimum: float | None, above: float | None, maximum: float | None) -> bool:
    return (
        (minimum is None or number >= minimum)
        and (above is None or number > above)
        and (maximum is None or number <= maximum)
    )


def _range(kind: str, minimum: float | None, above: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f"{kind} from {minimum:,.15g} to {maximum:,.15g}"
    bounds = [
        f"{words} {bound:,.15g}"
        for words, bound in (("of at least", minimum), ("greater than", above), ("of at most", maximum))
        if bound is not None
    ]
    return f"{kind} {' and '.join(bounds)}".rstrip()
