"""From YAML text to PyYAML's tree of nodes with line marks; refuses the unsafe and ambiguous. Values stay untyped."""

from __future__ import annotations

import yaml
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from trine.core.errors import InputError

MAX_DEPTH = 64
"""Nesting allowed. The composers recurse, and libyaml's crashes the process on very deep input."""
MAX_ALIASES = 1_000
MAX_VALUES = 5_000_000
"""Values after aliases are expanded: stops 'billion laughs' files."""

_MERGE = "tag:yaml.org,2002:merge"
_STANDARD = "tag:yaml.org,2002:"


def compose(text: str, where: str) -> Node | None:
    """The only document of ``text``, or nothing if it is empty."""
    try:
        _check_events(text, where)
        root: Node | None = yaml.compose(text, Loader=_loader())
    except MarkedYAMLError as error:
        raise _syntax_error(error, where) from None
    except ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        found = f"character {chr(int(error.character))!r} is not allowed in YAML"
        raise InputError(f"{where}:{line}", found, "printable text") from None
    except (YAMLError, ValueError) as error:
        raise InputError(where, f"not valid YAML ({error})", "a YAML file") from None
    if root is None or (isinstance(root, ScalarNode) and not root.value):
        return None
    _check_expansion(root, where, {})
    return root


def _loader() -> type[yaml.SafeLoader]:
    """libyaml's loader where PyYAML has it: about ten times faster, the same marks."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _syntax_error(error: MarkedYAMLError, where: str) -> InputError:
    mark = error.problem_mark or error.context_mark
    at = f"{where}:{mark.line + 1}" if mark else where
    problem = " ".join(part for part in (error.context, error.problem) if part)
    return InputError(at, f"not valid YAML ({problem})", "a YAML file; check indentation, colons and quotes")


def _check_events(text: str, where: str) -> None:
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_loader()):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        _check_tag(getattr(event, "tag", None), f"{where}:{line}")
        if depth > MAX_DEPTH:
            raise InputError(f"{where}:{line}", "nested too deeply", f"at most {MAX_DEPTH} levels")
        if aliases > MAX_ALIASES:
            raise InputError(f"{where}:{line}", "too many aliases (*name)", f"at most {MAX_ALIASES:,}")


def _check_tag(tag: str | None, at: str) -> None:
    """A tag would say that a value is of another kind; the readers go by what it looks like, so none may be lost."""
    if tag is not None and tag != "!":
        shown = tag if not tag.startswith(_STANDARD) else f"!!{tag.removeprefix(_STANDARD)}"
        raise InputError(at, f"found the tag {shown[:60]!r}", "the value alone, without a tag")


def _check_expansion(node: Node, where: str, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Values and levels below ``node`` with aliases expanded; checks every mapping on the way.

    ``None`` in ``known`` marks a node that is being counted: meeting it again is a cycle.
    """
    if id(node) in known:
        counted = known[id(node)]
        if counted is None:
            raise InputError(_at(node, where), "an alias that contains itself", "values that end")
        return counted
    known[id(node)] = None
    below = [_check_expansion(child, where, known) for child in _children(node, where)]
    size = 1 + sum(size for size, _ in below)
    depth = 1 + max((depth for _, depth in below), default=0)
    if size > MAX_VALUES or depth > MAX_DEPTH + 1:
        expected = f"at most {MAX_VALUES:,} values and {MAX_DEPTH} levels"
        raise InputError(_at(node, where), "too much once aliases (*name) are expanded", expected)
    known[id(node)] = (size, depth)
    return size, depth


def _children(node: Node, where: str) -> list[Node]:
    if isinstance(node, MappingNode):
        _check_keys(node, where)
        return [value for _, value in node.value]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _check_keys(node: MappingNode, where: str) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        at = _at(key, where)
        if not isinstance(key, ScalarNode) or not key.value:
            raise InputError(at, "a key that is not text", "a name before the colon")
        if key.tag == _MERGE:
            raise InputError(at, "found a merge key", "the keys written out", key.value)
        if key.value in lines:
            found = f"found twice, first on line {lines[key.value]}"
            raise InputError(at, found, "each key once", key.value)
        lines[key.value] = key.start_mark.line + 1


def _at(node: Node, where: str) -> str:
    return f"{where}:{node.start_mark.line + 1}"
