"""Errors that a user can correct. Everything else that is raised is a bug and may show a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

Extra = Literal["report", "profile", "postgres", "notebook"]
"""Parts of the distribution that are not installed by default."""


_MOST_LISTED = 40
"""So many names a sentence lists; the policies are fewer, the settings more."""


class TrineError(Exception):
    """Base of all errors whose message is meant for the user."""


class InputError(TrineError):
    """Bad input: says where, what was found and what is expected, in one sentence.

    ``where`` is a file, ``file:line`` or an option; ``field`` the column or key concerned.
    """

    def __init__(self, where: str, found: str, expected: str, field: str = "") -> None:
        self.where, self.found, self.expected, self.field = where, found, expected, field
        place = f"{where}: {field}" if field else where
        super().__init__(f"{place}: {found}; expected {expected}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str, str]]:
        return type(self), (self.where, self.found, self.expected, self.field)


class MissingExtraError(TrineError):
    """A part of trine was asked for that this installation does not have."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name closest to ``word``, as ``" (did you mean 'x'?)"`` or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown_name(where: str, what: str, word: str, known: Iterable[str], field: str = "") -> InputError:
    """An ``InputError`` for a name that does not exist, with the nearest one that does.

    Of names too many for a sentence it tells the nearest few, which otherwise drown in the list."""
    names = sorted(known)
    listed = f"one of {', '.join(names)}"
    if len(names) > _MOST_LISTED:
        close = difflib.get_close_matches(word, names, n=5, cutoff=0.4)
        listed = f"one of {len(names)} names, such as {', '.join(sorted(close) or names[:5])}"
    return InputError(where, f"unknown {what} {word!r}{nearest(word, names)}", listed, field)


def shown(value: object) -> str:
    """A value in a sentence: short, and without control characters."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def require_extra(extra: Extra, *modules: str, purpose: str) -> None:
    """Raise unless all ``modules`` are installed; ``purpose`` begins the sentence, as in ``"a report needs"``.

    Looks for modules and loads none, so that a command can ask before it begins its work.
    """
    from importlib.util import find_spec

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} {' and '.join(missing)}, not part of this installation: pip install 'trine[{extra}]'"
        )
