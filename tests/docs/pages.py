"""The documentation as tests see it: its pages, the commands and the blocks in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ENDS = frozenset(["&&", "||", "|", "&", ">"])


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a language."""
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == language]


def commands(text: str) -> list[list[str]]:
    """The ``trine`` commands of a shell block as words, without comments and without what follows them on the line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines for words in _split(line) if words[0] == "trine"]


def _split(line: str) -> list[list[str]]:
    """A line of several commands as several; what is no shell at all (a table, a drawing) gives none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    found: list[list[str]] = [[]]
    for word in words:
        if word not in _ENDS:
            found[-1].append(word.removesuffix(";"))
        if word in _ENDS or word.endswith(";"):
            found.append([])
    return [command for command in found if command]
